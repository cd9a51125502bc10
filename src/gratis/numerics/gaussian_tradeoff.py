"""ln δ of the Gaussian trade-off curve without cancellation, with a bound on its own error.

With z = ε/μ − μ/2, φ the normal density and m(z) = (1 − Φ(z))/φ(z) the Mills ratio,

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) = φ(z)·[m(z) − m(z + μ)],

because φ(z) = e^ε φ(z + μ). The textbook form loses all digits for small μ (the two terms agree to a relative μ);
here the difference is either free of cancellation or computed as the positive integral
∫₀^∞ e^{−s²/2 − zs}(1 − e^{−μs}) ds. e^ε is never formed, so nothing overflows.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from gratis.numerics.outward import UNIT_ROUNDOFF

__all__ = ["log_delta", "mills_ratio"]

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_NODES = 96
_LOG_NEGLIGIBLE = 90.0  # twice the exponent beyond which e^{-s²/2-zs} no longer changes a float64


@cache
def _legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2


def mills_ratio(z: float) -> float:
    """(1 − Φ(z))/φ(z), for z not too negative.

    >>> round(mills_ratio(0.0), 12) == round(math.sqrt(math.pi / 2), 12)
    True
    """
    return math.sqrt(math.pi / 2) * float(erfcx(z / math.sqrt(2)))


def _mills_difference(z: float, mu: float) -> float:
    """m(z) − m(z + μ) for z ≥ −1, to a few units in the last place."""
    near, far = mills_ratio(z), mills_ratio(z + mu)
    if far <= 0.5 * near:
        return near - far
    nodes, weights = _legendre()
    # root of s²/2 + zs = 45, written so that large z does not cancel
    end = _LOG_NEGLIGIBLE / (z + math.sqrt(z * z + _LOG_NEGLIGIBLE))
    s = end * nodes
    return end * float(np.dot(weights, np.exp(-s * (0.5 * s + z)) * -np.expm1(-mu * s)))


def log_delta(epsilon: float, mu: float) -> tuple[float, float]:
    """Return (ln δ, error): |returned − true ln δ| ≤ error, for finite ε ≥ 0 and μ > 0.

    The error bound counts roundings: a few dozen units for the special functions, and the conditioning of
    φ(z) in z, which is computed as a difference.

    >>> value, error = log_delta(4.377178, 1.0)
    >>> abs(math.exp(value) - 1e-5) < 1e-10
    True
    """
    ratio = epsilon / mu
    if not math.isfinite(ratio):
        return -math.inf, 0.0
    z = ratio - 0.5 * mu
    roundings = 64.0 + (abs(z) + 2.0) * (2.0 * ratio + 2.0 * abs(z) + mu) + 2.0 * z * z
    if z < -1:  # then μ > 2 and Φ(−z) ≥ .84 exceeds the other term five times: no cancellation
        density = math.exp(-0.5 * z * z - _HALF_LOG_TWO_PI)
        return math.log(float(ndtr(-z)) - density * mills_ratio(z + mu)), roundings * UNIT_ROUNDOFF
    difference = _mills_difference(z, mu)
    if difference <= 0:
        return -math.inf, 0.0
    return -0.5 * z * z - _HALF_LOG_TWO_PI + math.log(difference), roundings * UNIT_ROUNDOFF
