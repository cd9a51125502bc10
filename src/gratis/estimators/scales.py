"""Scales that the caller declares public: from constants, or from a sample that is not private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.mechanisms.location_scale import Standardiser
from gratis.records.errors import GratisError

__all__ = ["PublicScales"]

_WINDOW = 6.0  # public scales are winsorised at this many of themselves, so that one outlier cannot dominate


@dataclass(frozen=True)
class PublicScales:
    """Means and scales of features (and of the target, for regression) that do not depend on the private rows.

    >>> scales = PublicScales(means=[0.0, 10.0], scales=[1.0, 5.0], target_mean=2.0, target_scale=3.0)
    >>> scales.features(2).transform(np.array([[1.0, 15.0]]))
    array([[1., 1.]])
    """

    means: ArrayLike
    scales: ArrayLike
    target_mean: float = 0.0
    target_scale: float = 1.0

    @classmethod
    def from_sample(cls, X: ArrayLike, y: ArrayLike | None = None) -> PublicScales:
        """Means and standard deviations of a public sample; constant columns get scale 1."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or len(rows) < 2 or not np.all(np.isfinite(rows)):
            raise GratisError("a public sample needs at least two rows of finite numbers")
        target = np.zeros(len(rows)) if y is None else np.asarray(y, dtype=np.float64)
        if target.shape != (len(rows),) or not np.all(np.isfinite(target)):
            raise GratisError("a public sample needs one finite target for each of its rows")
        return cls(rows.mean(axis=0), _safe(rows.std(axis=0)), float(target.mean()), float(_safe(target.std())))

    def features(self, n_features: int) -> Standardiser:
        """Return the map of the features."""
        return _standardiser(self.means, self.scales, n_features)

    def target(self) -> Standardiser:
        """Return the map of the target."""
        return _standardiser([self.target_mean], [self.target_scale], 1)


def _safe(scale: Any) -> NDArray[np.float64]:
    return np.where(np.asarray(scale) > 0, scale, 1.0)


def _standardiser(means: ArrayLike, scales: ArrayLike, width: int) -> Standardiser:
    centre, scale = np.asarray(means, dtype=np.float64).ravel(), np.asarray(scales, dtype=np.float64).ravel()
    if centre.shape != (width,) or scale.shape != (width,):
        raise GratisError(f"public means and scales must have {width} entries, got {centre.size} and {scale.size}")
    if not (np.all(np.isfinite(centre)) and np.all(np.isfinite(scale)) and np.all(scale > 0)):
        raise GratisError("public means must be finite and public scales positive and finite")
    return Standardiser(centre, scale, _WINDOW * scale)
