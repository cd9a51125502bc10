"""Reading what the page sends: every value is checked before anything uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gratis.records.budget import Budget
from gratis.records.checks import check_count, check_finite
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.studio.forecasts import Asked

__all__ = ["asked", "budget", "number", "optional_whole", "text", "whole"]

Body = Mapping[str, Any]
_LONGEST = 1000


def text(body: Body, name: str, default: str | None = None) -> str:
    """Return a text; without a default it must be there and not be empty."""
    value = body.get(name, default)
    if not isinstance(value, str) or len(value) > _LONGEST or (default is None and not value.strip()):
        raise GratisError(f"please fill in: {name.replace('_', ' ')}")
    return value


def number(body: Body, name: str) -> float:
    """Return a finite number."""
    return check_finite(name.replace("_", " "), body.get(name))


def whole(body: Body, name: str) -> int:
    """Return a whole number of at least 1."""
    return check_count(name.replace("_", " "), body.get(name))


def optional_whole(body: Body, name: str) -> int | None:
    """Return a whole number, or None where there is none."""
    return None if body.get(name) is None else whole(body, name)


def budget(body: Body) -> Budget:
    """Return the budget of a request."""
    relation = Neighbouring.parse(text(body, "neighbouring", "replace-one"))
    return Budget(epsilon=number(body, "epsilon"), delta=number(body, "delta"), neighbouring=relation)


def asked(body: Body) -> Asked:
    """Return sizes and budget of a request for a plan."""
    stated = budget(body)
    assert stated.epsilon is not None
    assert stated.delta is not None
    return Asked(
        model=text(body, "model", "linear"), rows=whole(body, "rows"), columns=whole(body, "columns"),
        classes=optional_whole(body, "classes"), epsilon=stated.epsilon, delta=stated.delta,
        neighbouring=str(stated.neighbouring),
    ).checked()  # fmt: skip
