"""From a planned schedule to the event that a pass will cause: blocks, least noise, room for floating point."""

from __future__ import annotations

import math

import numpy as np

from gratis.accounting.iteration import blockwise_one_pass_event, one_pass_radius
from gratis.planning.one_pass.schedule_blocks import block_sequences
from gratis.planning.one_pass.schedules import Schedule
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs

__all__ = ["ROUNDING_INFLATION", "one_pass_event"]

ROUNDING_INFLATION = 1.001
"""A thousandth more noise pays for floating point (docs/proofs/one-pass-rounding.md)."""

_NEGLIGIBLE = 1e-3  # share of a(0)
_STANDSTILL = 1e-6  # a pass that can move θ by less than this, in units of the target, is not run at all
_ROOM = 10.0  # radius of the ball for θ, in units where rows have E‖x‖² = d and the target variance 1


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

    The schedule is held constant on at most 1024 blocks, so noise is added at block ends only
    (docs/theory/one-pass.md, statement 3). `row_scale` is √(E‖x‖²/d) where rows are not on the theory's scale: θ is
    then in units of 1/row_scale.

    **Guarantee**: `amplification_by_iteration` of the result is at most rho.
    """
    rho = check_positive("rho", rho)
    n = check_count("n_records", n_records)
    scale = check_positive("row_scale", row_scale)
    times = np.linspace(0.0, 1.0, 65)
    rate = float(np.max(schedule.rate(times)))
    travel = float(np.mean(schedule.product(times))) * math.sqrt(dimension)
    if travel < _STANDSTILL:
        still = Runs.constant(0.0, n)
        return OnePassIteration(
            step_sizes=still, clip_norms=still, noise_stds=still,
            rounding_inflation=ROUNDING_INFLATION, neighbouring=neighbouring, label=f"{label}: stand still",
        )  # fmt: skip
    # A batch must stay a small part of the pass, and its step below half the cap of a typical row.
    largest = max(1, min(n // 1000, int(n / (dimension * max(rate, 1e-300)))))
    tried = [(1, 0.0, ROUNDING_INFLATION)]
    tried += [(batch, _NEGLIGIBLE, ROUNDING_INFLATION) for batch in _doublings(largest)]
    tried += [(largest, _NEGLIGIBLE, 1 + factor * (ROUNDING_INFLATION - 1)) for factor in (10, 100)]
    for batch, negligible, inflation in tried:
        event = _batched(schedule, n, dimension, batch, negligible, inflation, rho, neighbouring, scale, label)
        # θ cannot leave a ball of twice its longest way and its noise, so a larger one is never needed.
        noise = math.sqrt(dimension * float(np.sum(event.noise_stds.array() ** 2))) * scale
        if _room(event, dimension) * scale >= min(_ROOM, 2 * travel + 4 * noise):
            return event
    raise GratisError(f"one pass over {n} rows leaves too little room in double precision; use fewer rows")


def _doublings(largest: int) -> list[int]:
    return [2**k for k in range(largest.bit_length()) if 2**k < largest] + [largest]


def _room(event: OnePassIteration, dimension: int) -> float:
    try:
        return one_pass_radius(event, dimension + 1)
    except GratisError:
        return 0.0


def _batched(
    schedule: Schedule,
    n_records: int,
    dimension: int,
    batch: int,
    negligible: float,
    inflation: float,
    rho: float,
    neighbouring: Neighbouring,
    scale: float,
    label: str,
) -> OnePassIteration:
    """The schedule in steps of `batch` rows: η̃/steps a step, averaged over its rows, is η̃/n a row.

    b = 1 unless floating point needs fewer steps. Before that, the end of the pass, where a(t) has all but vanished
    and rounding would weigh most against it, is left out.
    """
    steps = math.ceil(n_records / batch)
    blocks = block_sequences(schedule, steps, dimension=dimension)
    moving = blocks.products >= negligible * blocks.products[0]
    sizes, products = blocks.step_sizes * moving, blocks.products * moving
    return blockwise_one_pass_event(
        sizes / scale**2, blocks.clip_norms * scale, blocks.lengths, products=products / scale, rho=rho,
        neighbouring=neighbouring, batch_size=batch, rounding_inflation=inflation, label=label,
    )  # fmt: skip
