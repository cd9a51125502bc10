"""Random features and scattering features: standardise, then full-batch descent on fixed features.

Classifiers start at the log of released class counts, follow the flow with momentum and end with a calibration.
"""

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
from gratis.mechanisms.noise import NoiseSource, snap
from gratis.mechanisms.rows import Rows
from gratis.models.logistic import SoftmaxModel
from gratis.models.random_features import Activation, RandomFeatures, SquaredErrorModel, StoredFeatures
from gratis.planning.class_flow import largest_factor
from gratis.planning.feature_classifier import feature_flow, longest_flow, plan_feature_classifier
from gratis.planning.random_features import plan_random_features, reconstruction_words, rough_feature_cost
from gratis.recipes.recipe import Array, Reading, zero_rows
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import Composition, FullBatchDescent
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import Descent, FeatureSettings
from gratis.stages.calibration import calibrate_scores, calibration_event
from gratis.stages.class_prior import class_counts_event, release_class_prior
from gratis.stages.constant_feature import CONSTANT, WithConstant
from gratis.stages.feature_descent import Engine, FeatureDescent, descend_rows, dual_obstacle, feature_descent_event
from gratis.stages.feature_mean import CentredFeatures, release_feature_mean
from gratis.stages.flow import flow_rate
from gratis.stages.gram import FeatureMap
from gratis.stages.primal_features import averaging_weights

__all__ = ["FeatureRelease", "FixedFeatures", "feature_map_of"]

_SCALE_SHARE = 0.2  # of μ², for private location and scale
_TARGET_SHARE = 0.35  # of that
_TWIN_RECORDS = 400
_MOST_PARAMETERS = 200_000_000  # 1.6 GB, a few times in training
_STORE_BYTES = 2**32  # features are kept when they fit
_SCORE_SIZE = 2.0  # of scores that begin to decide: makes the coordinates of a calibration alike


@dataclass(frozen=True, slots=True)
class FeatureRelease:
    """What was released: maps of columns, target and features, θ (p, k) and intercept (k,), engine, class shares."""

    features: Standardiser
    target: Standardiser
    feature_map: Any
    parameters: NDArray[np.float64]
    intercept: NDArray[np.float64]
    engine: str
    prior: NDArray[np.float64] | None = None


def feature_map_of(name: str, n_features: int, seed: int, facts: Facts) -> Any:
    """Return the public map of features that a name stands for; refuse what does not fit in memory."""
    if name == "scattering":
        side = math.isqrt(facts.columns)
        if side * side != facts.columns:
            raise GratisError(f"scattering features need square images, got rows of {facts.columns} pixels")
        from gratis.models.scattering import ScatteringFeatures  # loads SciPy's transforms

        return ScatteringFeatures(side=side)
    p, outputs = check_count("n_features", n_features), facts.classes or 1
    if p * outputs > _MOST_PARAMETERS:
        words = f"at most {_MOST_PARAMETERS:.0e}, to fit in memory, got {p} × {outputs}"
        raise GratisError(f"n_features × outputs must be {words}")
    return RandomFeatures(n_inputs=facts.columns, n_features=p, activation=Activation.parse(name), seed=seed)


