"""S1's ladder of composition theorems: the noise each needs for the same (ε, δ) after T releases.

For teaching, and to show what exactness buys. All but `exact` are valid and loose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from gratis.accounting.gdp import gdp_mu_lower_bound
from gratis.accounting.zcdp import zcdp_epsilon_upper_bound
from gratis.numerics.outward import round_up
from gratis.records.checks import check_count, check_delta, check_positive
from gratis.records.errors import GratisError

__all__ = ["RULES", "LadderRow", "noise_for_composition", "s0_noise_multiplier"]


class LadderRow(NamedTuple):
    """Noise multiplier (noise std over ℓ2 sensitivity of one release) that a rule needs at T releases."""

    steps: int
    rule: str
    noise_multiplier: float


def s0_noise_multiplier(*, epsilon: float, delta: float) -> float:
    """S0's Proposition 2.2 with ηT = 1: σ = √(8 ln 1/δ)/ε, stated for ε < 8 ln 1/δ; valid, loose by 2 to 3.

    >>> exact = 1 / gdp_mu_lower_bound(epsilon=1.0, delta=1 / 2000)
    >>> f"{s0_noise_multiplier(epsilon=1.0, delta=1 / 2000) / exact:.2f}"
    '2.82'
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    if epsilon >= -8 * math.log(delta):
        raise GratisError("S0's Proposition 2.2 holds for epsilon below 8 ln(1/delta) only")
    return round_up(math.sqrt(-8 * math.log(delta)) / epsilon, ulps=8)


def _single(epsilon: float, delta: float) -> float:
    """Exact noise multiplier of one Gaussian release at (ε, δ)."""
    return 1 / gdp_mu_lower_bound(epsilon=epsilon, delta=delta)


def _naive(epsilon: float, delta: float, steps: int) -> float:
    return _single(epsilon / steps, delta / steps)


def _advanced(epsilon: float, delta: float, steps: int) -> float:
    """ε = √(2T ln 1/δ″)ε′ + Tε′(e^{ε′} − 1), δ = Tδ′ + δ″, δ″ = δ/2."""
    spread = math.sqrt(2 * steps * math.log(2 / delta))

    def excess(log_step: float) -> float:
        step = math.exp(log_step)
        return spread * step + steps * step * math.expm1(step) - epsilon

    from scipy.optimize import brentq  # as long to load as all of accounting; only the ladder needs it

    low = math.log(epsilon / (spread + steps * math.expm1(epsilon))) - 1
    step = math.exp(brentq(excess, low, math.log(epsilon / spread) + 1, xtol=1e-14)) * (1 - 1e-12)
    return _single(step, delta / (2 * steps))


def _moments(epsilon: float, delta: float, steps: int) -> float:
    return math.sqrt(steps) * s0_noise_multiplier(epsilon=epsilon, delta=delta)


def _zcdp(epsilon: float, delta: float, steps: int) -> float:
    from scipy.optimize import brentq

    def excess(log_rho: float) -> float:
        return zcdp_epsilon_upper_bound(rho=math.exp(log_rho), delta=delta) - epsilon

    low, high = -60.0, math.log(epsilon)
    while excess(high) < 0:
        high += 1
    rho = math.exp(brentq(excess, low, high, xtol=1e-13)) * (1 - 1e-10)
    return math.sqrt(steps / (2 * rho))


def _exact(epsilon: float, delta: float, steps: int) -> float:
    return math.sqrt(steps) * _single(epsilon, delta)


_LARGEST_EPSILON = 500.0  # advanced composition needs e^ε, which overflows at 709

RULES: dict[str, Callable[[float, float, int], float]] = {
    "naive": _naive,
    "advanced": _advanced,
    "moments": _moments,
    "zcdp": _zcdp,
    "exact": _exact,
}


def noise_for_composition(*, epsilon: float, delta: float, steps: list[int]) -> list[LadderRow]:
    """Noise multiplier of every rule at every T; ∞ where a rule's statement does not cover the case.

    >>> rows = noise_for_composition(epsilon=1.0, delta=1e-5, steps=[1000])
    >>> [row.rule for row in sorted(rows, key=lambda row: -row.noise_multiplier)]
    ['naive', 'advanced', 'moments', 'zcdp', 'exact']
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    if epsilon > _LARGEST_EPSILON:
        raise GratisError(f"composition theorems are compared up to epsilon {_LARGEST_EPSILON:g}, got {epsilon:g}")
    rows = []
    for count in steps:
        check_count("steps", count)
        for rule, needed in RULES.items():
            try:
                rows.append(LadderRow(count, rule, needed(epsilon, delta, count)))
            except GratisError:
                rows.append(LadderRow(count, rule, math.inf))
    return rows
