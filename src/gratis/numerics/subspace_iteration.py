"""Orthogonal (subspace) iteration: leading eigenpairs of a symmetric operator that is known only by its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["gram_matrix", "leading_eigenpairs"]

Array = NDArray[np.float64]
_OVERSAMPLING = 8


def leading_eigenpairs(
    multiply: Callable[[Array], Array],
    size: int,
    count: int,
    *,
    rng: np.random.Generator,
    iterations: int = 200,
    tolerance: float = 1e-10,
) -> tuple[Array, Array]:
    """Return the `count` largest eigenvalues, descending, and their eigenvectors (size, count) of a PSD operator.

    Q ← orth(A·Q) with Rayleigh–Ritz after every product and a few vectors more than asked for; stops when no asked
    eigenvalue moves by more than `tolerance` of the largest. Errors fall like (λ_{count+8}/λ_i)² an iteration.

    Reference: Demmel 1997, Algorithm 4.3.

    >>> values, vectors = leading_eigenpairs(lambda Q: np.diag([5.0, 3.0, 1.0]) @ Q, 3, 2, rng=np.random.default_rng(0))
    >>> values.round(6).tolist()
    [5.0, 3.0]
    """
    if not 1 <= count <= size:
        raise ValueError("count must lie between 1 and the operator's size")
    block = min(size, count + _OVERSAMPLING)
    Q = np.linalg.qr(rng.standard_normal((size, block)))[0]
    previous = np.zeros(count)
    for _ in range(iterations):
        product = multiply(Q)
        values, rotation = np.linalg.eigh(Q.T @ product)
        values, rotation = values[::-1], rotation[:, ::-1]
        vectors = Q @ rotation
        found = values[:count]
        if np.abs(found - previous).max() <= tolerance * max(found[0], np.finfo(float).tiny):
            break
        previous = found
        Q = np.linalg.qr(product @ rotation)[0]
    return np.maximum(found, 0.0), vectors[:, :count]


def gram_matrix(rows: NDArray[Any], *, columns_at_once: int = 16384) -> Array:
    """Return H·Hᵀ in float64 over blocks of columns: rows may be float32 and wide, the square of p is never formed.

    >>> gram_matrix(np.array([[1.0, 2.0], [0.0, 1.0]], dtype=np.float32)).tolist()
    [[5.0, 2.0], [2.0, 1.0]]
    """
    total = np.zeros((len(rows), len(rows)))
    for start in range(0, rows.shape[1], columns_at_once):
        part = rows[:, start : start + columns_at_once].astype(np.float64)
        total += part @ part.T
    return total
