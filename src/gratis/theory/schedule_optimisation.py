"""The best schedule of every family for a problem: exact gradients of the deterministic equivalent, several starts.

Nothing here sees data: the result is a function of the public facts in the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gratis.specs.checks import check_non_negative
from gratis.specs.errors import GratisError
from gratis.theory.exponential_steps import steps_gradient
from gratis.theory.one_pass import OnePassProblem, predict_final_risks, solve_paths
from gratis.theory.schedule_families import (
    FreeClipFamily,
    FreeFamily,
    HarmonicFamily,
    PolynomialFamily,
    ScheduleFamily,
    knot_times,
)
from gratis.theory.schedules import Polynomial, Schedule
from gratis.theory.time_grid import TimeGrid

__all__ = ["Family", "FamilyKind", "OptimisedSchedule", "optimise_all", "optimise_schedule", "optimise_worst_regret"]

Array = NDArray[np.float64]

_STEPS = 40
_SEARCH_STEPS = 16
_SEARCH_ATOMS = 12
# Risks below this share of R(0) are as good as zero; without a floor a noiseless problem is optimised to 1e−50.
_FLOOR = 1e-9
_ALPHAS = (0.0, 0.5, 1.0, 2.0)


class FamilyKind(StrEnum):
    """The families of spec 3.3."""

    POLYNOMIAL = "poly"
    HARMONIC = "harmonic"
    FREE = "free"
    FREE_CLIP = "free-clip"


@dataclass(frozen=True, slots=True)
class Family:
    """A family of schedules; alpha belongs to the polynomial one.

    >>> Family.parse("poly:0.5")
    Family(kind=<FamilyKind.POLYNOMIAL: 'poly'>, alpha=0.5)
    """

    kind: FamilyKind
    alpha: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", FamilyKind(self.kind))
        object.__setattr__(self, "alpha", check_non_negative("alpha", self.alpha))

    @classmethod
    def parse(cls, text: str) -> Family:
        """Read "poly:ALPHA", "harmonic", "free" or "free-clip"."""
        name, _, value = text.partition(":")
        try:
            kind = FamilyKind(name)
            if (kind is FamilyKind.POLYNOMIAL) == bool(value):
                return cls(kind, float(value or 0.0))
        except GratisError:
            raise
        except ValueError:
            pass
        raise GratisError(f"unknown schedule {text!r}; expected poly:ALPHA, harmonic, free or free-clip")

    @property
    def label(self) -> str:
        """The text that `parse` reads."""
        return f"poly:{self.alpha:g}" if self.kind is FamilyKind.POLYNOMIAL else str(self.kind)


@dataclass(frozen=True, slots=True)
class OptimisedSchedule:
    """The best schedule found in a family, and its predicted final excess risk (never above initial_risk).

    Where nothing can be learned the schedule is the one that does nothing (a zero rate), whatever the family;
    where a narrower family was not beaten, it is that family's schedule.
    """

    family: Family
    schedule: Schedule
    excess_risk: float
    initial_risk: float


class _Objective:
    """Parameters → value and gradient of log R(1), or of the smooth worst regret over several problems."""

    def __init__(self, problems: Sequence[OnePassProblem], family: ScheduleFamily, grid: TimeGrid, atoms: int) -> None:
        self._problems = [(p, p.spectrum.measure(atoms).rows(p.initial_risk)) for p in problems]
        self._family = family
        self._grids = tuple(
            (lengths, slice(stride // 2, None, stride), slice(None, None, stride), weight)
            for lengths, stride, weight in ((grid.coarse_lengths, 4, -1 / 3), (grid.lengths, 2, 4 / 3))
        )
        self._floors = np.array([_FLOOR * p.initial_risk for p in problems])

    def log_risks(self, parameters: Array) -> tuple[Array, Array]:
        """Return log(R + floor) of every problem and the Jacobian."""
        log_rate, log_clip, rate_slope, clip_slope = self._family.path(parameters)
        rate, clip = np.exp(log_rate), np.exp(log_clip)
        squares = (rate * clip) ** 2
        values = np.zeros(len(self._problems))
        slopes = np.zeros((len(self._problems), parameters.size))
        for index, (problem, table) in enumerate(self._problems):
            for lengths, middle, edge, weight in self._grids:
                mass = problem.noise_scale * squares[edge]
                gradient = np.empty((3, lengths.size))
                inner_rate, inner_clip = np.ascontiguousarray(rate[middle]), np.ascontiguousarray(clip[middle])
                capped = np.minimum(inner_rate, problem.rate_cap)
                label = 0.5 * problem.label_noise_variance
                risk = steps_gradient(
                    lengths, capped, inner_clip, -np.diff(mass), problem.gamma, label, table, gradient
                )
                total = risk + mass[-1] + self._floors[index]
                to_rate = gradient[0] * inner_rate * (inner_rate <= problem.rate_cap)
                # a² enters as the difference of neighbouring edges, and once more as the last noise.
                to_product = 2.0 * mass * np.diff(gradient[2], prepend=0.0, append=1.0)
                slope = to_rate @ rate_slope[middle] + (gradient[1] * inner_clip) @ clip_slope[middle]
                slope += to_product @ (rate_slope[edge] + clip_slope[edge])
                values[index] += weight * np.log(total)
                slopes[index] += weight * slope / total
        return values, slopes

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        values, slopes = self.log_risks(parameters)
        return float(values[0]), slopes[0]

    def worst_regret(self, parameters: Array, best: Array, units: Array, sharpness: float) -> tuple[float, Array]:
        """Return the soft maximum of (R − best)/units and its gradient."""
        values, slopes = self.log_risks(parameters)
        risks = np.exp(values)
        regrets = (risks - best) / units
        shares = np.exp(sharpness * (regrets - regrets.max()))
        value = float(regrets.max() + np.log(shares.sum()) / sharpness)
        return value, (shares / shares.sum() * risks / units) @ slopes


def _descend(function: object, starts: Sequence[Array], family: ScheduleFamily, rate_cap: float) -> list[Array]:
    bounds = family.bounds(rate_cap)
    low, high = np.array(bounds).T
    ends = []
    for start in starts:
        point, value = np.clip(start, low, high), np.inf
        # L-BFGS sometimes stops early with stale curvature; starting afresh from its end costs little.
        for _ in range(3):
            result = minimize(
                function,
                point,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxcor": 20, "maxiter": 250, "ftol": 1e-10, "gtol": 1e-7},
            )
            point, gain, value = result.x, value - result.fun, result.fun
            if not gain > 1e-5 * max(abs(value), 1e-3):
                break
        ends.append(point)
    return ends


def _scan(problem: OnePassProblem, family: Family) -> list[Array]:
    """Return the few best points of a coarse grid over (η₀, c[, s])."""
    grid = TimeGrid.graded(_SEARCH_STEPS, problem.gamma)
    model = _model(family, grid)
    spread = np.sqrt(problem.signal_variance + problem.label_noise_variance)
    axes = [np.log(problem.rate_cap) - np.linspace(0.0, 12.0, 13), np.log(spread) + np.linspace(-8.0, 2.0, 11)]
    if family.kind is FamilyKind.HARMONIC:
        axes.append(np.log([problem.gamma, 10 * problem.gamma, 1.0, 10.0]))
    points = [np.array(point) for point in product(*axes)]
    paths = [model.path(point) for point in points]
    rates, clips = (np.exp(np.stack([path[i] for path in paths])) for i in (0, 1))
    which = np.zeros(len(points), dtype=np.int64)
    _, final, _ = solve_paths([problem], which, grid, rates, clips, _SEARCH_ATOMS)
    order = np.argsort(final, kind="stable")
    chosen = [points[order[0]]]
    for index in order[1:60]:
        if all(np.abs(points[index] - other).max() > 2.5 for other in chosen):
            chosen.append(points[index])
        if len(chosen) == 3:
            break
    return chosen


def _model(family: Family, grid: TimeGrid) -> PolynomialFamily | HarmonicFamily:
    if family.kind is FamilyKind.POLYNOMIAL:
        return PolynomialFamily(grid.points, family.alpha)
    return HarmonicFamily(grid.points)


def _simple(problem: OnePassProblem, family: Family) -> list[Schedule]:
    grid = TimeGrid.graded(_STEPS, problem.gamma)
    model = _model(family, grid)
    objective = _Objective([problem], model, grid, _SEARCH_ATOMS)
    return [model.schedule(end) for end in _descend(objective, _scan(problem, family), model, problem.rate_cap)]


def _free(problem: OnePassProblem, family: Family, starts: Sequence[Schedule]) -> list[Schedule]:
    knots = knot_times()
    grid = TimeGrid.graded(_STEPS, problem.gamma, knots)
    model = (FreeFamily if family.kind is FamilyKind.FREE else FreeClipFamily)(grid.points, knots)
    objective = _Objective([problem], model, grid, _SEARCH_ATOMS)
    begin = [model.start(schedule) for schedule in starts]
    return [model.schedule(end) for end in _descend(objective, begin, model, problem.rate_cap)]


def _do_nothing(problem: OnePassProblem) -> Polynomial:
    return Polynomial(0.0, 0.0, float(np.sqrt(problem.signal_variance + problem.label_noise_variance)) or 1.0)


def _pick(problem: OnePassProblem, family: Family, candidates: Sequence[Schedule]) -> OptimisedSchedule:
    risks = predict_final_risks([problem], candidates)[0]
    best = int(np.argmin(risks))
    schedule, risk = candidates[best], float(risks[best])
    if not risk < problem.initial_risk:
        schedule, risk = _do_nothing(problem), problem.initial_risk
    return OptimisedSchedule(family, schedule, risk, problem.initial_risk)


def optimise_all(problem: OnePassProblem, alphas: Sequence[float] = _ALPHAS) -> dict[str, OptimisedSchedule]:
    """Return the best schedule of every family, by label: poly:α for each α, harmonic, free, free-clip.

    harmonic is never worse than poly:0 (its limit), free never worse than any of them, free-clip never worse
    than free, and none worse than doing nothing, R(0).

    References: spec 3.6.

    >>> found = optimise_all(OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25), alphas=(0.0,))
    >>> {label: round(one.excess_risk, 3) for label, one in found.items()}
    {'poly:0': 0.175, 'harmonic': 0.175, 'free': 0.173, 'free-clip': 0.173}
    """
    families = [Family(FamilyKind.POLYNOMIAL, alpha) for alpha in dict.fromkeys(alphas)]
    families += [Family(kind) for kind in FamilyKind if kind is not FamilyKind.POLYNOMIAL]
    if problem.signal_variance == 0:
        return {f.label: OptimisedSchedule(f, _do_nothing(problem), 0.0, 0.0) for f in families}
    found: dict[str, OptimisedSchedule] = {}
    for family in families:
        known = sorted(found.values(), key=lambda one: one.excess_risk)
        live = [one.schedule for one in known if one.excess_risk < problem.initial_risk]
        if family.kind is FamilyKind.POLYNOMIAL:
            candidates = _simple(problem, family)
        elif family.kind is FamilyKind.HARMONIC:
            flat = [one.schedule for one in known if one.family == Family(FamilyKind.POLYNOMIAL, 0.0)]
            candidates = _simple(problem, family) + flat
        else:
            candidates = _free(problem, family, live[:2]) + live if live else []
        found[family.label] = _pick(problem, family, [*candidates, _do_nothing(problem)])
    return found


def optimise_schedule(problem: OnePassProblem, family: Family) -> OptimisedSchedule:
    """Return the best schedule of one family (see `optimise_all`).

    >>> problem = OnePassProblem(gamma=0.02, rho=0.5, label_noise_variance=0.25)
    >>> round(optimise_schedule(problem, Family.parse("poly:1")).excess_risk, 4)
    0.0174
    """
    if family.kind is FamilyKind.POLYNOMIAL and problem.signal_variance > 0:
        return _pick(problem, family, [*_simple(problem, family), _do_nothing(problem)])
    return optimise_all(problem, (0.0, 0.5, 1.0))[family.label] if family.kind is not FamilyKind.POLYNOMIAL else (
        OptimisedSchedule(family, _do_nothing(problem), 0.0, 0.0)
    )
