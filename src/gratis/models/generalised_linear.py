"""Linear regression as a generalised linear model: identity mean, squared loss ½(y − xᵀθ)²."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LinearModel"]

Array = NDArray[Any]


class LinearModel:
    """Mean xᵀθ; the gradient factor of a record is its residual xᵀθ − y.

    >>> LinearModel().targets([1.0, 2.0]).shape
    (2, 1, 1)
    """

    outputs = 1

    def targets(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return y as (n, 1, 1); non-finite targets stay so, and such records contribute nothing."""
        return np.asarray(y, dtype=np.float64).reshape(-1, 1, 1)

    def mean(self, scores: Array) -> Array:
        """Return the scores themselves."""
        return scores

    def loss(self, scores: Array, targets: Array) -> Array:
        """Return ½(y − u)² for each record, shape (n, B)."""
        return 0.5 * np.square(scores - targets).sum(axis=-1)
