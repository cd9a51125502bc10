"""From a file to a planned fit: open, check, plan. What is returned reserves, trains and scores when it is run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gratis.accounting import remaining_budget
from gratis.estimators.fit_plan import FitPlan, plan
from gratis.estimators.model_choice import MODELS, check_features, choose_model, model_parameters
from gratis.estimators.persons import TablePersons
from gratis.estimators.private_levels import plan_search
from gratis.estimators.table_job import TableFit, TableJob
from gratis.estimators.table_reading import TableReading
from gratis.estimators.values import CLASSES_OCCUR, ROWS_A_CLASS
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.rows.amounts import numbers, spread
from gratis.rows.columns import Column, Kind, can_be_target, is_number, is_text, plain
from gratis.rows.encoding import EncodedRows, TableSchema, distinct_values, refuse_without_numbers, written_as
from gratis.rows.first_cells import first_looks
from gratis.rows.person_ids import number_persons
from gratis.rows.tables import Table
from gratis.rows.undecided import Problems, UndecidedError, as_numbers

__all__ = ["READABLE", "TASKS", "TableFit", "TableJob", "opened_table", "plan_table_fit", "table_sizes"]

Array = NDArray[np.float64]
_COPIES = 6  # of the matrix, that a fit in memory needs


TASKS = ("regression", "classification")
READABLE = "that cells can be read, and targets are present and of more than one value, is public"
_A_NUMBER = "the target {!r} is taken for a number; if its values are classes, add --task classification"
_LEFT_OUT = "rows without a target, if there are any, contribute nothing with leave-out, and are counted"
_MOST_CLASSES = 32  # whole numbers with at most so many values are taken for classes
_MOST_WORDS = 1000  # of a target of text that is said to hold classes


def opened_table(
    path: str | os.PathLike[str] | Table, target: str, task: str, model: str, classes: Sequence[str] | None,
    how: TableReading, missing_target: str = "leave-out", records: Callable[[], int] | None = None,
) -> tuple[Table, TableSchema, Column, str, tuple[str, ...], str | None]:  # fmt: skip
    """Open a table and say how its columns and its target are read; last, which task was taken if it was not told.

    `records` counts the public units where those are not the rows.
    """
    table = how.open(path, target)
    if target not in table.types:
        known = ", ".join(map(repr, list(table.types)[:20])) + (", …" if len(table.types) > 20 else "")
        raise GratisError(f"there is no column {target!r} in {table.path.name!r}; its columns are {known}")
    if next(iter(table.batches([target], 1)), None) is None:  # that there are none is public, as their number is
        raise GratisError(f"{table.path.name!r} has columns and no rows")
    if getattr(table, "broken", None):
        _refuse_encoding(table, target, task, model, classes, how, missing_target, records)
    undecided = None
    try:
        full = how.schema_of(table, target)
    except UndecidedError as error:
        undecided = error if records is None else error.hashed()
    if undecided is not None:
        raise _with_target(undecided, table, target, how, task, model, classes, missing_target)
    full.check_types(table)
    if not full.names:
        raise GratisError("there is no column left to learn from")
    asked = task
    declared = how.declared().column(target)
    column, task, assumptions = _target(table, target, declared, task, classes, model, missing_target, records)
    assumptions += (READABLE, "public-types", *(("earlier-levels",) if how.declared().released else ()))
    return table, full, column, task, assumptions, _task_words(table.types[target], column, task, asked, classes, model)


def _refuse_encoding(table: Table, target: str, *given: Any) -> None:
    """Refuse a file whose first cells are of another encoding, with what else is to be said once it is told."""
    try:
        Problems(broken=frozenset(getattr(table, "broken", ()))).refuse(table.types, target, python=table.for_python)
    except UndecidedError as error:
        refused = error
    task, model, classes, how, missing, records = given
    try:
        other = replace(how, encoding=str(refused.advice["encoding"]))
        opened_table(table.path, target, task, model, classes, other, missing, records)
    except UndecidedError as error:
        refused = refused.along_with(error.advice, *error.lines)
    except GratisError:
        pass  # said when the encoding is
    raise refused


def _with_target(
    error: UndecidedError, table: Table, target: str, how: TableReading, task: str, model: str,
    classes: Sequence[str] | None, missing: str,
) -> UndecidedError:  # fmt: skip
    """The refusal of columns with what may come next, for the target's rows are not read yet: one fix for all of it."""
    kind = table.types[target]
    regressed = task == "regression" or (task == "auto" and "regression" in _offered(model))
    looks = first_looks(table, [target] if classes is None and how.declared().column(target) is None else [])
    if regressed and looks.numbers and not looks.columns:
        error = error.along_with({"numeric": (target,)}, as_numbers(target, "the target ", python=table.for_python))
    if missing == "refuse":
        error = error.along_with({"missing_target": "leave-out"}, _LEFT_OUT)
    if task == "auto" and classes is None and _offered(model) == list(TASKS) and pa.types.is_floating(kind):
        error = error.along_with({}, _A_NUMBER.format(target))
    return error


