"""A schedule as a trainer runs it: step size and clip constant on blocks of rows, noise at block ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.numerics.significant import significant
from gratis.planning.one_pass.time_grid import graded_times
from gratis.records.checks import check_count

__all__ = ["BlockSequences", "block_sequences"]

Array = NDArray[np.float64]


class _Curve(Protocol):
    @property
    def breakpoints(self) -> Array: ...
    def rate(self, time: ArrayLike) -> Array: ...
    def clip(self, time: ArrayLike) -> Array: ...
    def product(self, time: ArrayLike) -> Array: ...


@dataclass(frozen=True, slots=True)
class BlockSequences:
    """One entry for each block: rows in it, step size η_k = η̃/n, clip norm C_k = c√d, product a_k = η_k·C_k.

    products is the floating-point product of the other two and never increases, so the least noise of S2 (4.2),
    s_k² = κ²(a_k² − a_{k+1}²)/ρ², is well defined from exactly these numbers.
    """

    lengths: NDArray[np.int64]
    step_sizes: Array
    clip_norms: Array
    products: Array
    dimension: int

    @property
    def n_records(self) -> int:
        """Rows in all blocks."""
        return int(self.lengths.sum())

    @property
    def edges(self) -> Array:
        """Block ends as shares of the pass, from 0 to 1."""
        return np.concatenate(([0], np.cumsum(self.lengths))) / self.n_records

    @property
    def rates(self) -> Array:
        """η̃ of every block."""
        return self.step_sizes * self.n_records

    @property
    def clip_levels(self) -> Array:
        """C/√d of every block, lowered where needed so that rate times clip level does not increase either."""
        return _falling_clips(self.rates, self.clip_norms / np.sqrt(self.dimension))


def _falling_clips(steps: Array, clips: Array) -> Array:
    clips = clips.copy()
    previous = np.inf
    for k in range(clips.size):
        # Rounding may order two equal products wrongly; the clip gives way, never the order.
        while steps[k] * clips[k] > previous:
            clips[k] = min(np.nextafter(clips[k], 0.0), previous / steps[k])
        previous = steps[k] * clips[k]
    return clips


def _row_edges(n_records: int, gamma: float, max_blocks: int, breakpoints: Array) -> NDArray[np.int64]:
    if n_records <= max_blocks:
        return np.arange(n_records + 1)
    knots = np.floor(breakpoints * n_records).astype(np.int64)
    knots = np.unique(knots[(knots > 0) & (knots < n_records)])
    # A schedule with more breakpoints than half the blocks is followed as well as the graded blocks can.
    knots = knots if knots.size <= max_blocks // 2 else knots[:0]
    times = graded_times(max_blocks - knots.size, head=0.02 * min(gamma, 1.0), tail=2e-3)
    return np.unique(np.concatenate([np.rint(times * n_records).astype(np.int64), knots]))


def block_sequences(
    schedule: _Curve, n_records: int, *, dimension: int | None = None, max_blocks: int = 1024
) -> BlockSequences:
    """Return a schedule held constant on blocks of rows; row k of n stands at t = k/n.

    Every block takes the smallest a and the smallest rate of its rows, so neither exceeds the plan anywhere. Blocks
    are short where schedules move fast.

    Parameters
    ----------
    schedule:
        What is held constant on blocks.
    n_records:
        n, the rows of the pass.
    dimension:
        d; the clip norm is c√d (None: the clip level c itself).
    max_blocks:
        Upper limit on the number of blocks.

    >>> from gratis.planning.one_pass.schedules import Polynomial
    >>> blocks = block_sequences(Polynomial(1.0, 4.0, 0.5), 4, dimension=16)
    >>> blocks.step_sizes.tolist(), blocks.clip_norms.tolist(), blocks.products.tolist()
    ([0.75, 0.5, 0.25, 0.0], [2.0, 2.0, 2.0, 2.0], [1.5, 1.0, 0.5, 0.0])
    """
    n_records = check_count("n_records", n_records)
    max_blocks = check_count("max_blocks", max_blocks)
    width = 1 if dimension is None else check_count("dimension", dimension)
    edges = _row_edges(n_records, 0.1 if dimension is None else width / n_records, max_blocks, schedule.breakpoints)
    first, last = (edges[:-1] + 1) / n_records, edges[1:] / n_records
    # Between breakpoints schedules are monotone, so the ends of a block and the breakpoints in it decide.
    rates = np.minimum(schedule.rate(first), schedule.rate(last))
    inner = schedule.breakpoints[(schedule.breakpoints > 0) & (schedule.breakpoints < 1)]
    np.minimum.at(rates, np.searchsorted(edges, inner * n_records) - 1, schedule.rate(inner))
    rates = significant(rates)
    products = np.minimum.accumulate(significant(schedule.product(last)))
    levels = np.where(rates > 0, products / np.where(rates > 0, rates, 1.0), schedule.clip(last))
    steps = rates / n_records
    clips = _falling_clips(steps, levels * np.sqrt(width))
    return BlockSequences(np.diff(edges), steps, clips, steps * clips, width)
