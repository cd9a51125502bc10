"""The compiled inner loop of the one-pass trainer: a dot product and an axpy for each row.

Every choice that the proof in docs/proofs/one-pass-rounding.md rests on is made here: float64 sums in
`LANES` lanes, cap and clip shrunk below their exact values, rows out of range as the identity map.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["advance", "capped_step", "fused_products", "project"]

# Squared norms outside this range have no reliable relative error: such rows count as invalid (or as x = 0).
_SMALLEST_SQUARE = 2.0**-960
_LARGEST_SQUARE = 2.0**960


# "contract" lets the compiler fuse a·b+c, which only removes roundings; sums are never reordered.
@numba.njit(cache=True, fastmath={"contract"}, inline="always")
def fused_products(x: NDArray[Any], theta: NDArray[np.float64]) -> tuple[float, float]:
    """Return (xᵀθ, ‖x‖²) over the entries of x, in one reading, in eight lanes each."""
    size = x.shape[0]
    p0 = p1 = p2 = p3 = p4 = p5 = p6 = p7 = 0.0
    q0 = q1 = q2 = q3 = q4 = q5 = q6 = q7 = 0.0
    whole = size - size % 8
    for i in range(0, whole, 8):
        a, b, c, d = np.float64(x[i]), np.float64(x[i + 1]), np.float64(x[i + 2]), np.float64(x[i + 3])
        e, f, g, h = np.float64(x[i + 4]), np.float64(x[i + 5]), np.float64(x[i + 6]), np.float64(x[i + 7])
        p0 += a * theta[i]
        p1 += b * theta[i + 1]
        p2 += c * theta[i + 2]
        p3 += d * theta[i + 3]
        p4 += e * theta[i + 4]
        p5 += f * theta[i + 5]
        p6 += g * theta[i + 6]
        p7 += h * theta[i + 7]
        q0 += a * a
        q1 += b * b
        q2 += c * c
        q3 += d * d
        q4 += e * e
        q5 += f * f
        q6 += g * g
        q7 += h * h
    product = ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7))
    square = ((q0 + q1) + (q2 + q3)) + ((q4 + q5) + (q6 + q7))
    for i in range(whole, size):
        a = np.float64(x[i])
        product += a * theta[i]
        square += a * a
    return product, square


@numba.njit(cache=True)
def capped_step(
    margin: float, square: float, label: float, logistic: bool, step: float, clip: float, keep: float
) -> float:
    """Return η̄·clip(ℓ′): with η̄ = min(η, 2/(L‖x‖²)) and |ℓ′| ≤ C/‖x‖, both below their exact values by `keep`.

    0, the identity map, for a row that is not finite or too large, and for x = 0.
    """
    if not (_SMALLEST_SQUARE <= square <= _LARGEST_SQUARE and abs(label) < math.inf):
        return 0.0
    if logistic:
        sign = 1.0 if label > 0 else -1.0
        slope = -sign / (1.0 + math.exp(min(sign * margin, 700.0)))
        cap = 8.0 / square
    else:
        slope = margin - label
        cap = 2.0 / square
    limit = clip / math.sqrt(square) * keep
    return min(step, cap * keep) * min(max(slope, -limit), limit)


@numba.njit(cache=True, fastmath={"contract"})
def project(theta: NDArray[np.float64], radius: float) -> None:
    """Project θ on the ball of the given radius, in place."""
    norm = math.sqrt(fused_products(theta, theta)[1])
    if norm > radius:
        scale = radius / norm
        for i in range(theta.shape[0]):
            theta[i] *= scale


@numba.njit(cache=True, fastmath={"contract"})
def advance(
    theta: NDArray[np.float64],
    pending: NDArray[np.float64],
    X: NDArray[Any],
    y: NDArray[np.float64],
    first_row: int,
    batch_size: int,
    steps: NDArray[np.float64],
    clips: NDArray[np.float64],
    stds: NDArray[np.float64],
    normals: NDArray[np.float64],
    radius: float,
    project_every: int,
    keep: float,
    logistic: bool,
) -> tuple[int, int]:
    """Move θ over the rows of X; return how many rows and how many rows of `normals` were used.

    Row r belongs to step (first_row + r)//batch_size; `steps`, `clips` and `stds` start at the step of the first
    row. Stops early, before touching the row, when a noisy step finds no normals left. θ may have one entry more
    than X has columns: the intercept.
    """
    columns = X.shape[1]
    intercept = theta.shape[0] > columns
    first_step = first_row // batch_size
    used = 0
    for r in range(X.shape[0]):
        k = (first_row + r) // batch_size - first_step
        complete = (first_row + r + 1) % batch_size == 0
        noisy = complete and stds[k] > 0
        if noisy and used == normals.shape[0]:
            return r, used
        x = X[r]
        if steps[k] > 0 and clips[k] > 0:
            margin, square = fused_products(x, theta)
            if intercept:
                margin += theta[columns]
                square += 1.0
            move = capped_step(margin, square, y[r], logistic, steps[k], clips[k], keep)
            if move != 0:
                target = theta if batch_size == 1 else pending
                for i in range(columns):
                    target[i] -= move * x[i]
                if intercept:
                    target[columns] -= move
        if complete and batch_size > 1:
            for i in range(theta.shape[0]):
                theta[i] += pending[i] / batch_size
                pending[i] = 0.0
        if noisy:
            for i in range(theta.shape[0]):
                theta[i] += stds[k] * normals[used, i]
            used += 1
        if noisy or (complete and (first_step + k + 1) % project_every == 0):
            project(theta, radius)
    return X.shape[0], used