def _task_words(
    kind: Any, column: Column, task: str, asked: str, classes: Sequence[str] | None, model: str
) -> str | None:
    """Say which task was taken of a target of numbers and why, and how to take the other."""
    if asked != "auto" or classes is not None or (column.kind is not Kind.NUMERIC and not is_number(kind)):
        return None
    if _offered(model) != list(TASKS):
        predicted = "a number is" if task == "regression" else "classes are"
        return f"Of {column.name!r} {predicted} predicted, because the model is {model}."
    if task == "classification":
        count = len(column.levels or ())
        return (
            f"The {count} whole numbers of {column.name!r} are taken for classes, because there are no more than "
            f"{_MOST_CLASSES} of them; --task regression predicts a number."
        )
    if pa.types.is_integer(kind):
        return (
            f"{column.name!r} has many values, so a number is predicted; --task classification takes them for classes."
        )
    return f"{_A_NUMBER.format(column.name)[:1].upper()}{_A_NUMBER.format(column.name)[1:]}."


def _offered(model: str) -> list[str]:
    """The tasks that a model can do."""
    return [task for task in TASKS if model == "auto" or model in MODELS[task]]


def _target(
    table: Table,
    name: str,
    declared: Column | None,
    task: str,
    classes: Sequence[str] | None,
    model: str,
    missing: str,
    records: Callable[[], int] | None,
) -> tuple[Column, str, tuple[str, ...]]:
    """Return how the target is read, the task, and what that assumes."""
    kind = table.types[name]
    told = declared is not None and declared.kind is Kind.NUMERIC
    if not can_be_target(kind):
        raise GratisError(f"the target {name!r} holds values of the type {kind}; turn them into numbers or text first")
    looks = first_looks(table, [name] if declared is None and classes is None else [])
    numeric = told or is_number(kind) or any(column.kind is Kind.NUMERIC for column in looks.columns)
    if classes is None and declared is not None and declared.levels is not None:
        classes = declared.levels
    if classes is not None:
        if task == "regression":
            raise GratisError("a regression has no classes: leave them out, or take --task classification")
        if len(set(map(plain, classes))) < 2:
            raise GratisError("at least two different classes are needed")
        return Column(name=name, kind=Kind.CATEGORICAL, levels=tuple(classes)), "classification", ()
    offered = _offered(model)
    if task == "auto" and len(offered) == 1:
        task = offered[0]
    if task != "classification" and not numeric and looks.numbers:
        _refuse_text_of_numbers(table, name, task, missing)
    if task == "regression" and not numeric:
        raise GratisError(f"the target {name!r} does not hold numbers, so it cannot be regressed")
    if task == "auto" and numeric and not pa.types.is_integer(kind):
        task = "regression"
    number = Column(name=name, kind=Kind.NUMERIC, lenient=told, decimal=declared.decimal if declared else None)
    if task == "regression":
        number = written_as(number, table)
        refuse_without_numbers(number, table)
        _refuse_constant(table, number)
        return number, task, ()
    limit = _class_limit(table, name, records, few=task == "auto" or not is_text(kind))
    values = distinct_values(table, name, limit)
    if values is not None and len(values) < 2:
        raise GratisError(f"the target {name!r} has a single value: there is nothing to learn")
    if task == "auto" and values is None and numeric:
        assumed = f"that the target has more than {limit} different values is public"
        return written_as(number, table), "regression", (assumed,)
    _refuse_published_values(table, name, values, limit)
    values = tuple(dict.fromkeys(map(plain, values or ())))
    return (
        Column(name=name, kind=Kind.CATEGORICAL, levels=values),
        "classification",
        (CLASSES_OCCUR,),
    )


def _refuse_constant(table: Table, target: Column) -> None:
    """Refuse a target of one value, or of none that can be read."""
    lowest, highest = math.inf, -math.inf
    for batch in table.batches([target.name], 2**16):
        ends = spread(batch.column(target.name), target.decimal)
        if ends is not None:
            lowest, highest = min(lowest, ends[0]), max(highest, ends[1])
        if lowest < highest:
            return
    if lowest > highest:
        raise GratisError(
            f"no cell of the target {target.name!r} can be read as a number: see how the file writes them"
        )
    raise GratisError(f"the target {target.name!r} has a single value: there is nothing to learn")


