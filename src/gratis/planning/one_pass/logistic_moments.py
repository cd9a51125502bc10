"""What one clipped logistic gradient does on average, as a function of three numbers; by quadrature, to about 1e-9.

(u, u*) = (xᵀθ, xᵀθ*) is Gaussian with covariance ((Q, M), (M, S)), and y = ±1 with P(y = 1) = σ(u*). The slope of the
loss log(1 + e^{−yu}), clipped at c, is h = −y·min(σ(−yu), c). By symmetry everything is an integral over u alone
against p(u) = E[σ(u*)|u] and p′ = E[σ′(u*)|u].
"""

from __future__ import annotations

import math

import numba
import numpy as np

__all__ = ["logistic_moments", "logistic_risk"]

# Of each piece: 48 points up to √Q = 4 or so; 24 where σ's poles, at iπ/√Q, are far enough.
_MANY = np.polynomial.legendre.leggauss(48)
_FEW = np.polynomial.legendre.leggauss(24)
_FLAT = 1.5
_FAR = 7.5  # standard deviations; what lies beyond is below 1e-13


@numba.njit(cache=True, inline="always")
def _sigmoid(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-z)) if z > -700.0 else 0.0


@numba.njit(cache=True)
def _labels(mean: float, std: float) -> tuple[float, float]:
    """Return E σ(g) and E σ′(g) for g ~ N(mean, std²) by the trapezoidal rule, which is exact to rounding here.

    Its error is e^{−2π²/h²} for the bell and e^{−2π²/(h·std)} for σ's poles at ±iπ.
    """
    h = min(0.85, 0.9 / std) if std > 0.0 else 0.85
    count = int(6.5 / h)
    value, slope, total = 0.0, 0.0, 0.0
    for k in range(-count, count + 1):
        z = k * h
        weight = math.exp(-0.5 * z * z)
        s = _sigmoid(mean + std * z)
        total += weight
        value += weight * s
        slope += weight * s * (1.0 - s)
    return value / total, slope / total


@numba.njit(cache=True)
def _scales(Q: float, M: float, S: float) -> tuple[float, float, float]:
    """Return (√Q, k, τ): u = √Q·t and u* = kt + τz with t, z ~ N(0, 1)."""
    std = math.sqrt(max(Q, 0.0))
    along = M / std if std > 1e-150 else 0.0
    along = min(max(along, -math.sqrt(S)), math.sqrt(S))
    return std, along, math.sqrt(max(S - along * along, 0.0))


@numba.njit(cache=True)
def logistic_moments(Q: float, M: float, S: float, clip: float) -> tuple[float, float, float]:
    """Return a = E ∂h/∂u, b = −E ∂h/∂u* and v = E h².

    Where nothing is known (Q = M = 0): a = P(not clipped)/4, b = E σ′(u*)·min(½, c)·2, v = min(½, c)².
    """
    std, along, rest = _scales(Q, M, S)
    # σ(−u) < c is u > w: the integrand has a kink there, so that the line is cut, and at 0 to keep pieces short.
    kink = 0.0
    if 0.0 < clip < 1.0 and std > 0.0:
        kink = min(max((math.log(1.0 - clip) - math.log(clip)) / std, -_FAR), _FAR)
    cuts = (-_FAR, min(kink, 0.0), max(kink, 0.0), _FAR)
    points, weights = _FEW if std < _FLAT else _MANY
    a, b, v = 0.0, 0.0, 0.0
    for piece in range(3):
        left, right = cuts[piece], cuts[piece + 1]
        if right - left < 1e-12:
            continue
        for j in range(points.size):
            t = 0.5 * (left + right) + 0.5 * (right - left) * points[j]
            weight = (right - left) * weights[j] * math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
            chance, slope = _labels(along * t, rest)
            share = _sigmoid(-std * t)
            if share < clip:
                a += weight * chance * share * (1.0 - share)
            else:
                share = clip
            b += weight * slope * share
            v += weight * chance * share * share
    return a, b, v


@numba.njit(cache=True)
def logistic_risk(Q: float, M: float, S: float) -> tuple[float, float]:
    """Return E log(1 + e^{−yu}) and P(yu < 0): the log loss and the error rate of θ (at θ* they are Q = M = S).

    A zero score counts as an error of one half.
    """
    std, along, rest = _scales(Q, M, S)
    points, weights = _FEW if std < _FLAT else _MANY
    loss, errors = 0.0, 0.0
    for piece in range(2):
        left, right = (-_FAR, 0.0) if piece == 0 else (0.0, _FAR)
        for j in range(points.size):
            t = 0.5 * (left + right) + 0.5 * (right - left) * points[j]
            weight = (right - left) * weights[j] * math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
            chance, _ = _labels(along * t, rest)
            u = std * t
            loss += weight * chance * (math.log1p(math.exp(-u)) if u > -700.0 else -u)
            if piece == 0:
                errors += weight * chance
    return loss, errors if std > 0.0 else 0.5
