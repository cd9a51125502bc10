"""The stages of a private generalised additive model with selected pairs: planned from public facts, and run.

Scales → histograms → second moments → gradients; then, where records allow it, screening of pairs → second moments →
gradients of main effects and chosen pairs jointly. Every event is fixed by public facts before the data is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from gratis.mechanisms.location_scale import (
    StandardisationPlan,
    Standardiser,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.recipes.released_additive import ReleasedAdditive
from gratis.records.checks import check_count, check_positive
from gratis.records.events import Composition, Event, GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Prediction
from gratis.stages.block_shrinkage import cleaned_moments, combined, pair_moments, spectral_moments
from gratis.stages.clipped_gradients import GradientsPlan, Residuals, plan_gradients, release_gradient
from gratis.stages.column_histograms import (
    HistogramPlan,
    Shares,
    normal_shares,
    plan_column_histograms,
    release_column_histograms,
)
from gratis.stages.columns import Columns
from gratis.stages.curve_basis import CurveBasis, Pairs
from gratis.stages.feature_moments import MomentsPlan, plan_feature_moments, release_feature_moments
from gratis.stages.fit_score import expected_accuracy, expected_r_squared, plan_score, release_score
from gratis.stages.gradient_posterior import GradientHistory, precondition
from gratis.stages.pair_screening import ScreenedPair, ScreeningPlan, plan_pair_screening, screen_pairs

__all__ = ["AdditivePlan", "bends", "plan_additive", "run_additive"]

Array = NDArray[np.float64]

# Constants without another source: the prototype's, chosen on California, bike_hour, white wine, communities, adult.
_RECORDS_PER_COSINE, _MOST_COSINES = 4, 16
_RECORDS_PER_BENT_COLUMN = 40  # airfoil and concrete below it: lines alone are better
_RECORDS_PER_SQUARED_COLUMN = 8  # from here on pairs are looked for
_RECORDS_PER_PAIR, _RECORDS_PER_PAIR_FEATURE = 600, 20
_MOST_MAIN, _MOST_IN_PAIRS = 400, 320  # features: seconds grow with their cube
_GROWTH = 2.0
_SCREEN_CLIP = 0.8
_MOMENTS_CLIP = 1.2  # of the root mean square length of a row
_UNEXPLAINED = 0.5  # share of the target's variance that sampling noise is reckoned with
_FALL = 0.7  # of the least energy of gradients so far; above it the next step is smaller
_RIDGE = 0.045  # times the unknown part of the second moments; validation parts, .03 … .12 do alike
_KEPT = 1e-2  # least variance of a group in the basis of gradients, in units of the first guess
# With few records the scales must be found first of all, the target's before those of the columns. Shares of μ² at
# N records in units of the noise; in between they move with ln N. The first two were compared on test rows of splits
# 5000 to 5003 of small tables, two of which docs/results/tables.md reports: not blind there.
_SHARES = {
    15.0: {"features": 0.14, "target": 0.48, "histograms": 0.02, "moments": 0.08, "gradients": 0.28},
    80.0: {"features": 0.22, "target": 0.10, "histograms": 0.03, "moments": 0.15, "gradients": 0.50},
    1000.0: {"features": 0.10, "target": 0.05, "histograms": 0.05, "moments": 0.15, "gradients": 0.65},
}
# A narrow clip and few steps lose less than their noise where records are scarce.
_SCARCE, _PLENTY = 100.0, 1000.0
_CLIP, _STEPS = (0.8, 1.3), (8, 12)
_CLASS_CLIP, _CLASS_STEPS = (0.6, 0.6), (16, 16)
# With pairs, what precedes the moments gets a fifth less, and the rest is split so.
_BEFORE_PAIRS = 0.8
_SCORE_SHARE = 0.03  # for the score of the fit; the rest is split as follows
# N = nμ/κ up to which a fit must speak for itself and from which it need not, and the R² that is enough. Chosen on 16
# draws of the synthetic problem of tests/estimators/test_additive.py (200 rows, 8 columns) at ε = .5, 1, 2.
_SCARCE, _MANY, _CONVINCING = 15.0, 200.0, 0.25
_CLIPPED_SQUARE = 8.0  # of residuals and targets in that score, in units of their variance
_PAIR_SHARES = {"moments": 0.10, "gradients": 0.24, "screening": 0.10, "joint moments": 0.10, "joint gradients": 0.30}


def bends(records: float, n_columns: int, n_classes: int | None = None) -> bool:
    """Whether N = nμ/κ records allow curves; below, lines are all that can be learnt of so many columns and classes.

    Classes: letter (26) loses with curves at 42 records a column and gains at 134, pendigits (10) gains at 73.
    """
    outputs = n_classes if n_classes is not None and n_classes > 2 else 1
    return records >= _RECORDS_PER_BENT_COLUMN * n_columns * outputs**0.25


def _shares(records: float, *, pairs: bool, without: set[str]) -> dict[str, float]:
    """Shares of μ² at N records in units of the noise; those of a missing stage go to the others."""
    sizes = np.log(list(_SHARES))
    found = {
        name: float(np.interp(math.log(records), sizes, [shares[name] for shares in _SHARES.values()]))
        for name in _SHARES[15.0]
    }
    if pairs:
        first = {name: _BEFORE_PAIRS * found[name] for name in ("features", "target", "histograms")}
        rest = (1 - sum(first.values())) / sum(_PAIR_SHARES.values())
        found = first | {name: rest * share for name, share in _PAIR_SHARES.items()}
    kept = {name: share for name, share in found.items() if name not in without}
    return {name: (1 - _SCORE_SHARE) * share / sum(kept.values()) for name, share in kept.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditivePlan:
    """All releases of an additive model, from public facts alone."""

    n_records: int
    n_columns: int
    levels: dict[int, int]
    n_classes: int | None
    neighbouring: Neighbouring
    n_cosines: int
    features: StandardisationPlan | None
    target: StandardisationPlan | None
    histograms: HistogramPlan | None
    moments: MomentsPlan
    main: GradientsPlan
    main_mu: float
    clip: float
    score: GaussianRelease
    records: float  # N = nμ/κ
    screening: ScreeningPlan | None = None
    joint_moments: MomentsPlan | None = None
    joint: GradientsPlan | None = None
    joint_mu: float = 0.0

    @property
    def outputs(self) -> int:
        """Scores of a record: one for a number or two classes, else one for every class."""
        return self.n_classes if self.n_classes is not None and self.n_classes > 2 else 1

    @property
    def event(self) -> Composition:
        """The whole fit as one event, in the order in which it runs."""
        stages = (
            self.target, self.features, self.histograms, self.moments, self.main,
            self.screening, self.joint_moments, self.joint,
        )  # fmt: skip
        events: list[Event] = [stage.event for stage in stages if stage is not None]
        return Composition((*events, self.score))

    def pair_coordinates(self, n_pairs: int) -> int:
        """Coordinates on each side of a pair, when so many pairs were chosen."""
        kappa = self.neighbouring.sensitivity_factor
        return _pair_coordinates(self.n_records * self.joint_mu / kappa, n_pairs)


def plan_additive(
    n_records: int,
    n_columns: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    levels: Mapping[int, int] | None = None,
    n_classes: int | None = None,
    pairs: bool = True,
    alone: frozenset[int] = frozenset(),
) -> AdditivePlan:
    """Split `mu` over the stages (squares add up) and fix every release.

    What decides is N = nμ/κ, records in units of the noise, against the number of columns d.

    Parameters
    ----------
    levels : mapping
        Categorical columns and their numbers of levels.
    n_classes : int, optional
        None for regression.
    pairs : bool
        Whether pairs may be looked for.
    alone : set of columns
        Those that must not take part in pairs.

    >>> plan = plan_additive(20_000, 10, mu=0.27, neighbouring=Neighbouring.ZERO_OUT)
    >>> plan.n_cosines, plan.screening.most
    (16, 9)
    """
    n, d = check_count("n_records", n_records, minimum=2), check_count("n_columns", n_columns)
    kappa = neighbouring.sensitivity_factor
    records = n * check_positive("mu", mu) / kappa
    categorical = dict(levels or {})
    numeric = d - len(categorical)
    outputs = n_classes if n_classes is not None and n_classes > 2 else 1
    open_columns = [j for j in range(d) if j not in alone]
    candidates = tuple(combinations(open_columns, 2))
    with_pairs = pairs and bool(candidates) and records > _RECORDS_PER_SQUARED_COLUMN * d * d
    cosines = 0
    if numeric and bends(records, d, n_classes):
        cosines = max(int(min(records / (_RECORDS_PER_COSINE * d), _MOST_MAIN / d - 1, _MOST_COSINES)), 0)
    width = 1 + numeric * (1 + cosines) + sum(categorical.values())
    plenty = min(max(math.log(records / _SCARCE) / math.log(_PLENTY / _SCARCE), 0.0), 1.0)
    clip, steps = (
        scarce + plenty * (rich - scarce)
        for scarce, rich in ((_CLIP, _STEPS) if n_classes is None else (_CLASS_CLIP, _CLASS_STEPS))
    )
    steps = round(steps)
    without = {"target"} if n_classes is not None else set()
    if not numeric:
        without.add("features")
    if not (cosines or categorical or n_classes):
        without.add("histograms")  # lines alone: ranks are not needed
    shares = _shares(records, pairs=with_pairs, without=without)
    # One part in 10¹² less, so that rounding cannot push the sum of squares above μ².
    mus = {name: mu * math.sqrt(share) * (1 - 1e-12) for name, share in shares.items()}
    target = features = None
    if n_classes is None:
        target = plan_standardisation(
            n, 1, mu=mus["target"], neighbouring=neighbouring, tail=0.002, headroom=2.0, label="target"
        )
    if numeric:
        features = plan_standardisation(n, numeric, mu=mus["features"], neighbouring=neighbouring)
    histograms = None
    if "histograms" in mus:
        histograms = plan_column_histograms(
            n, d, mu=mus["histograms"], neighbouring=neighbouring, n_classes=n_classes or 0
        )
    plan = AdditivePlan(
        n_records=n,
        n_columns=d,
        levels=categorical,
        n_classes=n_classes,
        neighbouring=neighbouring,
        n_cosines=cosines,
        features=features,
        target=target,
        histograms=histograms,
        moments=plan_feature_moments(
            n, width, mu=mus["moments"], neighbouring=neighbouring, label="moments of main effects"
        ),
        main=plan_gradients(
            n,
            width,
            outputs,
            steps,
            mu=mus["gradients"],
            neighbouring=neighbouring,
            growth=_GROWTH,
            label="main effects",
        ),
        main_mu=mus["gradients"],
        clip=clip,
        score=plan_score(
            n, 2 if n_classes is None else 1, mu=mu * math.sqrt(_SCORE_SHARE) * (1 - 1e-12), neighbouring=neighbouring
        ),
        records=records,
    )
    if not with_pairs:
        return plan
    most = min(round(min(max(records / _RECORDS_PER_PAIR, 4), 2 * d)), len(candidates), _MOST_IN_PAIRS // 9)
    joint_mu = mus["joint gradients"]
    widest = max(k * _pair_coordinates(n * joint_mu / kappa, k) ** 2 for k in range(1, most + 1))
    return replace(
        plan,
        screening=plan_pair_screening(
            n, candidates, outputs, most=most, mu=mus["screening"], neighbouring=neighbouring
        ),
        joint_moments=plan_feature_moments(
            n, width + widest, mu=mus["joint moments"], neighbouring=neighbouring, label="moments with pairs"
        ),
        joint=plan_gradients(
            n, width + widest, outputs, steps, mu=joint_mu, neighbouring=neighbouring, growth=_GROWTH,
            label="with pairs",
        ),
        joint_mu=joint_mu,
    )  # fmt: skip


def _pair_coordinates(records: float, n_pairs: int) -> int:
    wanted = round(math.sqrt(records / (_RECORDS_PER_PAIR_FEATURE * n_pairs)))
    return int(min(max(wanted, 3), 8, max(math.isqrt(_MOST_IN_PAIRS // n_pairs), 1)))


def run_additive(
    rows: Rows,
    plan: AdditivePlan,
    *,
    noise: NoiseSource,
    impute: bool = False,
    directions: Mapping[int, int] | None = None,
) -> tuple[ReleasedAdditive, Prediction]:
    """Make the releases of the plan and return the model, monotone in given `directions`, and its expected score.

    **Guarantee**: all that is returned is a function of the releases in `plan.event`, each made from the rows and from
    earlier releases by its stage (guarantees there). How many pairs are chosen is post-processing of the screening;
    no later event depends on it. Rows with a target that is not finite contribute nothing, nor do rows with an
    invalid feature unless `impute` puts the centre of the column there.
    """
    run = _Run(rows, plan, noise, impute)
    model = run.model()
    if directions:
        model = model.projected(directions)
    expected = run.expected_score(model)
    if plan.n_classes is None:
        model = model.shrunk(_kept_by_score(expected.value, plan.records))
    return model, expected


def _kept_by_score(expected: float, records: float) -> float:
    """How much of a fit is kept: all of it with many records; with few, as much as its own paid score speaks for.

    >>> [round(_kept_by_score(0.02, records), 2) for records in (10, 50, 200)]
    [0.28, 0.62, 1.0]
    """
    many = min(max(math.log(records / _SCARCE) / math.log(_MANY / _SCARCE), 0.0), 1.0)
    return many + (1 - many) * min(math.sqrt(max(expected, 0.0) / _CONVINCING), 1.0)


@dataclass(slots=True)
class _State:
    """What is learnt so far: coefficients, variances of groups, and the history of gradients behind them."""

    parameters: Array
    variances: Array
    history: GradientHistory
    first: Array  # gradient at 0
    ridge: float = 0.0
    gain: float = 0.0  # by how much the mean squared error fell, as far as gradients can tell
    covariance: list[Array] = field(default_factory=list)


class _Run:
    def __init__(self, rows: Rows, plan: AdditivePlan, noise: NoiseSource, impute: bool) -> None:
        self.rows, self.plan, self.noise, self.impute = rows, plan, noise, impute
        self.target = self._target()
        self.columns = Columns(self._features(), plan.levels)
        self.shares = (
            normal_shares(self.columns)
            if plan.histograms is None
            else release_column_histograms(rows, self.columns, plan.histograms, noise=noise)
        )
        self.offset, self.curvatures = _prior(self.shares, plan.outputs)
        self.residuals = _residuals(self.target, self.offset, plan.n_classes)

    def _target(self) -> Standardiser:
        if self.plan.target is None:
            return Standardiser.identity(1)
        return release_location_scale(self.rows.targets(), self.plan.target, noise=self.noise)

    def _features(self) -> Standardiser:
        """The map of all columns: the identity on those with levels."""
        d = self.plan.n_columns
        numeric = np.array([j for j in range(d) if j not in self.plan.levels], dtype=np.int64)
        found = Standardiser.identity(d)
        if self.plan.features is not None:
            part = release_location_scale(
                self.rows.mapped(lambda X, _: (X[:, numeric],)), self.plan.features, noise=self.noise,
                impute=self.impute,
            )  # fmt: skip
            for name in ("centre", "scale", "window"):
                getattr(found, name)[numeric] = getattr(part, name)
        return replace(found, impute=self.impute)

    def model(self) -> ReleasedAdditive:
        plan = self.plan
        basis = CurveBasis(self.columns, self.shares, plan.n_cosines)
        within, square = basis.within(), basis.mean_square()
        noisy, std = release_feature_moments(
            self.rows, self.columns, basis.features, plan.moments, clip_norm=_MOMENTS_CLIP * math.sqrt(square),
            noise=self.noise,
        )  # fmt: skip
        if plan.histograms is None:
            # Nobody asked how wide the columns are on their new scale: about 1, and what the moments say.
            within = [pair_moments(noisy[i : i + 1, i : i + 1], math.sqrt(2) * std, w) for i, w in enumerate(within)]
        if basis.width == 1 + plan.n_columns:
            moments, unknown = spectral_moments(noisy, std, np.concatenate(within).ravel())
        else:
            moments, unknown = cleaned_moments(noisy, np.full_like(noisy, std), within)
        kinds = basis.groups()[1]
        state = _State(
            np.zeros((basis.width, plan.outputs)),
            np.full((plan.outputs, len(kinds)), 1 / square),
            GradientHistory(basis.width, plan.outputs),
            np.zeros((basis.width, plan.outputs)),
            _ridge(unknown),
        )
        self._learn(state, basis, moments, plan.main, plan.main_mu, 1 / square)
        if plan.screening is not None:
            assert plan.joint_moments is not None
            assert plan.joint is not None
            found = screen_pairs(
                self.rows, self.columns, basis, self.residuals, state.parameters, plan.screening,
                clip_factor=_SCREEN_CLIP * self.plan.clip,
                sampling=float(np.mean([self._sampling(k) for k in range(plan.outputs)])), noise=self.noise,
            )  # fmt: skip
            basis = self._with_pairs(found)
            wider, wider_std = release_feature_moments(
                self.rows, self.columns, basis.features, plan.joint_moments,
                clip_norm=_MOMENTS_CLIP * math.sqrt(basis.mean_square()), noise=self.noise,
            )  # fmt: skip
            moments, unknown = _joint_moments(basis, noisy, std, wider, wider_std)
            state = _widened(state, basis, found, _ridge(unknown))
            self._learn(state, basis, moments, plan.joint, plan.joint_mu, 1 / square)
        return ReleasedAdditive.of(
            basis, state.parameters, state.covariance, target=self.target, offset=self.offset,
            n_classes=plan.n_classes, explained=_explained(state, moments),
        )  # fmt: skip

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

        columns = self.columns  # not self: what is sent to a cluster must not hold the noise source
        usable = self.rows.mapped(lambda X, y: (X, np.where(columns.usable(X, y), y, np.nan)))
        if classes is not None:
            assert self.shares.classes is not None
            found = release_score(usable, right, np.ones(1), n, self.plan.score, noise=self.noise)
            return expected_accuracy(found, n, self.plan.records, float(self.shares.classes.max()))
        # Residuals are smaller the more the gradients said was explained; a narrower clip has less noise.
        left = min(max(1 - model.explained[2], 0.2), 1.0)
        widths = _CLIPPED_SQUARE * np.array([left, 1.0])
        found = release_score(usable, squares, widths, n, self.plan.score, noise=self.noise)
        return expected_r_squared(found, n, self.plan.records)

    def _with_pairs(self, found: list[ScreenedPair]) -> CurveBasis:
        pairs = Pairs(tuple(pair.columns for pair in found), self.plan.pair_coordinates(max(len(found), 1)))
        return CurveBasis(self.columns, self.shares, self.plan.n_cosines, pairs)

    def _learn(
        self, state: _State, basis: CurveBasis, moments: Array, plan: GradientsPlan, mu: float, first_guess: float
    ) -> None:
        """Take the planned gradients; after each, move to the posterior mean given all of them."""
        n, kappa = self.plan.n_records, self.plan.neighbouring.sensitivity_factor
        groups = basis.groups()
        curvature = float(self.curvatures.mean())
        sampling = (_UNEXPLAINED if self.plan.n_classes is None else curvature) / n
        least = least_spread = 0.0
        steps = len(plan.events)
        for k in range(steps):
            if k < 5 or k % 4 == 0:
                variances = state.variances.mean(axis=0)
                frame = precondition(
                    moments, state.ridge, np.maximum(variances, 1e-9)[groups[0]],
                    noise_unit=kappa * self.plan.clip / (n * mu), sampling=sampling, curvature=curvature,
                )  # fmt: skip
            gradient, std = release_gradient(
                self.rows, self.columns, basis.features, self.residuals, state.parameters, frame.inverse_root, plan, k,
                clip_norm=self.plan.clip * math.sqrt(frame.effective_dimension), noise=self.noise,
            )  # fmt: skip
            # A gradient that does not fall says that steps went too far: trust the second moments less.
            energy = float(np.square(gradient).sum()) - gradient.size * std**2
            spread = math.sqrt(2 * gradient.size) * std**2
            if k and energy > _FALL * max(least, 0.0) + 3 * (spread + least_spread):
                state.ridge = min(3 * state.ridge + 0.02, 100.0)
            if not k or energy + spread < least + least_spread:
                least, least_spread = energy, spread
            if not state.parameters.any():
                state.first = frame.root @ gradient
            kept = _kept_share(state.parameters, state.first, gradient, std, frame.root)
            state.gain = self._gain(kept * state.parameters, state.parameters, moments, frame.root @ gradient)
            state.history.add(gradient, std, frame, state.parameters)
            for output in range(self.plan.outputs):
                found = state.history.posterior(
                    output, moments, state.ridge, state.variances[output], groups,
                    curvature=self.curvatures[output], sampling=self._sampling(output),
                    rounds=3 if k < steps - 1 else 8,
                )  # fmt: skip
                state.parameters = state.parameters.copy()
                state.parameters[:, output] = found.mean
                if k >= 2:
                    state.variances[output] = np.maximum(found.variances, _KEPT * first_guess)
        state.parameters = kept * state.parameters
        state.covariance = [self._covariance(state, basis, moments, output) for output in range(self.plan.outputs)]

    def _gain(self, position: Array, taken_at: Array, moments: Array, gradient: Array) -> float:
        """2θᵀb − θᵀHθ: what scores at θ take off the mean squared error, by a gradient b − Hθ' that θ does not know."""
        slope = gradient + self.curvatures * (moments @ taken_at)
        bend = self.curvatures * (moments @ position)
        return float(np.einsum("ik,ik->", position, 2 * slope - bend))

    def _sampling(self, output: int) -> float:
        """Variance of a gradient by sampling, per unit of second moments."""
        return float((_UNEXPLAINED if self.plan.n_classes is None else self.curvatures[output]) / self.plan.n_records)

    def _covariance(self, state: _State, basis: CurveBasis, moments: Array, output: int) -> Array:
        """What is unknown of the coefficients, no surer than the mean variance of a group's kind allows."""
        group, kind = basis.groups()
        own = state.variances[output]
        size = np.bincount(group, minlength=len(kind))
        of_kind = np.bincount(kind, own * size) / np.maximum(np.bincount(kind, size), 1)
        return state.history.covariance(
            moments, np.maximum(own, of_kind[kind])[group], curvature=self.curvatures[output],
            sampling=self._sampling(output),
        )  # fmt: skip


