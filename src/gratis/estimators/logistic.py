"""Private logistic regression, binary and multinomial, with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit

from gratis.estimators.classification import PrivateClassifier
from gratis.estimators.linear_model import PrivateLinearModel
from gratis.records.events import Composition, Event, OnePassIteration

__all__ = ["DPLogisticRegression"]


@dataclass(eq=False, repr=False, kw_only=True)
class DPLogisticRegression(PrivateClassifier, PrivateLinearModel):
    """Softmax regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: as `DPLinearRegression`. The list of classes is public: pass `classes`, or accept the assumption
    (written into the certificate) that which classes occur at all is no secret.

    One pass (`algorithm="one-pass"`, `partial_fit`) trains more than two classes one against the rest; the
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

    classes: ArrayLike | None = None

    def _publish_coefficients(self, slopes: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
        if slopes.shape[1] == 2:
            slopes, intercept = slopes[:, 1:] - slopes[:, :1], intercept[1:] - intercept[:1]
        self.coef_, self.intercept_ = slopes.T, intercept

    def _class_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        scores = self._scores(X)
        if scores.shape[1] > 2 and _one_pass(self.fit_.event):
            # Log-odds of each class against the rest: ln σ makes probabilities proportional to σ.
            return np.asarray(log_expit(scores))
        return scores


def _one_pass(event: Event) -> bool:
    leaves = event.leaves() if isinstance(event, Composition) else (event,)
    return any(isinstance(leaf, OnePassIteration) for leaf in leaves)
