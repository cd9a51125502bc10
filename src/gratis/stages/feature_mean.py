"""A private mean of features, as a paid stage before training, and the feature map that subtracts it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.checks import check_positive
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.gram import FeatureMap

__all__ = ["CentredFeatures", "feature_mean_event", "release_feature_mean"]

Array = NDArray[Any]


def feature_mean_event(
    n_records: int, n_features: int, bound: float, *, mu: float, neighbouring: Neighbouring
) -> GaussianRelease:
    """Return the event of releasing the mean of rows of norm ≤ bound at `mu`-GDP: s = κ·r·bound/(nμ).

    >>> event = feature_mean_event(100, 3, 1.0, mu=0.5, neighbouring=Neighbouring.ZERO_OUT)
    >>> round(event.noise_std, 6)
    0.02
    """
    kappa = neighbouring.sensitivity_factor
    inflation = rounding_inflation(n_records, n_features, sensitivity=kappa)
    sensitivity = kappa * inflation * check_positive("bound", bound) / n_records
    noise_std = sensitivity / check_positive("mu", mu) * (1 + 2.0**-48)
    return GaussianRelease(
        sensitivity=sensitivity, noise_std=noise_std, neighbouring=neighbouring, label="mean of the features"
    )


def release_feature_mean(
    features: FeatureMap, rows: Rows, bound: float, *, mu: float, neighbouring: Neighbouring, noise: NoiseSource
) -> tuple[NDArray[np.float64], GaussianRelease]:
    """Release (1/n)Σφᵢ·min(1, bound/‖φᵢ‖) + N(0, s²I) over rows (X, y), and the event that pays for it.

    **Guarantee**: `mu`-GDP under `neighbouring`; every row adds at most bound/n whatever it is, and a row whose y is
    not finite adds nothing (n stays the number of all rows, which is public).
    """
    n, p = rows.n_rows, features.n_features
    event = feature_mean_event(n, p, bound, mu=mu, neighbouring=neighbouring)

    def clipped(X: Array, y: Array) -> Array:
        squares, total = np.zeros(len(X)), np.zeros(p)
        for _, values in features.blocks(X):
            squares += np.einsum("ij,ij->i", values, values, dtype=np.float64)
        weights = np.minimum(1, bound / np.maximum(np.sqrt(squares), 1e-140)) / n
        weights = np.where(np.isfinite(y), weights, 0.0)
        for columns, values in features.blocks(X):
            total[columns] = weights @ values.astype(np.float64)
        return total

    return noise.release(rows.total(clipped), event.noise_std), event


@dataclass(frozen=True, slots=True)
class CentredFeatures:
    """φ(x) − mean, scaled to `row_norm` if that is given. The mean must be public or released before.

    >>> from gratis.models.random_features import StoredFeatures
    >>> centred = CentredFeatures(StoredFeatures(2), np.array([1.0, 0.0]), row_norm=2.0)
    >>> next(centred.blocks(np.array([[1.0, 3.0], [2.0, 0.0]])))[1].tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """

    features: FeatureMap
    mean: NDArray[np.float64]
    row_norm: float | None = None

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return self.features.n_features

    @property
    def exact_gram(self) -> bool:
        """Whether sums of products are exact in float64: rows of norm 1 lie on a grid, see `blocks`."""
        return self.row_norm == 1.0

    @property
    def largest_square_norm(self) -> float:
        """‖φ‖² is at most this, a little above row_norm² for the rounding; ∞ without a row norm."""
        return math.inf if self.row_norm is None else 1.01 * self.row_norm**2

    @property
    def typical_square_norm(self) -> float:
        """‖φ‖² where the norm is fixed."""
        return 1.0 if self.row_norm is None else self.row_norm**2

    def blocks(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield centred blocks in float32; scaling costs one more pass.

        Scaled rows are rounded to multiples of row_norm·2⁻²⁶: sums of products of rows of norm 1 are then whole
        multiples, at most 2⁵³, of 2⁻⁵² (Cauchy–Schwarz), hence exact in float64 in whatever order they are added.
        """
        mean = self.mean.astype(np.float32)

        def single(values: Array) -> Array:
            with np.errstate(over="ignore"):
                cast = values.astype(np.float32)
            # What single precision cannot hold counts as 0: an infinity would spread to all records' sum.
            return np.nan_to_num(cast, nan=0.0, posinf=0.0, neginf=0.0)

        scale: Array | None = None
        grid = np.float32(2.0**26 / (self.row_norm or 1.0))
        if self.row_norm is not None:
            squares = np.zeros(len(X))
            for columns, values in self.features.blocks(X):
                centred = single(values) - mean[columns]
                squares += np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
            norms = np.sqrt(squares)
            scale = np.divide(self.row_norm, norms, out=np.zeros_like(norms), where=norms > 1e-30)
            scale = scale.astype(np.float32)[:, None]
        for columns, values in self.features.blocks(X):
            centred = single(values) - mean[columns]
            yield columns, centred if scale is None else np.rint(centred * scale * grid) / grid
