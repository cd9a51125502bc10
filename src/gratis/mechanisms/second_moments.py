"""A privately released second-moment matrix, and the change of basis that it allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.clipped_gradient import row_norms, sanitised
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.checks import check_count, check_positive
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring

__all__ = ["Preconditioner", "cleaned_eigenvalues", "release_second_moments", "second_moment_event", "whitening"]


@dataclass(frozen=True, slots=True)
class Preconditioner:
    """z = basis·x with basis = (W + λ)^{−1/2}Vᵀ; `spectrum` is the released estimate of z's second moments.

    All fields are functions of the released matrix and of its public noise level. `basis` is None for the identity:
    wide tables are trained in it, and D² numbers would not fit there.
    """

    basis: NDArray[np.float64] | None
    spectrum: NDArray[np.float64]

    @classmethod
    def identity(cls, n_columns: int) -> Preconditioner:
        """Return the basis of plain descent: nothing released, columns taken to have unit second moments."""
        return cls(None, np.ones(n_columns))

    @property
    def effective_dimension(self) -> float:
        """d_eff = Σ w/(w+λ), at least 1: the expected squared length of a row of Z."""
        return max(1.0, float(self.spectrum.sum()))

    def transform(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rows in the new basis (the same array, not a copy, for the identity)."""
        if self.basis is None:
            return X
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of a record
            return X @ self.basis.T

    def restore(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return parameters for x from parameters for z: xᵀθ = zᵀφ with θ = basisᵀφ."""
        return parameters if self.basis is None else self.basis.T @ parameters

    def coordinates(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return parameters for z from parameters for x: what `restore` undoes (the rows of `basis` are orthogonal)."""
        if self.basis is None:
            return parameters
        return (self.basis @ parameters) / np.square(self.basis).sum(axis=1, keepdims=True)


def second_moment_event(n_records: int, n_columns: int, *, mu: float, neighbouring: Neighbouring) -> GaussianRelease:
    """Return the event of releasing (1/n)Σxxᵀ with rows clipped to norm √D, at `mu`-GDP.

    Sensitivity in Frobenius norm, with ‖x‖² ≤ D: zero-out ‖xxᵀ‖/n ≤ D/n. Replace-one
    ‖xxᵀ − x′x′ᵀ‖² = ‖x‖⁴ + ‖x′‖⁴ − 2(xᵀx′)² ≤ 2D², so √2·D/n.

    >>> event = second_moment_event(1000, 4, mu=0.1, neighbouring=Neighbouring.ZERO_OUT)
    >>> round(event.sensitivity, 9), round(event.noise_std, 8)
    (0.004, 0.04)
    """
    columns = check_count("n_columns", n_columns)
    factor = 1.0 if neighbouring is Neighbouring.ZERO_OUT else math.sqrt(2.0)
    # A row of norm √D(1+s) has an outer product of norm D(1+s)²: twice the columns cover (1+s)².
    inflation = rounding_inflation(n_records, 2 * columns + 16, sensitivity=factor)
    sensitivity = factor * columns * inflation / n_records
    return GaussianRelease(
        sensitivity=sensitivity,
        noise_std=sensitivity / check_positive("mu", mu),
        neighbouring=neighbouring,
        label="second moments",
    )


def clipped_outer_products(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ xxᵀ over a chunk, every row scaled to norm at most √D. Not private: a step of the release below."""
    rows = sanitised(X)
    # An infinite norm means overflow: weight 0.
    clipped = rows * np.minimum(1.0, math.sqrt(rows.shape[1]) / row_norms(rows))[:, None]
    return np.asarray(clipped.T @ clipped)


def cleaned_eigenvalues(eigenvalues: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
    """Return what the true matrix has along each eigenvector of the noisy one: ξᵢ = (wᵢ − 2s²·Re g(wᵢ))⁺.

    M̃ = M + noise of semicircle law with deviation s pushes eigenvalues apart, so half the noise would pass for
    spectrum. The rotation-invariant estimator of vᵢᵀMvᵢ needs the noisy eigenvalues only: g(w) = (1/D)Σ 1/(w − wⱼ),
    smoothed over s/√D (Bun, Allez, Bouchaud & Potters 2016). Pure noise gives zeros, and the trace stays.

    >>> noisy = np.linalg.eigvalsh((lambda a: (a + a.T) / 2)(np.random.default_rng(0).standard_normal((200, 200))))
    >>> bool(noisy.max() > 18), bool(cleaned_eigenvalues(noisy, 10.0).max() < 5)
    (True, True)
    """
    gaps = eigenvalues[:, None] - eigenvalues
    transform = (gaps / (np.square(gaps) + max(spread**2 / eigenvalues.size, 1e-300))).mean(axis=1)
    return np.asarray(np.maximum(np.sort(eigenvalues - 2 * spread**2 * transform), 0.0))


def release_second_moments(
    rows: Rows,
    *,
    mu: float,
    neighbouring: Neighbouring,
    noise: NoiseSource,
    shrinkage: float = 0.5,
    least_ridge: float = 1e-4,
) -> tuple[Preconditioner, GaussianRelease]:
    """Release the second-moment matrix of clipped rows and return the preconditioner made from it.

    M̃ = (1/n)Σxxᵀ + σG, made symmetric (noise of variance σ² on the diagonal, σ²/2 off it); then `whitening`.

    **Guarantee**: `mu`-GDP under `neighbouring` (sensitivity: `second_moment_event`); symmetrising, the
    eigendecomposition and everything in `Preconditioner` are post-processing.

    >>> X = np.random.default_rng(0).standard_normal((5000, 3)) * [1.0, 1.0, 0.1]
    >>> found, event = release_second_moments(Rows.held(X, X[:, 0]), mu=5.0, neighbouring=Neighbouring.ZERO_OUT,
    ...                                       noise=NoiseSource.insecure(0))
    >>> bool((found.spectrum > 0.8).all()), round(event.sensitivity / event.noise_std, 9)
    (True, 5.0)
    """
    columns = rows.n_features
    event = second_moment_event(rows.n_rows, columns, mu=mu, neighbouring=neighbouring)
    with np.errstate(all="ignore"):
        moments = rows.total(lambda X, *_: clipped_outer_products(X)) / rows.n_rows
    released = noise.release(moments, event.noise_std)
    return whitening(released, event.noise_std, shrinkage=shrinkage, least_ridge=least_ridge), event


def whitening(
    released: NDArray[np.float64], noise_std: float, *, shrinkage: float = 0.5, least_ridge: float = 1e-4
) -> Preconditioner:
    """Return the basis in which second moments that were released with noise are about the identity.

    The matrix is made symmetric, its eigenvalues are cleaned of the noise, and the ridge λ = shrinkage·σ√(2D) +
    `least_ridge` is about half the spectral norm of the noise. Post-processing.
    """
    columns = len(released)
    eigenvalues, vectors = np.linalg.eigh((released + released.T) / 2)
    positive = cleaned_eigenvalues(eigenvalues, noise_std * math.sqrt(columns / 2))
    ridge = shrinkage * noise_std * math.sqrt(2 * columns) + least_ridge
    return Preconditioner(vectors.T / np.sqrt(positive + ridge)[:, None], positive / (positive + ridge))
