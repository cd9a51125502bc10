"""Outward rounding: a bound computed in floating point must stay a bound."""

from __future__ import annotations

import math

__all__ = ["UNIT_ROUNDOFF", "round_down", "round_up"]

UNIT_ROUNDOFF = 2.0**-53


def round_up(value: float, *, ulps: float = 4.0) -> float:
    """Return a float at least value·(1 + ulps·2^-53) away from zero upwards; NaN becomes +∞ (fail closed).

    >>> round_up(1.0) > 1.0
    True
    >>> round_up(float("nan"))
    inf
    """
    if math.isnan(value):
        return math.inf
    return math.nextafter(value + abs(value) * ulps * UNIT_ROUNDOFF, math.inf)


def round_down(value: float, *, ulps: float = 4.0) -> float:
    """Return a float below value by at least ulps·2^-53, relatively; NaN becomes −∞ (fail closed)."""
    if math.isnan(value):
        return -math.inf
    return math.nextafter(value - abs(value) * ulps * UNIT_ROUNDOFF, -math.inf)
