"""A constant beside the features of every record: what lets a descent on fixed features move all scores alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.stages.gram import FeatureMap

__all__ = ["CONSTANT", "WithConstant"]

Array = NDArray[Any]

CONSTANT = 0.25  # of rows of norm 1: a 16th of their square; a power of two keeps sums of products exact


@dataclass(frozen=True, slots=True)
class WithConstant:
    """φ(x) and, as the last feature, 1/4: a function of the same row. Meant for rows of norm 1.

    >>> from gratis.models.random_features import StoredFeatures
    >>> both = WithConstant(StoredFeatures(2))
    >>> [(columns.stop, values.tolist()) for columns, values in both.blocks(np.array([[0.6, 0.8]]))]
    [(2, [[0.6, 0.8]]), (3, [[0.25]])]
    """

    features: FeatureMap

    @property
    def n_features(self) -> int:
        """Number of features, the constant included."""
        return self.features.n_features + 1

    @property
    def exact_gram(self) -> bool:
        """Sums of products of rows of norm 1 are multiples of 2⁻⁵² below 2, and so they stay with 1/16 added."""
        return self.features.exact_gram and self.largest_square_norm < 2

    @property
    def largest_square_norm(self) -> float:
        """A public bound on ‖φ‖²."""
        return self.features.largest_square_norm + CONSTANT**2

    @property
    def typical_square_norm(self) -> float:
        """A public idea of ‖φ‖²."""
        return self.features.typical_square_norm + CONSTANT**2

    def blocks(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield the blocks of the features, then the constant."""
        yield from self.features.blocks(X)
        place = self.features.n_features
        yield slice(place, place + 1), np.full((len(X), 1), CONSTANT, dtype=np.float32)
