"""Settings chosen among the risks that they reached on a twin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.planning.twins.problems import Member

__all__ = ["TwinChoice", "evidence_of", "least_regret", "least_risk"]

# Loss in units of the variance at a clip of one typical length, where tails are heavier than those of the members; a
# clip twice as wide halves it. On validation parts of 19 tables at ε = 1 (replace-one) such settings lose .017 of R² to
# the best of the grid, those of least regret .018; squares in its place and other sizes .018 to .021.
_CLIPPING = 0.012


@dataclass(frozen=True, slots=True)
class TwinChoice:
    """Settings chosen on a twin, and what they achieved there.

    `clip` is c with C = c√d_eff; `travel` is τ with η = τ/(cT); `risks` holds the risk of these settings for each
    member: excess risk E(xᵀθ − xᵀθ*)² in units of the target variance (with an allowance for clipping, smoothed over
    neighbouring travels), or excess cross-entropy for classes.
    `null_risks` is what predicting the mean costs. `regret` is the worst loss to the best settings of a member.
    `evidence` pairs the variance that predictions have after these settings, where there is nothing to learn and with
    growing signals, with the share of them that it would be best to keep: a fit's own variance then says how much of it
    to believe (empty if it was not asked for).
    """

    clip: float
    travel: float
    steps: int
    risks: tuple[float, ...]
    null_risks: tuple[float, ...]
    regret: float
    members: tuple[Member, ...]
    evidence: tuple[tuple[float, float], ...] = ()

    def clip_norm(self, effective_dimension: float) -> float:
        """C = c√d_eff."""
        return self.clip * math.sqrt(effective_dimension)

    @property
    def learning_rate(self) -> float:
        """η = τ/(cT)."""
        return self.travel / (self.clip * self.steps)


def evidence_of(
    risk: NDArray[np.float64], signal: NDArray[np.float64], energy: NDArray[np.float64]
) -> tuple[tuple[float, float], ...]:
    """Pair energies of fits with the best factors on them, one pair for each strength of the signal.

    The risk of αθ is E(xᵀ(αθ − θ*))² = α²·energy − 2α·overlap + signal, so α = overlap/energy is best.
    """
    overlap = (energy + signal - risk) / 2
    pairs = []
    for strength in np.unique(signal):
        like = signal == strength
        among = float(energy[like].mean())
        pairs.append((among, min(max(float(overlap[like].mean()) / max(among, 1e-300), 0.0), 1.0)))
    return tuple(pairs)


def _smoothed(risk: NDArray[np.float64], null: NDArray[np.float64], clips: int, travels: int) -> NDArray[np.float64]:
    """Return risks (clips, travels, members), averaged over neighbouring travels.

    What is best on the edge of a cliff is not taken. No risk counts for more than four times that of knowing nothing.
    """
    shaped = np.minimum(risk, 4 * max(null.max(), 1e-3)).reshape(clips, travels, len(null))
    padded = np.pad(shaped, ((0, 0), (1, 1), (0, 0)), mode="edge")
    return np.asarray((padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4)


def least_risk(
    risk: NDArray[np.float64],
    null: NDArray[np.float64],
    clips: Sequence[float],
    travels: Sequence[float],
    steps: int,
    members: tuple[Member, ...],
) -> TwinChoice:
    """Choose the settings (clips × travels) with the least mean risk of the members and an allowance for clipping.

    The grid is the same at all budgets and every risk on it falls with ε, so the least of their means does, too: what
    is predicted never rises with ε. Settings of least regret jumped, and the prediction with them.
    """
    smooth = _smoothed(risk, null, len(clips), len(travels))
    allowed = smooth + max(null.max(), 1e-12) * _CLIPPING / np.array(clips)[:, None, None]
    row, column = divmod(int(allowed.mean(axis=2).argmin()), len(travels))
    return TwinChoice(
        clip=float(clips[row]),
        travel=float(travels[column]),
        steps=steps,
        risks=tuple(float(r) for r in allowed[row, column]),
        null_risks=tuple(float(r) for r in null),
        regret=float(((smooth[row, column] - smooth.min(axis=(0, 1))) / max(null.max(), 1e-12)).max()),
        members=members,
    )


def least_regret(
    risk: NDArray[np.float64],
    null: NDArray[np.float64],
    clips: Sequence[float],
    travels: Sequence[float],
    steps: int,
    members: tuple[Member, ...],
) -> TwinChoice:
    """Choose among settings (clips × travels) by their risks for each member."""
    smooth = _smoothed(risk, null, len(clips), len(travels))
    regret = ((smooth - smooth.min(axis=(0, 1))) / max(null.max(), 1e-12)).max(axis=2)
    near = regret <= regret.min() + 0.01
    row = int(np.flatnonzero(near.any(axis=1)).max())
    column = int(np.where(near[row], regret[row], np.inf).argmin())
    chosen = np.minimum(risk, 4 * max(null.max(), 1e-3))[row * len(travels) + column]
    return TwinChoice(
        clip=float(clips[row]),
        travel=float(travels[column]),
        steps=steps,
        risks=tuple(float(r) for r in chosen),
        null_risks=tuple(float(r) for r in null),
        regret=float(regret[row, column]),
        members=members,
    )
