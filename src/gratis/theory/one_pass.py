"""One-pass private linear regression, predicted without data: problem, schedule → excess risk."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gratis.specs.checks import check_non_negative, check_positive
from gratis.specs.errors import GratisError
from gratis.specs.neighbouring import Neighbouring
from gratis.theory.exponential_steps import run_steps
from gratis.theory.schedule_bundle import ScheduleBundle
from gratis.theory.schedules import Schedule
from gratis.theory.spectra import IsotropicSpectrum, Spectrum
from gratis.theory.time_grid import graded_edges, halved

__all__ = ["OnePassProblem", "RiskTrajectory", "predict_final_risks", "predict_one_pass"]

Array = NDArray[np.float64]

_STEPS = 24
_MOST_HALVINGS = 10
# Atom-steps (about 5 ns each) below which a second thread does not pay for its start.
_PARALLEL_FROM = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassProblem:
    """Public facts of one-pass linear regression: all that the deterministic equivalent needs.

    Parameters
    ----------
    gamma: d/n.
    rho: GDP parameter of the release (infinite: no privacy).
    label_noise_variance: ζ².
    signal_variance: S = ‖Σ^{1/2}θ*‖², so that R(0) = S/2 at θ = 0.
    spectrum: eigenvalues of Σ (tr Σ = d) and how θ* lies in them.
    neighbouring: the relation; its sensitivity factor κ scales the noise.

    >>> OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25).initial_risk
    0.5
    """

    gamma: float
    rho: float
    label_noise_variance: float
    signal_variance: float = 1.0
    spectrum: Spectrum = field(default_factory=IsotropicSpectrum)
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE

    def __post_init__(self) -> None:
        for name, value in (
            ("gamma", check_positive("gamma", self.gamma)),
            ("rho", check_positive("rho", self.rho, allow_infinite=True)),
            ("label_noise_variance", check_non_negative("label_noise_variance", self.label_noise_variance)),
            ("signal_variance", check_non_negative("signal_variance", self.signal_variance)),
            ("neighbouring", Neighbouring.parse(self.neighbouring)),
        ):
            object.__setattr__(self, name, value)
        if not isinstance(self.spectrum, Spectrum):
            raise GratisError(f"spectrum must be a Spectrum such as IsotropicSpectrum(), got {self.spectrum!r}")

    @property
    def initial_risk(self) -> float:
        """R(0) = S/2: the excess risk of predicting the mean."""
        return 0.5 * self.signal_variance

    @property
    def rate_cap(self) -> float:
        """2/γ: a higher rate only adds noise."""
        return 2.0 / self.gamma

    @property
    def noise_scale(self) -> float:
        """(κ²/2)·γ²/ρ²: the risk added for each unit that a² drops."""
        return 0.5 * (self.neighbouring.sensitivity_factor * self.gamma / self.rho) ** 2


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
    _run_rows(np.diff(edges), capped, inner_clips, noise, which, gammas, labels, tables, lumps, risks)
    return risks, risks[:, -1] + squares[:, -1] * scales


def _run_rows(
    lengths: Array,
    rates: Array,
    clips: Array,
    noise: Array,
    which: NDArray[np.int64],
    gammas: Array,
    labels: Array,
    tables: Array,
    lumps: bool,
    risks: Array,
) -> None:
    """Call `run_steps`, on all cores where the batch is large: it releases the interpreter's lock."""
    workers = min(os.cpu_count() or 1, rates.size * tables.shape[2] // _PARALLEL_FROM + 1)

    def part(rows: slice) -> None:
        run_steps(
            lengths, rates[rows], clips[rows], noise[rows], which[rows], gammas, labels, tables, lumps, risks[rows]
        )

    if workers == 1:
        part(slice(None))
        return
    # Many small parts, because rows of one region of a grid may be slower than others and cores busier.
    bounds = np.linspace(0, len(which), 4 * workers + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(part, (slice(low, high) for low, high in pairwise(bounds))))


def extrapolated(coarse: Array, fine: Array, order: int) -> tuple[Array, Array]:
    """Return Richardson's extrapolation and the size of its last correction, both in logarithms.

    In logarithms the result stays positive whatever the step error.
    """
    safe = (coarse > 0) & (fine > 0)
    gap = np.log(np.where(safe, fine, 1.0) / np.where(safe, coarse, 1.0))
    return fine * np.exp(gap / (2**order - 1)), np.abs(gap)


def _first_steps(tolerance: float) -> int:
    # Three grids at least are solved, each of half the step; on an ordinary problem the third then suffices.
    return max(6, min(_STEPS, math.ceil(_STEPS * (1e-6 / tolerance) ** 0.3)))


def enough_atoms(problem: OnePassProblem, tolerance: float) -> int:
    """Return how many atoms keep the quantised spectrum's error near `tolerance` (measured over many spectra).

    Gauss quadrature converges geometrically; stiffer problems (large λ_max·2/γ) need more nodes.
    """
    stiffness = max(problem.spectrum.measure(2).largest / problem.gamma, 1.0)
    return math.ceil((2.0 - math.log10(min(tolerance, 0.1))) * (1.0 + 0.3 * math.log(stiffness)))


@dataclass
class _Refinement:
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
        _first_steps(check_positive("tolerance", tolerance)), problem.gamma, schedule.breakpoints
    )
    bundle, refinement = ScheduleBundle([schedule]), _Refinement()
    for halving in range(_MOST_HALVINGS):
        points = halved(edges)
        risks, final = solve_once([problem], tables, which, edges, *bundle.sample(points, which), schedule.is_stepwise)
        # The path at the first grid's times and the final risk are refined together.
        best, errors = refinement.add(np.append(risks[0, :: 1 << halving], final))
        if errors[-1] <= tolerance:
            break
        edges = points
    return RiskTrajectory(times, best[:-1], float(best[-1]), float(errors[-1]))


