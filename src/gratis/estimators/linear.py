"""Private linear regression with scikit-learn's interface; plans itself from n, d and the budget."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.accounting import calibrate_mu
from gratis.estimators.private_fit import PrivateFit, Release
from gratis.estimators.scales import PublicScales
from gratis.estimators.stages import Preprocessing, StagedDescent
from gratis.models.linear import LinearModel
from gratis.planner.staged import describe_choice, plan_staged
from gratis.specs.errors import GratisError

__all__ = ["DPLinearRegression"]


class DPLinearRegression(PrivateFit, RegressorMixin, BaseEstimator):
    """Linear regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: everything that is kept after `fit` (`coef_`, `intercept_`, scales, spectrum, prediction) is
    a function of Gaussian releases that together are (ε, δ)-DP under `neighbouring`, one row being the unit and
    the number of rows public. `certificate_` holds the events and can be verified by anyone.
    Not covered: predictions at private inputs, scores computed on private rows, and (with on_invalid="raise") the
    answer whether all values were finite.

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
    fit_intercept : bool
    on_invalid : "raise" or "zero"
        Whether non-finite values are refused before anything is spent (this answer is not private), or their rows
        contribute nothing.
    ledger, dataset : str, optional
        A ledger file, and the name of this data set's budget in it.
    noise_seed, insecure_reproducible
        For tests only: see `gratis.mechanisms.noise`.

    Attributes
    ----------
    coef_, intercept_ : in the original units. `predict` also winsorises features at the released windows.
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
        fit_intercept: bool = True,
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
        self.fit_intercept = fit_intercept
        self.on_invalid = on_invalid
        self.ledger = ledger
        self.dataset = dataset
        self.noise_seed = noise_seed
        self.insecure_reproducible = insecure_reproducible

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan, reserve, train, certify."""
        budget, noise, ledger = self._budget(), self._noise_source(), self._ledger()
        preprocessing = Preprocessing(self._choice("preprocessing", tuple(Preprocessing)))
        algorithm = self._choice("algorithm", ("auto", "full-batch", "one-pass"))
        rows, target = self._validated(X, y)
        if (self.public is not None) != (preprocessing is Preprocessing.PUBLIC):
            raise GratisError("give public scales with preprocessing='public', and only then")
        staged = StagedDescent(
            n_records=rows.shape[0],
            n_features=rows.shape[1],
            model=LinearModel(),
            mu=calibrate_mu(budget),
            neighbouring=budget.neighbouring,
            preprocessing=preprocessing,
            standardise_target=preprocessing is not Preprocessing.NONE,
            fit_intercept=bool(self.fit_intercept),
        )
        plan = plan_staged(...)
        return self

    def _validated(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        strict = self._choice("on_invalid", ("raise", "zero")) == "raise"
        rows, target = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite=strict, ensure_min_samples=2
        )
        return rows, np.asarray(target, dtype=np.float64).ravel()

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the target for rows of X."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.features_.clipped(rows) @ self.coef_ + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # fresh noise in every fit
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        tags.input_tags.allow_nan = self.on_invalid == "zero"
        return tags
