"""Clipped gradient sums of generalised linear models: exact per-record norms, two matrix products a step.

For scores u = θᵀx and a canonical link, the gradient of one record's loss is x·fᵀ with factor f = mean(u) − y
(residual, or probabilities minus the one-hot label), so ‖gradient‖ = ‖x‖·‖f‖ and no per-record gradient is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.person_rows import person_weight
from gratis.records.errors import GratisError

__all__ = [
    "TINY_SQUARE",
    "clipped_gradient_sum",
    "clipped_mean_sum",
    "clipped_outer_sum",
    "row_norms",
    "sanitised",
    "usable_rows",
]

Array = NDArray[Any]

# Added under every root: squares that underflow lose less than this, so a computed norm is never too small.
TINY_SQUARE = 1e-280

Mean = Callable[[Array], Array]
_UNIT = 2.0**-53


def usable_rows(X: Array) -> NDArray[np.bool_]:
    """Say which rows hold finite numbers only; the others contribute nothing to any release."""
    return np.asarray(np.isfinite(X).all(axis=1))


def sanitised(X: Array, usable: NDArray[np.bool_] | None = None) -> Array:
    """Return X with the unusable rows set to zero; a zero row has a zero gradient whatever its factor is."""
    usable = usable_rows(X) if usable is None else usable
    return X if usable.all() else np.where(usable[:, None], X, 0)


def row_norms(X: Array) -> Array:
    """Return ‖xᵢ‖, rounded so that underflow cannot make it too small; overflow gives ∞ and hence weight 0."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", X, X) + TINY_SQUARE), dtype=X.dtype)


def clipped_gradient_sum(
    X: NDArray[Any],
    norms: NDArray[Any],
    targets: NDArray[Any],
    parameters: NDArray[Any],
    mean: Mean,
    clip_norms: NDArray[Any],
    each: int = 1,
) -> NDArray[Any]:
    """Return Σᵢ clip₁(xᵢ fᵢᵀ / C_b) over a chunk of rows for B parameter sets, as an array (D, B, k).

    **Guarantee** (float64, B = 1): every record adds a matrix of Frobenius norm at most 1 whatever its values
    are, since min(1, C/(‖x‖‖f‖))·‖x‖‖f‖/C ≤ 1; records that are non-finite or overflow add zero. Hence the ℓ2
    sensitivity of the sum over all chunks is κ: 2 when one record is exchanged, 1 when one is zeroed out.
    `numerics.rounding.rounding_inflation(n, D + k, sensitivity=κ)` covers floating point, for chunks of at most
    `ROWS_PER_CHUNK` rows.

    Parameters
    ----------
    X : (n, D)
        Finite rows (`sanitised`).
    norms : (n,)
        `row_norms(X)`.
    targets : (n, B or 1, k)
        What the mean function is compared with.
    parameters : (D, B, k)
        θ of every run.
    mean : callable
        Maps scores (m, B, k) to means of the same shape (identity, sigmoid, softmax).
    clip_norms : (B,)
        C for each parameter set.
    each : int
        Rows of a person, one after the other: their mean gradient is clipped, and a "record" above is a person.

    >>> X = np.array([[3.0, 4.0], [0.0, 0.1]])
    >>> targets = np.array([[[-10.0]], [[-1.0]]])
    >>> gradient = clipped_gradient_sum(X, row_norms(X), targets, np.zeros((2, 1, 1)), lambda u: u, np.ones(1))
    >>> np.round(gradient[:, 0, 0], 3)
    array([0.6, 0.9])
    """
    n, columns = X.shape
    _, batch, outputs = parameters.shape
    if norms.shape != (n,) or targets.shape[0] != n or clip_norms.shape != (batch,):
        raise GratisError("rows, norms, targets and clip norms must have matching lengths")
    flat = np.ascontiguousarray(parameters.reshape(columns, batch * outputs))
    with np.errstate(all="ignore"):
        factors = mean((X @ flat).reshape(-1, batch, outputs)) - targets
        if each > 1:
            sums = [clipped_mean_sum(X, factors[:, b], float(clip_norms[b]), each) for b in range(batch)]
            return np.stack(sums, axis=1)
        if outputs == 1:
            sizes = np.abs(factors[:, :, 0])
        else:
            sizes = np.sqrt(np.einsum("ibk,ibk->ib", factors, factors) + TINY_SQUARE)
        lengths = sizes * (norms[:, None] / clip_norms)
        factors /= (np.maximum(lengths, 1) * clip_norms)[:, :, None]
        # A NaN or infinite length bounds nothing: the record adds zero.
        unbounded = ~(lengths < np.inf)
        if unbounded.any():
            factors[unbounded] = 0
        total = X.T @ factors.reshape(-1, batch * outputs)
    return np.asarray(total.reshape(columns, batch, outputs))


def clipped_outer_sum(X: Array, norms: Array, factors: Array, clip_norm: float, each: int = 1) -> Array:
    """Return Σᵢ clip₁(xᵢ fᵢᵀ/C) over a chunk of finite rows X (n, D) with `row_norms` and factors f (n, k): (D, k).

    **Guarantee**: as `clipped_gradient_sum`, for any factors: every record (`each` rows of a person together) adds a
    matrix of Frobenius norm at most 1, and 0 where a length is not finite.

    >>> X = np.array([[3.0, 4.0], [0.0, 0.1]])
    >>> clipped_outer_sum(X, row_norms(X), np.array([[10.0], [1.0]]), 1.0)[:, 0].round(3).tolist()
    [0.6, 0.9]
    """
    if each > 1:
        return clipped_mean_sum(X, factors, clip_norm, each)
    sizes = np.abs(factors[:, 0]) if factors.shape[1] == 1 else row_norms(factors)
    lengths = sizes * (norms / clip_norm)
    weights = np.where(lengths < np.inf, 1 / (np.maximum(lengths, 1.0) * clip_norm), 0.0)
    # A factor that is not finite has no finite length; 0 times it would not be 0.
    return np.asarray(X.T @ np.where(weights[:, None] > 0, factors * weights[:, None], 0.0))


def clipped_mean_sum(X: Array, factors: Array, clip_norm: float, each: int) -> Array:
    """Return Σ over persons of clip₁(ḡ/C), ḡ the mean of xfᵀ over the `each` consecutive rows of a person: (D, k).

    **Guarantee**: a person adds a matrix of Frobenius norm at most 1, whatever the rows are and however many; one whose
    mean is not finite, or whose norm overflows, adds zero. The mean is clipped, not its parts: what differs between a
    person's rows cancels before it can be cut off.
    """
    columns, outputs = X.shape[1], factors.shape[1]
    whole = len(X) // each * each  # what is left over are null records at the end of a chunk
    X, factors = X[:whole], factors[:whole]
    means = np.matmul(X.reshape(-1, each, columns).transpose(0, 2, 1), factors.reshape(-1, each, outputs))
    flat = means.reshape(len(means), columns * outputs) * (person_weight(each) / clip_norm)
    lengths = np.sqrt(np.einsum("ij,ij->i", flat, flat) + TINY_SQUARE)
    # A norm of so many squares may be computed too small by this share.
    lengths *= 1 + (columns * outputs + 16) * _UNIT
    counted = lengths < np.inf
    weights = np.where(counted, 1 / np.maximum(lengths, 1), 0.0)
    return np.asarray((weights @ np.where(counted[:, None], flat, 0.0)).reshape(columns, outputs))
