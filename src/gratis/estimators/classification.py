"""What all private classifiers share: public classes, and how scores become answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from gratis.estimators.leaks import Watched
from gratis.estimators.values import CLASSES_OCCUR, encoded
from gratis.models.logistic import SoftmaxModel
from gratis.records.checks import check_positive
from gratis.records.errors import GratisError
from gratis.records.predictions import Prediction

__all__ = ["PrivateClassifier", "before_weights", "encoded"]

Array = NDArray[Any]


class PrivateClassifier(Watched, ClassifierMixin):
    """Mixin: the classes are public, given by the caller or assumed so (and then the certificate says it)."""

    classes: ArrayLike | None
    class_weight: Mapping[Any, float] | str | None = None
    noise_seed: int | None

    def _read(
        self, X: ArrayLike, y: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], Array | None, tuple[str, ...]]:
        rows, labels = self._validated(X, y, numeric=False)
        classes, assumed = self._read_classes(labels)
        rows, position = self._contributing(rows, encoded(labels, classes))
        return rows, position, classes, assumed

    def _stream_classes(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        return self._read_classes(None)

    @abstractmethod
    def _class_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return scores (n, classes), or log-odds (n, 1) of the second of two classes."""

    def _read_classes(self, labels: Array | None) -> tuple[Array, tuple[str, ...]]:
        """Return the classes and what has to be assumed about them; refuse fewer than two.

        Declared classes need no look at the labels: scikit-learn's checks of them would raise or warn because of one.
        """
        assumed: tuple[str, ...] = ()
        if self.classes is not None:
            classes = _sorted(np.asarray(self.classes))
        elif labels is None:
            raise GratisError("a streamed pass must know its classes before it sees them: pass classes=[…]")
        else:
            classes, assumed = _sorted(labels, occurring=True), (CLASSES_OCCUR,)
        if len(classes) < 2:
            raise GratisError(f"at least two classes are needed, got {len(classes)} class")
        self._given_weights(classes)
        return classes, assumed

    def _given_weights(self, classes: Array) -> NDArray[np.float64]:
        """The weights that the user gave, 1 where none; refuse what is no weight, before anything is spent."""
        weights = np.ones(len(classes))
        if self.class_weight is None or (isinstance(self.class_weight, str) and self.class_weight == "balanced"):
            return weights
        if not isinstance(self.class_weight, Mapping):
            raise GratisError("class_weight must be 'balanced' or weights by class, as {class: weight}")
        known = {label: k for k, label in enumerate(classes.tolist())}
        for label, weight in self.class_weight.items():
            if label not in known:
                raise GratisError("class_weight names a class that is not among the classes")
            weights[known[label]] = check_positive("class_weight", weight)
        return weights

    def _log_weights(self, prior: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """What `class_weight` adds to the scores of the classes, (K,), or None: post-processing of released shares.

        Where classes count w_k times, P(k|x) becomes proportional to w_k·P(k|x): the intercepts move by ln w_k, and
        nothing else has to be learnt. "balanced" is w_k = 1/(K·share of k). Without noise a weighted fit would differ
        from this by what a linear model misses; under privacy it would have a few heavy records pay with their clip.
        """
        if self.class_weight is None:
            return None
        if self.class_weight == "balanced":
            if prior is None:
                raise GratisError("class_weight='balanced' needs class counts, which this algorithm does not release")
            return -np.log(len(prior) * prior)
        return np.log(self._given_weights(self.classes_))

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return log-odds (two classes) or scores (several)."""
        scores = self._class_scores(X)
        if scores.shape[1] == 1:
            return scores[:, 0]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of every class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        return SoftmaxModel(scores.shape[1]).mean(scores)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the log of the probability of every class."""
        with np.errstate(divide="ignore"):  # −∞ where a probability is too small for a number
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None  # fresh noise in every fit
        tags.classifier_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags


def before_weights(prediction: Prediction) -> Prediction:
    """The prediction of a model whose classes were weighted after it."""
    return replace(prediction, assumptions=(*prediction.assumptions, "of the model before class_weight moved it"))


def _sorted(labels: Array, *, occurring: bool = False) -> Array:
    """The different classes in order; where nobody declared them, those that occur (that answer is not private)."""
    try:
        if occurring:
            check_classification_targets(labels)
        return np.asarray(np.unique(labels))
    except TypeError:  # classes of several types have no order
        pass
    raise GratisError("classes must be of one type, all numbers or all texts; declare them with classes=[…]")
