"""Checks of public parameters. They run before data is read or budget reserved, so they may show what came."""

from __future__ import annotations

import math
from typing import Any

from gratis.records.errors import GratisError

__all__ = ["check_count", "check_delta", "check_finite", "check_non_negative", "check_positive"]


def _as_float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            if isinstance(value, (bool, str, bytes)):
                raise TypeError
            value = float(value)
        except (TypeError, ValueError):
            raise GratisError(f"{name} must be a number, got {value!r}") from None
    try:
        return float(value)
    except OverflowError:
        raise GratisError(f"{name} must be a finite number, got one too large for a float") from None


def check_finite(name: str, value: object) -> float:
    """Return value as a float; refuse NaN and infinities."""
    number = _as_float(name, value)
    if not math.isfinite(number):
        raise GratisError(f"{name} must be a finite number, got {number}")
    return number


def check_positive(name: str, value: object, *, allow_infinite: bool = False) -> float:
    """Return value as a float > 0."""
    number = _as_float(name, value)
    if not number > 0 or (math.isinf(number) and not allow_infinite):
        raise GratisError(f"{name} must be a positive finite number, got {number}")
    return number


def check_non_negative(name: str, value: object, *, allow_infinite: bool = False) -> float:
    """Return value as a float ≥ 0."""
    number = _as_float(name, value)
    if not number >= 0 or (math.isinf(number) and not allow_infinite):
        raise GratisError(f"{name} must be a non-negative finite number, got {number}")
    return number


def check_delta(value: object, *, allow_zero: bool = False) -> float:
    """Return δ as a float in (0, 1)."""
    number = _as_float("delta", value)
    if not (0 < number < 1 or (allow_zero and number == 0)):
        raise GratisError(f"delta must lie strictly between 0 and 1, got {number}")
    return number


def check_count(name: str, value: object, *, minimum: int = 1) -> int:
    """Return value as an int ≥ minimum; 3.0 counts as 3, 3.5 does not."""
    number = _as_float(name, value)
    if not math.isfinite(number) or number != int(number) or number < minimum:
        raise GratisError(f"{name} must be a whole number of at least {minimum}, got {value}")
    return int(value)  # type: ignore[call-overload]  # it was a number
