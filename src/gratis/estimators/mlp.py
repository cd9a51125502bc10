"""A private multi-layer perceptron with scikit-learn's interface (needs the `nn` extra)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.estimators.classification import PrivateClassifier
from gratis.estimators.model_parameters import NetworkParameters
from gratis.estimators.private_fit import PrivateFit
from gratis.estimators.values import refuse_text
from gratis.recipes.network import NetworkRelease

__all__ = ["DPMLPClassifier"]


@dataclass(eq=False, repr=False, kw_only=True)
class DPMLPClassifier(PrivateClassifier, PrivateFit, NetworkParameters):
    """Fully connected ReLU network trained by full-batch DP-GD under (ε, δ), settings planned from public facts.

    **Guarantee**: as `DPLinearRegression`: the weights are a function of Gaussian releases under `neighbouring`; all
    iterates may be released. Initial weights come from `initial_seed`, which is public.

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
    width, depth : int, default 1000 and 1
        Hidden units a layer, and number of hidden layers.
    steps : int, default 75
        T.
    init : "he", "lecun", "xavier" or "ntk", default "he"
        The law of the initial weights, which are public.
    initial_seed : int, default 0
        Of the initial weights; public.
    descent : Descent, default None
        Steps, clip norm, mean learning rate, averaging and the paper's noise that are not to be planned.
    classes : array, default None
        All classes that may occur, public; left out, those that occur are assumed to be no secret. A label that
        equals none of them is invalid.
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
    """

    def _publish(self, released: NetworkRelease) -> None:
        self.scaler_, self.coefs_ = released.features, released.weights

    def _class_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "coefs_")
        refuse_text(X=X)
        finite = not self.scaler_.impute
        hidden = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=finite))
        for weights in self.coefs_[:-1]:
            hidden = np.maximum(hidden @ weights, 0.0)
        return np.asarray(hidden @ self.coefs_[-1])