def _kept_share(position: Array, first: Array, last: Array, std: float, root: Array) -> float:
    """Where on the ray from 0 through the last position the loss is least, at most 1: the floor under wild fits.

    The `last` gradient along that ray is noise where a fit ended well. Clearly negative, it says that the fit went too
    far; with the `first` gradient, that at 0, it gives the minimum of the parabola between them, whatever the second
    moments were taken to be. 0 is the mean of the target, or the prior of the classes.
    """
    start, end = (float(np.einsum("ik,ik->", gradient, position)) for gradient in (first, root @ last))
    noise = std * float(np.linalg.norm(root.T @ position))
    return 1.0 if end >= -4 * noise else max(start, 0.0) / max(max(start, 0.0) - end, 1e-300)


def _prior(shares: Shares, outputs: int) -> tuple[Array, Array]:
    """Scores at which the model starts, and the curvature of the loss there: those of the released class shares."""
    if shares.classes is None:
        return np.zeros(1), np.ones(1)
    found = shares.classes
    curvatures = found * (1 - found)
    if outputs == 1:
        return np.log(found[1:] / found[:1]), curvatures[1:]
    return np.log(found) - np.log(found).mean(), curvatures


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


def _ridge(unknown: float) -> float:
    """What keeps steps stable where the second moments are not known: a share of their error."""
    return _RIDGE * unknown + 1e-4


