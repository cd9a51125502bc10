"""How a table and its target are read: which column, which task, which classes, and what that takes to be public."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from gratis.estimators.model_choice import MODELS
from gratis.estimators.table_reading import CLASSES_OCCUR, TableReading
from gratis.records.errors import GratisError
from gratis.rows.columns import Column, Kind, can_be_target
from gratis.rows.encoding import TableSchema, distinct_values
from gratis.rows.tables import Table
from gratis.rows.undecided import UndecidedError

__all__ = ["READABLE", "TASKS", "opened_table"]

TASKS = ("regression", "classification")
READABLE = "that cells can be read, and targets are present and of more than one value, is public"
_A_NUMBER = "the target {!r} is taken for a number; if its values are classes, add --task classification"
_MOST_CLASSES = 32  # whole numbers with at most so many values are taken for classes


def opened_table(
    path: str | os.PathLike[str] | Table, target: str, task: str, model: str, classes: Sequence[str] | None,
    how: TableReading, missing_target: str = "leave-out",
) -> tuple[Table, TableSchema, Column, str, tuple[str, ...], str | None]:  # fmt: skip
    """Open a table and say how its columns and its target are read; last, which task was taken if it was not told."""
    table = how.open(path)
    if target not in table.types:
        known = ", ".join(map(repr, list(table.types)[:20])) + (", …" if len(table.types) > 20 else "")
        raise GratisError(f"there is no column {target!r} in {table.path.name!r}; its columns are {known}")
    if next(iter(table.batches([target], 1)), None) is None:  # that there are none is public, as their number is
        raise GratisError(f"{table.path.name!r} has columns and no rows")
    undecided = None
    try:
        full = how.schema_of(table, target)
    except UndecidedError as error:
        undecided = error
    if undecided is not None:
        raise _with_target(undecided, table.types[target], target, task, model, classes, missing_target)
    full.check_types(table)
    if not full.names:
        raise GratisError("there is no column left to learn from")
    asked = task
    column, task, assumptions = _target(table, target, how.declared().column(target), task, classes, model)
    assumptions += (READABLE,)
    if not table.states_types:
        assumptions += ("the types of columns, guessed from the first cells of the CSV file, are public",)
    return table, full, column, task, assumptions, _task_words(table.types[target], column, task, asked, classes)


def _with_target(
    error: UndecidedError, kind: Any, target: str, task: str, model: str, classes: Sequence[str] | None, missing: str
) -> UndecidedError:
    """The refusal of columns with what may come next, for the target's rows are not read yet: one fix for all of it."""
    if missing == "refuse":
        error = error.along_with(
            {"missing_target": "leave-out"}, "lets rows without a target, if there are any, contribute nothing"
        )
    if task == "auto" and classes is None and _offered(model) == list(TASKS) and pa.types.is_floating(kind):
        error = error.along_with({}, otherwise=f"; {_A_NUMBER.format(target)}")
    return error


def _task_words(kind: Any, column: Column, task: str, asked: str, classes: Sequence[str] | None) -> str | None:
    """Say which task was taken of a target of numbers, and how to take the other."""
    if asked == "auto" and classes is None and pa.types.is_floating(kind) and task == "regression":
        return f"{_A_NUMBER.format(column.name)[:1].upper()}{_A_NUMBER.format(column.name)[1:]}."
    if asked != "auto" or classes is not None or not pa.types.is_integer(kind):
        return None
    if task == "classification":
        count = len(column.levels or ())
        return (
            f"The {count} whole numbers of {column.name!r} are taken for classes; --task regression predicts a number."
        )
    return f"{column.name!r} has many values, so a number is predicted; --task classification takes them for classes."


def _offered(model: str) -> list[str]:
    """The tasks that a model can do."""
    return [task for task in TASKS if model == "auto" or model in MODELS[task]]


def _target(
    table: Table, name: str, declared: Column | None, task: str, classes: Sequence[str] | None, model: str
) -> tuple[Column, str, tuple[str, ...]]:
    """Return how the target is read, the task, and what that assumes."""
    kind = table.types[name]
    if not can_be_target(kind):
        raise GratisError(f"the target {name!r} holds values of the type {kind}; turn them into numbers or text first")
    numeric = any(test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
    if classes is None and declared is not None and declared.levels is not None:
        classes = declared.levels
    if classes is not None:
        if task == "regression":
            raise GratisError("a regression has no classes: leave them out, or take --task classification")
        if len(set(classes)) < 2:
            raise GratisError("at least two different classes are needed")
        return Column(name=name, kind=Kind.CATEGORICAL, levels=tuple(classes)), "classification", ()
    offered = _offered(model)
    if task == "auto" and len(offered) == 1:
        task = offered[0]
    if task == "regression" and not numeric:
        raise GratisError(f"the target {name!r} does not hold numbers, so it cannot be regressed")
    if task == "auto" and (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        task = "regression"
    limit = _MOST_CLASSES if task == "auto" else 1000
    values = distinct_values(table, name, 1 if task == "regression" else limit)
    if values is not None and len(values) < 2:
        raise GratisError(f"the target {name!r} has a single value: there is nothing to learn")
    if task == "regression" or (task == "auto" and values is None and numeric):
        assumed = () if task == "regression" else (f"that the target has more than {limit} different values is public",)
        return Column(name=name, kind=Kind.NUMERIC), "regression", assumed
    if values is None:
        raise GratisError(f"the target {name!r} has more than {limit} classes; list them in classes (--classes A,B,C)")
    return (
        Column(name=name, kind=Kind.CATEGORICAL, levels=values),
        "classification",
        (CLASSES_OCCUR,),
    )
