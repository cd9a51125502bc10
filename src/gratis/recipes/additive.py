"""Additive models with selected pairs: what the recipe plans, releases and predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.mechanisms.location_scale import target_doubts
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.recipes.additive_plan import AdditivePlan, plan_additive
from gratis.recipes.additive_run import run_additive
from gratis.recipes.released_additive import ReleasedAdditive
from gratis.records.budget import Budget
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import AdditiveSettings

__all__ = ["Additive", "AdditiveRelease"]


@dataclass(frozen=True, slots=True)
class Additive:
    """The recipe for given facts: every release is fixed, curves and pairs are chosen from what was released.

    `levels` are the categorical columns with their numbers of levels; `directions` those whose curve must rise (1) or
    fall (−1), which is a projection of what was released.
    """

    facts: Facts
    budget: Budget
    levels: dict[int, int] = field(default_factory=dict)
    pairs: bool = True
    directions: dict[int, int] = field(default_factory=dict)
    impute: bool = False
    chosen_from_releases: bool = True
    needs_arrays: bool = False

    @property
    def stages(self) -> AdditivePlan:
        """Every release, from public facts."""
        return plan_additive(
            self.facts.rows, self.facts.columns, mu=calibrate_mu(self.budget), neighbouring=self.budget.neighbouring,
            levels=self.levels, n_classes=self.facts.classes, pairs=self.pairs, alone=frozenset(self.directions),
        )  # fmt: skip

    @property
    def plan(self) -> Plan:
        """What will be released, in words and numbers."""
        return _plan(self.stages, self.budget)

    def run(self, rows: Rows, *, noise: NoiseSource) -> AdditiveRelease:
        """Release everything; rows that are not in memory are read anew for every release, in constant memory."""
        return AdditiveRelease(
            *run_additive(rows, self.stages, noise=noise, impute=self.impute, directions=self.directions)
        )


@dataclass(frozen=True, slots=True)
class AdditiveRelease:
    """A released additive model, the score on fresh rows that the releases let expect, and shares of the classes."""

    model: ReleasedAdditive
    prediction: Prediction
    prior: NDArray[np.float64] | None


def _plan(stages: AdditivePlan, budget: Budget) -> Plan:
    """What is fixed before the data is touched, in words and numbers."""
    most = 0 if stages.screening is None else stages.screening.most
    pairs = "no pairs are looked for"
    if most:
        pairs = f"{'one pair' if most == 1 else f'up to {most} pairs'} of columns may be chosen by one noisy gradient"
    return Plan(
        algorithm="additive",
        schedule="posterior mean of all released gradients",
        settings=AdditiveSettings(
            cosines=stages.n_cosines,
            steps=len(stages.main.events) + (0 if stages.joint is None else len(stages.joint.events)),
            most_pairs=most,
            stages=tuple(dict.fromkeys((leaf.label or leaf.kind).split(":")[0] for leaf in stages.event.leaves())),
        ),
        budget=budget,
        event=stages.event,
        prediction=_forecast(stages, budget),
        reasons=(
            f"{budget.describe()}: scales, histograms, second moments and gradients share the budget; every numeric "
            f"column has a line and {stages.n_cosines} cosines, as many as rows times μ allow, and {pairs}.",
            "Smoothness and relevance of every curve are estimated from the released gradients; nothing is chosen by "
            "looking at scores on the data.",
            *target_doubts(stages.event, stages.n_records),
        ),
    )


def _forecast(stages: AdditivePlan, budget: Budget) -> Prediction:
    """What the noise of the gradients will cost, by public sizes: ½·d_eff·(κ√d_eff/(nμ))² for d_eff coefficients."""
    mu = math.hypot(stages.main_mu, stages.joint_mu)
    unit = budget.neighbouring.sensitivity_factor / (stages.n_records * mu)
    # Where a column has its line alone, the middle lies between half of the lines and all of them.
    likely = 1 + min(stages.n_cosines, 2) if stages.n_cosines else 0.75
    counts = (1 + stages.n_columns / 2, 1 + stages.n_columns * likely, float(stages.main.width))
    low, value, high = (min(0.5, 0.5 * k * (k * unit**2 + 0.5 / stages.n_records)) for k in sorted(counts))
    return Prediction(
        quantity="excess_risk",
        value=value,
        low=low,
        high=high,
        source="noise of the planned gradients, before the data is touched",
        assumptions=(
            "between half a coefficient a column and all of them can be learnt",
            "what the releases before the gradients cost is not in it",
        ),
        details={
            "unit": "½·variance of the target" if stages.n_classes is None else "nats, for log-odds of variance 1"
        },
    )
