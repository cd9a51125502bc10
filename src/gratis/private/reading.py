"""How raw rows are read: scales that are found privately or were supplied, and what a missing feature counts as."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.location_scale import Standardiser

__all__ = ["Reading", "Standardised"]

Array = NDArray[np.float64]
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`standardise`: location and scale are found privately; otherwise public maps, or none."""

    standardise: bool = True
    features: Standardiser | None = None
    target: Standardiser | None = None
    impute: bool = False

    def public_features(self, n_columns: int) -> Standardiser:
        """The map of the features that costs nothing."""
        return replace(self.features or Standardiser.identity(n_columns), impute=self.impute)

    def public_target(self) -> Standardiser:
        """The map of the target that costs nothing."""
        return self.target or Standardiser.identity(1)


@dataclass(frozen=True, slots=True)
class Standardised:
    """A chunk under released or public maps, with a column of ones; NaN where a record contributes nothing."""

    features: Standardiser
    target: Standardiser

    def __call__(self, X: Array, y: Array) -> tuple[Array, Array]:
        """Return Z and t."""
        Z = np.ones((len(X), X.shape[1] + 1))
        for start in range(0, len(X), _ROWS_AT_ONCE):  # a row's map sees that row alone: intermediates stay small
            part = slice(start, start + _ROWS_AT_ONCE)
            Z[part, :-1] = self.features.transform(X[part])
        t = self.target.transform(y[:, None])[:, 0]
        # Where features are filled, a record without a target would still count as one at the centre.
        Z[~np.isfinite(t)] = np.nan
        return Z, t
