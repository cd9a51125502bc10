"""Generalised geometric median under differential privacy: full batch, exact accounting, O(nd) a step (S4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.mechanisms.clipped_gradient import TINY_SQUARE
from gratis.mechanisms.noise import NoiseSource
from gratis.numerics.rounding import ROWS_PER_CHUNK
from gratis.records.checks import check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.records.neighbouring import Neighbouring
from gratis.stages.full_batch import descent_event

__all__ = ["GeometricMedian", "geometric_median", "mean_distance", "mean_unit_vector"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GeometricMedian:
    """What was released: the last iterate, the mean of x⁽⁰⁾ … x⁽ᵀ⁻¹⁾, and the event that pays for both."""

    last: Array
    mean: Array
    event: FullBatchDescent


def mean_unit_vector(X: Array, point: Array, roots: Array) -> Array:
    """Return (1/n)·Σᵢ zᵢ/‖zᵢ‖ with zᵢ = √a∘(x − xᵢ); X may hold only the leading columns, the others are then zero.

    **Guarantee**: every record adds a vector of norm at most 1/n whatever its values are (zero where ‖z‖ is zero, not
    finite, or the row is not finite), so the ℓ2 sensitivity is κ/n; `rounding_inflation(n, d + 1, sensitivity=κ)` of
    the event covers floating point: norms are those of the computed z, sums run in chunks of `ROWS_PER_CHUNK`.

    >>> mean_unit_vector(np.array([[3.0, 4.0], [0.0, 0.0]]), np.zeros(2), np.ones(2)).round(9).tolist()
    [-0.3, -0.4]
    """
    n, columns = X.shape
    rest = roots[columns:] * point[columns:]
    total, count = np.zeros(columns), 0.0
    with np.errstate(all="ignore"):
        shared = float(rest @ rest)
        for start in range(0, n, ROWS_PER_CHUNK):
            z = (point[:columns] - X[start : start + ROWS_PER_CHUNK]) * roots[:columns]
            norms = np.sqrt(np.einsum("ij,ij->i", z, z) + shared + TINY_SQUARE)
            bounded = norms < np.inf
            if not bounded.all():
                # A NaN or infinite length bounds nothing: the record adds zero.
                z, norms = np.where(bounded[:, None], z, 0.0), np.where(bounded, norms, np.inf)
            weights = 1 / norms
            total += weights @ z
            count += float(weights.sum())
    return np.concatenate([total, count * rest]) / n


def mean_distance(X: Array, point: ArrayLike, matrix: ArrayLike) -> float:
    """Return (1/n)·Σ‖x − xᵢ‖_A for a diagonal A: an exact value, so for simulated or public rows only."""
    diagonal, at = np.asarray(matrix, dtype=np.float64), np.asarray(point, dtype=np.float64)
    columns = X.shape[1]
    shared = float(diagonal[columns:] @ at[columns:] ** 2)
    return float(np.mean(np.sqrt((at[:columns] - X) ** 2 @ diagonal[:columns] + shared)))


def geometric_median(
    X: ArrayLike,
    matrix: ArrayLike,
    *,
    steps: int,
    learning_rate: float,
    mu: float,
    neighbouring: Neighbouring,
    noise: NoiseSource,
    regularisation: float = 0.0,
    matched_noise: bool = False,
) -> GeometricMedian:
    """Minimise (1/n)Σ‖x − xᵢ‖_A + (α/2)‖x‖² from x⁽⁰⁾ = 0 by T noisy full-batch steps.

    x ← x − η·(∇ + αx + G_0·s·N(0, I)) with ∇ = (1/n)Σ A(x − xᵢ)/‖x − xᵢ‖_A, ‖·‖ ≤ G_0 = λ₁(A)^{1/2} a record, and
    s = κr√T/(nμ). The steps are S4's Algorithm 1 with the full batch: no subsampling to account for.

    `matched_noise` adds the noise to the mean of A^{1/2}(x − xᵢ)/‖x − xᵢ‖_A, a vector of norm at most 1, and multiplies
    by A^{1/2} afterwards (post-processing): noise of covariance s²A instead of λ₁s²I, never larger in any direction,
    for the same guarantee. S4's isotropic noise is the default.

    **Guarantee**: all iterates together are `mu`-GDP under `neighbouring` (event `FullBatchDescent`); A, steps and
    rates are public. Rows that are not finite add nothing.

    Parameters
    ----------
    X : (n, m)
        Records; with m < d the remaining columns are known to be zero for every record.
    matrix : (d,) or (d, d)
        A ⪰ 0, or its diagonal. A full matrix is diagonalised once; then every step costs O(nd).
    learning_rate, regularisation : float
        η and α.

    >>> rows = np.random.default_rng(0).normal(1.0, 1.0, (5000, 3))
    >>> run = geometric_median(rows, np.ones(3), steps=100, learning_rate=0.5, mu=1.0,
    ...                        neighbouring=Neighbouring.REPLACE_ONE, noise=NoiseSource.insecure(0))
    >>> run.last.round(1).tolist()
    [1.0, 1.0, 1.0]
    """
    rows, (diagonal, basis) = np.asarray(X, dtype=np.float64), _diagonalised(matrix)
    if rows.ndim != 2 or not len(rows) or rows.shape[1] > len(diagonal):
        raise GratisError("X must be a matrix of records with at most as many columns as A")
    if basis is not None and rows.shape[1] < len(diagonal):
        raise GratisError("X must have all columns when A is not diagonal")
    eta = check_positive("learning_rate", learning_rate)
    alpha = check_non_negative("regularisation", regularisation)
    event = descent_event(len(rows), len(diagonal), 1, steps, mu=mu, neighbouring=neighbouring)
    if basis is not None:
        with np.errstate(all="ignore"):
            rows = rows @ basis
    roots = np.sqrt(diagonal)
    scale = 1.0 if matched_noise else float(roots.max())
    # Entries at most 1: multiplying by them before the noise cannot raise the sensitivity.
    before, after = (np.ones_like(roots), roots) if matched_noise else (roots / scale, np.full_like(roots, scale))
    std = event.noise_stds.values[0]
    point, total = np.zeros(len(diagonal)), np.zeros(len(diagonal))
    for _ in range(event.steps):
        total += point
        released = noise.release(before * mean_unit_vector(rows, point, roots), std)
        point = point - eta * (after * released + alpha * point)
    mean = total / event.steps
    return GeometricMedian(point, mean, event) if basis is None else GeometricMedian(basis @ point, basis @ mean, event)


def _diagonalised(matrix: ArrayLike) -> tuple[Array, Array | None]:
    values = np.asarray(matrix, dtype=np.float64)
    basis = None
    if values.ndim == 2 and values.shape[0] == values.shape[1] and np.allclose(values, values.T):
        values, basis = np.linalg.eigh(values)
        values = np.where(values > -1e-12 * math.fabs(values[-1]), np.maximum(values, 0.0), values)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or values.min() < 0 or values.max() == 0:
        raise GratisError("A must be a symmetric positive semidefinite matrix, or its non-negative diagonal")
    return values, basis
