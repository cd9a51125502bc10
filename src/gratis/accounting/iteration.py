"""Amplification by iteration: one pass over the data, only the last iterate released (S2, Proposition 4.1).

Proof: docs/proofs/amplification-by-iteration.md (shifted interpolation; Bok, Su & Altschuler 2024).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.outward import round_up
from gratis.records.checks import check_positive
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import common_runs

__all__ = ["amplification_by_iteration", "least_noise"]


def amplification_by_iteration(event: OnePassIteration) -> float:
    """ρ = max_k κ a_k/√(Σ_{j≥k} s_j²), a_k = η_k C_k/b: the GDP parameter of the last iterate; rounded up.

    **Guarantee**: ρ-GDP under `event.neighbouring`, if every step map is non-expansive, each record is used
    once, the sequences were fixed before data was read and nothing but the last iterate leaves the loop.
    a_k > 0 with no noise at or after k gives ∞.

    >>> from gratis.records.sequences import Runs
    >>> event = OnePassIteration(step_sizes=Runs.constant(0.1, 4), clip_norms=Runs.constant(1.0, 4),
    ...     noise_stds=Runs.of([0, 0, 0, 0.5]), neighbouring="replace-one")
    >>> f"{amplification_by_iteration(event):.6f}"
    '0.400000'
    """
    # Within a stretch where all three sequences are constant the ratio is largest at its last step.
    ends, (steps, clips, noise) = common_runs(event.step_sizes, event.clip_norms, event.noise_stds)
    scale = event.neighbouring.sensitivity_factor * event.rounding_inflation / event.batch_size
    shift = steps * clips * scale
    variance = noise**2
    after = np.concatenate((np.cumsum((variance * np.diff(ends, prepend=0))[::-1])[::-1][1:], [0.0]))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(shift > 0, shift / np.sqrt(after + variance), 0.0)
    worst = float(np.max(ratio))
    # The cumulative sum of m terms is off by at most m units relatively, its root by half of that.
    return 0.0 if worst == 0 else round_up(worst, ulps=len(ends) + 16)


def least_noise(shifts: NDArray[np.float64], *, rho: float, neighbouring: Neighbouring) -> NDArray[np.float64]:
    """Least noise for non-increasing a: s_k² = κ²(a_k² − a_{k+1}²)/ρ² for k < n, s_n² = κ²a_n²/ρ².

    **Guarantee**: rounded up so that `amplification_by_iteration` of the result is at most ρ. A sequence that
    increases is an error: its least noise is another one.

    >>> least_noise(np.array([2.0, 2.0, 1.0]), rho=1.0, neighbouring=Neighbouring.ZERO_OUT).round(6).tolist()
    [0.0, 1.732051, 1.0]
    """
    rho = check_positive("rho", rho)
    a = np.asarray(shifts, dtype=np.float64)
    if a.ndim != 1 or a.size == 0 or not np.all(np.isfinite(a)) or np.any(a < 0):
        raise GratisError("shifts must be a non-empty sequence of finite non-negative numbers")
    if np.any(np.diff(a) > 0):
        raise GratisError("step size times clip norm must not increase along the pass")
    following = np.append(a[1:], 0.0)
    # (a − b)(a + b) keeps the digits that a² − b² would lose.
    noise = np.sqrt((a - following) * (a + following)) * (neighbouring.sensitivity_factor / rho)
    # √ of a sum of m rounded terms: m + 16 units cover amplification_by_iteration's own outward rounding.
    margin = 1 + (2 * np.count_nonzero(noise) + 64) * 2.0**-53
    return np.asarray(noise * margin)
