"""What all private classifiers share: public classes, and how scores become answers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from gratis.estimators.labels import encoded
from gratis.estimators.leaks import Watched
from gratis.models.logistic import SoftmaxModel
from gratis.records.errors import GratisError

__all__ = ["PrivateClassifier", "encoded"]

Array = NDArray[Any]


class PrivateClassifier(Watched, ClassifierMixin):
    """Mixin: the classes are public, given by the caller or assumed so (and then the certificate says it)."""

    classes: ArrayLike | None
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
            classes, assumed = _sorted(labels, occurring=True), ("the set of classes that occur is public",)
        if len(classes) < 2:
            raise GratisError(f"at least two classes are needed, got {len(classes)} class")
        return classes, assumed

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


def _sorted(labels: Array, *, occurring: bool = False) -> Array:
    """The different classes in order; where nobody declared them, those that occur (that answer is not private)."""
    try:
        if occurring:
            check_classification_targets(labels)
        return np.asarray(np.unique(labels))
    except TypeError:  # classes of several types have no order
        pass
    raise GratisError("classes must be of one type, all numbers or all texts; declare them with classes=[…]")
