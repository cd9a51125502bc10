"""Columns as places: every value becomes the number of a public bin or level, and all later stages see places only.

A place is all that later stages need, because their features are constant inside a bin. What a column's released
histogram says about them (means, variances, products within the column) is then exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.location_scale import Standardiser

__all__ = ["BINS", "MIDDLES", "REACH", "Columns"]

# Recipe D: fine enough for a curve of 16 cosines, and ±3.5 scales hold all but the tails of most columns.
BINS, REACH = 128, 3.5
_EDGES = np.linspace(-REACH, REACH, BINS + 1)
MIDDLES: NDArray[np.float64] = (_EDGES[1:] + _EDGES[:-1]) / 2


@dataclass(frozen=True, slots=True)
class Columns:
    """How values become places. `features` maps all columns; on those with declared `levels` it is the identity.

    Numbers: `BINS` equal bins of the standardised value (of columns with a knee, of its logarithm), what lies outside
    in the last ones. Levels: 0 … k − 1, and
    place k for a level that is missing or unknown (all features there are 0).

    >>> scaler = Standardiser(np.zeros(2), np.ones(2), np.full(2, np.inf), impute=True)
    >>> Columns(scaler, {1: 3}).places(np.array([[0.0, 2.0], [np.nan, 7.0]]))
    array([[64,  2],
           [64,  3]])
    """

    features: Standardiser
    levels: dict[int, int]

    @property
    def n_columns(self) -> int:
        """D."""
        return len(self.features.centre)

    @property
    def sizes(self) -> list[int]:
        """Number of places of each column, without the one for a missing level."""
        return [self.levels.get(j, BINS) for j in range(self.n_columns)]

    def places(self, X: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the place of every entry; a missing number is at the centre of its column."""
        with np.errstate(all="ignore"):
            Z = np.nan_to_num(self.features.transform(X), nan=0.0)
            found = np.clip((Z + REACH) * (BINS / (2 * REACH)), 0, BINS - 1).astype(np.int64)
            for j, k in self.levels.items():
                known = (X[:, j] >= 0) & (X[:, j] < k)
                found[:, j] = np.where(known, np.where(known, X[:, j], 0.0).astype(np.int64), k)
        return found

    def values(self, column: int) -> NDArray[np.float64]:
        """The values at the places of a column: middles of its bins, or its levels."""
        if column in self.levels:
            return np.arange(self.levels[column], dtype=np.float64)
        scaler = self.features
        found = MIDDLES * scaler.scale[column] + scaler.centre[column]
        knee = self.knee(column)
        return found if knee is None else np.asarray(knee * np.sinh(found))

    def knee(self, column: int) -> float | None:
        """Beyond which magnitude a column is on a logarithmic scale, if it is."""
        found = np.inf if self.features.knee is None else float(self.features.knee[column])
        return found if np.isfinite(found) else None

    def usable(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Say which records contribute: those with a target and, unless missing features are filled, all features."""
        found = np.isfinite(y)
        return found if self.features.impute else found & np.isfinite(X).all(axis=1)
