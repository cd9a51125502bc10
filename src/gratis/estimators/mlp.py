"""A private multi-layer perceptron with scikit-learn's interface (needs the `nn` extra)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.estimators.classification import PrivateClassifier
from gratis.estimators.private_fit import PrivateFit, refuse_text
from gratis.recipes.network import Network, NetworkRelease
from gratis.recipes.recipe import Recipe
from gratis.records.facts import Facts

__all__ = ["DPMLPClassifier"]


@dataclass(eq=False, repr=False, kw_only=True)
class DPMLPClassifier(PrivateClassifier, PrivateFit):
    """Fully connected ReLU network trained by full-batch DP-GD under (ε, δ), settings planned from public facts.

    **Guarantee**: as `DPLinearRegression`: the weights are a function of Gaussian releases under `neighbouring`; all
    iterates may be released. Initial weights come from `initial_seed`, which is public.

    Parameters: those of `PrivateFit`, and

    width, depth : hidden units a layer, and number of hidden layers.
    steps : T.
    initial_seed : of the initial weights; public.
    classes : all classes that may occur.
    descent : Descent, optional
        Clip norm, mean learning rate and averaging that are not to be planned.
    progress : show a bar with step and share of the budget (never a loss on private rows).
    """

    width: int = 1000
    depth: int = 1
    steps: int = 75
    initial_seed: int = 0
    progress: bool = False
    classes: ArrayLike | None = None

    def _recipe(self, facts: Facts) -> Recipe:
        return Network(
            facts, self._budget(), self._reading(facts), self.width, self.depth, self.steps, self.initial_seed,
            self._descent(),
        )  # fmt: skip

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