def predict_one_pass(
    problem: OnePassProblem, schedule: Schedule, *, tolerance: float = 1e-6, atoms: int | None = None
) -> RiskTrajectory:
    """Predict the excess risk along one private pass (deterministic equivalent, spec 3.2).

        dD_i/dt = −2λ_i η̄ μ_c D_i + γλ_i η̄² ν_c (R + ζ²/2) + (κ²/2)γ²·(−d(η̃²c²)/dt)/ρ²,   R = (1/d) Σ λ_i D_i,

    η̄ = min(η̃, 2/γ), and the last noise (κ²/2)γ²a(1)²/ρ² at t = 1. Exact as d → ∞ for Gaussian rows with
    tr Σ²/d² → 0; a Prediction, never a guarantee.

    Parameters
    ----------
    problem:
        γ, ρ, variances, spectrum and relation.
    schedule:
        Rate and clip over the pass; a(t) must not increase.
    tolerance:
        Relative accuracy of the final risk; steps are halved until the estimated error is below it.
    atoms:
        Size of the quantised spectrum; by default as many as the tolerance asks for.

    References: one-pass paper, Theorem 1; spec 3.2.

    >>> from gratis.theory.schedules import Polynomial
    >>> problem = OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25)
    >>> round(predict_one_pass(problem, Polynomial(0.0, 3.0, 0.3)).final_excess_risk, 5)
    0.1786
    """
    check_positive("tolerance", tolerance)
    atoms = enough_atoms(problem, tolerance) if atoms is None else atoms
    return solve_trajectory(problem, schedule, atom_tables([problem], atoms), tolerance)


def predict_final_risks(
    problems: Sequence[OnePassProblem],
    schedules: Sequence[Schedule],
    *,
    tolerance: float = 1e-5,
    atoms: int | None = None,
) -> Array:
    """Predict the final excess risk of every schedule on every problem, (problems, schedules), in one batch.

    The same equations as `predict_one_pass`; only the pairs that have not reached `tolerance` are refined.

    >>> from gratis.theory.schedules import Polynomial
    >>> easy, hard = (OnePassProblem(gamma=0.1, rho=rho, label_noise_variance=0.25) for rho in (2.0, 0.5))
    >>> predict_final_risks([easy, hard], [Polynomial(0.0, 3.0, 0.3)]).round(4).tolist()
    [[0.1179], [0.1786]]
    """
    check_positive("tolerance", tolerance)
    result = np.empty((len(problems), len(schedules)))
    if not result.size:
        return result
    if atoms is None:
        atoms = max(enough_atoms(problem, tolerance) for problem in problems)
    tables, steps = atom_tables(problems, atoms), _first_steps(tolerance)
    groups: dict[tuple[bool, bytes], list[int]] = {}
    for index, schedule in enumerate(schedules):
        groups.setdefault((schedule.is_stepwise, schedule.breakpoints.tobytes()), []).append(index)
    smallest, bundle = min(p.gamma for p in problems), ScheduleBundle(schedules)
    for (stepwise, _), members in groups.items():
        breakpoints = schedules[members[0]].breakpoints
        rows, columns = (
            v.ravel() for v in np.meshgrid(np.arange(len(problems), dtype=np.int64), members, indexing="ij")
        )
        edges, refinement = graded_edges(steps, smallest, breakpoints), _Refinement()
        for _ in range(_MOST_HALVINGS):
            points = halved(edges)
            _, final = solve_once(problems, tables, rows, edges, *bundle.sample(points, columns), stepwise)
            best, errors = refinement.add(final)
            result[rows, columns] = best
            unfinished = errors > tolerance
            if not unfinished.any():
                break
            rows, columns, edges = rows[unfinished], columns[unfinished], points
            refinement.keep(unfinished)
    return result