@dataclass(frozen=True, slots=True)
class FixedFeatures:
    """The recipe for given facts. With all of `descent` given, a regression is Algorithm 1 of S0 as written.

    So is a classifier with a learning rate: plain steps from 0, without class counts, momentum and calibration.
    """

    facts: Facts
    budget: Budget
    reading: Reading
    features: str
    n_features: int
    feature_seed: int = 0
    centre: bool = True
    descent: Descent = field(default_factory=Descent)
    clips_rows: bool = True  # one by one: a person's rows would not stay together

    def __post_init__(self) -> None:
        if self.descent.noise == "paper" and (self.budget.epsilon is None or self.reading.standardise):
            raise GratisError("the paper's noise is for a budget in epsilon and delta that all goes to the descent")
        self.feature_map  # noqa: B018 - refuses sizes that cannot be

    @property
    def needs_arrays(self) -> bool:
        """The dual needs the inner products of all records with one another; the primal's gradients are sums."""
        return self.descent.engine == "dual"

    @property
    def chosen_from_releases(self) -> bool:
        """Clip norm and flow time of a planned classifier follow from its released class counts."""
        return self.facts.classes is not None and self.descent.learning_rate is None

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
        words = reconstruction_words(self.facts.rows, self.facts.columns, self.feature_map.n_features)
        event = Composition((*(scale.event for scale in scales), plan.event))
        return replace(plan, budget=self.budget, event=event, reasons=(*plan.reasons, words))

    def rough_cost(self) -> tuple[float, float, float] | None:
        """What privacy costs a regression in R² (value, low, high), in closed form: for pictures, not for a plan."""
        if self.facts.classes is not None:
            return None
        rest = Budget(mu=self._regression_mu, neighbouring=self.budget.neighbouring)
        facts, p = self.facts, self.feature_map.n_features
        return rough_feature_cost(facts.rows, facts.columns, p, rest, activation=self.features)

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
        return plan_feature_classifier(
            self.facts.rows, self.feature_map.n_features, self.facts.classes, rest, centre=self.centre,
            descent=self.descent,
        )  # fmt: skip

    def prepare(self) -> None:
        """Refuse the dual engine where it may not run, before anything is spent."""
        if self.descent.engine != "dual":
            return
        plan, outputs = self.plan, self.facts.classes or 1
        settings = self._settings(plan)
        mu = settings.descent_mu or self._regression_mu
        features, rate, momentum = self.feature_map, settings.learning_rate, 0.0
        if self.facts.classes is not None:
            features = CentredFeatures(features, np.zeros(features.n_features), row_norm=1.0)
        if self.chosen_from_releases:  # whatever class counts are released
            features = WithConstant(features)
            longest = longest_flow(
                self.facts.rows, mu=mu, neighbouring=self.budget.neighbouring, clip_norm=settings.clip_norm
            )
            rate, momentum = flow_rate(longest, settings.steps, longest / settings.steps)
        event = feature_descent_event(
            self.facts.rows, features.n_features, outputs, settings.steps, mu=mu,
            neighbouring=self.budget.neighbouring,
        )  # fmt: skip
        rates = np.broadcast_to(np.asarray(rate, dtype=np.float64), event.steps)
        obstacle = dual_obstacle(features, event, outputs, settings.clip_norm, rates, mu, momentum)
        if obstacle is not None:
            raise GratisError(f"the dual engine cannot run here: {obstacle}")

    def run(self, rows: Rows, *, noise: NoiseSource) -> FeatureRelease:
        """Release scales, the mean of the features where it is planned, and θ."""
        scales, _ = self._scales
        plan, reading = self.plan, self.reading
        features, target = reading.public_features(self.facts.columns), reading.public_target()
        if scales:
            features = release_location_scale(rows, scales[0], noise=noise, impute=reading.impute)
        if len(scales) == 2:
            target = release_location_scale(rows.targets(), scales[1], noise=noise)
        # Maps and contributions may be sent to a cluster: they must not hold the noise source.
        inputs = rows.mapped(lambda X, y: (zero_rows(features.transform(X), y), y))
        settings, relation = self._settings(plan), self.budget.neighbouring
        feature_map: Any = self.feature_map
        how: dict[str, Any] = {
            "steps": settings.steps, "neighbouring": relation, "noise": noise,
            "engine": None if self.descent.engine is None else Engine(self.descent.engine),
        }  # fmt: skip
        written: dict[str, Any] = {
            "clip_norm": settings.clip_norm, "learning_rate": settings.learning_rate,
            "average": bool(self.descent.average),
        }  # fmt: skip
        if self.facts.classes is None:
            aimed = inputs.mapped(lambda X, y: (X, target.transform(y[:, None])[:, 0]))
            run = descend_rows(feature_map, aimed, SquaredErrorModel(), mu=self._regression_mu, **how, **written)
            return FeatureRelease(features, target, feature_map, run.parameters, np.zeros(1), str(run.choice.engine))
        # Every record's features are scaled to norm 1: then one clip norm suits all of them.
        unit = CentredFeatures(feature_map, np.zeros(feature_map.n_features), row_norm=1.0)
        stored, inputs = _stored(unit, inputs)
        feature_map = unit
        if settings.mean_mu:
            mean, _ = release_feature_mean(stored, inputs, 1.0, mu=settings.mean_mu, neighbouring=relation, noise=noise)
            feature_map = CentredFeatures(unit, mean, row_norm=1.0)
            stored = CentredFeatures(stored, mean, row_norm=1.0)
        assert settings.descent_mu is not None
        classes = self.facts.classes
        if not self.chosen_from_releases:
            run = descend_rows(stored, inputs, SoftmaxModel(classes), mu=settings.descent_mu, **how, **written)
            parameters, intercept, prior = run.parameters, np.zeros(classes), None
        else:
            run, parameters, intercept, prior = _from_the_prior(stored, inputs, classes, self.descent, settings, how)
        return FeatureRelease(features, target, feature_map, parameters, intercept, str(run.choice.engine), prior)


