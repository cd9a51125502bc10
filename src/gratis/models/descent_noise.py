"""How far the noise of a private descent moves what it ends with: a covariance in closed form. Post-processing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.second_moments import Preconditioner

__all__ = ["averaged_noise", "curvature_left", "noise_covariance"]

Array = NDArray[np.float64]

# Shares of the curvature, and variances of the predictions in units of the target's, that `curvature_left` weighs.
_SHARES, _SIGNALS = np.geomspace(0.02, 1.5, 40), np.geomspace(1e-4, 10.0, 30)


def curvature_left(path: Array, spectrum: Array, *, learning_rate: float, noise_std: float) -> float:
    """Return which share h of the curvature λ a descent felt, from its iterates (T + 1, D).

    Where gradients are clipped their mean moves less with θ, and noise decays more slowly. Every step tells:
    (θ_t − θ_{t+1})/η = hλ(θ_t − θ*) + s·ξ_t, with slopes θ* of some common size. The mean of h over its posterior, all
    else integrated out on a grid. Post-processing: iterates are released.

    >>> rng, spectrum, place, path = np.random.default_rng(0), np.ones(20), np.zeros(20), [np.zeros(20)]
    >>> for _ in range(64):
    ...     place = place - 0.2 * (0.3 * (place - 1.0) + 0.1 * rng.standard_normal(20))
    ...     path.append(place)
    >>> round(curvature_left(np.array(path), spectrum, learning_rate=0.2, noise_std=0.1), 1)
    0.3
    """
    places, pulls = path[:-1], (path[:-1] - path[1:]) / learning_rate
    signals = _SIGNALS[:, None] / max(float(spectrum.sum()), 1e-300)
    fits = np.empty((len(_SHARES), len(_SIGNALS)))
    for row, curvature in zip(fits, np.multiply.outer(_SHARES, spectrum), strict=True):
        left = pulls - curvature * places
        end = left.mean(axis=0)  # −hλθ*, with noise of variance s²/T
        variance = np.square(curvature) * signals + noise_std**2 / len(left)
        row[:] = -np.square(left - end).sum() / (2 * noise_std**2)
        row -= 0.5 * (np.log(variance) + np.square(end) / variance).sum(axis=1)
    likely = np.exp(fits - fits.max())
    return float(_SHARES @ likely.sum(axis=1) / likely.sum())


def averaged_noise(spectrum: Array, *, learning_rate: float, noise_std: float, steps: int) -> Array:
    """Return the variance, along every direction of the spectrum, of the mean of the last ⌈T/2⌉ of T steps.

    θ_t = (1 − ηλ)θ_{t−1} + η·s·ξ_t, a descent on a quadratic of curvature λ: ξ_i enters θ_t as (1 − ηλ)^{t−i}. Where
    gradients are clipped the curvature is less and the noise more (`curvature_left`); `noise_std` is s, clip norm
    included.

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
