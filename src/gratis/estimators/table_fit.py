"""From a file to a planned fit: open, check, plan. What is returned reserves, trains and scores when it is run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gratis.estimators.fit_plan import FitPlan, plan
from gratis.estimators.model_choice import MODELS, check_features, choose_model, model_parameters
from gratis.estimators.private_levels import plan_search
from gratis.estimators.table_job import TableFit, TableJob
from gratis.estimators.table_persons import TablePersons
from gratis.estimators.table_reading import TableReading
from gratis.estimators.table_target import READABLE, TASKS, opened_table
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.rows.encoding import EncodedRows
from gratis.rows.person_ids import number_persons
from gratis.rows.tables import Table

__all__ = ["TableFit", "TableJob", "plan_table_fit", "table_sizes"]

_COPIES = 6  # of the matrix, that a fit in memory needs


def plan_table_fit(
    path: str | os.PathLike[str] | Table,
    target: str,
    budget: Budget,
    *,
    model: str = "auto",
    task: str = "auto",
    classes: Sequence[str] | None = None,
    missing_target: str = "refuse",
    held_out: float = 0.0,
    memory_bytes: float = 4e9,
    options: dict[str, Any] | None = None,
    any_delta: bool = False,
    planned: FitPlan | None = None,
    unit: str | None = None,
    **reading: Any,
) -> TableJob:
    """Open a table and plan everything, in the order in which mistakes are cheapest to find.

    Parameters
    ----------
    path, target : the file (or an opened table) and its target column.
    budget : Budget with epsilon and delta.
    model : "auto" or one of `MODELS`; task : "auto", "regression" or "classification".
    classes : public list of classes; otherwise those that occur are taken to be public.
    missing_target : "refuse" rows without a target, or "leave-out": they contribute nothing, and are counted.
    reading : how columns are read: the parameters of `TableReading`.
    held_out : share of the rows that is kept for a private score.
    memory_bytes : above this the rows are streamed.
    options : further parameters of the estimator.
    any_delta : accept a delta of one over the number of rows and more, which allows to publish a row as it is.
    planned : a plan made before, which must be for these rows, columns, classes and this budget.
    unit : the column that says whose row each is; then persons are what is protected and counted, and it is no feature.
    """
    if task not in ("auto", *TASKS):
        raise GratisError(f"unknown task {task!r}; expected auto, regression or classification")
    if model not in {"auto", *(name for names in MODELS.values() for name in names)}:
        known = dict.fromkeys(name for names in MODELS.values() for name in names)
        raise GratisError(f"unknown model {model!r}; expected auto, {', '.join(known)}")
    if not 0 <= held_out <= 0.5:
        raise GratisError(f"the held-out share must be between 0 and 0.5, got {held_out:g}")
    if not budget.epsilon or not budget.delta:
        raise GratisError("a fit needs a budget with a positive epsilon and a positive delta")
    if missing_target not in ("refuse", "leave-out"):
        raise GratisError(f"missing targets can be refused or left out (refuse, leave-out), got {missing_target!r}")
    if unit is not None:
        _refuse_units(model, reading, {**(options or {}), **(planned.choices if planned else {})})
        reading["ignore"] = (*reading.get("ignore", ()), unit)
    how = TableReading(**reading)
    path = how.open(path)
    if unit is not None:
        TablePersons.check_column(path, unit, target)
    table, full, column, task, assumptions, said = opened_table(path, target, task, model, classes, how, missing_target)
    persons = None if unit is None else TablePersons.of(table, unit, held_out)
    if missing_target == "leave-out":
        assumptions = tuple(one for one in assumptions if one != READABLE)
    if (options or {}).get("inference") or (planned is not None and planned.choices.get("inference")):
        full = full.with_references()
    n_rows = table.count_rows()
    count, counted = (n_rows, "row") if persons is None else (number_persons(persons.names)[1], "person")
    if not any_delta and budget.delta * count >= 1:
        raise GratisError(
            f"delta {budget.delta:g} is not below one over the number of {counted}s, {count}: it would allow to "
            f"publish a {counted} as it is; take a smaller one (or --force-delta)"
        )
    search = plan_search(tuple(how.private_levels), budget) if how.private_levels else None
    if search and planned:
        raise GratisError("a plan knows its columns: levels cannot be searched with --plan")
    theirs = None if persons is None else persons.rows("training")
    rows = EncodedRows(table, full, column, n_rows, held_out=held_out, part="training", chosen=theirs)
    if min(rows.n_rows, n_rows - rows.n_rows if held_out else 2) < 2:
        told = f"the file has {n_rows} rows" if persons is None else "these persons have fewer than two rows in a part"
        raise GratisError(f"{told}, too few to train on")
    streamed = _COPIES * 8.0 * rows.n_rows * rows.n_features > memory_bytes
    n_classes = None if column.levels is None else len(column.levels)
    linear = "linear" if n_classes is None else "logistic"
    if streamed and model not in ("auto", linear, "additive", "random-features"):
        raise GratisError(f"{model} needs all rows, and cannot be trained on a file larger than memory; raise --memory")
    if streamed and persons is not None:
        raise GratisError("--unit needs all rows in memory, to find those of a person; raise --memory")
    options = dict(options or {})
    facts = Facts(
        rows=rows.n_rows if persons is None else persons.count("training"), columns=rows.n_features, classes=n_classes
    )
    choice = choose_model(facts, budget) if model == "auto" else None
    chosen = choice.model if choice else model
    if options.get("class_weight") is not None and (task != "classification" or chosen == "mlp"):
        raise GratisError("weights of classes are for the logistic, additive and random-features classifiers")
    given = model_parameters(chosen, task, epsilon=budget.epsilon, delta=budget.delta, **options)
    if chosen == "random-features":
        check_features(given, rows.n_features, n_classes, options)
    if planned is not None and (planned.facts != facts or planned.budget != budget):
        raise GratisError(
            f"the plan is for {planned.facts.rows} rows, {planned.facts.columns} columns and "
            f"{planned.facts.classes or 'no'} classes at {planned.budget.describe()}, not for this file"
        )
    return TableJob(
        table=table, schema=full, target=column, task=task, budget=budget, n_rows=n_rows, held_out=held_out,
        streamed=streamed, model=chosen, choice=choice, assumptions=assumptions,
        options=options, plan=planned or plan(chosen, **asdict(facts), budget=budget, **options),
        missing_target=missing_target, task_words=said, reading=how, search=search, persons=persons,
    )  # fmt: skip


def _refuse_units(model: str, reading: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuse what would see single rows of a person."""
    model = "one-pass" if options.get("algorithm") == "one-pass" else model
    if model in ("random-features", "mlp", "one-pass"):
        raise GratisError(
            f"--unit is for models that add up bounded contributions (linear, logistic, additive): {model} takes rows "
            "one by one, so that a person with many would count as many"
        )
    if reading.get("private_levels"):
        raise GratisError("levels are searched row by row: with --unit, list them (--levels) or hash them (--hash)")


def table_sizes(path: str | os.PathLike[str], target: str, **reading: Any) -> tuple[int, int, int | None]:
    """Return rows, encoded columns and the number of classes (None for regression); `reading` as in `TableReading`."""
    table, full, column, *_ = opened_table(path, target, "auto", "auto", None, TableReading(**reading))
    return table.count_rows(), len(full.names), None if column.levels is None else len(column.levels)
