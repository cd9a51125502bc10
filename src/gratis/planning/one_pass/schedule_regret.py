"""One schedule for many possible problems: least worst regret where signal, label noise or spectrum are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.box_descent import descend_in_box
from gratis.planning.one_pass.prediction import OnePassProblem, predict_final_risks
from gratis.planning.one_pass.risk_gradient import RiskGradient
from gratis.planning.one_pass.schedule_families import FreeClipFamily, FreeFamily
from gratis.planning.one_pass.schedule_optimisation import (
    Family,
    OptimisedSchedule,
    do_nothing,
    optimise_schedule,
)
from gratis.planning.one_pass.schedules import Schedule
from gratis.records.errors import GratisError

__all__ = ["RegretSchedule", "optimise_worst_regret"]

Array = NDArray[np.float64]

_ATOMS = 16
_TOLERANCE = 1e-5  # of the sharpened maximum: less than a ten-thousandth of the regret that it starts from


@dataclass(frozen=True, slots=True)
class RegretSchedule:
    """A schedule, its predicted excess risk on every problem, and how far above each problem's best that is.

    regrets are in shares of the label variance, (R − R_best)/((S + ζ²)/2): the R² lost by not knowing the problem.
    """

    schedule: Schedule
    excess_risks: Array
    best_risks: Array
    regrets: Array

    @property
    def worst_regret(self) -> float:
        """The largest regret over the problems."""
        return float(self.regrets.max())


class _SoftMaximum:
    """The soft maximum of the regrets, scaled by its sharpness so that the descent's tolerances fit."""

    def __init__(self, objective: RiskGradient, best: Array, units: Array, sharpness: float) -> None:
        self._objective, self._best, self._units, self._sharpness = objective, best, units, sharpness

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        values, slopes = self._objective.log_risks(parameters)
        risks = np.exp(values)
        scaled = self._sharpness * (risks - self._best) / self._units
        top = scaled.max()
        shares = np.exp(scaled - top)
        value = float(top + np.log(shares.sum()))
        return value, (shares / shares.sum() * risks * self._sharpness / self._units) @ slopes


def optimise_worst_regret(
    problems: Sequence[OnePassProblem], family: Family, best: Sequence[OptimisedSchedule] | None = None
) -> RegretSchedule:
    """Return the schedule of a free family with the least worst regret over the problems.

    Candidates are the problems' own best schedules; the best of them starts a descent on the soft maximum.

    Parameters
    ----------
    problems:
        The stated family of possible problems, with one gamma.
    family:
        Free or free-clip.
    best:
        Each problem's own optimum, if known already.

    >>> facts = [{"label_noise_variance": z, "signal_variance": 1 - z} for z in (0.2, 0.8)]
    >>> problems = [OnePassProblem(gamma=0.1, rho=1.0, **fact) for fact in facts]
    >>> found = optimise_worst_regret(problems, Family.parse("free"))
    >>> bool(0 <= found.worst_regret < 0.02)
    True
    """
    if not problems or len({p.gamma for p in problems}) > 1:
        raise GratisError("give at least one problem, all of the same gamma: n and d are public and fixed")
    if best is None:
        best = [optimise_schedule(problem, family) for problem in problems]
    model, edges = family.model(problems[0])
    if not isinstance(model, FreeFamily | FreeClipFamily):
        raise GratisError(f"the worst regret is minimised over free or free-clip schedules, got {family.label}")
    spreads = np.array([p.signal_variance + p.label_noise_variance for p in problems])
    units = np.where(spreads > 0, 0.5 * spreads, 1.0)
    best_risks = np.array([one.excess_risk for one in best])

    def regrets(schedules: Sequence[Schedule]) -> tuple[Array, Array]:
        risks = predict_final_risks(problems, schedules)
        return risks, (risks - best_risks[:, None]) / units[:, None]

    candidates: list[Schedule] = [one.schedule for one in best if one.excess_risk < one.initial_risk]
    candidates.append(do_nothing(problems[0]))
    risks, losses = regrets(candidates)
    if len(candidates) > 1:
        objective = RiskGradient(problems, model, edges, _ATOMS)
        start = int(np.argmin(losses[:, :-1].max(axis=0)))
        point = model.start(candidates[start])
        scale = max(float(losses[:, start].max()), 1e-6)
        # The soft maximum is sharpened once the rough balance between the problems is found.
        for sharpness in (20.0 / scale, 200.0 / scale):
            softened = _SoftMaximum(objective, best_risks, units, sharpness)
            point = descend_in_box(softened, point, model.bounds(problems[0].rate_cap), tolerance=_TOLERANCE)
        candidates.append(model.schedule(point))
        risks, losses = regrets(candidates)
    chosen = int(np.argmin(losses.max(axis=0)))
    return RegretSchedule(candidates[chosen], risks[:, chosen], best_risks, losses[:, chosen])
