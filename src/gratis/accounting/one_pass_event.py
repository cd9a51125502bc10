"""The event of a planned pass: blocks of constant step size and clip norm, with the least noise, at block ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.accounting.iteration import least_noise
from gratis.records.events import OnePassIteration
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs

__all__ = ["blockwise_one_pass_event"]

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
