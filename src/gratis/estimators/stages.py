"""Standardise → second moments → descend: one staged plan, whose events are fixed by public facts alone.

Later stages use only what earlier ones released. The descent's clip and learning rate are chosen by a twin of the
released spectrum; its event is written in units of learning rate × clip norm, so it does not depend on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import split_mu
from gratis.estimators.scales import PublicScales
from gratis.mechanisms.location_scale import (
    Standardiser,
    StandardisationPlan,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.second_moments import Preconditioner, release_second_moments, second_moment_event
from gratis.simulation.twin import TwinChoice, choose_descent
from gratis.specs.errors import GratisError
from gratis.specs.events import Composition, Event
from gratis.specs.neighbouring import Neighbouring
from gratis.training.full_batch import GeneralisedLinearModel, descend, descent_event

__all__ = ["Preprocessing", "StagedDescent", "StagedResult"]

STEPS = 48
_SHARES = {"standardise": 0.33, "second moments": 0.17, "descend": 0.5}
_TARGET_SHARE = 0.35  # of the standardisation; a wrong scale of the target hurts more than one of a feature
_TARGET_TAIL, _TARGET_HEADROOM = 0.002, 2.0


class Preprocessing(StrEnum):
    """Where location and scale come from."""

    PRIVATE = "private"
    PUBLIC = "public"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class StagedResult:
    """What the stages released: maps, parameters in original units, and what the twin predicted."""

    features: Standardiser
    target: Standardiser
    coefficients: NDArray[np.float64]
    intercept: NDArray[np.float64]
    preconditioner: Preconditioner
    choice: TwinChoice


class StagedDescent:
    """The plan of all stages for n rows of d columns; `event` can be reserved before any row is read.

    **Guarantee**: running it is μ-GDP under `neighbouring`: every stage is a Gaussian release computed from the rows
    and from earlier releases, and the μ² of the stages add up to at most μ².
    """

    def __init__(
        self,
        *,
        n_records: int,
        n_features: int,
        model: GeneralisedLinearModel,
        mu: float,
        neighbouring: Neighbouring,
        preprocessing: Preprocessing,
        standardise_target: bool,
        fit_intercept: bool = True,
        steps: int = STEPS,
    ) -> None:
        self.n_records, self.n_features, self.model = n_records, n_features, model
        self.neighbouring, self.steps, self.fit_intercept = neighbouring, steps, fit_intercept
        self.standardise_target = standardise_target
        private = preprocessing is Preprocessing.PRIVATE
        names = [name for name in _SHARES if private or name != "standardise"]
        self.mus = dict(zip(names, split_mu(mu, [_SHARES[name] for name in names]), strict=True))
        self.feature_plan: StandardisationPlan | None = None
        self.target_plan: StandardisationPlan | None = None
        if private:
            parts = [1 - _TARGET_SHARE, _TARGET_SHARE] if standardise_target else [1.0]
            mus = split_mu(self.mus["standardise"], parts)
            self.feature_plan = plan_standardisation(n_records, n_features, mu=mus[0], neighbouring=neighbouring)
            if standardise_target:
                self.target_plan = plan_standardisation(
                    n_records, 1, mu=mus[1], neighbouring=neighbouring,
                    tail=_TARGET_TAIL, headroom=_TARGET_HEADROOM, label="target",
                )  # fmt: skip

    @property
    def n_columns(self) -> int:
        """Columns of the standardised rows, the constant included."""
        return self.n_features + self.fit_intercept

    @property
    def event(self) -> Event:
        """All releases, in order."""
        plans = [plan.event for plan in (self.feature_plan, self.target_plan) if plan is not None]
        moments = second_moment_event(
            self.n_records, self.n_columns, mu=self.mus["second moments"], neighbouring=self.neighbouring
        )
        descent = descent_event(
            self.n_records, self.n_columns, self.model.outputs, self.steps,
            mu=self.mus["descend"], neighbouring=self.neighbouring,
        )  # fmt: skip
        return Composition((*plans, moments, descent))

    def run(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        *,
        noise: NoiseSource,
        public: PublicScales | None = None,
        rng: np.random.Generator,
    ) -> StagedResult:
        """Run the stages on the rows. `rng` is public randomness for the twin."""
        if X.shape != (self.n_records, self.n_features) or len(y) != self.n_records:
            raise GratisError(f"the plan is for {self.n_records} rows of {self.n_features} columns")
        features, target = self._scales(X, y, noise, public)
        if not self.fit_intercept:
            features, target = _uncentred(features), _uncentred(target)
        rows = features.transform(X)
        if self.fit_intercept:
            rows = np.column_stack([rows, np.ones(len(rows))])
        goal = target.transform(y[:, None])[:, 0] if self.standardise_target else y
        preconditioner, _ = release_second_moments(
            rows, mu=self.mus["second moments"], neighbouring=self.neighbouring, noise=noise
        )
        choice = choose_descent(
            preconditioner.spectrum, self.model, n_records=self.n_records, steps=self.steps,
            mu=self.mus["descend"], neighbouring=self.neighbouring, rng=rng,
        )  # fmt: skip
        run = descend(
            preconditioner.transform(rows), goal, self.model,
            steps=self.steps,
            clip_norm=choice.clip * math.sqrt(preconditioner.effective_dimension),
            learning_rate=choice.travel / (choice.clip * self.steps),
            mu=self.mus["descend"], neighbouring=self.neighbouring, noise=noise,
        )  # fmt: skip
        coefficients, intercept = self._original_units(preconditioner.restore(run.parameters), features, target)
        return StagedResult(features, target, coefficients, intercept, preconditioner, choice)

    def _scales(
        self, X: NDArray[np.float64], y: NDArray[np.float64], noise: NoiseSource, public: PublicScales | None
    ) -> tuple[Standardiser, Standardiser]:
        if self.feature_plan is not None:
            features = release_location_scale(X, self.feature_plan, noise=noise)
            if self.target_plan is None:
                return features, _identity(1)
            return features, release_location_scale(y[:, None], self.target_plan, noise=noise)
        if public is not None:
            return public.features(self.n_features), public.target()
        return _identity(self.n_features), _identity(1)

    def _original_units(
        self, parameters: NDArray[np.float64], features: Standardiser, target: Standardiser
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        slopes, intercept = features.original_units(parameters[: self.n_features])
        if self.fit_intercept:
            intercept = intercept + parameters[-1]
        if self.standardise_target:
            slopes, intercept = slopes * target.scale, intercept * target.scale + target.centre
        return slopes, intercept


def _uncentred(found: Standardiser) -> Standardiser:
    """The same scales around zero: without an intercept, centring would bring one in."""
    return Standardiser(
        np.zeros_like(found.centre), np.hypot(found.scale, found.centre), found.window + np.abs(found.centre)
    )


def _identity(width: int) -> Standardiser:
    return Standardiser(np.zeros(width), np.ones(width), np.full(width, np.inf))
