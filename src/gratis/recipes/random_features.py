"""Random features and scattering features: standardise, then full-batch descent on fixed features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu, s0_noise_multiplier, split_mu
from gratis.mechanisms.location_scale import (
    StandardisationPlan,
    Standardiser,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.logistic import SoftmaxModel
from gratis.models.random_features import Activation, RandomFeatures, SquaredErrorModel, StoredFeatures
from gratis.models.scattering import ScatteringFeatures
from gratis.planning.feature_classifier import plan_feature_classifier
from gratis.planning.random_features import plan_random_features
from gratis.recipes.recipe import Array, Reading, zero_rows
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import Composition, FullBatchDescent
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import Descent, FeatureSettings
from gratis.stages.feature_descent import Engine, descend_features, dual_obstacle, feature_descent_event
from gratis.stages.feature_mean import CentredFeatures, release_feature_mean

__all__ = ["FeatureRelease", "FixedFeatures", "feature_map_of"]

_SCALE_SHARE = 0.2  # of μ², for private location and scale
_TARGET_SHARE = 0.35  # of that
_TWIN_RECORDS = 400
_MOST_PARAMETERS = 200_000_000  # 1.6 GB, a few times in training
_STORE_BYTES = 2**32  # features are kept when they fit


@dataclass(frozen=True, slots=True)
class FeatureRelease:
    """What was released: maps of the columns and the target, the map of features, θ (p, k), and the engine."""

    features: Standardiser
    target: Standardiser
    feature_map: Any
    parameters: NDArray[np.float64]
    engine: str


def feature_map_of(name: str, n_features: int, seed: int, facts: Facts) -> Any:
    """Return the public map of features that a name stands for; refuse what does not fit in memory."""
    if name == "scattering":
        side = math.isqrt(facts.columns)
        if side * side != facts.columns:
            raise GratisError(f"scattering features need square images, got rows of {facts.columns} pixels")
        return ScatteringFeatures(side=side)
    p, outputs = check_count("n_features", n_features), facts.classes or 1
    if p * outputs > _MOST_PARAMETERS:
        words = f"at most {_MOST_PARAMETERS:.0e}, to fit in memory, got {p} × {outputs}"
        raise GratisError(f"n_features × outputs must be {words}")
    return RandomFeatures(n_inputs=facts.columns, n_features=p, activation=Activation.parse(name), seed=seed)


@dataclass(frozen=True, slots=True)
class FixedFeatures:
    """The recipe for given facts. With all of `descent` given, a regression is Algorithm 1 of S0 as written."""

    facts: Facts
    budget: Budget
    reading: Reading
    features: str
    n_features: int
    feature_seed: int = 0
    centre: bool = True
    descent: Descent = field(default_factory=Descent)
    chosen_from_releases: bool = False
    needs_arrays: bool = True

    def __post_init__(self) -> None:
        if self.descent.noise == "paper" and (self.budget.epsilon is None or self.reading.standardise):
            raise GratisError("the paper's noise is for a budget in epsilon and delta that all goes to the descent")
        self.feature_map  # noqa: B018 - refuses sizes that cannot be

    @property
    def feature_map(self) -> Any:
        """The public map."""
        return feature_map_of(self.features, self.n_features, self.feature_seed, self.facts)

    @property
    def _scales(self) -> tuple[list[StandardisationPlan], float]:
        """The paid standardisations (features, target) and what is left of μ."""
        mu = calibrate_mu(self.budget)
        if not self.reading.standardise or self.features == "scattering":  # which removes each image's own scale
            return [], mu
        scale_mu, mu = split_mu(mu, [_SCALE_SHARE, 1 - _SCALE_SHARE])
        regression, relation = self.facts.classes is None, self.budget.neighbouring
        mus = split_mu(scale_mu, [1 - _TARGET_SHARE, _TARGET_SHARE] if regression else [1.0])
        plans = [plan_standardisation(self.facts.rows, self.facts.columns, mu=mus[0], neighbouring=relation)]
        if regression:
            plans.append(
                plan_standardisation(
                    self.facts.rows, 1, mu=mus[1], neighbouring=relation, tail=0.002, headroom=2.0, label="target"
                )
            )
        return plans, mu

    @property
    def plan(self) -> Plan:
        """Scales, then what the planner of features says, with what the user fixed in its place."""
        scales, mu = self._scales
        rest = Budget(mu=mu, neighbouring=self.budget.neighbouring) if scales else self.budget
        plan = self._regression_plan(rest) if self.facts.classes is None else self._classification_plan(rest)
        return replace(plan, budget=self.budget, event=Composition((*(scale.event for scale in scales), plan.event)))

    @property
    def _regression_mu(self) -> float:
        """What the noise of the descent amounts to: all that is left of μ, or what the paper's rule leaves."""
        mu = self._scales[1]
        if self.descent.noise == "exact":
            return mu
        assert self.budget.epsilon is not None
        assert self.budget.delta is not None
        return min(mu, 1 / s0_noise_multiplier(epsilon=self.budget.epsilon, delta=self.budget.delta))

    def _regression_plan(self, rest: Budget) -> Plan:
        p, descent = self.feature_map.n_features, self.descent
        if {"steps", "clip_norm", "learning_rate"} <= set(descent.given):
            return self._given_plan(p)
        plan = _regression_plan(self.facts.rows, self.facts.columns, p, rest, self.features)
        return self._adjusted(plan) if descent.given else plan

    @staticmethod
    def _settings(plan: Plan) -> FeatureSettings:
        assert isinstance(plan.settings, FeatureSettings)
        return plan.settings

    def _regression_event(self, steps: int) -> FullBatchDescent:
        return feature_descent_event(
            self.facts.rows, self.feature_map.n_features, 1, steps, mu=self._regression_mu,
            neighbouring=self.budget.neighbouring,
        )  # fmt: skip

    def _adjusted(self, plan: Plan) -> Plan:
        """The plan with what the user fixed; with other steps the total rate stays."""
        settings, descent = self._settings(plan), self.descent
        steps = descent.steps or settings.steps
        rate = descent.learning_rate or _planned_rate(settings) * settings.steps / steps
        settings = replace(
            settings, steps=steps, clip_norm=descent.clip_norm or settings.clip_norm, learning_rate=rate,
            noise_std=None, average=descent.average, noise=descent.noise, engine=descent.engine or settings.engine,
        )  # fmt: skip
        event = self._regression_event(steps)
        given = ", ".join(descent.given)
        return replace(
            plan, settings=settings, event=event, alternatives=(),
            reasons=(f"Given: {given}. The prediction is that of the settings that would be planned.", *plan.reasons),
        )  # fmt: skip

    def _given_plan(self, p: int) -> Plan:
        descent = self.descent
        assert descent.steps is not None
        assert descent.clip_norm is not None
        event = self._regression_event(descent.steps)
        rates = np.broadcast_to(np.asarray(descent.learning_rate), descent.steps)
        total = float(event.noise_stds.values[0] * descent.clip_norm * np.sqrt(np.square(rates).sum()))
        assert descent.learning_rate is not None
        settings = FeatureSettings(
            n_features=p, activation=self.features, steps=descent.steps, clip_norm=descent.clip_norm,
            learning_rate=descent.learning_rate, engine=descent.engine, average=descent.average, noise=descent.noise,
        )  # fmt: skip
        return Plan(
            algorithm="full-batch-descent-on-features",
            schedule="given",
            settings=settings,
            budget=self.budget,
            event=event,
            prediction=Prediction(
                quantity="noise_std", value=total, low=total, high=total,
                source="exact law of the accumulated noise of a coordinate of θ",
                assumptions=("all settings were given: quality is not predicted",),
            ),
            reasons=(f"Given: {', '.join(descent.given)}. Algorithm 1 of S0 on {p} features.",),
        )  # fmt: skip

    def _classification_plan(self, rest: Budget) -> Plan:
        self.descent.refuse("a classifier on fixed features", "noise")
        assert self.facts.classes is not None
        plan = plan_feature_classifier(
            self.facts.rows, self.feature_map.n_features, self.facts.classes, rest, centre=self.centre,
            steps=self.descent.steps,
        )  # fmt: skip
        settings, descent = self._settings(plan), self.descent
        settings = replace(settings, engine=descent.engine, average=descent.average)
        if descent.clip_norm is not None:  # with another clip norm the total move stays
            rate = _planned_rate(settings) * settings.clip_norm / descent.clip_norm
            settings = replace(settings, clip_norm=descent.clip_norm, learning_rate=rate)
        if descent.learning_rate is not None:
            settings = replace(settings, learning_rate=descent.learning_rate)
        return replace(plan, settings=settings)

    def prepare(self) -> None:
        """Refuse the dual engine where it may not run, before anything is spent."""
        if self.descent.engine != "dual":
            return
        plan, outputs = self.plan, self.facts.classes or 1
        settings = self._settings(plan)
        mu = settings.descent_mu or self._regression_mu
        event = feature_descent_event(
            self.facts.rows, self.feature_map.n_features, outputs, settings.steps, mu=mu,
            neighbouring=self.budget.neighbouring,
        )  # fmt: skip
        rates = np.broadcast_to(np.asarray(settings.learning_rate, dtype=np.float64), event.steps)
        features: Any = self.feature_map
        if self.facts.classes is not None:
            features = CentredFeatures(features, np.zeros(features.n_features), row_norm=1.0)
        obstacle = dual_obstacle(features, event, outputs, settings.clip_norm, rates, mu)
        if obstacle is not None:
            raise GratisError(f"the dual engine cannot run here: {obstacle}")

    def run(self, rows: Rows, *, noise: NoiseSource, progress: bool = False) -> FeatureRelease:
        """Release scales, the mean of the features where it is planned, and θ."""
        X, y = rows.arrays()
        scales, _ = self._scales
        plan, reading = self.plan, self.reading
        features, target = reading.public_features(self.facts.columns), reading.public_target()
        if scales:
            features = release_location_scale(rows, scales[0], noise=noise, impute=reading.impute)
        if len(scales) == 2:
            target = release_location_scale(rows.targets(), scales[1], noise=noise)
        inputs = zero_rows(features.transform(X), y)
        settings, relation = self._settings(plan), self.budget.neighbouring
        feature_map: Any = self.feature_map
        how: dict[str, Any] = {
            "steps": settings.steps, "clip_norm": settings.clip_norm, "learning_rate": settings.learning_rate,
            "neighbouring": relation, "noise": noise, "average": bool(self.descent.average),
            "engine": None if self.descent.engine is None else Engine(self.descent.engine),
        }  # fmt: skip
        if self.facts.classes is None:
            goals = target.transform(y[:, None])[:, 0]
            model: Any = SquaredErrorModel()
            run = descend_features(feature_map, inputs, goals, model, mu=self._regression_mu, **how)
            return FeatureRelease(features, target, feature_map, run.parameters, str(run.choice.engine))
        # Every record's features are scaled to norm 1: then one clip norm suits all of them.
        unit = CentredFeatures(feature_map, np.zeros(feature_map.n_features), row_norm=1.0)
        stored, inputs = _stored(unit, inputs)
        feature_map = unit
        if settings.mean_mu:
            mean, _ = release_feature_mean(
                stored, inputs, 1.0, mu=settings.mean_mu, neighbouring=relation, noise=noise, counted=np.isfinite(y)
            )
            feature_map = CentredFeatures(unit, mean, row_norm=1.0)
            stored = CentredFeatures(stored, mean, row_norm=1.0)
        assert settings.descent_mu is not None
        model = SoftmaxModel(self.facts.classes)
        run = descend_features(stored, inputs, y, model, mu=settings.descent_mu, **how)
        return FeatureRelease(features, target, feature_map, run.parameters, str(run.choice.engine))


def _planned_rate(settings: FeatureSettings) -> float:
    """The one learning rate of a planned descent."""
    assert isinstance(settings.learning_rate, float)
    return settings.learning_rate


@lru_cache(maxsize=32)
def _regression_plan(n: int, d: int, p: int, budget: Budget, activation: str) -> Plan:
    return plan_random_features(n, d, p, budget, activation=activation, twin_records=_TWIN_RECORDS)


def _stored(features: Any, rows: Array) -> tuple[Any, NDArray[Any]]:
    """Compute features once where they fit; the map and the rows to use from here on."""
    if 4 * len(rows) * features.n_features > _STORE_BYTES:
        return features, rows
    kept = np.concatenate([values for _, values in features.blocks(rows)], axis=1)
    stored = StoredFeatures(
        features.n_features, features.exact_gram, features.largest_square_norm, features.typical_square_norm
    )
    return stored, kept