def _class_limit(table: Table, name: str, records: Callable[[], int] | None, *, few: bool) -> int:
    """The most values that may pass for public classes: few unless they are words, and five records each on average.

    `records` counts persons, where it is given: how many rows they have must not decide anything.
    """
    limit = _MOST_CLASSES if few else _MOST_WORDS
    if records is None:
        count = 0
        for batch in table.batches([name], 2**16):
            count += batch.num_rows
            if count >= ROWS_A_CLASS * limit:
                break
    else:
        count = records()
    return max(2, min(limit, count // ROWS_A_CLASS))


def _published(values: tuple[str, ...] | None, limit: int) -> str | None:
    """Why values are none of classes but of persons; None where they may be classes."""
    if values is None:
        return f"has more than {limit} different values"
    found = _values(values)
    if len(values) > _MOST_CLASSES and np.isfinite(found).all():
        return f"has more than {_MOST_CLASSES} different values"
    finite = found[np.isfinite(found)]
    return "holds numbers with fractions" if (finite != np.floor(finite)).any() else None


def _refuse_published_values(table: Table, name: str, values: tuple[str, ...] | None, limit: int) -> None:
    """Refuse to take for classes what looks like values of persons: the model would publish every one of them."""
    why = _published(values, limit)
    if why is not None:
        listed = "classes=[…]" if table.for_python else "--classes A,B,C"
        raise GratisError(
            f"the target {name!r} {why}, and a model publishes its classes: list those that are public ({listed}), or "
            "predict a number with a regression"
        )


def _refuse_text_of_numbers(table: Table, name: str, task: str, missing: str) -> None:
    """Refuse a target of text that looks like numbers, with the options that read it: it is not taken for classes."""
    classes = "; --task classification takes them for classes" if task == "auto" else ""
    line = as_numbers(name, "the target ", python=table.for_python) + classes
    error = UndecidedError({"numeric": (name,)}, [line], python=table.for_python)
    if missing == "refuse":
        error = error.along_with({"missing_target": "leave-out"}, _LEFT_OUT)
    raise error


def _values(texts: Sequence[str]) -> Array:
    """Texts as numbers, with a point or else with a comma; NaN where they are none."""
    if not any(any(map(str.isdigit, text)) for text in texts):
        return np.full(len(texts), np.nan)
    by_point, by_comma = (numbers(pa.array(texts, pa.string()), sign) for sign in ".,")
    return np.where(np.isfinite(by_point), by_point, by_comma)


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
    _refuse_unknown_task(task)
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
    path = how.open(path, target)
    if unit is not None:
        TablePersons.check_column(path, unit, target)
    people = None if unit is None else cache(partial(TablePersons.of, path, unit, held_out))
    counted_persons = None if people is None else lambda: number_persons(people().names)[1]
    table, full, column, task, assumptions, said = opened_table(
        path, target, task, model, classes, how, missing_target, counted_persons
    )
    persons = None if people is None else people()
    if missing_target == "leave-out":
        assumptions = tuple("readable-file" if one == READABLE else one for one in assumptions)
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
        raise GratisError(f"the file has {n_rows} rows, too few to train on")
    # Those of persons are always held, to find all of one; how many they are is not public and must decide nothing.
    streamed = persons is None and _COPIES * 8.0 * rows.n_rows * rows.n_features > memory_bytes
    n_classes = None if column.levels is None else len(column.levels)
    linear = "linear" if n_classes is None else "logistic"
    if streamed and model not in ("auto", linear, "additive", "random-features"):
        raise GratisError(f"{model} needs all rows, and cannot be trained on a file larger than memory; raise --memory")
    options = dict(options or {})
    facts = Facts(
        rows=rows.n_rows if persons is None else persons.count("training"), columns=rows.n_features, classes=n_classes
    )
    rest = remaining_budget(budget, search.event) if search else budget
    choice = choose_model(facts, rest) if model == "auto" else None
    chosen = choice.model if choice else model
    if options.get("class_weight") is not None and (task != "classification" or chosen == "mlp"):
        raise GratisError("weights of classes are for the logistic, additive and random-features classifiers")
    given = model_parameters(chosen, task, epsilon=budget.epsilon, delta=budget.delta, **options)
    if chosen == "random-features":
        check_features(given, rows.n_features, n_classes, options)
    if planned is not None and (planned.facts != facts or planned.budget != budget):
        raise GratisError(
            f"the plan is for {_sizes(planned.facts)} at {planned.budget.describe()}, but this file has {_sizes(facts)}"
            + ("" if planned.budget == budget else f" and the budget is {budget.describe()}")
        )
    return TableJob(
        table=table, schema=full, target=column, task=task, budget=budget, n_rows=n_rows, held_out=held_out,
        streamed=streamed, model=chosen, choice=choice, assumptions=assumptions,
        options=options, plan=planned or plan(chosen, **asdict(facts), budget=rest, **options),
        missing_target=missing_target, task_words=said, reading=how, search=search, persons=persons,
    )  # fmt: skip


def _sizes(facts: Facts) -> str:
    return f"{facts.rows} rows, {facts.columns} columns and {facts.classes or 'no'} classes"


def _refuse_unknown_task(task: str) -> None:
    if task not in ("auto", *TASKS):
        raise GratisError(f"unknown task {task!r}; expected auto, regression or classification")


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


def table_sizes(
    path: str | os.PathLike[str], target: str, task: str = "auto", **reading: Any
) -> tuple[int, int, int | None]:
    """Return rows, encoded columns and the number of classes (None for regression); `reading` as in `TableReading`."""
    _refuse_unknown_task(task)
    table, full, column, *_ = opened_table(path, target, task, "auto", None, TableReading(**reading))
    return table.count_rows(), len(full.names), None if column.levels is None else len(column.levels)
