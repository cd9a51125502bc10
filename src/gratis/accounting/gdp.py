"""Gaussian differential privacy and (ε, δ): exact conversions, rounded outward.

References: Dong, Roth & Su 2022, Corollary 2.13; docs/theory/gaussian-dp.md, statement 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import erfinv, ndtr, ndtri

from gratis.numerics.gaussian_tradeoff import log_delta, mills_ratio
from gratis.numerics.outward import UNIT_ROUNDOFF, round_down, round_up
from gratis.records.checks import check_delta, check_non_negative

__all__ = [
    "gdp_delta_upper_bound",
    "gdp_detection_upper_bound",
    "gdp_epsilon_upper_bound",
    "gdp_mu_lower_bound",
]

_TINY = math.nextafter(0.0, 1.0)


def gdp_delta_upper_bound(*, mu: float, epsilon: float) -> float:
    """Least δ for which μ-GDP implies (ε, δ)-DP; rounded up.

    **Guarantee**: never below the true δ(ε; μ); the neighbouring relation is that of μ.

    >>> f"{gdp_delta_upper_bound(mu=1.0, epsilon=0.0):.6f}"
    '0.382925'
    """
    mu = check_non_negative("mu", mu, allow_infinite=True)
    epsilon = check_non_negative("epsilon", epsilon, allow_infinite=True)
    if mu == 0:
        return 0.0
    if math.isinf(epsilon):
        return 1.0 if math.isinf(mu) else 0.0
    if math.isinf(mu):
        return 1.0
    value, error = log_delta(epsilon, mu)
    upper = math.exp(min(value + error + abs(value) * 2 * UNIT_ROUNDOFF, 0.0))
    return min(max(round_up(upper), _TINY), 1.0)


def gdp_detection_upper_bound(*, mu: float, false_alarms: float) -> float:
    """Largest share of members that any test recognises at this share of false alarms, under μ-GDP; rounded up.

    **Guarantee**: the trade-off curve itself, 1 − Φ(Φ⁻¹(1 − α) − μ) = Φ(μ + Φ⁻¹(α)), for every attack, whatever else it
    knows. The factor 1 + 1e-12 covers the special functions' errors for α ≥ 1e-12: Φ⁻¹(α) is then above −8, and an
    error of some units in its last place moves Φ by a relative 1e-13 at most.

    >>> f"{gdp_detection_upper_bound(mu=1.0, false_alarms=0.01):.4f}"
    '0.0924'
    """
    mu = check_non_negative("mu", mu, allow_infinite=True)
    alpha = max(check_delta(false_alarms), 1e-12)
    return min(float(ndtr(mu + ndtri(alpha))) * (1 + 1e-12), 1.0)


def gdp_epsilon_upper_bound(*, mu: float, delta: float) -> float:
    """Least ε for which μ-GDP implies (ε, δ)-DP; rounded up.

    **Guarantee**: δ(ε; μ) ≤ delta is verified at the returned ε with the error of the evaluation added.

    >>> f"{gdp_epsilon_upper_bound(mu=1.0, delta=1e-5):.4f}"
    '4.3772'
    """
    mu = check_non_negative("mu", mu, allow_infinite=True)
    delta = check_delta(delta)
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    target = _log_lower(delta)

    def holds(epsilon: float) -> bool:
        value, error = log_delta(epsilon, mu)
        return value + error <= target

    if holds(0.0):
        return 0.0
    # δ(ε) ≤ Φ(−t) ≤ e^{−t²/2} at ε = μ²/2 + μt, so the root lies below with t² = 2 ln(1/δ).
    high = mu * (0.5 * mu + math.sqrt(2 * -target)) * (1 + 1e-12) + _TINY
    if not math.isfinite(high):
        return math.inf
    return _least(
        holds, 0.0, high, derivative=lambda e: _log_slope(e, mu), value=lambda e: log_delta(e, mu)[0] - target
    )


def gdp_mu_lower_bound(*, epsilon: float, delta: float) -> float:
    """Largest μ for which μ-GDP implies (ε, δ)-DP; rounded down, so that calibration never under-protects.

    >>> f"{gdp_mu_lower_bound(epsilon=4.0, delta=5e-4):.5f}"
    '1.15534'
    """
    # Beyond, sums of ε would overflow and the search never end; a smaller ε is the safe side.
    epsilon = min(check_non_negative("epsilon", epsilon), 1e300)
    delta = check_delta(delta)
    target = _log_lower(delta)

    def holds(mu: float) -> bool:
        value, error = log_delta(epsilon, mu)
        return value + error <= target

    spread = math.sqrt(2 * -target)
    # Two valid lower ends: the Chernoff bound on δ, and ε = 0 where δ = erf(μ/√8).
    low = max(2 * epsilon / (spread + math.sqrt(spread**2 + 2 * epsilon)), math.sqrt(8) * float(erfinv(delta)))
    low *= 1 - 1e-9
    while low > 0 and not holds(low):
        low *= 0.5
    if low == 0:
        return 0.0
    high = 2 * low
    while holds(high):
        low, high = high, 2 * high
    # Search in ln μ from above: the least ln(1/μ) that holds.
    found = _least(
        lambda x: holds(math.exp(-x)),
        -math.log(high),
        -math.log(low),
        derivative=lambda x: _log_slope_mu(epsilon, math.exp(-x)),
        value=lambda x: log_delta(epsilon, math.exp(-x))[0] - target,
        absolute=True,
    )
    mu = round_down(math.exp(-found), ulps=2)
    while not holds(mu):
        mu = round_down(mu)
    return mu


def _log_lower(delta: float) -> float:
    """Ln δ rounded down: asking for a smaller δ is the safe side."""
    value = math.log(delta)
    return value - 2 * UNIT_ROUNDOFF * abs(value)


def _log_slope(epsilon: float, mu: float) -> float:
    """D ln δ/dε = −e^ε Φ(−ε/μ − μ/2)/δ, by way of ∂δ/∂ε = −φ(z) m(z + μ)."""
    z = epsilon / mu - 0.5 * mu
    return -math.exp(-0.5 * z * z - log_delta(epsilon, mu)[0]) / math.sqrt(2 * math.pi) * mills_ratio(z + mu)


def _log_slope_mu(epsilon: float, mu: float) -> float:
    """D ln δ/d ln(1/μ) = −μ φ(z)/δ."""
    z = epsilon / mu - 0.5 * mu
    return -mu * math.exp(-0.5 * z * z - log_delta(epsilon, mu)[0]) / math.sqrt(2 * math.pi)


def _least(
    holds: Callable[[float], bool],
    low: float,
    high: float,
    *,
    value: Callable[[float], float],
    derivative: Callable[[float], float],
    absolute: bool = False,
) -> float:
    """Least point of [low, high] where `holds` becomes true, found by guarded Newton steps on a decreasing `value`.

    Every step keeps `holds(high)`; the answer is a point where `holds` was verified, so an inaccurate `value` or
    `derivative` costs tightness and never safety.
    """
    while not holds(high):  # the analytic bracket missed by rounding
        high += abs(high) * 1e-9 + _TINY
    point = high
    for _ in range(200):
        width = high - low
        scale = 1.0 if absolute else abs(high)
        if width <= 2 * UNIT_ROUNDOFF * scale:
            break
        slope = derivative(point)
        step = value(point) / slope if slope < 0 and math.isfinite(slope) else math.nan
        proposal = point - step
        if not low < proposal < high:
            proposal = low + 0.5 * width
        # Aim a hair beyond the root: then Newton closes the bracket from both sides.
        nudge = max(abs(proposal - point) * 1e-3, 4 * UNIT_ROUNDOFF * scale)
        for candidate in (proposal, proposal + nudge, proposal - nudge):
            if low < candidate < high:
                if holds(candidate):
                    high = candidate
                else:
                    low = candidate
                point = candidate
        if high - low > 0.5 * width:
            middle = low + 0.5 * (high - low)
            if holds(middle):
                high = middle
            else:
                low = middle
            point = middle
    return high
