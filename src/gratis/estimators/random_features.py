"""Private random-features models with scikit-learn's interface: cost does not grow with the number of parameters."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.accounting import calibrate_mu, split_mu
from gratis.estimators.classification import PrivateClassifier, encoded
from gratis.estimators.private_fit import PrivateFit, Release, refuse_text, zero_rows
from gratis.estimators.scales import PublicScales
from gratis.mechanisms.location_scale import Standardiser, plan_standardisation, release_location_scale
from gratis.models.logistic import SoftmaxModel
from gratis.models.random_features import Activation, RandomFeatures, SquaredErrorModel, StoredFeatures
from gratis.models.scattering import ScatteringFeatures
from gratis.planner.feature_classifier import plan_feature_classifier
from gratis.planner.random_features import plan_random_features
from gratis.specs.budget import Budget
from gratis.specs.checks import check_count
from gratis.specs.errors import GratisError
from gratis.specs.events import Composition
from gratis.specs.plans import Plan
from gratis.training.feature_descent import descend_features
from gratis.training.feature_mean import CentredFeatures, release_feature_mean

__all__ = ["DPRandomFeaturesClassifier", "DPRandomFeaturesRegressor"]

_SCALE_SHARE = 0.2  # of μ², for private location and scale
_TWIN_RECORDS = 400
_MOST_PARAMETERS = 200_000_000  # 1.6 GB, a few times in training
_STORE_BYTES = 2**32  # scattering features are kept when they fit


class _RandomFeaturesModel(PrivateFit, BaseEstimator):
    """What the regressor and the classifier share."""

    n_features: int
    features: str
    feature_seed: int
    preprocessing: str
    public: PublicScales | None
    on_invalid: str

    def _scales(
        self, X: NDArray[np.float64], y: NDArray[np.float64] | None, budget: Budget
    ) -> tuple[float, list[Any], tuple[Standardiser | None, Standardiser | None]]:
        """Return what is left of μ, the paid standardisation plans, and the public maps."""
        choice = self._choice("preprocessing", ("private", "public", "none"))
        if (self.public is not None) != (choice == "public"):
            raise GratisError("give public scales with preprocessing='public', and only then")
        mu, d = calibrate_mu(budget), X.shape[1]
        if choice != "private" or self.features == "scattering":  # scattering removes each image's own scale
            public = (None, None) if self.public is None else (self.public.features(d), self.public.target())
            return mu, [], public
        scale_mu, mu = split_mu(mu, [_SCALE_SHARE, 1 - _SCALE_SHARE])
        mus = split_mu(scale_mu, [0.65, 0.35] if y is not None else [1.0])
        relation = budget.neighbouring
        plans = [plan_standardisation(len(X), d, mu=mus[0], neighbouring=relation)]
        if y is not None:
            plans.append(
                plan_standardisation(
                    len(X), 1, mu=mus[1], neighbouring=relation, tail=0.002, headroom=2.0, label="target"
                )
            )
        return mu, plans, (None, None)

    def _feature_map(self, n_inputs: int, outputs: int = 1) -> Any:
        if self.features == "scattering":
            side = math.isqrt(n_inputs)
            if side * side != n_inputs:
                raise GratisError(f"scattering features need square images, got rows of {n_inputs} pixels")
            return ScatteringFeatures(side=side)
        p = check_count("n_features", self.n_features)
        if p * outputs > _MOST_PARAMETERS:
            words = f"at most {_MOST_PARAMETERS:.0e}, to fit in memory, got {p} × {outputs}"
            raise GratisError(f"n_features × outputs must be {words}")
        return RandomFeatures(
            n_inputs=n_inputs, n_features=p, activation=Activation.parse(self.features), seed=self.feature_seed
        )

    def _raw_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        refuse_text(X=X)
        finite = not self.scaler_.impute
        rows = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=finite))
        total = np.zeros((len(rows), self.coef_.shape[1]))
        for columns, values in self.feature_map_.blocks(rows):
            total += values.astype(np.float64) @ self.coef_[columns]
        return total

    def _keep(self, release: Release, plan: Plan) -> None:
        self.plan_, self.prediction_ = plan, plan.prediction
        release.certify(self)


@lru_cache(maxsize=32)
def _regression_plan(n: int, d: int, p: int, budget: Budget, activation: str) -> Plan:
    rng = np.random.default_rng(20261115)
    return plan_random_features(n, d, p, budget, activation=activation, rng=rng, twin_records=_TWIN_RECORDS)


class DPRandomFeaturesRegressor(RegressorMixin, _RandomFeaturesModel):
    """f(x) = φ(Vx)ᵀθ trained by full-batch DP-GD under (ε, δ), settings planned from n, d, p and the budget.

    **Guarantee**: as `DPLinearRegression`: all that is kept is a function of Gaussian releases under `neighbouring`.
    V comes from `feature_seed`, which is public and independent of the data.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 5)); y = np.tanh(X[:, 0]) + 0.1 * rng.normal(size=600)
    >>> model = DPRandomFeaturesRegressor(epsilon=8.0, delta=1e-3, n_features=1000).fit(X, y)
    >>> bool(model.score(X, y) > 0.3), model.certificate_.guarantee["epsilon"] <= 8.0
    (True, True)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        n_features: int = 2000,
        features: str = "tanh",
        feature_seed: int = 0,
        neighbouring: str = "replace-one",
        preprocessing: str = "private",
        public: PublicScales | None = None,
        on_invalid: str = "raise",
        ledger: str | None = None,
        dataset: str | None = None,
        noise_seed: int | None = None,
        insecure_reproducible: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_features = n_features
        self.features = features
        self.feature_seed = feature_seed
        self.neighbouring = neighbouring
        self.preprocessing = preprocessing
        self.public = public
        self.on_invalid = on_invalid
        self.ledger = ledger
        self.dataset = dataset
        self.noise_seed = noise_seed
        self.insecure_reproducible = insecure_reproducible

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan, reserve, train, certify."""
        self._choice("features", ("tanh", "relu", "erf"))
        budget = self._budget()
        rows, target = self._contributing(*self._validated(X, y, numeric=True))
        mu, paid, public = self._scales(rows, target, budget)
        feature_map = self._feature_map(rows.shape[1])
        rest = Budget(mu=mu, neighbouring=budget.neighbouring)
        plan = _regression_plan(*rows.shape, feature_map.n_features, rest, self.features)
        settings = plan.settings
        plan = replace(plan, budget=budget, event=Composition((*(p.event for p in paid), plan.event)))
        release = self._release(plan)
        with release, np.errstate(all="ignore"):
            if paid:
                scaler = release_location_scale(rows, paid[0], noise=release.noise, impute=self.on_invalid == "impute")
                goal = release_location_scale(target[:, None], paid[1], noise=release.noise)
            else:
                scaler = self._filling(public[0] or Standardiser.identity(rows.shape[1]))
                goal = public[1] or Standardiser.identity(1)
            rows, target = zero_rows(scaler.transform(rows), target), goal.transform(target[:, None])[:, 0]
            run = descend_features(
                feature_map, rows, target, SquaredErrorModel(),
                steps=settings["steps"], clip_norm=settings["clip_norm"], learning_rate=settings["learning_rate"],
                mu=mu, neighbouring=budget.neighbouring, noise=release.noise,
            )  # fmt: skip
        self.scaler_, self.target_scaler_, self.feature_map_ = scaler, goal, feature_map
        self.coef_, self.engine_ = run.parameters, str(run.choice.engine)
        self._keep(release, plan)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the target for rows of X."""
        scores = self._raw_scores(X)
        return self.target_scaler_.inverse(scores)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags


