"""Amplification by iteration: one pass over the data, only the last iterate released (S2, Proposition 4.1).

Proof: docs/proofs/amplification-by-iteration.md (shifted interpolation; Bok, Su & Altschuler 2024).

What floating point adds to amplification by iteration: rounded steps are non-expansive only up to an error.
Proof: docs/proofs/one-pass-rounding.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.outward import UNIT_ROUNDOFF, round_up
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs, common_runs

__all__ = [
    "LANES",
    "amplification_by_iteration",
    "blockwise_one_pass_event",
    "inner_product_error",
    "least_noise",
    "one_pass_radius",
    "one_pass_rounding_inflation",
    "projection_interval",
]


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


Array = NDArray[np.float64]


def blockwise_one_pass_event(
    step_sizes: Array,
    clip_norms: Array,
    lengths: NDArray[np.int64],
    *,
    products: Array,
    rho: float,
    neighbouring: Neighbouring,
    batch_size: int = 1,
    rounding_inflation: float = 1.0,
    label: str = "one pass",
) -> OnePassIteration:
    """Return the event of a pass whose k-th block has `lengths[k]` steps of size η_k, clipped to C_k.

    `products` are η_k·C_k, which must not increase: noise is then needed at the ends of blocks only, and is the least.

    **Guarantee**: `amplification_by_iteration` of the result is at most rho.

    >>> event = blockwise_one_pass_event(np.array([2.0, 1.0]), np.ones(2), np.array([3, 2]),
    ...     products=np.array([2.0, 1.0]), rho=1.0, neighbouring=Neighbouring.ZERO_OUT)
    >>> event.noise_stds.array().round(3).tolist()
    [0.0, 0.0, 1.732, 0.0, 1.0]
    """
    noise = least_noise(products / batch_size * rounding_inflation, rho=rho, neighbouring=neighbouring)
    # The accountant rounds up by a unit for each of up to 2048 runs; this pays for it.
    stds = (noise * (1 + 2.0**-36)).tolist()
    ends = [pair for std, length in zip(stds, lengths.tolist(), strict=True) for pair in ((0.0, length - 1), (std, 1))]
    kept = [(std, count) for std, count in ends if count > 0]
    return OnePassIteration(
        step_sizes=_runs(step_sizes, lengths),
        clip_norms=_runs(clip_norms, lengths),
        noise_stds=Runs(tuple(std for std, _ in kept), tuple(count for _, count in kept)),
        batch_size=batch_size,
        rounding_inflation=rounding_inflation,
        neighbouring=neighbouring,
        label=label,
    )


def _runs(values: Array, lengths: NDArray[np.int64]) -> Runs:
    return Runs(tuple(values.tolist()), tuple(lengths.tolist()))


LANES = 8
"""Independent partial sums of the trainer's inner products."""

_ROWS_BETWEEN_PROJECTIONS = 1024
_LARGEST_RADIUS = 1e100
_SLACK = 1.01


