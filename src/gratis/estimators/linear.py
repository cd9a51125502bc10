"""Private linear regression with scikit-learn's interface; plans itself from n, d and the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from gratis.estimators.linear_model import PrivateLinearModel

__all__ = ["DPLinearRegression"]


@dataclass(eq=False, repr=False, kw_only=True)
class DPLinearRegression(RegressorMixin, PrivateLinearModel):
    """Linear regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: everything that is kept after `fit` (coefficients, scales, spectrum, prediction) is a function of
    Gaussian releases that together are (ε, δ)-DP under `neighbouring`; the unit is one row and the number of
    rows is public. `certificate_` holds the events and can be verified by anyone. Not covered: predictions at private
    inputs, scores computed on private rows, and (with on_invalid="raise") the answer whether all values were finite.

    Parameters: those of `PrivateFit` (budget, relation, preprocessing, invalid values, ledger), and

    algorithm : "auto", "full-batch" or "one-pass"
        "auto" is the staged full-batch fit: once rows can be read more than once it is predicted, and was
        measured, to be better than one pass.
    schedule : str
        Of one pass: "free" (the best that is known), "poly:ALPHA", "harmonic" or "free-clip".
    descent : Descent, optional
        Of the full-batch fit: `steps`, and `clip_norm` with `learning_rate` in the coordinates of the released
        second moments; what is left out is planned.

    Attributes
    ----------
    coef_, intercept_ : in the original units; `predict` also winsorises features at the released windows.
    plan_, prediction_, certificate_ : what was planned, predicted and proved.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 5)) * [1, 10, 100, 1, 1] + 7
    >>> y = X @ [3.0, 0.2, 0.01, 0.0, -1.0] + rng.normal(size=5000)
    >>> model = DPLinearRegression(epsilon=2.0, delta=1e-5).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), model.certificate_.guarantee["epsilon"] <= 2.0
    (True, True)
    """

    def _publish_coefficients(self, slopes: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
        self.coef_, self.intercept_ = slopes[:, 0], float(intercept[0])

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the target for rows of X."""
        return self._scores(X)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None  # fresh noise in every fit
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags
