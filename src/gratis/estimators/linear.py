"""Private linear regression with scikit-learn's interface; plans itself from n, d and the budget."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from gratis.estimators.scales import PublicScales
from gratis.estimators.staged_linear import PrivateLinearModel
from gratis.models.linear import LinearModel

__all__ = ["DPLinearRegression"]


class DPLinearRegression(RegressorMixin, PrivateLinearModel):
    """Linear regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: everything that is kept after `fit` (coefficients, scales, spectrum, prediction) is a function of
    Gaussian releases that together are (ε, δ)-DP under `neighbouring`; the unit is one row and the number of
    rows is public. `certificate_` holds the events and can be verified by anyone. Not covered: predictions at private
    inputs, scores computed on private rows, and (with on_invalid="raise") the answer whether all values were finite.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    neighbouring : "replace-one" or "zero-out"
    preprocessing : "private", "public" or "none"
        "private" spends a stated share of the budget on location and scale of every column and of the target, found
        on a public logarithmic grid; "public" takes them from `public`; "none" assumes that columns and
        target are on a scale of about 1 already.
    public : PublicScales, optional
        Means and scales, or those of a public sample (`PublicScales.from_sample`).
    algorithm : "auto", "full-batch" or "one-pass"
        "auto" is the staged full-batch fit: once rows can be read more than once it is predicted, and was
        measured, to be better than one pass.
    on_invalid : "raise", "zero" or "impute"
        Whether records with an invalid value (missing, infinite, no number) are refused before anything is spent
        (this answer depends on the data and is not private), or contribute nothing, or invalid features count as the
        (released or public) centre of their column; a record without a valid target then contributes nothing. With
        the last two no value can make `fit` raise or warn.
    ledger, dataset : str, optional
        A ledger file, and the name of this data set's budget in it.
    noise_seed, insecure_reproducible
        For tests only: see `gratis.mechanisms.noise`.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        neighbouring: str = "replace-one",
        preprocessing: str = "private",
        public: PublicScales | None = None,
        algorithm: str = "auto",
        on_invalid: str = "raise",
        ledger: str | None = None,
        dataset: str | None = None,
        noise_seed: int | None = None,
        insecure_reproducible: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.preprocessing = preprocessing
        self.public = public
        self.algorithm = algorithm
        self.on_invalid = on_invalid
        self.ledger = ledger
        self.dataset = dataset
        self.noise_seed = noise_seed
        self.insecure_reproducible = insecure_reproducible

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan, reserve, train, certify."""
        rows, target = self._contributing(*self._validated(X, y, numeric=True))
        self._fit_private(rows, target, LinearModel(), n_classes=None)
        return self

    def _declared_classes(self) -> None:
        return None

    def _encoded(self, target: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(target, dtype=np.float64)

    def _publish(self, fit: Any) -> None:
        slopes, intercept = fit.original_units()
        self.coef_, self.intercept_ = slopes[:, 0], float(intercept[0])

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the target for rows of X."""
        return self._scores(X)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None  # fresh noise in every fit
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags
