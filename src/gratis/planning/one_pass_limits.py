"""What bounds a one-pass prediction from outside: the ends of the spectrum, and what no private algorithm can beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gratis.planning.assumptions import LinearFacts
from gratis.planning.one_pass.bayes_risk import bayes_excess_risk
from gratis.planning.one_pass.bounding_odes import predict_lower_bound, predict_upper_bound
from gratis.planning.one_pass.rates import harmonic_rate, minimax_rate, polynomial_rate
from gratis.planning.one_pass.schedules import FreeForm, FreeFormWithClip, Harmonic, Polynomial, Schedule
from gratis.records.errors import GratisError
from gratis.records.plans import Plan
from gratis.records.record import Record
from gratis.records.settings import OnePassSettings

__all__ = ["OnePassLimits", "one_pass_limits"]

_CURVES: tuple[type[Any], ...] = (Polynomial, Harmonic, FreeForm, FreeFormWithClip)
_TOLERANCE = 1e-4  # of the bounding equations: they are bounds, shown in four digits


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassLimits(Record):
    """`low` and `high` enclose the predicted risks of all members; rates are in units of the target's variance.

    `bayes_risk` is the least Bayes risk of the members: an excess risk, with its constant.

    `low`, `high` and the schedule's own rate are None for plans that are no pass.
    """

    bayes_risk: float
    minimax_rate: float
    schedule_rate: float | None
    low: float | None
    high: float | None
    words: tuple[str, ...]


def one_pass_limits(facts: LinearFacts, plan: Plan) -> OnePassLimits:
    """Put a plan of `plan_linear` beside what bounds it.

    The bounding equations need the ends of the spectrum alone (one-pass paper, (4.12)); the minimax rate is Theorem 3,
    the rate of the schedule Theorem 2, both up to constants.

    >>> from gratis.planning.linear import plan_linear
    >>> from gratis.planning.one_pass.spectra import IsotropicSpectrum
    >>> from gratis.records.budget import Budget
    >>> facts = LinearFacts(n_records=2000, n_features=200, budget=Budget(mu=0.5), signal_variance=1.0,
    ...                     label_noise_variance=0.25, spectrum=IsotropicSpectrum())
    >>> plan = plan_linear(facts, algorithm="one-pass", schedule="poly:0")
    >>> found = one_pass_limits(facts, plan)
    >>> round(found.low, 3), round(plan.prediction.value, 3), round(found.high, 3), round(found.minimax_rate, 3)
    (0.175, 0.175, 0.175, 0.14)
    """
    least = minimax_rate(facts.gamma, rho=facts.mu)
    bayes = min(bayes_excess_risk(problem) for problem in facts.problems())
    words = [
        f"No algorithm can do better than an excess risk of {bayes:.4g} on average over such problems, not even "
        "without privacy (Bayes risk).",
        f"No private algorithm does better on its worst problem than a constant times d/n + (d/(n·mu))² = {least:.4g} "
        "of the target's variance.",
    ]
    if not isinstance(plan.settings, OnePassSettings):
        return OnePassLimits(
            bayes_risk=bayes, minimax_rate=least, schedule_rate=None, low=None, high=None, words=tuple(words)
        )
    schedule = _schedule(plan.settings.curve)
    rate = _rate(facts, schedule)
    if rate is not None:
        words[1] += f" The rate of this schedule is {rate:.4g}, constants left out as well."
    low, high = (
        [solve(problem, schedule, tolerance=_TOLERANCE).final_excess_risk for problem in facts.problems()]
        for solve in (predict_lower_bound, predict_upper_bound)
    )
    words.append(
        f"By the ends of the spectrum alone, the predicted risk lies between {min(low):.4g} and {max(high):.4g}."
    )
    return OnePassLimits(
        bayes_risk=bayes,
        minimax_rate=least,
        schedule_rate=rate,
        low=float(min(low)),
        high=float(max(high)),
        words=tuple(words),
    )


def _rate(facts: LinearFacts, schedule: Schedule) -> float | None:
    if isinstance(schedule, Polynomial) and facts.gamma < 1:
        return polynomial_rate(facts.gamma, alpha=schedule.alpha, rho=facts.mu, clip_level=schedule.clip_level)
    if isinstance(schedule, Harmonic):
        return harmonic_rate(facts.gamma, rho=facts.mu, clip_level=schedule.clip_level)
    return None


def _schedule(curve: Mapping[str, object]) -> Schedule:
    """Make the schedule again from the curve in a plan's settings."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in curve.items() if name != "label"}
    for kind in _CURVES:
        if {field.name for field in fields(kind)} == set(values):
            made: Schedule = kind(**values)
            return made
    raise GratisError("this plan has a schedule of another kind")
