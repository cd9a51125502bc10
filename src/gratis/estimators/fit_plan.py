"""The plan of a fit: shown by `gratis plan`, written to a file, and run, by whoever has the rows."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from gratis.estimators.model_choice import make_estimator, model_parameters
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.records.notebook import card
from gratis.records.plans import Cost, Plan, cost_words, predicted_cost
from gratis.records.record import JsonObject, Record
from gratis.records.settings import Descent, Settings
from gratis.records.strict_json import read_json

__all__ = ["FORMAT", "FitPlan", "plan", "read_plan", "rough_cost"]

FORMAT = "gratis-plan/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan(Plan):
    """A plan with all that is needed to run it: the model's name, the facts it was made for, and what was chosen.

    `certificate.event == plan.event` for what it releases. A plan from a file is made again before it is run and must
    come out the same, so a file that was changed, or was made by a version that plans otherwise, is refused.
    """

    model: str
    facts: Facts
    choices: dict[str, Any] = field(default_factory=dict, hash=False)

    def estimator(self, **more: Any) -> Any:
        """Return the unfitted estimator that runs this plan; `more` are its ledger, classes, on_invalid."""
        return make_estimator(
            self.model, self.facts.task, epsilon=self.budget.epsilon or 0.0, delta=self.budget.delta or 0.0,
            neighbouring=str(self.budget.neighbouring), **self.choices, **more,
        )  # fmt: skip

    def run(self, X: ArrayLike, y: ArrayLike, **more: Any) -> Any:
        """Reserve, train, certify: return the fitted estimator. `more` as for `estimator`."""
        return self.estimator(**more).fit(X, y, plan=self)

    @property
    def cost(self) -> Cost | None:
        """What privacy is predicted to cost against the same model without it; None where that is not predicted."""
        return predicted_cost(self.prediction, self.facts.classes)

    def words(self) -> list[str]:
        """The plan in sentences: cost first."""
        found = self.cost
        if found is None:
            return [f"Quality is not predicted: {self.prediction.assumptions[-1]}.", *self.reasons]
        words = cost_words(*found)
        likely = f" (most likely {found[0]:.2g})" if " to " in words else ""
        return [f"Privacy is predicted to cost {words}{likely}.", *self.reasons]

    def _repr_html_(self) -> str:
        facts: list[tuple[str, object]] = [
            ("rows, columns", f"{self.facts.rows}, {self.facts.columns}"),
            ("budget", self.budget.describe()),
        ]
        return card(f"Plan of {self.model}: nothing is spent yet", facts, self.words())

    def to_json(self) -> JsonObject:
        """Return plain data for JSON, the event too."""
        return {"format": FORMAT} | Record.to_json(self)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a plan file."""
        try:
            Path(path).write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            reason = error.strerror
        else:
            return
        raise GratisError(f"the plan file {os.fspath(path)!r} cannot be written: {reason}")


def plan(
    model: str,
    *,
    rows: int,
    columns: int,
    classes: int | None = None,
    budget: Budget | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbouring: str = "replace-one",
    **choices: Any,
) -> FitPlan:
    """Plan a model from public facts: what `gratis plan MODEL` prints and `fit` runs.

    Parameters
    ----------
    model : "linear", "logistic", "random-features", "mlp", …
    rows, columns, classes : int
        Public sizes; classes for a classification.
    budget : Budget, or epsilon and delta
    choices
        The estimator's own parameters: preprocessing, descent, algorithm, n_features, …

    >>> made = plan("linear", rows=5000, columns=4, epsilon=1.0, delta=1e-6)
    >>> made.settings.steps, made.cost[3]
    (64, 'R²')
    """
    asked = budget or Budget(epsilon=epsilon, delta=delta, neighbouring=Neighbouring.parse(neighbouring))
    if choices.get("public") is not None:
        raise GratisError("a plan holds no public scales: plan with preprocessing='none', which costs the same")
    if asked.epsilon is None or asked.delta is None:
        raise GratisError("a fit is planned for a budget in epsilon and delta")
    facts = Facts(rows=rows, columns=columns, classes=classes)
    given = model_parameters(
        model, facts.task, epsilon=asked.epsilon, delta=asked.delta, neighbouring=str(asked.neighbouring), **choices
    )
    # Small problems: threads cost more than they save, and with one the plan does not depend on their number.
    with threadpool_limits(1):
        made = given.plan(rows, columns, classes=classes)
    return FitPlan(model=model, facts=facts, choices=choices, **{f.name: getattr(made, f.name) for f in fields(Plan)})


def rough_cost(
    model: str, *, rows: int, columns: int, epsilon: float, delta: float, neighbouring: str = "replace-one"
) -> Cost | None:
    """What privacy costs a regression, in closed form, where the plan takes simulations; None where it takes none.

    For a picture while the plan is made.
    """
    made = model_parameters(model, "regression", epsilon=epsilon, delta=delta, neighbouring=neighbouring)
    recipe = made._recipe(Facts(rows=rows, columns=columns))
    with threadpool_limits(1):
        found = recipe.rough_cost() if hasattr(recipe, "rough_cost") else None
    return None if found is None else Cost(found[0], found[1], found[2], "R²")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored(Record):
    """What of a plan file is read: all from which the plan is made again, and what must come out."""

    model: str
    facts: Facts
    choices: dict[str, object]
    budget: Budget
    event: Event
    settings: Settings


def read_plan(path: str | os.PathLike[str]) -> FitPlan:
    """Read a plan file: make the plan again from its facts, budget and choices, and compare what it releases."""
    data = read_json(path, "the plan file")
    wanted = {field.name for field in fields(_Stored)}
    if not isinstance(data, dict) or data.get("format") != FORMAT or not wanted <= set(data):
        raise GratisError(f"{os.fspath(path)!r} is not a plan file of format {FORMAT}")
    stored = _Stored.from_json({name: data[name] for name in wanted})
    choices: dict[str, Any] = dict(stored.choices)
    if "descent" in choices:
        choices["descent"] = Descent.from_json(choices["descent"])
    foreign = {"epsilon", "delta", "neighbouring", "ledger", "dataset", "noise_seed", "insecure_reproducible"}
    foreign |= {"on_invalid", "classes", "progress", "verbose"}
    if foreign & set(choices):
        raise GratisError("a plan file chooses neither ledger nor noise, and states its budget apart")
    try:
        made = plan(stored.model, **asdict(stored.facts), budget=stored.budget, **choices)
    except TypeError:
        made = None
    if made is None:
        raise GratisError("the plan file holds choices that its model does not have")
    if (made.event, made.settings) != (stored.event, stored.settings):
        raise GratisError("the plan file was changed, or made by a version that plans otherwise: make it anew")
    return made