def inner_product_error(n_parameters: int) -> float:
    """Return γ: the computed xᵀθ is off by at most γ‖x‖‖θ‖, the computed ‖x‖² by at most γ‖x‖².

    Longest chain of roundings: the product, d/`LANES` additions in a lane, 3 to join the lanes, up to
    `LANES` − 1 for the rest, the intercept.

    >>> inner_product_error(200) < 40 * 2.0**-53
    True
    """
    chain = (check_count("n_parameters", n_parameters) // LANES + 12) * UNIT_ROUNDOFF
    return chain / (1 - chain)


def projection_interval(batch_size: int) -> int:
    """Return m: the trainer projects θ on its ball after every noise and after every m-th step.

    >>> projection_interval(1), projection_interval(100), projection_interval(5000)
    (1024, 10, 1)
    """
    return max(1, _ROWS_BETWEEN_PROJECTIONS // check_count("batch_size", batch_size))


def one_pass_rounding_inflation(event: OnePassIteration, n_parameters: int, *, radius: float) -> float:
    """Return r ≥ 1 such that the computed pass is (r·ρ)-GDP, ρ being what exact arithmetic gives; rounded up.

    Each computed step errs by at most E_k = (2γ+2u)R + (b+24)u·η_kC_k, where R = 1.01·(radius + drift) bounds ‖θ‖
    and the drift between two projections is at most `projection_interval`·max ηC; each noise-and-projection errs by at
    most E′ = (γ+12u)R. An error made at step j is absorbed by the noise from j on, at a cost of at most
    2E_j/√(Σ_{i≥j}s_i²) ≤ ρ·2E_j/(κ·max_{i≥j} a_i), so

        r = 1 + (2/κ)·[Σ_k E_k/ā_k + Σ_projections E′/ā_{k+1}],   ā_k = max_{i≥k} η_iC_i/b.

    **Guarantee**: holds for the trainer of `gratis.stages.one_pass` with this radius, IEEE double arithmetic
    and an exponential function that is right to 8 units; r does not depend on data.

    Parameters
    ----------
    event : OnePassIteration
        Its own `rounding_inflation` is not read.
    n_parameters : int
        Length of θ, the intercept included.
    radius : float
        Radius of the public ball on which θ is projected.

    >>> from gratis.records.sequences import Runs
    >>> event = OnePassIteration(step_sizes=Runs.constant(1e-4, 10**5), clip_norms=Runs.constant(1.0, 10**5),
    ...     noise_stds=Runs.of([0.0] * (10**5 - 1) + [1.0]), neighbouring="replace-one")
    >>> 1 < one_pass_rounding_inflation(event, 50, radius=10.0) < 1.001
    True
    """
    slope, constant, drift = _affine(event, n_parameters)
    return round_up(1 + constant + slope * (check_positive("radius", radius) + drift), ulps=64)


def one_pass_radius(event: OnePassIteration, n_parameters: int) -> float:
    """Return the largest radius whose rounding inflation is at most `event.rounding_inflation`; rounded down.

    The trainer projects on this ball, so the event alone says how far floating point is paid for.

    >>> from gratis.records.sequences import Runs
    >>> event = OnePassIteration(step_sizes=Runs.constant(1e-4, 10**5), clip_norms=Runs.constant(1.0, 10**5),
    ...     noise_stds=Runs.constant(1.0, 10**5), rounding_inflation=1.001, neighbouring="replace-one")
    >>> radius = one_pass_radius(event, 50)
    >>> one_pass_rounding_inflation(event, 50, radius=radius) <= 1.001
    True
    """
    slope, constant, drift = _affine(event, n_parameters)
    spare = event.rounding_inflation - 1 - constant - 1e-14
    if spare <= 0:
        raise GratisError(
            f"the event's rounding_inflation of {event.rounding_inflation} does not pay for floating point; "
            "set it to 1.001 or so before the noise is calibrated, or take a larger batch_size"
        )
    radius = _LARGEST_RADIUS if slope == 0 else spare / slope * (1 - 1e-10) - drift
    if radius <= 0:
        raise GratisError(
            f"a pass of {event.steps} steps leaves no room for the parameters at a rounding_inflation of "
            f"{event.rounding_inflation}; take a larger batch_size or a larger rounding_inflation"
        )
    return min(radius, _LARGEST_RADIUS)


def _affine(event: OnePassIteration, n_parameters: int) -> tuple[float, float, float]:
    """Return (slope, constant, drift): the inflation is 1 + constant + slope·(radius + drift)."""
    sequences = (event.step_sizes, event.clip_norms, event.noise_stds)
    # Three sorted lists: a stable sort merges them, where np.unique would hash a million entries.
    ends = np.sort(np.concatenate([s.ends() for s in sequences]), kind="stable")
    ends = ends[np.diff(ends, append=-1) != 0]
    counts = np.diff(ends, prepend=0).astype(np.float64)
    eta, clip, noise = (np.array(s.values)[np.searchsorted(s.ends(), ends - 1, side="right")] for s in sequences)
    moves, interval = eta * clip, projection_interval(event.batch_size)
    largest = np.maximum.accumulate(moves[::-1])[::-1] / event.batch_size
    following = np.append(largest[1:], largest[-1])
    # Where nothing moves any more, what follows is post-processing and costs nothing.
    inverse = np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0)
    inverse_next = np.divide(1.0, following, out=inverse.copy(), where=following > 0)
    active = counts * (moves > 0)
    projections = np.where(noise > 0, counts, np.minimum(counts, np.ceil(counts / interval) + 1))
    gamma, unit = inner_product_error(n_parameters), UNIT_ROUNDOFF
    both = 2 / event.neighbouring.sensitivity_factor
    per_step = (2 * gamma + 2 * unit) * float(np.sum(active * inverse))
    per_projection = (gamma + 12 * unit) * float(np.sum(projections * inverse_next))
    slope = both * _SLACK * (per_step + per_projection)
    constant = both * (event.batch_size + 24) * unit * float(np.sum(active * moves * inverse))
    # Sums of m non-negative terms are right to m units, relatively.
    margin = 1 + (len(ends) + 16) * unit
    return slope * margin, constant * margin, interval * float(np.max(moves))
