"""Softmax regression: scales → second moments → class counts → flow from the prior → calibration → score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu, split_mu
from gratis.mechanisms.clipped_gradient import clipped_gradient_sum, row_norms, sanitised
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner
from gratis.models.fit_score import SCORE_SHARE, expected_accuracy, plan_score, release_score
from gratis.models.logistic import SoftmaxModel
from gratis.models.released_linear import ReleasedLinear
from gratis.planning.class_flow import (
    LARGEST_STEP,
    class_flow,
    class_forecast,
    class_prediction,
    flow_steps,
    largest_factor,
)
from gratis.recipes.linear import StagedRecipe, plain_twin
from gratis.recipes.recipe import Array
from gratis.records.budget import Budget
from gratis.records.events import Composition, FullBatchDescent, GaussianRelease
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import Descent, StagedSettings
from gratis.stages.calibration import calibrate_scores, calibration_event
from gratis.stages.class_prior import class_counts_event, release_class_prior
from gratis.stages.flow import follow_flow
from gratis.stages.staged import (
    ReleasedBasis,
    StagedPlan,
    plan_stages,
    release_basis,
    second_moments_pay,
)

__all__ = ["ClassRelease", "StagedLogistic"]

# Of μ²: class counts, calibration; the rest is that of the stages. Plain descent has no basis to calibrate in.
_COUNTS, _CALIBRATION = 0.02, 0.05
_PLAIN_STEPS = 64


@dataclass(frozen=True, slots=True)
class ClassRelease:
    """A linear classifier that was released, what is predicted of it, the shares of its classes, and its basis."""

    fit: ReleasedLinear
    prediction: Prediction
    prior: NDArray[np.float64]
    moved: Preconditioner


@dataclass(frozen=True, slots=True)
class _Flow:
    """How the descent is run: from public facts, or by rules of what was released before it."""

    clip_norm: float
    time: float
    largest_step: float


@dataclass(frozen=True, slots=True)
class StagedLogistic(StagedRecipe):
    """The recipe for given facts: every release is fixed, clip norm and flow time follow from what was released."""

    @property
    def _classes(self) -> int:
        assert self.facts.classes is not None
        return self.facts.classes

    @property
    def _mus(self) -> dict[str, float]:
        """μ of class counts, calibration and score (where they are) and of the stages."""
        mu = calibrate_mu(self.budget)
        rows, columns, relation = self.facts.rows, self.facts.columns, self.budget.neighbouring
        shares = {"counts": _COUNTS}
        if second_moments_pay(rows, columns, mu=mu, neighbouring=relation):
            shares["calibration"] = _CALIBRATION
        if self.reading.standardise and not self.descent.given:
            shares["score"] = SCORE_SHARE
        shares["stages"] = 1 - sum(shares.values())
        return dict(zip(shares, split_mu(mu, list(shares.values())), strict=True))

    def check_memory(self) -> None:
        """Refuse rows in memory that would not leave room for the fit; a stream takes constant memory."""
        self.stages.check_memory()

    @property
    def stages(self) -> StagedPlan:
        """Scales, second moments and descent, from public facts."""
        rows, columns, relation = self.facts.rows, self.facts.columns, self.budget.neighbouring
        mus = self._mus

        def planned(steps: int) -> StagedPlan:
            return plan_stages(
                rows, columns, mu=mus["stages"], neighbouring=relation, outputs=self._classes,
                standardise=self.reading.standardise, precondition="calibration" in mus, steps=steps,
            )  # fmt: skip

        if self.descent.steps or "calibration" not in mus:
            return planned(self.descent.steps or _PLAIN_STEPS)
        mu = planned(_PLAIN_STEPS).descent_mu
        return planned(flow_steps(rows, columns, self._classes, mu=mu, neighbouring=relation))

    @property
    def _counts(self) -> GaussianRelease:
        return class_counts_event(
            mu=self._mus["counts"], neighbouring=self.budget.neighbouring, n_records=self.facts.rows
        )

    @property
    def _calibration(self) -> FullBatchDescent | None:
        mu = self._mus.get("calibration")
        if mu is None:
            return None
        return calibration_event(self.facts.rows, self._classes, mu=mu, neighbouring=self.budget.neighbouring)

    @property
    def _score(self) -> GaussianRelease | None:
        mu = self._mus.get("score")
        return None if mu is None else plan_score(self.facts.rows, 1, mu=mu, neighbouring=self.budget.neighbouring)

    @property
    def plan(self) -> Plan:
        """What is fixed before the data is touched."""
        stages = self.stages
        *before, descent = stages.event.events
        last = [event for event in (self._calibration, self._score) if event is not None]
        event = Composition((*before, self._counts, descent, *last))
        return _plan(stages, event, self.budget, self._classes, self.descent)

    def run(self, rows: Rows, *, noise: NoiseSource) -> ClassRelease:
        """Release; the settings of the descent follow from what was released before it."""
        stages, plan, calibration, score = self.stages, self.plan, self._calibration, self._score
        basis = release_basis(rows, stages, noise=noise, features=self.reading.features, impute=self.reading.impute)
        prior = release_class_prior(basis.rows, self._classes, self._counts, noise=noise)
        flow = self._flow(stages, basis.moved.effective_dimension, prior)
        slopes = _descend(basis, stages, prior, flow, noise=noise)
        shift = np.log(prior)
        if calibration is not None:
            size, dimension = basis.moved.spectrum[:, None], basis.moved.effective_dimension
            factor, more = calibrate_scores(
                basis.rows.mapped(lambda Z, t, slopes=slopes: (sanitised(Z) @ slopes, t)), prior,
                scale=max(math.sqrt(float((size * np.square(slopes)).sum()) / self._classes), 1e-6),
                most=largest_factor(stages.n_records, dimension, self._classes), event=calibration, noise=noise,
            )  # fmt: skip
            slopes, shift = factor * slopes, shift + more
        parameters = basis.moved.restore(slopes)
        parameters[-1] += shift
        fit = ReleasedLinear(
            parameters=np.nan_to_num(parameters), features=basis.features, target=basis.target, event=plan.event
        )
        prediction = plan.prediction
        if score is not None:

            def right(Z: Array, t: Array) -> Array:
                return np.asarray((Z @ slopes + shift).argmax(axis=1) == t, dtype=np.float64)[:, None]

            found = release_score(basis.rows, right, np.ones(1), stages.n_records, score, noise=noise)
            records = stages.n_records * calibrate_mu(self.budget) / self.budget.neighbouring.sensitivity_factor
            prediction = expected_accuracy(found, stages.n_records, records, float(prior.max()))
        return ClassRelease(fit, prediction, prior, basis.moved)

    def _flow(self, stages: StagedPlan, dimension: float, prior: NDArray[np.float64]) -> _Flow:
        steps, descent = stages.steps, self.descent
        if descent.clip_norm is not None:
            return _Flow(descent.clip_norm, float(descent.learning_rate) * steps, math.inf)  # type: ignore[arg-type]
        if stages.second_moments is None:
            twin = plain_twin(
                stages.n_columns + 1, stages.n_records, steps, stages.neighbouring, stages.descent_mu, self._classes
            )
            return _Flow(twin.clip_norm(dimension), twin.learning_rate * steps, math.inf)
        found = class_flow(stages.n_records, dimension, prior, mu=stages.descent_mu, neighbouring=stages.neighbouring)
        return _Flow(found.clip * math.sqrt(dimension), found.time, LARGEST_STEP)


def _descend(
    basis: ReleasedBasis, stages: StagedPlan, prior: NDArray[np.float64], flow: _Flow, *, noise: NoiseSource
) -> NDArray[np.float64]:
    """Follow the flow of the clipped cross-entropy from the prior; return what it adds to the scores, (D, K).

    **Guarantee**: that of `stages.descent`: every step releases a mean of gradients clipped to norm C in units of C
    (`clipped_gradient_sum`), and all else is post-processing. A ridge of 1/n on standardised slopes, scikit-learn's
    C = 1, keeps separable classes finite; it is a function of θ alone.
    """
    model, n, offset = SoftmaxModel(stages.outputs), stages.n_records, np.log(prior)

    def prepared(Z: Array, t: Array) -> tuple[Array, ...]:
        clean = sanitised(Z)
        return clean, row_norms(clean), model.targets(t)

    rows = basis.rows.mapped(prepared)
    clip, std = np.array([flow.clip_norm]), stages.descent.noise_stds.values[0]

    def gradient(place: NDArray[np.float64]) -> NDArray[np.float64]:
        clipped = partial(
            clipped_gradient_sum, parameters=place[:, None], mean=lambda u: model.mean(u + offset), clip_norms=clip
        )
        exact = rows.clipped_total(clipped) / n
        slopes = basis.moved.restore(place)
        ridge = np.vstack([slopes[:-1], np.zeros_like(slopes[-1:])]) / n
        if basis.moved.basis is not None:
            ridge = basis.moved.basis @ ridge
        return np.asarray(flow.clip_norm * noise.release(exact[:, 0], std) + ridge)

    start = np.zeros((rows.n_features, stages.outputs))
    found = follow_flow(gradient, start, time=flow.time, steps=stages.steps, largest_step=flow.largest_step)
    return np.asarray(found - found.mean(axis=1, keepdims=True))


def _forecast(spectrum: NDArray[np.float64], prior: NDArray[np.float64], stages: StagedPlan, source: str) -> Prediction:
    return class_forecast(
        spectrum, prior, stages.n_records, mu=stages.descent_mu, neighbouring=stages.neighbouring, source=source
    )


def _plan(stages: StagedPlan, event: Composition, budget: Budget, n_classes: int, descent: Descent) -> Plan:
    """Name what is fixed, and the rules by which the rest follows from what will be released."""
    even, width = np.full(n_classes, 1 / n_classes), stages.n_columns + 1
    if stages.second_moments is not None:
        schedule, chosen = "preconditioned, Nesterov", "rules of the released class counts and second moments"
        stage = "location and scale, second moments, class counts, descent and calibration share the budget"
        basis = "the basis of the released second moments"
        prediction = _forecast(
            np.full(width, 0.9), even, stages, "a flat spectrum and even classes (before the data is touched)"
        )
        words = (
            "Clip norm and flow time are functions of the noise level and of the released class counts; the model "
            "starts at their log, and ends with one factor and a shift for each class that are paid for."
        )
    else:
        schedule, chosen = "plain", "chosen by twins of assumed spectra"
        stage = "second moments of so many columns would tell less than they cost; the others share the budget"
        basis = "the columns themselves"
        twin = plain_twin(width, stages.n_records, stages.steps, stages.neighbouring, stages.descent_mu, n_classes)
        prediction = class_prediction(
            twin.risks, twin.null_risks, "twins of assumed spectra (before the data is touched)"
        )
        words = (
            "Clip norm and learning rate minimise the worst regret over synthetic problems with flat and decaying "
            "spectra; the model starts at the log of the released class counts."
        )
    fixed = descent.clip_norm is not None
    return Plan(
        algorithm="full-batch",
        schedule=f"{schedule}, mean of the last half",
        settings=StagedSettings(
            steps=stages.steps,
            stages=tuple(leaf.label or leaf.kind for leaf in event.leaves()),
            descent_mu=stages.descent_mu,
            second_moments_mu=None if stages.second_moments is None else stages.second_moments_mu,
            clip_and_rate="given" if fixed else chosen,
            given=descent if descent.given else None,
        ),
        budget=budget,
        event=event,
        prediction=prediction,
        reasons=(
            f"{budget.describe()}: {stage}; {stages.steps} full-batch steps in {basis}.",
            "Clip norm and learning rate are the user's." if fixed else words,
        ),
    )
