"""Linear and logistic regression in one pass: standardise if asked for, then one planned pass over the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu, split_mu
from gratis.mechanisms.location_scale import (
    StandardisationPlan,
    Standardiser,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.released_linear import ReleasedLinear
from gratis.planning.assumptions import LinearFacts
from gratis.planning.linear import plan_given_pass, plan_linear
from gratis.planning.one_pass.schedules import StepwiseSchedule
from gratis.recipes.linear import LinearRelease, in_original_units
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.events import Composition, Event, OnePassIteration
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.settings import Descent
from gratis.stages.one_pass import OnePassLoss, train_one_pass

__all__ = ["OnePassLinear", "OnePassStages", "fit_one_pass", "plan_one_pass"]

_STANDARDISE_SHARE = 0.33
_TARGET_SHARE = 0.35
_NUMBERS_AT_ONCE = 2**19


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassStages:
    """The releases of a one-pass fit, fixed by public facts."""

    features: StandardisationPlan | None
    target: StandardisationPlan | None
    passes: tuple[OnePassIteration, ...]
    loss: OnePassLoss
    plan: Plan

    @property
    def event(self) -> Event:
        """All releases in order."""
        return self.plan.event


@dataclass(frozen=True, slots=True)
class OnePassLinear:
    """The recipe for given facts: scales, then one pass in the stored order of the rows.

    `schedule` is a family of one-pass schedules: "free" (the best that was found), "poly:ALPHA", "harmonic", …
    `descent` may fix the pass instead, as S2's Algorithm 1 is written: a clip norm C and the learning rates η of a
    record's step, one number, or `steps` numbers that do not rise, each for an equal part of the pass.
    """

    facts: Facts
    budget: Budget
    reading: Reading
    schedule: str = "free"
    descent: Descent = field(default_factory=Descent)
    chosen_from_releases: bool = False
    needs_arrays: bool = False
    needs_order: bool = True

    def __post_init__(self) -> None:
        self.descent.refuse("one pass", "average", "engine", "noise")
        if self.descent.given and (self.descent.clip_norm is None or self.descent.learning_rate is None):
            raise GratisError("one pass takes clip_norm and learning_rate together (and steps, for several rates)")
        if self.descent.given and self.schedule != "free":
            raise GratisError("give a schedule, or clip_norm and learning_rate, not both")

    @property
    def stages(self) -> OnePassStages:
        """Every release, from public facts."""
        return plan_one_pass(
            self.facts.rows, self.facts.columns, budget=self.budget, standardise=self.reading.standardise,
            n_classes=self.facts.classes, schedule=self.schedule, descent=self.descent,
        )  # fmt: skip

    @property
    def plan(self) -> Plan:
        """What the pass will release."""
        return self.stages.plan

    def run(self, rows: Rows, *, noise: NoiseSource) -> LinearRelease:
        """Pass over the rows in their order, in constant memory."""
        stages = self.stages
        fit = fit_one_pass(
            rows, stages, noise=noise, features=self.reading.features, target=self.reading.target,
            impute=self.reading.impute,
        )  # fmt: skip
        return LinearRelease(fit, in_original_units(stages.plan.prediction, fit))


@lru_cache(maxsize=64)
def _pass_plan(n_records: int, n_columns: int, budget: Budget, schedule: str, descent: Descent) -> Plan:
    facts = LinearFacts(n_records=n_records, n_features=n_columns, budget=budget)
    if descent.clip_norm is not None and descent.learning_rate is not None:
        rates = descent.learning_rate if isinstance(descent.learning_rate, tuple) else (descent.learning_rate,)
        if any(later > before for before, later in pairwise(rates)):
            raise GratisError(
                "the learning rates of one pass must not rise: the noise of later steps hides earlier ones"
            )
        # Row k stands at k/n: half a row further, so that the last of a part still belongs to it.
        inner = (np.rint(np.linspace(0, n_records, len(rates) + 1))[1:-1] + 0.5) / n_records
        edges = (0.0, *inner.tolist(), 1.0)
        clips = (descent.clip_norm / math.sqrt(n_columns),) * len(rates)
        return plan_given_pass(facts, StepwiseSchedule(edges, tuple(rate * n_records for rate in rates), clips))
    return plan_linear(facts, algorithm="one-pass", schedule=schedule, compare=False)


def plan_one_pass(
    n_records: int,
    n_features: int,
    *,
    budget: Budget,
    standardise: bool,
    n_classes: int | None,
    schedule: str = "free",
    descent: Descent | None = None,
) -> OnePassStages:
    """Fix every release. The logistic pass borrows the schedule of a regression on ±½ labels, four times as fast.

    (ℓ″ ≤ ¼, so near θ = 0 a logistic step of size 4η moves scores like a linear one of size η.) More than two classes
    are trained against the rest, side by side in the same pass, and share its budget equally.
    """
    regression = n_classes is None
    relation = budget.neighbouring
    mu = calibrate_mu(budget)
    features = target = None
    if standardise:
        scale_mu, mu = split_mu(mu, [_STANDARDISE_SHARE, 1 - _STANDARDISE_SHARE])
        mus = split_mu(scale_mu, [1 - _TARGET_SHARE, _TARGET_SHARE] if regression else [1.0])
        features = plan_standardisation(n_records, n_features, mu=mus[0], neighbouring=relation)
        if regression:
            target = plan_standardisation(
                n_records, 1, mu=mus[1], neighbouring=relation, tail=0.002, headroom=2.0, label="target"
            )
    outputs = 1 if n_classes is None or n_classes == 2 else n_classes
    each = split_mu(mu, [1 / outputs] * outputs)[0]
    split = Budget(mu=each, neighbouring=relation)
    plan = _pass_plan(n_records, n_features + 1, split, schedule, descent or Descent())
    event = plan.event
    assert isinstance(event, OnePassIteration)
    passes = (event,) * outputs
    if outputs > 1:
        shared = f"{outputs} classes, each against the rest, are trained in the same pass and share its budget equally."
        plan = replace(plan, reasons=(shared, *plan.reasons))
    paid: list[Event] = [part.event for part in (features, target) if part is not None]
    return OnePassStages(
        features=features,
        target=target,
        passes=passes,
        loss=OnePassLoss.SQUARED if regression else OnePassLoss.LOGISTIC,
        plan=replace(plan, budget=budget, event=Composition((*paid, *passes))),
    )


def fit_one_pass(
    rows: Rows,
    stages: OnePassStages,
    *,
    noise: NoiseSource,
    features: Standardiser | None = None,
    target: Standardiser | None = None,
    impute: bool = False,
) -> ReleasedLinear:
    """Run the stages: scales (four readings each), then one pass over the standardised rows in their stored order.

    **Guarantee**: that of `stages.event`; the rows of the pass are made row by row with released maps. Records that are
    `recipe.left_out` contribute nothing to any of the releases.
    """
    if stages.features is not None:
        features = release_location_scale(rows, stages.features, noise=noise, impute=impute)
    if stages.target is not None:
        target = release_location_scale(rows.targets(), stages.target, noise=noise)
    features = replace(features or Standardiser.identity(rows.n_features), impute=impute)
    target = target or Standardiser.identity(1)
    standardised = _Standardised(rows, features, target)
    parameters = train_one_pass(standardised, stages.passes, stages.loss, noise=noise, fit_intercept=True)
    return ReleasedLinear(parameters=parameters.T, features=features, target=target, event=stages.event)


class _Standardised:
    """The rows of a stream under released or public maps."""

    def __init__(self, rows: Rows, features: Standardiser, target: Standardiser) -> None:
        self._rows, self._features, self._target = rows, features, target
        self.n_rows, self.n_features = rows.n_rows, rows.n_features

    def batches(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield standardised (X, y)."""
        at_once = max(1, _NUMBERS_AT_ONCE // self.n_features)
        for X, y in self._rows.batches():
            for start in range(0, len(X), at_once):
                part = slice(start, start + at_once)
                yield self._features.transform(X[part]), self._target.transform(y[part, None])[:, 0]
