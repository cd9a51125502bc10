"""The best schedule of every family for a problem: exact gradients of the deterministic equivalent, several starts.

Nothing here sees data: the result is a function of the public facts in the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.box_descent import descend_in_box
from gratis.planning.one_pass.deterministic_equivalent import atom_tables, solve_once
from gratis.planning.one_pass.prediction import predict_final_risks
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.risk_gradient import RiskGradient
from gratis.planning.one_pass.schedule_families import (
    FreeClipFamily,
    FreeFamily,
    HarmonicFamily,
    PolynomialFamily,
    ScheduleFamily,
    knot_times,
)
from gratis.planning.one_pass.schedules import Polynomial, Schedule
from gratis.planning.one_pass.time_grid import graded_edges, halved
from gratis.records.checks import check_non_negative
from gratis.records.errors import GratisError

__all__ = ["Family", "FamilyKind", "OptimisedSchedule", "optimise_all", "optimise_schedule"]

Array = NDArray[np.float64]

_STEPS = 40
_SCAN_STEPS = 16
_ATOMS = 16
_ALPHAS = (0.0, 0.5, 1.0, 2.0)
# Of log R. Over 92 sizes (n = 300 … 5·10⁶, d = 3 … 600, μ = .03 … 3) plans stopped at 1e−6 lost at most
# .00014 of R² against those stopped at 1e−10 (mean risk: .03 % less), in 43 % of the time; two or three parameters cost
# little, and papers print them.
_FREE_TOLERANCE, _NARROW_TOLERANCE, _RACE_TOLERANCE = 1e-6, 1e-9, 1e-2


class FamilyKind(StrEnum):
    """The families of docs/theory/one-pass.md, statement 9, from the narrowest to the widest."""

    POLYNOMIAL = "poly"
    HARMONIC = "harmonic"
    FREE = "free"
    FREE_CLIP = "free-clip"


@dataclass(frozen=True, slots=True)
class Family:
    """A family of schedules; alpha belongs to the polynomial one.

    >>> Family.parse("poly:0.5").alpha, Family.parse("free-clip").label
    (0.5, 'free-clip')
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

    def model(self, problem: OnePassProblem, steps: int = _STEPS) -> tuple[ScheduleFamily, Array]:
        """Return the family as a smooth map on the quarters of time steps made for the problem, and their ends."""
        free = self.kind in (FamilyKind.FREE, FamilyKind.FREE_CLIP)
        knots = knot_times() if free else np.empty(0)
        edges = graded_edges(steps, problem.gamma, knots)
        points = halved(halved(edges))
        if free:
            return (FreeFamily if self.kind is FamilyKind.FREE else FreeClipFamily)(points, knots), edges
        if self.kind is FamilyKind.HARMONIC:
            return HarmonicFamily(points), edges
        return PolynomialFamily(points, self.alpha), edges


@dataclass(frozen=True, slots=True)
class OptimisedSchedule:
    """The best schedule found in a family, and its predicted final excess risk (never above initial_risk).

    Where nothing can be learned the schedule is the one that does nothing (a zero rate), whatever the family;
    where a wider family did not beat a narrower one, it is the narrower one's schedule.
    """

    family: Family
    schedule: Schedule
    excess_risk: float
    initial_risk: float


def _scan(problem: OnePassProblem, family: Family) -> list[tuple[float, Array]]:
    """Return the few best points, apart from each other, of a coarse grid over (η₀, c[, s]), with their risks."""
    model, edges = family.model(problem, _SCAN_STEPS)
    spread = np.sqrt(problem.signal_variance + problem.label_noise_variance)
    axes = [np.log(problem.rate_cap) - np.linspace(0.0, 12.0, 13), np.log(spread) + np.linspace(-8.0, 2.0, 11)]
    if family.kind is FamilyKind.HARMONIC:
        axes.append(np.log([problem.gamma, 10 * problem.gamma, 1.0, 10.0]))
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    rates, clips = (np.exp(path) for path in model.path(points.T[:, :, None])[:2])
    which = np.zeros(len(points), dtype=np.int64)
    tables = atom_tables([problem], _ATOMS)
    _, final = solve_once([problem], tables, which, halved(edges), rates, clips)
    order = np.argsort(final, kind="stable")
    chosen = [int(order[0])]
    for index in order[1:60]:
        if len(chosen) < 3 and all(np.abs(points[index] - points[other]).max() > 2.5 for other in chosen):
            chosen.append(int(index))
    return [(float(final[index]), points[index]) for index in chosen]