def _from_the_prior(
    features: FeatureMap,
    inputs: Rows,
    classes: int,
    descent: Descent,
    settings: FeatureSettings,
    how: dict[str, Any],
) -> tuple[FeatureDescent, Array, Array, Array]:
    """Count the classes, follow the flow from the log of their shares, and calibrate; return θ, intercept, shares too.

    **Guarantee**: that of three releases in turn, each by the event of its μ in `settings`; clip norm, flow time and
    momentum of the second are functions of the first, scores of the third of the first two.
    """
    noise, relation, n = how["noise"], how["neighbouring"], inputs.n_rows
    assert settings.counts_mu is not None
    assert settings.calibration_mu is not None
    assert settings.descent_mu is not None
    counts = class_counts_event(mu=settings.counts_mu, neighbouring=relation)
    prior = release_class_prior(inputs, classes, counts, noise=noise)
    flow = feature_flow(n, prior, mu=settings.descent_mu, neighbouring=relation, clip_norm=descent.clip_norm)
    rate, momentum = flow_rate(flow.time, settings.steps, flow.largest_step)
    with_constant = WithConstant(features)
    run = descend_rows(
        with_constant, inputs, SoftmaxModel(classes, prior), mu=settings.descent_mu, clip_norm=flow.clip_norm,
        learning_rate=rate, momentum=momentum, average=descent.average is not False, **how,
    )  # fmt: skip
    slopes = run.parameters - run.parameters.mean(axis=1, keepdims=True)

    def scored(X: Array, y: Array) -> tuple[Array, Array]:
        scores = np.zeros((len(X), classes))
        for columns, values in with_constant.blocks(X):
            scores += values.astype(np.float64) @ slopes[columns]
        return scores, y

    factor, shift = calibrate_scores(
        inputs.mapped(scored, n_features=classes), prior, scale=_SCORE_SIZE,
        most=largest_factor(n, features.n_features, classes),
        event=calibration_event(n, classes, mu=settings.calibration_mu, neighbouring=relation), noise=noise,
    )  # fmt: skip
    stretched = factor * slopes
    intercept = np.log(prior) + shift + CONSTANT * stretched[-1]
    # Back on a public grid, far finer than the noise: what products leave in the last bits tells nothing.
    weights = averaging_weights(settings.steps, average=descent.average is not False, momentum=momentum)
    std = flow.clip_norm * rate * run.event.noise_stds.values[0] * float(np.sqrt(np.square(weights).sum()))
    return run, snap(stretched[:-1], std), snap(intercept, std), prior


def _planned_rate(settings: FeatureSettings) -> float:
    """The one learning rate of a planned descent."""
    assert isinstance(settings.learning_rate, float)
    return settings.learning_rate


@lru_cache(maxsize=32)
def _regression_plan(n: int, d: int, p: int, budget: Budget, activation: str) -> Plan:
    return plan_random_features(n, d, p, budget, activation=activation, twin_records=_TWIN_RECORDS)


def _stored(features: Any, rows: Rows) -> tuple[Any, Rows]:
    """Compute features of rows in memory once where they fit; the map and the rows to use from here on."""
    if not rows.in_memory or 4 * rows.n_rows * features.n_features > _STORE_BYTES:
        return features, rows
    kept = rows.mapped(
        lambda X, y: (np.concatenate([values for _, values in features.blocks(X)], axis=1), y),
        n_features=features.n_features,
    )
    stored = StoredFeatures(
        features.n_features, features.exact_gram, features.largest_square_norm, features.typical_square_norm
    )
    return stored, kept
