"""Synthetic records to attack an estimator with: tossed in or out by coins, or of a law whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.audits.estimators import ESTIMATORS, estimator_name, make_estimator, model_settings, verified_model
from gratis.estimators import DPLinearRegression
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.neighbouring import Neighbouring

__all__ = ["Canaries", "Law", "attacked_estimator", "canaries", "law"]

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]
Create = Callable[[], Any]
"""Makes a fresh, unfitted estimator."""

_SIGNAL = 0.5  # of a target of variance 1


def attacked_estimator(target: str, options: Mapping[str, object]) -> Create:
    """Return what makes the estimator of that name, or another one with the options of a model file."""
    if estimator_name(target) in ESTIMATORS:
        make_estimator(target, options)  # refuses foreign options now
        return lambda: make_estimator(target, options)
    given = [name for name, value in options.items() if value is not None]
    found = verified_model(target)
    if given:
        raise GratisError(f"a model file states its own options: leave out --{given[0].replace('_', '-')}")
    settings = model_settings(found)
    if hasattr(found, "classes_"):
        settings["classes"] = list(range(len(found.classes_)))
    return lambda: type(found)(**settings)


@dataclass(frozen=True, slots=True)
class Canaries:
    """Rows X with goals ±1. A coin decides about each: its goal or the opposite one, or, under zero-out, nothing.

    That is one step between neighbours a coin, as `audit_one_run` and `infer_membership` ask for. What is scored is
    how much the model agrees with a record's goal at its own row.
    """

    create: Create
    X: Array
    goals: Array
    event: Event

    def train(self, coins: Coins, _: int = 0) -> Any:
        """Train on what the coins decide."""
        made = self.create()
        other = -self.goals if self.event.neighbouring is Neighbouring.REPLACE_ONE else np.nan
        goals = np.where(coins, self.goals, other)
        if hasattr(made, "classes"):
            goals = (goals + 1) / 2
        return made.fit(self.X, goals)

    def score(self, model: Any) -> Array:
        """One number a record, larger if its coin was 1."""
        found = model.predict_proba(self.X)[:, 1] - 0.5 if hasattr(model, "classes_") else model.predict(self.X)
        return np.asarray(self.goals * found)


def canaries(create: Create, n: int, d: int, rng: np.random.Generator) -> Canaries:
    """Draw n canaries of d standard normal columns for an estimator."""
    rows, columns = check_count("n", n, minimum=8), check_count("d", d)
    made = create()
    classes = None if not hasattr(made, "classes") else len(made.classes or (0, 1))

    def prepared() -> Any:
        fresh = create()
        if classes is not None:
            fresh.set_params(classes=list(range(classes)))
        # Under zero-out a record is left out by a target that is missing.
        return fresh.set_params(on_invalid="zero")

    event = prepared().plan(rows, columns, classes=classes).event
    return Canaries(prepared, rng.standard_normal((rows, columns)), rng.choice([-1.0, 1.0], rows), event)


@dataclass(frozen=True, slots=True)
class Law:
    """A regression whose truth is known: standard normal rows, half of the target's variance linear in them."""

    create: Create
    truth: Array
    event: Event

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """Draw n records."""
        X = rng.standard_normal((n, len(self.truth)))
        return X, X @ self.truth + (1 - _SIGNAL) ** 0.5 * rng.standard_normal(n)

    def train(self, X: Array, y: Array, _: int) -> Array:
        """Return the released coefficients."""
        return np.ravel(self.create().fit(X, y).coef_)


def law(create: Create, n: int, d: int, rng: np.random.Generator) -> Law:
    """Draw a truth for linear regressions of n records and d columns."""
    made = create()
    if not isinstance(made, DPLinearRegression):
        raise GratisError("tracing compares coefficients with the truth: only linear regression has both")
    truth = rng.standard_normal(check_count("d", d))
    event = made.plan(check_count("n", n), d).event
    return Law(create, truth * (_SIGNAL / float(truth @ truth)) ** 0.5, event)
