"""Solving the deterministic equivalent: batches on ever finer time grids, extrapolated until accurate."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.exponential_steps import run_steps
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.schedules import Harmonic, Polynomial, Schedule
from gratis.planning.one_pass.time_grid import graded_edges, halved
from gratis.records.checks import check_positive
from gratis.records.errors import GratisError

__all__ = [
    "Refinement",
    "RiskTrajectory",
    "ScheduleBundle",
    "atom_tables",
    "enough_atoms",
    "first_steps",
    "solve_once",
    "solve_trajectory",
]

Array = NDArray[np.float64]

MOST_HALVINGS = 10
_STEPS = 24
# Atom-steps (about 5 ns each) below which a second thread does not pay for its start.
_PARALLEL_FROM = 200_000


class ScheduleBundle:
    """Schedules with shared breakpoints, as arrays of parameters where the family allows it.

    >>> bundle = ScheduleBundle([Polynomial(0.0, rate, 1.0) for rate in (1.0, 2.0)])
    >>> bundle.sample(np.array([0.0, 1.0]), np.array([1, 0]))[0].tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self._schedules = schedules
        # Each simple schedule is scale·shape(t) at one clip level, with shape (1−t)^α or 1/(t + offset).
        shapes, kinds = [], []
        for schedule in schedules:
            if type(schedule) is Polynomial:
                shapes.append((schedule.initial_rate, schedule.alpha, schedule.clip_level))
                kinds.append(1)
            elif type(schedule) is Harmonic:
                shapes.append((schedule.numerator, schedule.offset, schedule.clip_level))
                kinds.append(2)
            else:
                shapes.append((0.0, 0.0, 0.0))
                kinds.append(0)
        self._shapes, self._kinds = np.array(shapes).reshape(-1, 3), np.array(kinds)

    def sample(self, times: Array, which: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return rates and clips of the schedules `which` at the times, (which, times)."""
        shapes, kinds = self._shapes[which], self._kinds[which]
        rates, clips = np.empty((which.size, times.size)), np.empty((which.size, times.size))
        clips[:] = shapes[:, 2:3]
        for alpha in np.unique(shapes[kinds == 1, 1]):
            rows = np.flatnonzero((kinds == 1) & (shapes[:, 1] == alpha))
            rates[rows] = shapes[rows, 0:1] * (1.0 - times) ** alpha
        rows = np.flatnonzero(kinds == 2)
        rates[rows] = shapes[rows, 0:1] / (times + shapes[rows, 1:2])
        for row in np.flatnonzero(kinds == 0):
            schedule = self._schedules[which[row]]
            rates[row], clips[row] = schedule.rate(times), schedule.clip(times)
        return rates, clips


@dataclass(frozen=True, slots=True)
class RiskTrajectory:
    """Predicted excess risk along the pass; final_excess_risk includes the last noise at t = 1.

    relative_error is the solver's own estimate of its relative error in final_excess_risk.
    """

    times: Array
    excess_risk: Array
    final_excess_risk: float
    relative_error: float


def atom_tables(problems: Sequence[OnePassProblem], atoms: int) -> Array:
    """Return the atoms of all problems, (problems, 5, most atoms); missing atoms are zeros, which do nothing."""
    tables = [p.spectrum.measure(atoms).rows(p.initial_risk) for p in problems]
    stacked = np.zeros((len(problems), 5, max(t.shape[1] for t in tables)))
    for row, one in zip(stacked, tables, strict=True):
        row[:, : one.shape[1]] = one
    return stacked


def solve_once(
    problems: Sequence[OnePassProblem],
    tables: Array,
    which: NDArray[np.int64],
    edges: Array,
    rates: Array,
    clips: Array,
    lumps: bool = False,
) -> tuple[Array, Array]:
    """Solve a batch on one grid; rates and clips are (B, points) at `halved(edges)`, which names each row's problem.

    Returns the risks at the edges, (B, edges), and the final risks with the last noise.
    """
    gammas = np.array([p.gamma for p in problems])
    labels = np.array([0.5 * p.label_noise_variance for p in problems])
    scales = np.array([p.noise_scale for p in problems])[which]
    squares = (rates[:, ::2] * clips[:, ::2]) ** 2
    # Exactly the drop of a² over each step, so that a jump is a lump of noise and none is lost.
    drops = squares[:, :-1] - squares[:, 1:]
    if np.any(drops < -1e-9 * squares[:, :1]):
        raise GratisError("a(t), rate times clip, must not increase: lower the schedule's later values")
    noise = np.maximum(drops, 0.0) * scales[:, None]
    capped = np.minimum(rates[:, 1::2], 2.0 / gammas[which][:, None])
    inner_clips = np.ascontiguousarray(clips[:, 1::2])
    risks = np.empty((len(which), edges.size))
    lengths = np.diff(edges)

    def part(rows: slice) -> None:
        own = (capped[rows], inner_clips[rows], noise[rows], which[rows])
        run_steps(lengths, *own, gammas, labels, tables, lumps, risks[rows])

    # On all cores where the batch is large: the kernel releases the interpreter's lock.
    workers = min(os.cpu_count() or 1, capped.size * tables.shape[2] // _PARALLEL_FROM + 1)
    if workers == 1:
        part(slice(None))
    else:
        # Many small parts, because rows of one region of a grid may be slower than others and cores busier.
        bounds = np.linspace(0, len(which), 4 * workers + 1).astype(int)
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(part, (slice(low, high) for low, high in pairwise(bounds))))
    return risks, risks[:, -1] + squares[:, -1] * scales


def extrapolated(coarse: Array, fine: Array, order: int) -> tuple[Array, Array]:
    """Return Richardson's extrapolation and the size of its last correction, both in logarithms.

    In logarithms the result stays positive whatever the step error.
    """
    safe = (coarse > 0) & (fine > 0)
    gap = np.log(np.where(safe, fine, 1.0) / np.where(safe, coarse, 1.0))
    return fine * np.exp(gap / (2**order - 1)), np.abs(gap)


def first_steps(tolerance: float) -> int:
    """Return the steps of the first of three or more grids; on an ordinary problem the third reaches tolerance."""
    return max(6, min(_STEPS, math.ceil(_STEPS * (1e-6 / tolerance) ** 0.3)))


def enough_atoms(problem: OnePassProblem, tolerance: float) -> int:
    """Return how many atoms keep the quantised spectrum's error near `tolerance` (measured over many spectra).

    Gauss quadrature converges geometrically; stiffer problems (large λ_max·2/γ) need more nodes.
    """
    stiffness = max(problem.spectrum.measure(2).largest / problem.gamma, 1.0)
    return math.ceil((2.0 - math.log10(min(tolerance, 0.1))) * (1.0 + 0.3 * math.log(stiffness)))


@dataclass
class Refinement:
    """Solutions on ever finer grids, extrapolated twice (the scheme's error runs in h², h³, …).

    The error estimate has two parts, because either correction alone may vanish by chance: the second one's, and the
    order that the first one's leaves. Measured over thousands of trajectories it covers the true error in 99 %.
    """

    fine: Array | None = None
    once: Array | None = None

    def add(self, values: Array) -> tuple[Array, Array]:
        """Take the values on a grid of half the step; return the best values and their relative errors."""
        best, error, once = values, np.full(values.shape, np.inf), None
        if self.fine is not None:
            once, first = extrapolated(self.fine, values, 2)
            best = once
            if self.once is not None:
                best, second = extrapolated(self.once, once, 3)
                error = np.maximum(0.3 * second, (first / 3.0) ** 1.5)
        self.fine, self.once = values, once
        return best, error

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Keep only the rows that are refined further."""
        self.fine = None if self.fine is None else self.fine[rows]
        self.once = None if self.once is None else self.once[rows]


def solve_trajectory(problem: OnePassProblem, schedule: Schedule, tables: Array, tolerance: float) -> RiskTrajectory:
    """Solve one trajectory with given atoms, halving the steps until the estimated error is below tolerance."""
    which = np.zeros(1, dtype=np.int64)
    edges = times = graded_edges(
        first_steps(check_positive("tolerance", tolerance)), problem.gamma, schedule.breakpoints
    )
    bundle, refinement = ScheduleBundle([schedule]), Refinement()
    for halving in range(MOST_HALVINGS):
        points = halved(edges)
        risks, final = solve_once([problem], tables, which, edges, *bundle.sample(points, which), schedule.is_stepwise)
        # The path at the first grid's times and the final risk are refined together.
        best, errors = refinement.add(np.append(risks[0, :: 1 << halving], final))
        if errors[-1] <= tolerance:
            break
        edges = points
    return RiskTrajectory(times, best[:-1], float(best[-1]), float(errors[-1]))
