"""Zero-concentrated and Rényi differential privacy → (ε, δ), rounded up.

References: Bun & Steinke 2016, Proposition 1.3; Canonne, Kamath & Steinke 2020, Proposition 12 and Corollary 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gratis.numerics.outward import round_up
from gratis.records.checks import check_delta, check_non_negative, check_positive
from gratis.records.errors import GratisError

__all__ = [
    "renyi_epsilon_upper_bound",
    "zcdp_delta_upper_bound",
    "zcdp_epsilon_upper_bound",
    "zcdp_epsilon_upper_bound_simple",
]

_LOG_ORDERS = (-30.0, 60.0)


def zcdp_epsilon_upper_bound_simple(*, rho: float, delta: float) -> float:
    """ε = ρ + 2√(ρ ln 1/δ) [Bun–Steinke].

    >>> f"{zcdp_epsilon_upper_bound_simple(rho=0.125, delta=1e-5):.5f}"
    '2.52426'
    """
    rho = check_non_negative("rho", rho, allow_infinite=True)
    delta = check_delta(delta)
    if rho == 0:
        return 0.0
    return round_up(rho + 2 * math.sqrt(rho * -math.log(delta)), ulps=8)


def renyi_epsilon_upper_bound(*, order: float, renyi_epsilon: float, delta: float) -> float:
    """(α, ε′)-Rényi DP ⇒ ε = ε′ + ln(1/(αδ))/(α − 1) + ln(1 − 1/α), clamped at 0 [Canonne–Kamath–Steinke]."""
    order = check_positive("order", order)
    if order <= 1:
        raise GratisError(f"order must be greater than 1, got {order}")
    renyi_epsilon = check_non_negative("renyi_epsilon", renyi_epsilon, allow_infinite=True)
    delta = check_delta(delta)
    return max(0.0, _convert(order - 1, renyi_epsilon, delta))


def zcdp_epsilon_upper_bound(*, rho: float, delta: float) -> float:
    """Minimum over α > 1 of ρα + ln(1/(αδ))/(α − 1) + ln(1 − 1/α), clamped at 0.

    **Guarantee**: every α gives a valid ε, so an imperfect minimisation costs tightness only.

    >>> zcdp_epsilon_upper_bound(rho=0.5, delta=1e-5) < zcdp_epsilon_upper_bound_simple(rho=0.5, delta=1e-5)
    True
    """
    rho = check_non_negative("rho", rho, allow_infinite=True)
    delta = check_delta(delta)
    if rho == 0:
        return 0.0
    if math.isinf(rho):
        return math.inf
    best = _minimum(lambda x: _convert(math.exp(x), rho * (1 + math.exp(x)), delta))
    return max(0.0, min(best, zcdp_epsilon_upper_bound_simple(rho=rho, delta=delta)))


def zcdp_delta_upper_bound(*, rho: float, epsilon: float) -> float:
    """Minimum over α > 1 of exp((α − 1)(ρα − ε))/(α − 1)·(1 − 1/α)^α, at most 1."""
    rho = check_non_negative("rho", rho, allow_infinite=True)
    epsilon = check_non_negative("epsilon", epsilon)
    if rho == 0:
        return 0.0
    if math.isinf(rho):
        return 1.0

    def log_bound(x: float) -> float:
        excess = math.exp(x)  # α − 1
        terms = (excess * rho * (1 + excess), -excess * epsilon, -x, (1 + excess) * (x - math.log1p(excess)))
        return math.fsum(terms) + 16 * 2.0**-53 * sum(map(abs, terms))

    best = _minimum(log_bound)
    return min(1.0, max(round_up(math.exp(min(best, 0.0)), ulps=8), math.nextafter(0.0, 1.0)))


def _minimum(bound: Callable[[float], float]) -> float:
    """The least value found over the logs of α − 1; any value is valid."""
    from scipy.optimize import minimize_scalar  # as long to load as all of accounting, and seldom needed

    return float(minimize_scalar(bound, bounds=_LOG_ORDERS, method="bounded", options={"xatol": 1e-10}).fun)


def _convert(excess: float, renyi_epsilon: float, delta: float) -> float:
    """The conversion at α = 1 + excess; each term's rounding is added, so that cancellation cannot lose the side."""
    log_order = math.log1p(excess)
    terms = (renyi_epsilon, -(math.log(delta) + log_order) / excess, math.log(excess) - log_order)
    if not all(map(math.isfinite, terms)):
        return math.inf
    return math.fsum(terms) + 16 * 2.0**-53 * (sum(map(abs, terms)) + (abs(math.log(delta)) + log_order) / excess)
