"""How far the noise of a private descent moves what it ends with: a covariance in closed form. Post-processing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.second_moments import Preconditioner

__all__ = ["averaged_noise", "noise_covariance"]

Array = NDArray[np.float64]


def averaged_noise(spectrum: Array, *, learning_rate: float, noise_std: float, steps: int) -> Array:
    """Return the variance, along every direction of the spectrum, of the mean of the last ⌈T/2⌉ of T steps.

    θ_t = (1 − ηλ)θ_{t−1} + η·s·ξ_t, a descent on a quadratic of curvature λ: ξ_i enters θ_t as (1 − ηλ)^{t−i}. Where
    gradients are clipped the curvature is less and the noise more; `noise_std` is s, clip norm included.

    >>> averaged_noise(np.array([1.0]), learning_rate=1.0, noise_std=0.3, steps=1).round(6)
    array([0.09])
    """
    kept = (steps + 1) // 2
    decay = 1 - learning_rate * np.asarray(spectrum, dtype=np.float64)
    reach = np.zeros((steps + 1, len(decay)))  # Σ_{j<m} decay^j
    for m in range(steps):
        reach[m + 1] = reach[m] + decay**m
    entered = np.arange(1, steps + 1)
    first = np.maximum(entered, steps - kept + 1)
    # Σ_{t=first}^{T} decay^{t−i} = reach(T − i + 1) − reach(first − i)
    weights = (reach[steps - entered + 1] - reach[first - entered]) / kept
    return np.asarray((learning_rate * noise_std) ** 2 * np.square(weights).sum(axis=0))


def noise_covariance(
    moved: Preconditioner, variances: Array, *, kept: float, level_kept: float, level_noise: float
) -> Array | None:
    """Return the covariance (D, D) on standardised columns and the one (last) that privacy noise gives, or None.

    `variances` are those of the descent in the released basis, `kept` is the share of slopes that evidence left. The
    level is released after the descent: the part 1 − `level_kept` of the intercept's noise is left, and `level_noise`
    comes with it. None for plain descent: D² numbers would not fit.
    """
    if moved.basis is None:
        return None
    found = moved.restore(np.diag(variances)) @ moved.basis
    shares = np.full(len(found), kept)
    shares[-1] *= 1 - level_kept
    found = shares[:, None] * found * shares
    found[-1, -1] += level_noise**2
    return np.asarray((found + found.T) / 2)