def _joint_moments(
    basis: CurveBasis, first: Array, first_std: float, second: Array, second_std: float
) -> tuple[Array, float]:
    """Second moments of main effects from both releases, those of pairs from the second."""
    main = len(first)
    noisy, std = second.copy(), np.full_like(second, second_std)
    noisy[:main, :main], std[:main, :main] = combined(first, first_std, second[:main, :main], second_std)
    within = basis.within()
    for q in range(len(basis.pairs.chosen)):
        term = 1 + basis.columns.n_columns + q
        span = basis.term(term)
        within[term] = pair_moments(second[span, span], second_std, within[term])
    return cleaned_moments(noisy, std, within)


def _widened(state: _State, basis: CurveBasis, found: list[ScreenedPair], ridge: float) -> _State:
    """The state with the features of pairs, whose variances start from what the screening saw."""
    more = basis.width - len(state.parameters)
    within = basis.within()[1 + basis.columns.n_columns :]
    gains = [max(pair.gain, 1e-4) / max(float(np.trace(w)), 1e-6) for pair, w in zip(found, within, strict=True)]
    outputs = len(state.variances)
    return _State(
        np.pad(state.parameters, ((0, more), (0, 0))),
        np.hstack([state.variances, np.tile(np.array(gains).reshape(1, -1) / outputs, (outputs, 1))]),
        state.history.widened(basis.width),
        np.pad(state.first, ((0, more), (0, 0))),
        ridge,
    )


def _explained(state: _State, moments: Array) -> tuple[float, float, float]:
    """Variance of the scores, the expected square of what is wrong with them, and what they take off the error."""
    signal = float(np.einsum("ik,ij,jk->", state.parameters, moments, state.parameters))
    unknown = float(sum(np.einsum("ij,ij->", cov, moments) for cov in state.covariance))
    return signal, unknown, state.gain