class DPRandomFeaturesClassifier(PrivateClassifier, _RandomFeaturesModel):
    """Softmax regression on fixed features under (ε, δ): random features, or scattering features of images.

    **Guarantee**: as `DPLinearRegression`. `centre` spends .15μ on a private mean of the features, which carries much
    of their squared norm and none of the class, unless they are too many for their mean to be found. The list of
    classes is public (`classes`, or an assumption).

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 4)); y = (X[:, 0] > 0).astype(int)
    >>> model = DPRandomFeaturesClassifier(epsilon=4.0, delta=1e-4, n_features=300, classes=[0, 1]).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        n_features: int = 2000,
        features: str = "relu",
        feature_seed: int = 0,
        centre: bool = True,
        classes: ArrayLike | None = None,
        neighbouring: str = "replace-one",
        preprocessing: str = "private",
        public: PublicScales | None = None,
        on_invalid: str = "raise",
        ledger: str | None = None,
        dataset: str | None = None,
        noise_seed: int | None = None,
        insecure_reproducible: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_features = n_features
        self.features = features
        self.feature_seed = feature_seed
        self.centre = centre
        self.classes = classes
        self.neighbouring = neighbouring
        self.preprocessing = preprocessing
        self.public = public
        self.on_invalid = on_invalid
        self.ledger = ledger
        self.dataset = dataset
        self.noise_seed = noise_seed
        self.insecure_reproducible = insecure_reproducible

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan, reserve, train, certify."""
        self._choice("features", ("tanh", "relu", "erf", "scattering"))
        budget = self._budget()
        rows, labels = self._validated(X, y, numeric=False)
        classes, assumed = self._read_classes(labels)
        rows, position = self._contributing(rows, encoded(labels, classes))
        mu, paid, public = self._scales(rows, None, budget)
        base = self._feature_map(rows.shape[1], len(classes))
        rest = Budget(mu=mu, neighbouring=budget.neighbouring)
        plan = plan_feature_classifier(len(rows), base.n_features, len(classes), rest, centre=bool(self.centre))
        settings = plan.settings
        plan = replace(plan, budget=budget, event=Composition((*(p.event for p in paid), plan.event)))
        release = self._release(plan, assumptions=assumed)
        with release, np.errstate(all="ignore"):
            scaler = self._filling(public[0] or Standardiser.identity(rows.shape[1]))
            if paid:
                scaler = release_location_scale(rows, paid[0], noise=release.noise, impute=scaler.impute)
            # Every record's features are scaled to norm 1: then one clip norm suits all of them.
            unit = CentredFeatures(base, np.zeros(base.n_features), row_norm=1.0)
            stored, rows = _stored(unit, zero_rows(scaler.transform(rows), position))
            feature_map: Any = unit
            if settings["mean_mu"]:
                mean, _ = release_feature_mean(
                    stored, rows, 1.0, mu=settings["mean_mu"], neighbouring=budget.neighbouring, noise=release.noise,
                    counted=np.isfinite(position),
                )  # fmt: skip
                feature_map = CentredFeatures(unit, mean, row_norm=1.0)
                stored = CentredFeatures(stored, mean, row_norm=1.0)
            run = descend_features(
                stored, rows, position, SoftmaxModel(len(classes)),
                steps=settings["steps"], clip_norm=settings["clip_norm"], learning_rate=settings["learning_rate"],
                mu=settings["descent_mu"], neighbouring=budget.neighbouring, noise=release.noise,
            )  # fmt: skip
        self.classes_, self.scaler_, self.feature_map_ = classes, scaler, feature_map
        self.coef_, self.engine_ = run.parameters, str(run.choice.engine)
        self._keep(release, plan)
        return self

    def _class_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        return self._raw_scores(X)


def _stored(features: Any, rows: NDArray[np.float64]) -> tuple[Any, NDArray[Any]]:
    """Compute features once where they fit; the map and the rows to use from here on."""
    if 4 * len(rows) * features.n_features > _STORE_BYTES:
        return features, rows
    kept = np.concatenate([values for _, values in features.blocks(rows)], axis=1)
    stored = StoredFeatures(
        features.n_features, features.exact_gram, features.largest_square_norm, features.typical_square_norm
    )
    return stored, kept
