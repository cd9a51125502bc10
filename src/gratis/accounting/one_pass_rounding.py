"""What floating point adds to amplification by iteration: rounded steps are non-expansive only up to an error.

Proof: docs/proofs/one-pass-rounding.md.
"""

from __future__ import annotations

import numpy as np

from gratis.numerics.outward import UNIT_ROUNDOFF, round_up
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration

__all__ = ["LANES", "inner_product_error", "one_pass_radius", "one_pass_rounding_inflation", "projection_interval"]

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
