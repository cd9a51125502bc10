"""Is a fit worth its budget? From public facts: what the plan expects to lose, and what would lose less."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace

from gratis.estimators.fit_plan import FitPlan, plan, rough_cost
from gratis.records.errors import GratisError, WorthlessFitWarning
from gratis.records.facts import Facts
from gratis.records.plans import Plan, is_worthless, predicted_gain

__all__ = ["warn_if_worthless", "worthless_words"]

_MOST_ROWS, _MOST_EPSILON = 10**8, 30.0
_SIMULATED = "random-features"  # a plan takes up to a second: here its closed form answers


def warn_if_worthless(planned: Plan, facts: Facts) -> None:
    """Warn before a fit from Python spends what is predicted to be lost."""
    if is_worthless(planned, facts.classes):
        words = _lost(facts, planned.budget.epsilon, "rows")
        warnings.warn(
            f"{words}: more rows, a larger epsilon or fewer columns would lose less", WorthlessFitWarning, stacklevel=4
        )


def worthless_words(planned: FitPlan, unit: str = "rows") -> str | None:
    """Say what is expected to be lost, and how many rows, which epsilon or how many columns would do; or None.

    >>> worthless_words(plan("linear", rows=100, columns=5, epsilon=1.0, delta=1e-5))
    '100 rows of 5 columns at epsilon 1 are predicted to lose most of what there is to learn: about 260 rows
    or epsilon 2.9 would do'
    >>> worthless_words(plan("linear", rows=10_000, columns=5, epsilon=1.0, delta=1e-5)) is None
    True
    """
    facts, epsilon = planned.facts, planned.budget.epsilon
    if not is_worthless(planned, facts.classes):
        return None
    assert epsilon is not None

    def at_rows(count: float) -> bool:
        return _worthwhile(planned, replace(facts, rows=math.ceil(count)), epsilon)

    def at_epsilon(value: float) -> bool:
        return _worthwhile(planned, facts, value)

    rows, enough = _least(at_rows, facts.rows, _MOST_ROWS), _least(at_epsilon, epsilon, _MOST_EPSILON)
    columns = _most_columns(planned, facts, epsilon)
    found = [
        None if rows is None else f"about {math.ceil(_two_digits(rows))} {unit}",
        None if enough is None else f"epsilon {_two_digits(enough):g}",
        None if columns is None else f"{columns} column{'' if columns == 1 else 's'}",
    ]
    ways = [way for way in found if way is not None]
    listed = " or ".join(filter(None, (", ".join(ways[:-1]), ways[-1]))) if ways else "nothing less than that"
    return f"{_lost(facts, epsilon, unit)}: {listed} would do"


def _lost(facts: Facts, epsilon: float | None, unit: str) -> str:
    columns = f"{facts.columns} column{'' if facts.columns == 1 else 's'}"
    return (
        f"{facts.rows} {unit} of {columns} at epsilon {epsilon:g} are predicted to lose most of what there is to learn"
    )


def _worthwhile(planned: FitPlan, facts: Facts, epsilon: float) -> bool:
    budget = replace(planned.budget, epsilon=epsilon)
    try:
        if planned.model == _SIMULATED and facts.classes is None:
            sizes = {"rows": facts.rows, "columns": facts.columns, "neighbouring": str(budget.neighbouring)}
            found = rough_cost(planned.model, epsilon=epsilon, delta=budget.delta or 0.0, **sizes)  # type: ignore[arg-type]
            return found is not None and found.value <= predicted_gain(planned.prediction, None) / 2
        return not is_worthless(plan(planned.model, **asdict(facts), budget=budget, **planned.choices), facts.classes)
    except GratisError:  # not even a plan
        return False


def _least(enough: Callable[[float], bool], low: float, most: float) -> float | None:
    """About the least value that is enough, from one that is not: doubled, then halved in between."""
    high = low
    while not enough(high := 2 * high):
        low = high
        if high > most:
            return None
    while high > 1.1 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _most_columns(planned: FitPlan, facts: Facts, epsilon: float) -> int | None:
    low, high = 0, facts.columns
    while high - low > 1:
        middle = (low + high) // 2
        fine = _worthwhile(planned, replace(facts, columns=middle), epsilon)
        low, high = (middle, high) if fine else (low, middle)
    return low or None


def _two_digits(value: float) -> float:
    """Rounded up to two digits."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit - 1e-9) * digit:.2g}")
