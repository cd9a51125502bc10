"""Softmax classification as a generalised linear model: one score a class, cross-entropy loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.checks import check_count

__all__ = ["SoftmaxModel"]


class SoftmaxModel:
    """P(class) ∝ exp(score); the gradient factor of a record is p − onehot(y), of norm at most √2.

    The classes are public and numbered 0 … n_classes−1; the caller encodes them. Two classes use two symmetric
    scores: with θ₀ = −θ₁ throughout this is logistic regression in the score difference.

    >>> model = SoftmaxModel(3)
    >>> model.mean(np.zeros((1, 1, 3))).round(3)
    array([[[0.333, 0.333, 0.333]]])
    >>> model.targets([2]).tolist()
    [[[0.0, 0.0, 1.0]]]

    `prior` are public or released shares of the classes, whose log is added to all scores: θ = 0 then predicts them.
    """

    def __init__(self, n_classes: int, prior: ArrayLike | None = None) -> None:
        self.outputs = check_count("n_classes", n_classes, minimum=2)
        self._start = 0.0 if prior is None else np.log(np.asarray(prior, dtype=np.float64))

    def targets(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the one-hot labels as (n, 1, k); a label outside 0 … k−1 gives NaN and contributes nothing."""
        labels = np.asarray(y, dtype=np.float64).reshape(-1, 1)
        encoded = (labels == np.arange(self.outputs)).astype(np.float64)
        encoded[encoded.sum(axis=1) != 1] = np.nan
        return encoded[:, None, :]

    def mean(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return class probabilities."""
        scores = scores + self._start
        shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))

    def loss(self, scores: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
        """Return the cross-entropy for each record, shape (n, B)."""
        scores = scores + self._start
        top = scores.max(axis=-1)
        return np.asarray(top + np.log(np.exp(scores - top[..., None]).sum(axis=-1)) - (scores * targets).sum(axis=-1))
