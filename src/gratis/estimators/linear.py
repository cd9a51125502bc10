"""Private linear regression with scikit-learn's interface; plans itself from n, d and the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from gratis.estimators.inference import CoefficientInference
from gratis.estimators.linear_model import PrivateLinearModel
from gratis.recipes.linear_inference import InferenceRelease, LinearInference, ReleasedInference
from gratis.recipes.recipe import Recipe
from gratis.recipes.staged_linear import LinearRelease
from gratis.records.errors import GratisError
from gratis.records.facts import Facts

__all__ = ["DPLinearRegression"]


@dataclass(eq=False, repr=False, kw_only=True)
class DPLinearRegression(RegressorMixin, PrivateLinearModel):
    """Linear regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: everything that is kept after `fit` (coefficients, scales, spectrum, prediction) is a function of
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
    inference : bool, default False
        Whether the budget also pays for standard errors and intervals of the coefficients (`params`, `bse`,
        `conf_int`, `cov_params`, `summary`); the full-batch fit only.
    on_invalid : "raise", "zero" or "impute", default "raise"
        What becomes of missing and impossible values: refused before anything is spent (that answer is not private),
        or the record contributes nothing, or the feature counts as the centre of its column (a record without a
        target then contributes nothing).
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it, where the run is reserved before rows are touched.
    noise_seed, insecure_reproducible : int and bool, default None and False
        For tests only: noise from a seed protects nothing, and the certificate says so.

    Attributes
    ----------
    coef_, intercept_ : in the original units; `predict` also winsorises features at the released windows.
    inference_ : with inference=True, a `CoefficientInference`: estimates and intervals, or why they are withheld. Its
        `params` are free of shrinkage and winsorising, `coef_` are what predicts best.
    plan_, prediction_, certificate_ : what was planned, predicted and proved.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 5)) * [1, 10, 100, 1, 1] + 7
    >>> y = X @ [3.0, 0.2, 0.01, 0.0, -1.0] + rng.normal(size=5000)
    >>> model = DPLinearRegression(epsilon=2.0, delta=1e-5).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), model.certificate_.guarantee["epsilon"] <= 2.0
    (True, True)
    """

    inference: bool = False

    def _recipe(self, facts: Facts) -> Recipe:
        if not self.inference:
            return super()._recipe(facts)
        if self.algorithm == "one-pass":
            raise GratisError("inference needs the full-batch fit: one pass has no covariance")
        super()._recipe(facts)  # refuses what does not go together
        self._descent().refuse("a fit with inference", *self._descent().given)
        return LinearInference(facts, self._budget(), self._reading(facts))

    def _publish(self, released: LinearRelease) -> None:
        super()._publish(released)
        if isinstance(released, InferenceRelease):
            self._publish_inference(released.inference)

    def _publish_inference(self, released: ReleasedInference, names: tuple[str, ...] | None = None) -> None:
        names = names or tuple(
            map(str, getattr(self, "feature_names_in_", [f"x{i + 1}" for i in range(self.n_features_in_)]))
        )
        self.inference_ = CoefficientInference(released, ("const", *names), self._budget().describe())

    @property
    def params(self) -> NDArray[np.float64]:
        """Estimates with intervals, the intercept first; see `inference_`."""
        return self._inference().params

    @property
    def bse(self) -> NDArray[np.float64]:
        """Standard errors of `params`: sampling and privacy together, robust to heteroscedasticity."""
        return self._inference().bse

    def conf_int(self, level: float = 0.95) -> NDArray[np.float64]:
        """Intervals of `params` (d+1, 2)."""
        return self._inference().conf_int(level)

    def cov_params(self) -> NDArray[np.float64]:
        """Covariance of `params`."""
        return self._inference().cov_params()

    def summary(self, level: float = 0.95, output: str = "text") -> str:
        """The table of coefficients, as "text", "markdown" or "latex"; where they are withheld, the reason."""
        return self._inference().summary(level, output)

    def _inference(self) -> CoefficientInference:
        found: CoefficientInference | None = getattr(self, "inference_", None)
        if found is None:
            raise AttributeError("no intervals were paid for: fit with inference=True")
        return found

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
