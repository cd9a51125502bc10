"""The run of an additive model: its releases in the planned order, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from gratis.mechanisms.location_scale import Standardiser, release_location_scale
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.fit_score import (
    expected_accuracy,
    expected_r_squared,
    kept_by_score,
    release_score,
    score_widths,
    shrunk_r_squared,
)
from gratis.recipes.additive_learning import AdditiveState, GradientLearner
from gratis.recipes.additive_plan import AdditivePlan
from gratis.recipes.released_additive import ReleasedAdditive
from gratis.records.predictions import Prediction
from gratis.stages.block_shrinkage import block_moments, cleaned_moments, combined, spectral_moments
from gratis.stages.class_prior import release_class_prior
from gratis.stages.clipped_gradients import Residuals
from gratis.stages.column_histograms import normal_shares, release_column_histograms
from gratis.stages.columns import Columns
from gratis.stages.curve_basis import CurveBasis, Pairs
from gratis.stages.feature_moments import MomentsPlan, release_feature_moments
from gratis.stages.pair_screening import ScreenedPair, screen_pairs
from gratis.stages.score_shrinkage import release_shrinkage

__all__ = ["run_additive"]

Array = NDArray[np.float64]

_SCREEN_CLIP = 0.8
_MOMENTS_CLIP = 1.2  # of the root mean square length of a row


def run_additive(
    rows: Rows,
    plan: AdditivePlan,
    *,
    noise: NoiseSource,
    impute: bool = False,
    directions: Mapping[int, int] | None = None,
) -> tuple[ReleasedAdditive, Prediction, Array | None]:
    """Make the releases of the plan: the model, monotone in given `directions`, its expected score, shares of classes.

    **Guarantee**: all that is returned is a function of the releases in `plan.event`, each made from the rows and from
    earlier releases by its stage (guarantees there). How many pairs are chosen is post-processing of the screening;
    no later event depends on it. Rows with a target that is not finite contribute nothing, nor do rows with an
    invalid feature unless `impute` puts the centre of the column there.
    """
    run = _Run(rows, plan, noise, impute)
    model = run.model()
    if directions:
        model = model.projected(directions)
    model = run.kept(model)
    expected = run.expected_score(model)
    if plan.n_classes is None:
        kept = kept_by_score(expected.value, model.explained[0], plan.records)
        assert plan.target is not None
        error = plan.target.centre_error
        model, expected = model.shrunk(kept), shrunk_r_squared(expected, kept, model.explained[0], error)
    return model, expected, run.classes


class _Run:
    def __init__(self, rows: Rows, plan: AdditivePlan, noise: NoiseSource, impute: bool) -> None:
        self.rows, self.plan, self.noise, self.impute = rows, plan, noise, impute
        self.target = self._target()
        self.columns = Columns(self._features(), plan.levels)
        self.classes = self._classes()
        self.shares = (
            normal_shares(self.columns)
            if plan.histograms is None
            else release_column_histograms(rows, self.columns, plan.histograms, noise=noise)
        )
        self.offset, self.curvatures = _start(self.classes, plan.outputs)
        self.residuals = _residuals(self.target, self.offset, plan.n_classes)

    def _target(self) -> Standardiser:
        if self.plan.target is None:
            return Standardiser.identity(1)
        return release_location_scale(self.rows.targets(), self.plan.target, noise=self.noise)

    def _features(self) -> Standardiser:
        """The map of all columns: the identity on those with levels."""
        d = self.plan.n_columns
        numeric = np.array([j for j in range(d) if j not in self.plan.levels], dtype=np.int64)
        found = replace(Standardiser.identity(d), impute=self.impute)
        if self.plan.features is not None:
            part = release_location_scale(
                self.rows.mapped(lambda X, _: (X[:, numeric],)), self.plan.features, noise=self.noise,
                impute=self.impute, logarithms=True,
            )  # fmt: skip
            for name in ("centre", "scale", "window"):
                getattr(found, name)[numeric] = getattr(part, name)
            if part.knee is not None:
                knee = np.full(d, np.inf)
                knee[numeric] = part.knee
                found = replace(found, knee=knee)
        return found

    def _classes(self) -> Array | None:
        """Released shares of the classes; None for numbers."""
        if self.plan.counts is None:
            return None
        assert self.plan.n_classes is not None
        return release_class_prior(self._usable(), self.plan.n_classes, self.plan.counts, noise=self.noise)

    def model(self) -> ReleasedAdditive:
        plan = self.plan
        learner = GradientLearner(
            self.rows, self.columns, plan, self.residuals, self.curvatures, self.offset, self.noise
        )
        basis = CurveBasis(self.columns, self.shares, plan.n_cosines)
        first_guess = 1 / basis.mean_square()
        noisy, std = self._moments(basis, plan.moments)
        moments, unknown = _cleaned(basis, noisy, np.full_like(noisy, std))
        state = AdditiveState.at_zero(basis, plan.outputs, unknown)
        learner.learn(state, basis, moments, plan.main, plan.main_mu, first_guess)
        if plan.screening is not None:
            assert plan.joint_moments is not None
            assert plan.joint is not None
            found = screen_pairs(
                self.rows, self.columns, basis, self.residuals, state.parameters, plan.screening,
                clip_factor=_SCREEN_CLIP * plan.clip,
                sampling=float(np.mean([learner.sampling(k) for k in range(plan.outputs)])), noise=self.noise,
            )  # fmt: skip
            basis = self._with_pairs(found)
            moments, unknown = _cleaned(basis, *_both(noisy, std, *self._moments(basis, plan.joint_moments)))
            state = state.widened(basis, found, unknown)
            learner.learn(state, basis, moments, plan.joint, plan.joint_mu, first_guess)
        assert state.frame is not None
        self.freedoms = state.frame.effective_dimension
        covariances = learner.covariances(state, basis, moments)
        return ReleasedAdditive.of(
            basis, state.parameters, covariances, target=self.target, offset=self.offset,
            n_classes=plan.n_classes, explained=state.explained(moments, covariances),
        )  # fmt: skip

    def _moments(self, basis: CurveBasis, plan: MomentsPlan) -> tuple[Array, float]:
        return release_feature_moments(
            self.rows, self.columns, basis.features, plan, clip_norm=_MOMENTS_CLIP * math.sqrt(basis.mean_square()),
            noise=self.noise,
        )  # fmt: skip

    def kept(self, model: ReleasedAdditive) -> ReleasedAdditive:
        """As much of a classifier as its own rows speak for, between the prior of its classes and what was learnt."""
        if self.plan.shrinkage is None:
            return model
        assert self.classes is not None

        def scores(X: Array, y: Array) -> tuple[Array, Array]:
            found = model.scores(X) - model.offset
            return (found if model.outputs > 1 else found * np.array([-0.5, 0.5])), y

        deviation = math.sqrt(max(model.explained[0], 0.0) / model.outputs)
        share = release_shrinkage(
            self._usable().mapped(scores), self.classes, deviation=deviation, event=self.plan.shrinkage,
            noise=self.noise,
        )  # fmt: skip
        # How much is kept is uncertain, too: bands narrow by the root of it. By simulation (benchmarks/shape_bands.py):
        # with all of it "classes 4000" covered .929, with nothing "three" .983.
        return replace(model.shrunk(share), covariances=tuple(share * block for block in model.covariances))

    def _usable(self) -> Rows:
        """The rows; those with an invalid feature or target have no target."""
        columns = self.columns  # not self: what is sent to a cluster must not hold the noise source
        return self.rows.mapped(lambda X, y: (X, np.where(columns.usable(X, y), y, np.nan)))

    def expected_score(self, model: ReleasedAdditive) -> Prediction:
        """Release the score of the model on the training rows, and say what fresh rows may be expected to give."""
        n, classes = self.plan.n_records, self.plan.n_classes
        reach = model.target.window / model.target.scale

        def squares(X: Array, y: Array) -> Array:
            target = model.target.transform(y[:, None])
            return np.square(np.hstack([target - np.clip(model.scores(X), -reach, reach), target]))

        def right(X: Array, y: Array) -> Array:
            scores = model.scores(X)
            found = scores.argmax(axis=1) if model.outputs > 1 else scores[:, 0] > 0
            return np.asarray(found == y, dtype=np.float64)[:, None]

        usable = self._usable()
        if classes is not None:
            assert self.classes is not None
            found = release_score(usable, right, np.ones(1), n, self.plan.score, noise=self.noise)
            return expected_accuracy(found, n, self.plan.records, float(self.classes.max()))
        # Residuals are smaller the more the gradients said was explained; a narrower clip has less noise.
        left = min(max(1 - model.explained[2], 0.2), 1.0)
        found = release_score(
            usable, squares, score_widths(left, self.plan.score.noise_std), n, self.plan.score, noise=self.noise
        )
        return expected_r_squared(found, model.target, n, self.plan.records, self.freedoms)

    def _with_pairs(self, found: list[ScreenedPair]) -> CurveBasis:
        pairs = Pairs(tuple(pair.columns for pair in found), self.plan.pair_coordinates(max(len(found), 1)))
        return CurveBasis(self.columns, self.shares, self.plan.n_cosines, pairs)


def _start(classes: Array | None, outputs: int) -> tuple[Array, Array]:
    """Scores at which the model starts, and the curvature of the loss there: those of the released class shares."""
    if classes is None:
        return np.zeros(1), np.ones(1)
    curvatures = classes * (1 - classes)
    if outputs == 1:
        return np.log(classes[1:] / classes[:1]), curvatures[1:]
    return np.log(classes) - np.log(classes).mean(), curvatures


def _residuals(target: Standardiser, offset: Array, n_classes: int | None) -> Residuals:
    def numbers(scores: Array, y: Array) -> Array:
        return target.transform(y[:, None]) - scores

    def two_classes(scores: Array, y: Array) -> Array:
        return y[:, None] - expit(offset + scores)

    def classes(scores: Array, y: Array) -> Array:
        found = -softmax(offset + scores, axis=1)
        found[np.arange(len(y)), y.astype(np.int64)] += 1.0
        return found

    return numbers if n_classes is None else two_classes if n_classes == 2 else classes


def _cleaned(basis: CurveBasis, noisy: Array, std: Array) -> tuple[Array, float]:
    """Second moments and what is unknown of them: of lines by their spectrum, of curves and pairs block by block."""
    within = block_moments(noisy, std, basis.within())
    if basis.width == 1 + basis.columns.n_columns:
        return spectral_moments(noisy, float(std[0, 0]), np.concatenate(within).ravel())
    return cleaned_moments(noisy, std, within)


def _both(first: Array, first_std: float, second: Array, second_std: float) -> tuple[Array, Array]:
    """Second moments of main effects from both releases, those of pairs from the second; and their deviations."""
    main = len(first)
    noisy, std = second.copy(), np.full_like(second, second_std)
    noisy[:main, :main], std[:main, :main] = combined(first, first_std, second[:main, :main], second_std)
    return noisy, std
