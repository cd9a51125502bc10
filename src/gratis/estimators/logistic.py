"""Private logistic regression, binary and multinomial, with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit

from gratis.estimators.classification import PrivateClassifier, before_weights
from gratis.estimators.inference import InferenceWords
from gratis.estimators.linear_model import PrivateLinearModel
from gratis.estimators.model_parameters import LogisticParameters
from gratis.recipes.logistic_inference import ClassInferenceRelease
from gratis.records.events import Event, OnePassIteration

__all__ = ["DPLogisticRegression"]


@dataclass(eq=False, repr=False, kw_only=True)
class DPLogisticRegression(PrivateClassifier, InferenceWords, PrivateLinearModel, LogisticParameters):
    """Softmax regression under (ε, δ)-differential privacy that needs no tuning on the data.

    **Guarantee**: as `DPLinearRegression`. The list of classes is public: pass `classes`, or accept the assumption
    (written into the certificate) that which classes occur at all is no secret.

    One pass (`algorithm="one-pass"`, `partial_fit`) trains more than two classes one against the rest; the
    passes share the budget, √K times the noise each.

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
        Whether the budget also pays for standard errors and intervals of the coefficients, odds ratios and average
        marginal effects (`params`, `bse`, `conf_int`, `odds_ratios`, `marginal_effects`, `summary`, …); two classes,
        the full-batch fit only. True is "weighted", "winsorised" reads columns at their released windows.
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
    >>> X = rng.normal(size=(4000, 4)) * [1, 10, 100, 1]
    >>> y = np.where(X @ [1.0, 0.1, 0.01, 0.0] + 0.3 * rng.normal(size=4000) > 0, "yes", "no")
    >>> model = DPLogisticRegression(epsilon=2.0, delta=1e-5, classes=["no", "yes"]).fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    _inference_kind: ClassVar[str] = "Logistic regression"

    def _publish(self, released: Any) -> None:
        shift = self._log_weights(getattr(released, "prior", None))
        if shift is not None:
            moved = np.array(released.fit.parameters)
            moved[-1] += shift
            released = replace(
                released, fit=replace(released.fit, parameters=moved), prediction=before_weights(released.prediction)
            )
        super()._publish(released)
        if isinstance(released, ClassInferenceRelease):
            self._publish_inference(released.inference)

    def odds_ratios(self, level: float = 0.95) -> Any:
        """By which factor one unit of each column multiplies the odds of the second class, and its interval: (d, 3)."""
        return self._inference().odds_ratios(level)

    def marginal_effects(self, level: float = 0.95, output: str | None = None) -> Any:
        """Average effects of one unit on the probability of the second class, (d, 4): effect, error, interval.

        Over the training rows, by the delta method. `output` gives a table instead ("text", "markdown", …).
        """
        return self._inference().marginal_effects(level, output)

    def probability_intervals(self, X: ArrayLike, level: float = 0.95) -> NDArray[np.float64]:
        """Return (n, 3): the probability of the second class by `params`, and the interval that holds it there."""
        return np.asarray(expit(self._inference().predict(self._read_rows(X), "mean", level)))

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
    leaves = event.leaves()
    return any(isinstance(leaf, OnePassIteration) for leaf in leaves)
