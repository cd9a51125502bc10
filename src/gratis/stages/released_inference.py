"""What a fit with inference released about its coefficients: estimates, their covariance, and how large errors are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReleasedInference"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedInference:
    """Estimates (intercept first) in original units, with their covariance; or, withheld, why there are none.

    `errors` (2, sizes), of a regression: sizes of residuals in the target's units, and the share of records up to each
    of them. `steepness` (d+3), of two classes: the mean of p(1−p), its derivative by the estimates, its variance.
    """

    rows: int
    estimates: Array | None = None
    covariance: Array | None = None
    privacy: Array | None = None  # the part of the covariance that is privacy's
    errors: Array | None = None
    steepness: Array | None = None
    withheld: str | None = None
