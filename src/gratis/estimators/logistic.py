"""Private logistic regression, binary and multinomial, with scikit-learn's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit

from gratis.estimators.classification import PrivateClassifier, encoded
from gratis.estimators.scales import PublicScales
from gratis.estimators.staged_linear import PrivateLinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.specs.events import OnePassIteration

__all__ = ["DPLogisticRegression"]


class DPLogisticRegression(PrivateClassifier, PrivateLinearModel):
    """Softmax regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: as `DPLinearRegression`. The list of classes is public: pass `classes`, or accept the assumption
    (written into the certificate) that which classes occur at all is no secret.

    One pass (`algorithm="one-pass"`, `fit_rows`, `partial_fit`) trains more than two classes one against the rest; the
    passes share the budget, √K times the noise each.

    Parameters: those of `DPLinearRegression`, and

    classes : array, optional
        All classes that may occur. A label that equals none of them is invalid: see `on_invalid`.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 4)) * [1, 10, 100, 1]
    >>> y = np.where(X @ [1.0, 0.1, 0.01, 0.0] + 0.3 * rng.normal(size=4000) > 0, "yes", "no")
    >>> model = DPLogisticRegression(epsilon=2.0, delta=1e-5, classes=["no", "yes"]).fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        classes: ArrayLike | None = None,
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
        self.classes = classes
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
        rows, labels = self._validated(X, y, numeric=False)
        classes, assumed = self._read_classes(labels)
        rows, position = self._contributing(rows, encoded(labels, classes))
        self._fit_private(rows, position, SoftmaxModel(len(classes)), n_classes=len(classes), assumptions=assumed)
        self.classes_ = classes
        return self

    def _declared_classes(self) -> NDArray[Any]:
        return self._read_classes(None)[0]

    def _encoded(self, target: NDArray[Any]) -> NDArray[np.float64]:
        return encoded(target, self._declared_classes())

    def _publish(self, fit: Any) -> None:
        slopes, intercept = fit.original_units()
        if slopes.shape[1] == 2:
            slopes, intercept = slopes[:, 1:] - slopes[:, :1], intercept[1:] - intercept[:1]
        self.coef_, self.intercept_ = slopes.T, intercept

    def _class_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        scores = self._scores(X)
        if scores.shape[1] > 2 and any(isinstance(leaf, OnePassIteration) for leaf in self.fit_.event.leaves()):
            # Log-odds of each class against the rest: ln σ makes probabilities proportional to σ.
            return np.asarray(log_expit(scores))
        return scores
