"""Logistic regression of two classes with standard errors: the staged classifier as a start, then one Newton step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gratis.accounting import calibrate_mu, split_mu
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.planning.interval_width import WidthPrediction, predict_logistic_width, rows_for_intervals
from gratis.planning.rehearsal import rehearsed_rows
from gratis.recipes.linear_inference import HIDDEN, original_units, too_few
from gratis.recipes.logistic import ClassRelease, StagedLogistic
from gratis.recipes.recipe import Array, Reading
from gratis.records.budget import Budget
from gratis.records.events import Composition
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.settings import InferenceSettings
from gratis.stages.logistic_step import (
    LogisticStepPlan,
    plan_logistic_step,
    release_approach,
    release_logistic_step,
    release_steepness,
)
from gratis.stages.one_step import BoundedRows
from gratis.stages.released_inference import ReleasedInference
from gratis.stages.sandwich import solve_curved_step
from gratis.stages.staged import StagedPlan

__all__ = ["ClassInferenceRelease", "LogisticInference", "least_logistic_rows"]

# Shares of μ²: the start, then the approach, Jacobian, gradient, outer squares and steepness of the step.
_START = 0.33
_STEP = {"approach": 0.08, "jacobian": 0.17, "gradient": 0.36, "squares": 0.04, "steepness": 0.02}
# p(1−p) is at most 1/4 and about 1/5 at log-odds of variance 1, and the start must be near: 1.5 times the rows that a
# linear regression needs (synthetic: docs/results/intervals.md).
_MORE_ROWS = 1.5


@dataclass(frozen=True, slots=True)
class ClassInferenceRelease(ClassRelease):
    """A classifier for predictions, and what may be said about its coefficients."""

    inference: ReleasedInference


def least_logistic_rows(columns: int, budget: Budget) -> int:
    """Return from how many rows on there are intervals: a rule of public sizes."""
    mu, relation = calibrate_mu(budget), budget.neighbouring
    return math.ceil(_MORE_ROWS * rows_for_intervals(columns, mu=mu, neighbouring=relation))


@dataclass(frozen=True)
class LogisticInference:
    """The recipe for given facts: the staged classifier at a share of the budget, then one step with its covariance.

    Where public sizes say that intervals would drown in noise, it is the staged classifier, and nothing is spent on
    them.
    """

    facts: Facts
    budget: Budget
    reading: Reading
    estimand: str = "weighted"
    chosen_from_releases: bool = True
    needs_arrays: bool = False

    def check_memory(self) -> None:
        """As the staged fit."""
        self.start.check_memory()

    @property
    def withheld(self) -> str | None:
        """Why there will be no intervals, from public sizes, and what would help; None if there will be."""
        return too_few(self.facts, self.budget, least_logistic_rows(self.facts.columns, self.budget))

    @cached_property
    def _mus(self) -> list[float]:
        return split_mu(calibrate_mu(self.budget), [_START, *_STEP.values()])

    @cached_property
    def start(self) -> StagedLogistic:
        """The classifier that the step starts from; all of the budget is its own where intervals are withheld."""
        budget = self.budget
        if self.withheld is None:
            budget = Budget(mu=self._mus[0], neighbouring=budget.neighbouring)
        return StagedLogistic(self.facts, budget, self.reading)

    @cached_property
    def step(self) -> LogisticStepPlan:
        """Releases of the step."""
        named = dict(zip(_STEP, self._mus[1:], strict=True))
        return plan_logistic_step(
            self.facts.rows, self.facts.columns + 1, **named, neighbouring=self.budget.neighbouring
        )  # fmt: skip

    @cached_property
    def width(self) -> WidthPrediction:
        """How wide intervals will be, and the radius of the weights that goes with it."""
        return predict_logistic_width(self.step)

    def _rehearsal(self) -> StagedPlan:
        """Releases of the start on few rows with the noise of these (`planning.rehearsal`)."""
        few = rehearsed_rows(self.facts.columns)
        mu = calibrate_mu(self.budget) * self.facts.rows / few
        budget = Budget(mu=mu, neighbouring=self.budget.neighbouring)
        return replace(self, facts=replace(self.facts, rows=few), budget=budget).start.stages

    @property
    def plan(self) -> Plan:
        """Before the data is touched."""
        plain = self.start.plan
        if self.withheld is not None:
            return replace(plain, reasons=(f"{self.withheld[0].upper()}{self.withheld[1:]}.", *plain.reasons))
        assert isinstance(plain.event, Composition)
        event = Composition((*plain.event.events, *self.step.events))
        width = predict_logistic_width(self.step, self._rehearsal())
        return Plan(
            algorithm="full-batch",
            schedule=f"{plain.schedule}, then one Newton step of bounded influence",
            settings=InferenceSettings(
                steps=self.start.stages.steps,
                stages=tuple(dict.fromkeys(leaf.label or leaf.kind for leaf in event.leaves())),
                descent_mu=self.start.stages.descent_mu,
                jacobian_mu=self._mus[2],
                gradient_mu=self._mus[3],
            ),
            budget=self.budget,
            event=event,
            prediction=replace(plain.prediction, details=plain.prediction.details | width.details("ml")),
            reasons=(
                f"{self.budget.describe()}: intervals will be about {width.value:.3g} times as wide as those of "
                "maximum likelihood without privacy if columns are normal, classes even and log-odds of deviation 1, "
                f"{width.low:.3g} to {width.high:.3g} times over correlated, skewed and 0/1 columns, one record in ten "
                "of the second class or log-odds of deviation 3.",
                "The staged classifier and a step with its covariance share the budget; weights are chosen from what "
                "was released, never by looking at the data.",
            ),
        )

    def _curvature(self, plain: ClassRelease, start: Array) -> Array:
        """E w·p(1−p)·u², from the released shares of the classes, the second moments and the spread of the scores."""
        energy = float(plain.moved.spectrum @ np.square(start))
        even = float(plain.prior[0] * plain.prior[1])
        return np.asarray(np.maximum(even / math.sqrt(1 + 0.35 * energy) * plain.moved.spectrum, 0.02))

    def run(self, rows: Rows, *, noise: NoiseSource, progress: bool = False) -> ClassInferenceRelease:
        """Release the start, then the step; what is chosen in between is a function of what was released."""
        plain, n = self.start.run(rows, noise=noise), rows.n_rows

        def released(found: ReleasedInference) -> ClassInferenceRelease:
            fit = replace(plain.fit, event=self.plan.event)
            return ClassInferenceRelease(fit, plain.prediction, plain.prior, plain.moved, found)

        if self.withheld is not None:
            return released(ReleasedInference(rows=n, withheld=self.withheld))
        fit, moved = plain.fit, plain.moved
        start = moved.coordinates(fit.parameters[:, 1:] - fit.parameters[:, :1])[:, 0]
        read = BoundedRows(
            fit.features, fit.target, moved, math.sqrt(self.width.radius * moved.effective_dimension),
            winsorised=self.estimand == "winsorised",
        )  # fmt: skip
        start = release_approach(rows, read, start, self._curvature(plain, start), self.step, noise=noise)
        solved = solve_curved_step(release_logistic_step(rows, read, start, self.step, noise=noise))
        at = start + solved.move
        mean, turn, variance = release_steepness(rows, read, at, self.step, noise=noise)
        if not solved.trusted:
            return released(ReleasedInference(rows=n, withheld=HIDDEN))
        change, shift = original_units(moved, fit.features, fit.target)
        privacy = change @ solved.move_noise() @ change.T
        by_estimates = np.linalg.solve(change.T, turn)
        return released(
            ReleasedInference(
                rows=n,
                estimates=change @ at + shift,
                covariance=privacy + solved.sampling(change @ solved.inverse, n),
                privacy=privacy,
                steepness=np.array([mean, *by_estimates, variance]),
            )
        )
