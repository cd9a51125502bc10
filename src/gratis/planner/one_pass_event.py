"""From a planned schedule to the event that a pass will cause: blocks, least noise, room for floating point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import least_noise
from gratis.specs.checks import check_count, check_positive
from gratis.specs.events import OnePassIteration
from gratis.specs.neighbouring import Neighbouring
from gratis.specs.sequences import Runs
from gratis.theory.schedule_blocks import block_sequences
from gratis.theory.schedules import Schedule

__all__ = ["ROUNDING_INFLATION", "one_pass_event"]

ROUNDING_INFLATION = 1.001
"""A thousandth more noise buys a ball for the parameters that no sensible problem leaves (docs/proofs/one-pass-rounding.md)."""


def one_pass_event(
    schedule: Schedule,
    *,
    n_records: int,
    dimension: int,
    rho: float,
    neighbouring: Neighbouring,
    row_scale: float = 1.0,
    label: str = "one pass",
) -> OnePassIteration:
    """Return the ρ-GDP event of running `schedule` over n rows of d columns, with the least noise.

    The schedule is held constant on at most 1024 blocks, so noise is added at block ends only (spec 2.3).
    `row_scale` is √(E‖x‖²/d) where rows are not on the theory's scale: θ is then in units of 1/row_scale.

    **Guarantee**: `amplification_by_iteration` of the result is at most rho.
    """
    rho = check_positive("rho", rho)
    blocks = block_sequences(schedule, check_count("n_records", n_records), dimension=dimension)
    noise = least_noise(blocks.products * ROUNDING_INFLATION, rho=rho, neighbouring=neighbouring)
    scale = check_positive("row_scale", row_scale)
    return OnePassIteration(
        step_sizes=_runs(blocks.step_sizes / scale**2, blocks.lengths),
        clip_norms=_runs(blocks.clip_norms * scale, blocks.lengths),
        noise_stds=_at_block_ends(noise / scale * (1 + 2.0**-48), blocks.lengths),
        rounding_inflation=ROUNDING_INFLATION,
        neighbouring=neighbouring,
        label=label,
    )


def _runs(values: NDArray[np.float64], lengths: NDArray[np.int64]) -> Runs:
    return Runs(tuple(values.tolist()), tuple(lengths.tolist()))


def _at_block_ends(noise: NDArray[np.float64], lengths: NDArray[np.int64]) -> Runs:
    values: list[float] = []
    counts: list[int] = []
    for std, length in zip(noise.tolist(), lengths.tolist(), strict=True):
        if length > 1:
            values.append(0.0)
            counts.append(length - 1)
        values.append(std)
        counts.append(1)
    return Runs(tuple(values), tuple(counts))
