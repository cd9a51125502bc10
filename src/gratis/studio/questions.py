"""What a user asks before spending: what an attacker could tell, what a wish needs, which command does the same."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gratis.accounting import (
    calibrate_mu,
    gdp_delta_upper_bound,
    gdp_detection_upper_bound,
    gdp_epsilon_upper_bound,
    group_privacy,
)
from gratis.planning.inverse import least_reaching
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.guarantees import GDPGuarantee
from gratis.records.neighbouring import Neighbouring
from gratis.studio.forecasts import EPSILONS, Asked, Forecasts

__all__ = ["attacker", "budget_mu", "equivalents", "needed"]

_MOST_ROWS, _MOST_EPSILON = 10**8, 30.0
_ROWS = (*(step * 10**power for power in range(2, 8) for step in (1, 3)), _MOST_ROWS)
_TOLERANCE = 0.05  # of the logarithm: "about"
_FALSE_ALARMS = tuple(i / 40 for i in range(1, 40))
_ESTIMATORS = {
    ("linear", "regression"): "DPLinearRegression",
    ("additive", "regression"): "DPAdditiveRegressor",
    ("random-features", "regression"): "DPRandomFeaturesRegressor",
    ("logistic", "classification"): "DPLogisticRegression",
    ("additive", "classification"): "DPAdditiveClassifier",
    ("random-features", "classification"): "DPRandomFeaturesClassifier",
    ("mlp", "classification"): "DPMLPClassifier",
}


def attacker(mu: float, neighbouring: str, *, delta: float, rows_per_person: int = 1) -> dict[str, Any]:
    """What anybody can gain who sees the model and knows all other rows: proved, from the exact trade-off."""
    guarantee = GDPGuarantee(mu=mu, neighbouring=Neighbouring.parse(neighbouring))
    person = group_privacy(guarantee, rows_per_person=rows_per_person).mu
    curve = [[0.0, 0.0], *([a, gdp_detection_upper_bound(mu=person, false_alarms=a)] for a in _FALSE_ALARMS), [1, 1]]
    advantage = gdp_delta_upper_bound(mu=person, epsilon=0.0)
    recognised = gdp_detection_upper_bound(mu=person, false_alarms=0.01)
    whom = "one row" if rows_per_person == 1 else f"a person with up to {rows_per_person} rows"
    return {
        "mu": mu,
        "person_mu": person,
        "person_epsilon": gdp_epsilon_upper_bound(mu=person, delta=delta),
        "advantage": advantage,
        "right": _percent((1 + advantage) / 2),
        "recognised": _percent(recognised),
        "curve": curve,
        "words": [
            f"Someone who sees the model and knows all other rows says with at most {_percent((1 + advantage) / 2)} "
            f"of answers right whether {whom} is in it; guessing gives 50 %.",
            f"If only 1 % of their accusations may be false, they recognise at most {_percent(recognised)}.",
        ],
    }


def _percent(share: float) -> str:
    """Rounded up, as a guarantee is."""
    digits = 1 if share < 0.1 or share > 0.995 else 0
    scale = 10**digits
    return f"{min(math.ceil(100 * share * scale - 1e-9) / scale, 100):.{digits}f} %"


def needed(forecasts: Forecasts, asked: Asked, loss: float) -> dict[str, Any]:
    """Rows at this budget, and ε at these rows, at which the plan predicts a loss of at most this."""
    if not 0 < loss < 10:
        raise GratisError("the loss must lie between 0 and 10")
    units = set()

    def gain(at: Asked) -> float:
        found = forecasts.one(at)
        if found is None:
            raise GratisError("the search took too long; try a quicker model")
        if "error" in found:
            raise GratisError(str(found["error"]))
        if found["cost"] is None:
            raise GratisError(f"the loss of {asked.model} is not predicted")
        units.add(found["cost"]["unit"])
        return -float(found["cost"]["value"])

    def rows(log_n: float) -> float:
        return gain(replace(asked, rows=_two_digits(math.exp(log_n))))

    def budget(log_epsilon: float) -> float:
        return gain(replace(asked, epsilon=float(f"{math.exp(log_epsilon):.2g}")))

    log_n, log_epsilon = _least(rows, -loss, _ROWS), _least(budget, -loss, (*EPSILONS, _MOST_EPSILON))
    n = None if log_n is None else _two_digits(math.exp(log_n))
    epsilon = None if log_epsilon is None else float(f"{math.exp(log_epsilon):.2g}")
    unit = units.pop()
    return {"rows": n, "epsilon": epsilon, "words": _needed_words(asked, loss, unit, n, epsilon)}


def _least(function: Callable[[float], float], target: float, ladder: Sequence[float]) -> float | None:
    """Least logarithm that reaches the target: rung by rung first, because a model that bends where records allow it
    may lose more there than just before.
    """
    below = math.log(ladder[0])
    for rung in map(math.log, ladder):
        if function(rung) >= target:
            return rung if rung == below else least_reaching(function, target, below, rung, tolerance=_TOLERANCE)
        below = rung
    return None


def _needed_words(asked: Asked, loss: float, unit: str, n: int | None, epsilon: float | None) -> str:
    rows = f"more than {_MOST_ROWS:,}" if n is None else f"at most {n:,}" if n == _ROWS[0] else f"about {n:,}"
    at_budget = f"{rows} rows at ε = {asked.epsilon:g}"
    least = f"at most ε = {epsilon:g}" if epsilon == EPSILONS[0] else f"about ε = {epsilon:g}" if epsilon else None
    at_rows = f"{least or f'an ε above {_MOST_EPSILON:g}'} with {asked.rows:,} rows"
    return f"To lose at most {loss:g} of {unit}, {asked.model} is predicted to need {at_budget}, or {at_rows}."


def _two_digits(value: float) -> int:
    return max(2, int(float(f"{value:.2g}")))


def equivalents(asked: Asked) -> dict[str, str]:
    """The same plan as a command and in Python."""
    command = ["gratis", "plan", asked.model, "--n", str(asked.rows), "--d", str(asked.columns)]
    sizes = f"rows={asked.rows}, columns={asked.columns}"
    if asked.classes is not None:
        command += ["--classes", str(asked.classes)]
        sizes += f", classes={asked.classes}"
    command += ["--epsilon", f"{asked.epsilon:g}", "--delta", f"{asked.delta:g}"]
    stated = f"epsilon={asked.epsilon:g}, delta={asked.delta:g}"
    if asked.neighbouring != "replace-one":
        command += ["--neighbouring", asked.neighbouring]
        stated += f", neighbouring={asked.neighbouring!r}"
    task = "regression" if asked.classes is None else "classification"
    estimator = _ESTIMATORS.get((asked.model, task))
    lines = ["import gratis", f"plan = gratis.plan({asked.model!r}, {sizes}, {stated})"]
    lines.append("model = plan.run(X, y)")
    if estimator:
        lines.append(f"# or: gratis.{estimator}({stated}).fit(X, y)")
    return {"command": shlex.join(command), "python": "\n".join(lines)}


def budget_mu(asked: Asked) -> float:
    """The Gaussian-DP parameter of the budget."""
    relation = Neighbouring.parse(asked.neighbouring)
    return calibrate_mu(Budget(epsilon=asked.epsilon, delta=asked.delta, neighbouring=relation))
