"""Private random-features models with scikit-learn's interface: cost does not grow with the number of parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.estimators.classification import PrivateClassifier
from gratis.estimators.leaks import Watched
from gratis.estimators.model_parameters import FeatureClassifierParameters, FeatureParameters
from gratis.estimators.private_fit import PrivateFit
from gratis.estimators.values import refuse_text
from gratis.recipes.random_features import FeatureRelease

__all__ = ["DPRandomFeaturesClassifier", "DPRandomFeaturesRegressor"]


class _RandomFeaturesModel(PrivateFit, FeatureParameters):
    """What the regressor and the classifier share."""

    def _publish(self, released: FeatureRelease) -> None:
        self.scaler_, self.feature_map_ = released.features, released.feature_map
        self.engine_ = released.engine
        self._publish_parameters(released.parameters, released.intercept)
        if not hasattr(self, "classes_"):
            self.target_scaler_ = released.target

    def _publish_parameters(self, slopes: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
        self.coef_ = slopes

    def _raw_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        refuse_text(X=X)
        finite = not self.scaler_.impute
        rows = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=finite))
        total = np.zeros((len(rows), self.coef_.shape[1]))
        for columns, values in self.feature_map_.blocks(rows):
            total += values.astype(np.float64) @ self.coef_[columns]
        return total


@dataclass(eq=False, repr=False, kw_only=True)
class DPRandomFeaturesRegressor(Watched, RegressorMixin, _RandomFeaturesModel):
    """f(x) = φ(Vx)ᵀθ trained by full-batch DP-GD under (ε, δ), settings planned from n, d, p and the budget.

    **Guarantee**: as `DPLinearRegression`: all that is kept is a function of Gaussian releases under `neighbouring`.
    V comes from `feature_seed`, which is public and independent of the data.

    Parameters
    ----------
    epsilon, delta : float, default None and None
        The budget, under `neighbouring`; both must be given, so that nothing is spent by accident.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        Which data sets must be hard to tell apart: with one record exchanged, or with one that contributes nothing.
    preprocessing : "private", "public" or "none", default "private"
        Whether location and scale of columns and target are found privately, told, or taken to be about 1 already.
    public : PublicScales, default None
        Location and scale, with preprocessing="public".
    n_features : int, default 2000
        p, the number of random features.
    features : "tanh", "relu" or "erf", default "tanh"
        The activation φ.
    feature_seed : int, default 0
        Of V; public and independent of the data.
    descent : Descent, default None
        T, C, η, averaging, noise rule and engine that are not to be planned. With `steps`, `clip_norm` and
        `learning_rate` given (and preprocessing="none"), this is Algorithm 1 of S0 as written.
    on_invalid : "raise", "zero" or "impute", default "raise"
        What becomes of missing and impossible values: refused before anything is spent (that answer is not private),
        or the record contributes nothing, or the feature counts as the centre of its column (a record without a
        target then contributes nothing).
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it, where the run is reserved before rows are touched.
    noise_seed, insecure_reproducible : int and bool, default None and False
        For tests only: noise from a seed protects nothing, and the certificate says so.
    verbose : bool, default False
        Write to the standard error how far planning, readings and training are and how long the rest will take.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 5)); y = np.tanh(X[:, 0]) + 0.1 * rng.normal(size=600)
    >>> model = DPRandomFeaturesRegressor(epsilon=8.0, delta=1e-3, n_features=1000).fit(X, y)
    >>> bool(model.score(X, y) > 0.3), model.certificate_.guarantee["epsilon"] <= 8.0
    (True, True)
    """

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the target for rows of X."""
        scores = self._raw_scores(X)
        return self.target_scaler_.inverse(scores)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class DPRandomFeaturesClassifier(PrivateClassifier, _RandomFeaturesModel, FeatureClassifierParameters):
    """Softmax regression on fixed features under (ε, δ): random features, or scattering features of images.

    **Guarantee**: as `DPLinearRegression`. `centre` spends .15μ on a private mean of the features, which carries much
    of their squared norm and none of the class, unless they are too many for their mean to be found. The model starts
    at the log of released class counts and ends with a private calibration of its scores. The list of classes is public
    (`classes`, or an assumption).

    Parameters
    ----------
    epsilon, delta : float, default None and None
        The budget, under `neighbouring`; both must be given, so that nothing is spent by accident.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        Which data sets must be hard to tell apart: with one record exchanged, or with one that contributes nothing.
    preprocessing : "private", "public" or "none", default "private"
        Whether location and scale of columns and target are found privately, told, or taken to be about 1 already.
    public : PublicScales, default None
        Location and scale, with preprocessing="public".
    n_features : int, default 2000
        p, the number of random features.
    features : "tanh", "relu" or "erf", or "scattering" for square images, default "relu"
        The activation φ, or the scattering transform.
    feature_seed : int, default 0
        Of V; public and independent of the data.
    centre : bool, default True
        Whether a private mean of the features is subtracted where it pays.
    descent : Descent, default None
        T, C, averaging and engine that are not to be planned. With a learning rate it is Algorithm 1 of S0: plain
        steps from 0, without class counts, momentum and calibration.
    classes : array, default None
        All classes that may occur, public; left out, those that occur are assumed to be no secret. A label that
        equals none of them is invalid.
    class_weight : "balanced", mapping or None, default None
        How often a record of each class counts, {class: weight}; "balanced" makes the released shares equal. Costs no
        privacy: it moves the intercepts of the released model.
    on_invalid : "raise", "zero" or "impute", default "raise"
        What becomes of missing and impossible values: refused before anything is spent (that answer is not private),
        or the record contributes nothing, or the feature counts as the centre of its column (a record without a
        target then contributes nothing).
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it, where the run is reserved before rows are touched.
    noise_seed, insecure_reproducible : int and bool, default None and False
        For tests only: noise from a seed protects nothing, and the certificate says so.
    verbose : bool, default False
        Write to the standard error how far planning, readings and training are and how long the rest will take.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 4)); y = (X[:, 0] > 0).astype(int)
    >>> model = DPRandomFeaturesClassifier(epsilon=4.0, delta=1e-4, n_features=300, classes=[0, 1]).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    @property
    def coef_(self) -> NDArray[np.float64]:  # type: ignore[override]
        """θ, (features, classes)."""
        return np.asarray(self.parameters_[:-1])

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """What is added to the scores of every row, (classes,)."""
        return np.asarray(self.parameters_[-1])

    def _publish(self, released: FeatureRelease) -> None:
        shift = self._log_weights(released.prior)
        super()._publish(released if shift is None else replace(released, intercept=released.intercept + shift))

    def _publish_parameters(self, slopes: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
        self.parameters_ = np.vstack([slopes, intercept])  # on one grid, which a few intercepts alone need not show

    def _class_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        return self._raw_scores(X) + self.intercept_
