"""Backwards: how many rows, or which ε, a target needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gratis.accounting import calibrate_mu, gdp_epsilon_upper_bound
from gratis.planning.assumptions import LinearFacts
from gratis.planning.one_pass.schedule_optimisation import Family, optimise_schedule
from gratis.records.budget import Budget
from gratis.records.checks import check_finite
from gratis.records.errors import GratisError

__all__ = ["least_reaching", "needed_for_target", "predicted_r_squared"]

_MOST_ROWS = 10**10
_MOST_MU = 50.0


def predicted_r_squared(facts: LinearFacts) -> float:
    """R² of the best harmonic one-pass schedule, at the mean over the members.

    One pass is what the theory predicts in milliseconds; full-batch training is rarely worse, so that what this
    asks for is on the safe side of what `plan_linear` finds.
    """
    values = []
    for problem in facts.problems():
        total = problem.signal_variance + problem.label_noise_variance
        risk = optimise_schedule(problem, Family.parse("harmonic")).excess_risk
        values.append(1 - (2 * risk + problem.label_noise_variance) / total if total > 0 else 0.0)
    return float(np.mean(values))


def needed_for_target(facts: LinearFacts, *, target_r2: float) -> dict[str, Any]:
    """Rows at this budget, and ε at these rows, that are predicted to reach the target."""
    target = check_finite("target-r2", target_r2)
    if facts.signal_variance is None or facts.label_noise_variance is None:
        raise GratisError(
            "a target R² needs --signal-variance and --label-noise-variance: it cannot exceed their share"
        )
    total = facts.signal_variance + facts.label_noise_variance
    most = facts.signal_variance / total if total > 0 else 0.0
    if not 0 < target < most:
        raise GratisError(f"the target R² must lie between 0 and {most:.4g}, the share of variance that is signal")
    if facts.spectrum is None:
        facts = replace(facts, spectrum=facts.spectra()[0])
    budget_mu = calibrate_mu(facts.budget)

    def rows(log_n: float) -> float:
        return predicted_r_squared(replace(facts, n_records=max(1, round(math.exp(log_n)))))

    def strength(log_mu: float) -> float:
        budget = Budget(mu=math.exp(log_mu), neighbouring=facts.budget.neighbouring)
        return predicted_r_squared(replace(facts, budget=budget))

    log_n = least_reaching(rows, target, math.log(2), math.log(_MOST_ROWS))
    log_mu = least_reaching(strength, target, math.log(1e-6), math.log(_MOST_MU))
    n_needed = None if log_n is None else math.ceil(math.exp(log_n))
    mu_needed = None if log_mu is None else math.exp(log_mu)
    delta = facts.budget.delta if facts.budget.delta is not None else 1e-5
    epsilon = None if mu_needed is None else gdp_epsilon_upper_bound(mu=mu_needed, delta=delta)
    words = (
        f"R² of {target:g} is predicted to need about {n_needed} rows at mu = {budget_mu:.4g}"
        if n_needed is not None
        else f"R² of {target:g} is out of reach at mu = {budget_mu:.4g} with fewer than {_MOST_ROWS} rows"
    )
    words += (
        f", or epsilon = {epsilon:.4g} at delta = {delta:g} with these {facts.n_records} rows."
        if epsilon is not None
        else f"; with {facts.n_records} rows no epsilon reaches it."
    )
    return {
        "r_squared": target,
        "rows_needed": n_needed,
        "mu_needed": mu_needed,
        "epsilon_needed": epsilon,
        "words": words,
    }


def least_reaching(
    function: Callable[[float], float], target: float, low: float, high: float, *, tolerance: float = 0.01
) -> float | None:
    """Least x where the increasing function reaches the target, up to the tolerance; None if it never does.

    >>> round(least_reaching(lambda x: x * x, 2.0, 0.0, 4.0), 2)
    1.42
    """
    if function(high) < target:
        return None
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if function(middle) >= target else (middle, high)
    return high
