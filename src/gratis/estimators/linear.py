"""Private linear regression with scikit-learn's interface; plans itself from n, d and the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from gratis.estimators.inference import InferenceWords
from gratis.estimators.leaks import Watched
from gratis.estimators.linear_model import PrivateLinearModel
from gratis.recipes.linear import LinearRelease
from gratis.recipes.linear_inference import InferenceRelease

__all__ = ["DPLinearRegression"]


@dataclass(eq=False, repr=False, kw_only=True)
class DPLinearRegression(Watched, RegressorMixin, InferenceWords, PrivateLinearModel):
    """Linear regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: everything that is kept after `fit` (coefficients, scales, their noise, prediction) is a function of
    Gaussian releases that together are (ε, δ)-DP under `neighbouring`; the unit is one row and the number of
    rows is public. `certificate_` holds the events and can be verified by anyone. Not covered: predictions at private
    inputs, scores computed on private rows, and (with on_invalid="raise") the answer whether all values were finite.

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
    algorithm : "auto", "full-batch" or "one-pass", default "auto"
        "auto" is the staged full-batch fit: once rows can be read more than once it is predicted, and was
        measured, to be better than one pass.
    schedule : str, default "free"
        Of one pass: "free" (the best that is known), "poly:ALPHA", "harmonic" or "free-clip".
    descent : Descent, default None
        Of the full-batch fit: `steps`, and `clip_norm` with `learning_rate` in the coordinates of the released
        second moments; what is left out is planned.
    inference : bool or str, default False
        Whether the budget also pays for standard errors and intervals of the coefficients (`params`, `bse`,
        `conf_int`, `t_test`, `summary`, …); the full-batch fit only. True is "weighted": rows as they are, long ones
        with less weight; "winsorised": slopes of least squares on columns pulled to their released windows.
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

    Attributes
    ----------
    coef_, intercept_ : in the original units; `predict` also winsorises features at the released windows.
    windows_, hidden_share_ : these windows, inside which `coef_` holds, and the share of rows below which a level of a
        0/1 column may lie outside.
    noise_covariance_ : of intercept and coefficients, the part that is the noise of privacy, where descent ran in the
        basis of released second moments: first order, as if no gradient were clipped. Sampling is not in it.
    inference_ : with inference=True, a `CoefficientInference`: estimates and intervals, or why they are withheld. Its
        `params` are free of shrinkage and winsorising, `coef_` are what predicts best.
    expected_score_ : R² on fresh rows with an 80 % range, from a score that a planned fit with private scales releases.
    plan_, prediction_, certificate_ : what was planned, predicted and proved.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 5)) * [1, 10, 100, 1, 1] + 7
    >>> y = X @ [3.0, 0.2, 0.01, 0.0, -1.0] + rng.normal(size=5000)
    >>> model = DPLinearRegression(epsilon=2.0, delta=1e-5).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), model.certificate_.guarantee["epsilon"] <= 2.0
    (True, True)
    """

    def _publish(self, released: LinearRelease) -> None:
        super()._publish(released)
        if isinstance(released, InferenceRelease):
            self._publish_inference(released.inference)
        noise = getattr(released.fit, "noise_covariance", None)
        if noise is not None:
            self.noise_covariance_ = released.fit.covariance_in_original_units(noise)

    def _publish_coefficients(self, slopes: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
        self.coef_, self.intercept_ = slopes[:, 0], float(intercept[0])

    def predict(self, X: ArrayLike, interval: str | None = None, level: float = 0.95) -> NDArray[np.float64]:
        """Predict the target for rows of X.

        With inference=True and `interval` "mean" or "observation", return (n, 3): what `params` predict, and an
        interval that holds the mean of the target there, or a new observation, with probability `level`. Without, the
        prediction is made of `coef_`, which predict best.
        """
        if interval is None:
            return self._scores(X)[:, 0]
        found = self._inference()
        return found.predict(self._read_rows(X), interval, level)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None  # fresh noise in every fit
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags
