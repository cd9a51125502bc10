"""Rates of one-pass private linear regression as γ = d/n → 0, up to constants, and scaling-law exponents."""

from __future__ import annotations

import math

from gratis.records.checks import check_finite, check_non_negative, check_positive
from gratis.records.errors import GratisError

__all__ = ["harmonic_rate", "minimax_rate", "polynomial_rate", "scaling_exponent"]


def _private_factor(clip_level: float) -> float:
    return max(1.0, check_positive("clip_level", clip_level) ** 2)


def polynomial_rate(gamma: float, *, alpha: float, rho: float, clip_level: float = 1.0) -> float:
    """Return γL^{1/(α+1)} + max(1, c²)·γ²L^{2/(α+1)}/ρ², L = log 1/γ: the rate of η̃ = η₀(1−t)^α, well conditioned.

    References: S2, Propositions 5.1 and 5.2 and (5.12); docs/theory/one-pass.md, statement 11.

    >>> round(polynomial_rate(0.01, alpha=0.0, rho=math.inf), 5)
    0.04605
    """
    gamma, alpha = check_positive("gamma", gamma), check_non_negative("alpha", alpha)
    if gamma >= 1:
        raise GratisError(f"the rate is stated for gamma below 1, got {gamma}")
    rho = check_positive("rho", rho, allow_infinite=True)
    log = math.log(1 / gamma) ** (1 / (alpha + 1))
    return gamma * log + _private_factor(clip_level) * (gamma * log / rho) ** 2


def harmonic_rate(gamma: float, *, rho: float, clip_level: float = 1.0) -> float:
    """Return γ + max(1, c²)·γ²/ρ²: the rate of the harmonic schedule, well conditioned.

    References: S2, Theorem 2; docs/theory/one-pass.md, statement 11.

    >>> round(harmonic_rate(0.1, rho=1.0), 12)
    0.11
    """
    gamma, rho = check_positive("gamma", gamma), check_positive("rho", rho, allow_infinite=True)
    return gamma + _private_factor(clip_level) * (gamma / rho) ** 2


def minimax_rate(gamma: float, *, rho: float) -> float:
    """Return γ + γ²/ρ²: no (ρ²/2)-zCDP estimator has a smaller worst-case rate (up to constants).

    References: S2, Theorem 3; docs/theory/one-pass.md, statement 11.

    >>> minimax_rate(0.1, rho=0.5) == harmonic_rate(0.1, rho=0.5)
    True
    """
    return harmonic_rate(gamma, rho=rho)


def scaling_exponent(
    *, alpha: float, beta: float = 0.0, source_exponent: float = 0.0, privacy_exponent: float = 0.0
) -> float:
    """Return ξ with risk ≍ γ^ξ for η̃ = η₀(1−t)^α at the best η₀c, spectrum density ∝ λ^{−β}, ρ = γ^r.

        ξ = max_a min{ a·q, 1 − a/A, 2 − 2r − a·max(2/A, β) } = min{ qA/(qA+1), (2−2r)q/(q + max(2/A, β)) },

    q = 2 − β − δ', A = α + 1 (logarithms are left out at βA = 2). alpha may be infinite.

    References: S2, Theorem 4; docs/theory/one-pass.md, statement 12.

    >>> [round(scaling_exponent(alpha=a), 3) for a in (0.5, 1.0, 3.0, 6.0)]
    [0.75, 0.8, 0.889, 0.933]
    """
    order = check_non_negative("alpha", alpha, allow_infinite=True) + 1
    beta, source = check_finite("beta", beta), check_finite("source_exponent", source_exponent)
    privacy = check_finite("privacy_exponent", privacy_exponent)
    if beta >= 1 or beta + source >= 1:
        raise GratisError(f"beta and beta + source_exponent must be below 1, got {beta} and {beta + source}")
    if privacy >= 1:
        raise GratisError(f"privacy_exponent must be below 1, got {privacy}: the noise would not vanish")
    q = 2 - beta - source
    return min(1 / (1 + 1 / (q * order)), (2 - 2 * privacy) * q / (q + max(2 / order, beta)))
