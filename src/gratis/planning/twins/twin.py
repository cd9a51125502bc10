"""Twins: synthetic data of the same shape and spectrum, trained exactly like the private data will be.

In the proportional regime the risk of full-batch descent depends on γ = d/n, μ/κ, T, ηT, c, the spectrum, the label
noise, the signal and how it lies in the spectrum (docs/theory/full-batch.md, statement 6). A small twin that keeps
these predicts the risk without touching data. What is unknown is spread over `Member`s, and the prediction carries
them.

Wide tables descend in their own columns, and no spectrum of theirs is released: `plain_settings` spreads over assumed
ones as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.planning.twins.problems import Member
from gratis.planning.twins.twin_risks import TwinSize, twin_risks
from gratis.records.checks import check_count, check_positive
from gratis.records.neighbouring import Neighbouring

__all__ = [
    "REGRESSION_MEMBERS",
    "TwinChoice",
    "TwinSize",
    "least_regret",
    "least_risk",
    "plain_settings",
    "twin_settings",
]

_ALIGNMENTS = (0.0, 0.5, 1.0)
# The first member has little to learn: settings that lose against the mean there are paid for as regret.
REGRESSION_MEMBERS = (
    Member(0.1, 0.9),
    *(Member(r, 1 - r, a) for r in (0.3, 0.6, 0.9) for a in _ALIGNMENTS),
)
_CLIPS = (0.15, 0.3, 0.6, 1.2, 2.4, 4.8)
_TRAVELS = tuple(2.0**k for k in range(-2, 7))
_ROWS_AT_LEAST, _MOST_DRAWS = 4000, 4
# Plain descent: eigenvalues k^−a, from columns without relation to a table that few directions explain; the signal lies
# where the variance is. Travels in units of nμ/(κD), where the noise of a prediction is as large as the target.
_DECAYS = (0.0, 1.0, 2.0)
_PLAIN_MEMBERS = tuple(Member(r, 1 - r) for r in (0.1, 0.3, 0.6, 0.9))
# For classes the signal variance is that of the scores: from barely separable to almost separable.
_PLAIN_CLASS_MEMBERS = tuple(Member(s, 0.0) for s in (1.0, 4.0, 16.0))
_PLAIN_CLIPS = (0.3, 0.6, 1.2)
_PLAIN_TRAVELS = tuple(2.0**k for k in range(-5, 2))
_PLAIN_COLUMNS, _PLAIN_ROWS = 500, 1000


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
    """

    clip: float
    travel: float
    steps: int
    risks: tuple[float, ...]
    null_risks: tuple[float, ...]
    regret: float
    members: tuple[Member, ...]

    def clip_norm(self, effective_dimension: float) -> float:
        """C = c√d_eff."""
        return self.clip * math.sqrt(effective_dimension)

    @property
    def learning_rate(self) -> float:
        """η = τ/(cT)."""
        return self.travel / (self.clip * self.steps)


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


def twin_settings(
    spectrum: NDArray[np.float64],
    n_records: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    steps: int,
    rng: np.random.Generator,
    members: Sequence[Member] | None = None,
    clips: Sequence[float] | None = None,
    travels: Sequence[float] | None = None,
) -> TwinChoice:
    """Choose clip and learning rate for preconditioned full-batch descent from a (released) spectrum.

    All settings × members run at once on shared rows. The choice minimises the mean risk of the members, smoothed over
    neighbouring travels, and an allowance for what clips cut off (large clips are the safer error: they bias less when
    targets are skewed).

    Parameters
    ----------
    spectrum : (D,)
        Eigenvalues w/(w + λ) of the preconditioned second moments, in [0, 1).
    n_records, mu, neighbouring, steps
        Those of the descent to come.
    rng : numpy Generator
        Public randomness.
    members : sequence of Member, optional
        What is assumed about the unknown.
    clips, travels : sequences of float
        The grid of c and τ.

    >>> choice = twin_settings(np.full(5, 0.9), 2000, mu=0.5, neighbouring=Neighbouring.ZERO_OUT, steps=16,
    ...                        rng=np.random.default_rng(0))
    >>> max(choice.risks) < 0.1
    True
    """
    steps = check_count("steps", steps)
    members = tuple(members or REGRESSION_MEMBERS)
    size = TwinSize.of(np.asarray(spectrum, dtype=np.float64), n_records, mu=mu, rows=n_records)
    clips, travels = clips or _CLIPS, travels or _TRAVELS
    grid = np.array([(c, t) for c in clips for t in travels])
    # One draw is a noisy judge where rows are few; several are cheap there.
    draws = 1 if size.needs_no_rows else int(np.clip(_ROWS_AT_LEAST // size.n_records, 1, _MOST_DRAWS))
    # Alignments refer to eigenvalues before preconditioning: m = w/(w+λ) gives w + λ = λ/(1 − m), up to a factor.
    weights = 1 / np.maximum(1 - size.spectrum, 1e-6)
    judged = [twin_risks(size, weights, neighbouring, steps, grid, members, None, rng) for _ in range(draws)]
    risk, null = (np.mean(parts, axis=0) for parts in zip(*judged, strict=True))
    return least_risk(risk, null, clips, travels, steps, members)


def plain_settings(
    n_columns: int,
    n_records: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    steps: int,
    rng: np.random.Generator,
    n_classes: int | None = None,
) -> TwinChoice:
    """Choose clip and learning rate for descent in the columns themselves, on public facts alone.

    Nothing is known of the spectrum, so the worst regret is taken over assumed ones, too. A twin of at most 500
    columns with the trace D of the table keeps a record's length and the noise of its prediction, κDτ/(nμ): wide tables
    are not shrunk, for the few directions that can be learnt there do not shrink with them.

    Parameters are those of `twin_settings`, with the number of columns in the place of a spectrum; `n_classes` is None
    for regression with targets of variance one.

    >>> choice = plain_settings(20_000, 200, mu=0.5, neighbouring=Neighbouring.ZERO_OUT, steps=4,
    ...                         rng=np.random.default_rng(0))
    >>> choice.travel < 0.01
    True
    """
    steps, columns = check_count("steps", steps), check_count("n_columns", n_columns)
    n, mu = check_count("n_records", n_records), check_positive("mu", mu)
    members = _PLAIN_MEMBERS if n_classes is None else _PLAIN_CLASS_MEMBERS
    unit = n * mu / (neighbouring.sensitivity_factor * columns)
    travels = [unit * share for share in _PLAIN_TRAVELS]
    grid = np.array([(c, t) for c in _PLAIN_CLIPS for t in travels])
    n_twin = min(n, _PLAIN_ROWS)
    judged = []
    for decay in _DECAYS:
        shape = np.arange(1.0, min(columns, _PLAIN_COLUMNS) + 1) ** -decay
        size = TwinSize(shape * (columns / shape.sum()), n_twin, mu * n / n_twin)
        judged.append(twin_risks(size, np.ones(shape.size), neighbouring, steps, grid, members, n_classes, rng))
    risk, null = (np.concatenate(parts, axis=-1) for parts in zip(*judged, strict=True))
    return least_regret(risk, null, _PLAIN_CLIPS, travels, steps, members * len(_DECAYS))
