"""Gram matrices of features, accumulated block by block, and their spectra: all that the dual engine sees of p."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

__all__ = ["FeatureMap", "Gram", "Spectrum", "accumulate_gram", "decompose"]

Array = NDArray[Any]


class FeatureMap(Protocol):
    """What the trainers need: features of a row that depend on that row and public facts only, block by block."""

    @property
    def n_features(self) -> int:
        """Number of features p."""

    @property
    def exact_gram(self) -> bool:
        """Whether sums of products of features are exact in float64."""

    @property
    def largest_square_norm(self) -> float:
        """A public bound on ‖φ‖²; ∞ if there is none."""

    @property
    def typical_square_norm(self) -> float:
        """A public idea of ‖φ‖²; nothing rests on it."""

    def blocks(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """Yield (columns, Φ[:, columns]), at most 1024 columns at once, the same finite values in every pass."""


@dataclass(frozen=True, slots=True)
class Gram:
    """K = ΦΦᵀ (n, n); Φ_test Φᵀ (m, n); the squared norms of the test features (m,)."""

    train: Array
    cross: Array
    test_diagonal: Array


@dataclass(frozen=True, slots=True)
class Spectrum:
    """K ≈ UΛUᵀ without the eigenvalues that count as zero: `values` (r,), `vectors` (n, r)."""

    values: Array
    vectors: Array

    def factor(self) -> Array:
        """Return L = UΛ^{1/2}, so that LLᵀ = K."""
        return np.asarray(self.vectors * np.sqrt(self.values))

    def whitening(self) -> Array:
        """Return UΛ^{−1/2}: Φᵀ times it has orthonormal columns."""
        return np.asarray(self.vectors / np.sqrt(self.values))

    def solve(self, right: Array) -> Array:
        """Return K⁺ right: θ* = ΦᵀK⁺y is the minimum-norm interpolant."""
        return np.asarray((self.vectors / self.values) @ (self.vectors.T @ right))


def accumulate_gram(features: FeatureMap, X: Array, X_test: Array | None = None, *, dtype: Any = np.float64) -> Gram:
    """Add up ΦΦᵀ over blocks of features: memory n² + n·BLOCK, whatever p is.

    Products of one block run in `dtype`, sums over blocks in float64. float32 halves the time and is meant for
    simulation; a release needs float64.

    >>> from gratis.models.random_features import RandomFeatures
    >>> features = RandomFeatures(n_inputs=2, n_features=3000)
    >>> gram = accumulate_gram(features, np.eye(2))
    >>> phi = features.transform(np.eye(2)).astype(float)
    >>> bool(np.allclose(gram.train, phi @ phi.T))
    True
    """
    n, m = len(X), 0 if X_test is None else len(X_test)
    stacked = X if X_test is None else np.vstack([X, X_test])
    train, cross, diagonal = np.zeros((n, n)), np.zeros((m, n)), np.zeros(m)
    for _, values in features.blocks(stacked):
        left = np.ascontiguousarray(values[:n], dtype=dtype)
        # numpy sends A @ A.T to syrk: half the flops of a general product.
        train += left @ left.T
        if m:
            right = np.ascontiguousarray(values[n:], dtype=dtype)
            cross += right @ left.T
            diagonal += np.einsum("ij,ij->i", right, right, dtype=np.float64)
    return Gram(train, cross, diagonal)


def decompose(K: Array) -> Spectrum:
    """Return the eigendecomposition of K, leaving out eigenvalues below 10·n·2⁻⁵² times the largest.

    For simulation: a release keeps every direction (`stages.row_space`).

    >>> decompose(np.diag([1.0, 0.0, 4.0])).values
    array([1., 4.])
    """
    values, vectors = eigh(K, driver="evd")
    kept = values > max(10 * len(K) * float(np.finfo(np.float64).eps) * values[-1], 0.0)
    return Spectrum(values[kept], vectors[:, kept])
