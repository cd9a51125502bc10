"""A linear model as it was released: parameters on standardised columns, and the maps that lead there and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.location_scale import Standardiser
from gratis.records.events import Event

__all__ = ["ReleasedLinear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedLinear:
    """What a linear fit released. `parameters` (d+1, k) act on standardised columns and a one."""

    parameters: NDArray[np.float64]
    features: Standardiser
    target: Standardiser
    event: Event

    def scores(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return predictions (n, k) in the target's units, inside the target's window.

        Columns are winsorised as they were in training, and no prediction leaves the range that targets were given.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.target.inverse(self.features.transform(X) @ self.parameters[:-1] + self.parameters[-1])
            return np.clip(found, self.target.centre - self.target.window, self.target.centre + self.target.window)

    def original_units(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (coefficients (d, k), intercept (k,)): inside the window they give the same as `scores`."""
        slopes, shift = self.features.original_units(self.parameters[:-1])
        return slopes * self.target.scale, (shift + self.parameters[-1]) * self.target.scale + self.target.centre

    def covariance_in_original_units(self, covariance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a covariance of (intercept, coefficients) of one output from that of its `parameters`."""
        size = len(covariance)
        change = np.zeros((size, size))
        change[0, -1] = 1.0
        change[0, :-1] = -self.features.centre / self.features.scale
        change[1:, :-1] = np.diag(1 / self.features.scale)
        return np.asarray(float(self.target.scale[0]) ** 2 * change @ covariance @ change.T)