def _simple_starts(problem: OnePassProblem) -> list[Schedule]:
    """Return the two best schedules of the coarse grids, for a free family whose narrower ones were not asked for."""
    found: list[tuple[float, Schedule]] = []
    for family in (Family(FamilyKind.POLYNOMIAL, 0.0), Family(FamilyKind.POLYNOMIAL, 1.0), Family(FamilyKind.HARMONIC)):
        risk, point = _scan(problem, family)[0]
        found.append((risk, family.model(problem, _SCAN_STEPS)[0].schedule(point)))
    return [schedule for _, schedule in sorted(found, key=lambda one: one[0])[:2]]


def do_nothing(problem: OnePassProblem) -> Polynomial:
    """Return the schedule of zero rate: R(1) = R(0)."""
    return Polynomial(0.0, 0.0, float(np.sqrt(problem.signal_variance + problem.label_noise_variance)) or 1.0)


def _candidates(problem: OnePassProblem, family: Family, known: Sequence[OptimisedSchedule]) -> list[Schedule]:
    model, edges = family.model(problem)
    objective = RiskGradient([problem], model, edges, _ATOMS)
    if isinstance(model, FreeFamily | FreeClipFamily):
        ranked = sorted(known, key=lambda one: one.excess_risk)
        narrower = [one.schedule for one in ranked if one.excess_risk < problem.initial_risk]
        starts = [model.start(schedule) for schedule in (narrower[:2] if known else _simple_starts(problem))]
    else:
        constant = Family(FamilyKind.POLYNOMIAL, 0.0)
        # A constant rate is the harmonic schedule's limit, so harmonic must not lose to it.
        limit = family.kind is FamilyKind.HARMONIC
        narrower = [one.schedule for one in known if limit and one.family == constant]
        starts = [point for _, point in _scan(problem, family)]
    tolerance = _FREE_TOLERANCE if isinstance(model, FreeFamily | FreeClipFamily) else _NARROW_TOLERANCE
    bounds = model.bounds(problem.rate_cap)
    if isinstance(model, FreeFamily | FreeClipFamily) and not known:  # a short race: the better start goes on
        near = [descend_in_box(objective, start, bounds, tolerance=_RACE_TOLERANCE) for start in starts]
        starts = [min(near, key=lambda point: objective(point)[0])]
    ends = [descend_in_box(objective, start, bounds, tolerance=tolerance) for start in starts]
    return [*(model.schedule(end) for end in ends), *narrower]


def _optimise(problem: OnePassProblem, families: Sequence[Family]) -> dict[str, OptimisedSchedule]:
    found: dict[str, OptimisedSchedule] = {}
    for family in families:
        schedule: Schedule = do_nothing(problem)
        risk = problem.initial_risk
        if risk > 0:
            candidates = _candidates(problem, family, list(found.values()))
            risks = predict_final_risks([problem], candidates, tolerance=1e-6)[0]
            if candidates and risks.min() < risk:
                schedule, risk = candidates[int(risks.argmin())], float(risks.min())
        found[family.label] = OptimisedSchedule(family, schedule, risk, problem.initial_risk)
    return found


def _ladder(alphas: Sequence[float], top: FamilyKind = FamilyKind.FREE_CLIP) -> list[Family]:
    wider = list(FamilyKind)[1 : list(FamilyKind).index(top) + 1]
    return [Family(FamilyKind.POLYNOMIAL, a) for a in dict.fromkeys(alphas)] + [Family(kind) for kind in wider]


def optimise_all(
    problem: OnePassProblem, alphas: Sequence[float] = _ALPHAS, *, top: FamilyKind = FamilyKind.FREE_CLIP
) -> dict[str, OptimisedSchedule]:
    """Return the best schedule of every family up to `top`, by label: poly:α for each α, harmonic, free, free-clip.

    harmonic is never worse than poly:0 (its limit), free never worse than any of them, free-clip never worse
    than free, and none worse than doing nothing, R(0). No rate exceeds 2/γ.

    References: docs/theory/one-pass.md, statement 10.

    >>> found = optimise_all(OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25), alphas=(0.0,))
    >>> {label: round(one.excess_risk, 3) for label, one in found.items()}
    {'poly:0': 0.175, 'harmonic': 0.175, 'free': 0.173, 'free-clip': 0.173}
    """
    return _optimise(problem, _ladder(alphas, top))


def optimise_schedule(problem: OnePassProblem, family: Family, *, quick: bool = False) -> OptimisedSchedule:
    """Return the best schedule of one family (see `optimise_all`).

    `quick` starts a free family from coarse grids of the narrower ones instead of from their optima.

    >>> problem = OnePassProblem(gamma=0.02, rho=0.5, label_noise_variance=0.25)
    >>> round(optimise_schedule(problem, Family.parse("poly:1")).excess_risk, 4)
    0.0174
    """
    alone = family.kind is FamilyKind.POLYNOMIAL or (quick and family.kind is not FamilyKind.HARMONIC)
    families = [family] if alone else _ladder((0.0, 0.5, 1.0), family.kind)
    return _optimise(problem, families)[family.label]
