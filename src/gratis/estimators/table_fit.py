"""From a file to a certified private model: open, check, plan, then reserve, train and score.

Nothing private is used before `TableJob.run` except what the certificate names: the number of rows, that the cells are
readable, and (where no list was declared) which classes occur.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from gratis.estimators.evaluation import DISJOINT, HeldOutScore, evaluate_privately, evaluation_event
from gratis.estimators.fit_plan import FitPlan, plan
from gratis.estimators.model_choice import (
    MODELS,
    ModelChoice,
    check_features,
    choose_model,
    make_estimator,
)
from gratis.estimators.private_fit import Release
from gratis.estimators.settlement import LateLedger, uninterrupted
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.errors import BudgetExceededError, GratisError
from gratis.records.facts import Facts
from gratis.rows.encoding import Column, EncodedRows, Kind, TableSchema, can_be_target, distinct_values
from gratis.rows.tables import CSVTable, Table, open_table

__all__ = ["TableFit", "TableJob", "plan_table_fit", "table_sizes"]

_MOST_CLASSES = 32  # whole numbers with at most so many values are taken for classes
_COPIES = 6  # of the matrix, that a fit in memory needs
TASKS = ("regression", "classification")


@dataclass(frozen=True, slots=True)
class TableFit:
    """What `TableJob.run` made."""

    estimator: Any
    score: HeldOutScore | None
    context: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob:
    """A fit that is planned to the end and has spent nothing."""

    table: Table
    schema: TableSchema
    target: Column
    task: str
    budget: Budget
    n_rows: int
    held_out: float
    streamed: bool
    model: str
    choice: ModelChoice | None
    assumptions: tuple[str, ...]
    options: dict[str, Any]
    plan: FitPlan

    @property
    def training(self) -> EncodedRows:
        """The rows that the model is trained on."""
        return self._rows("training" if self.held_out else "all")

    def _rows(self, part: str) -> EncodedRows:
        return EncodedRows(self.table, self.schema, self.target, self.n_rows, held_out=self.held_out, part=part)

    @property
    def n_classes(self) -> int | None:
        """Number of classes, or None."""
        return None if self.target.levels is None else len(self.target.levels)

    def words(self) -> list[str]:
        """The plan in sentences."""
        columns, kind = len(self.schema.names), self.task
        sentences = [
            f"{self.training.n_rows} rows, {columns} columns after encoding; {kind} of {self.target.name!r}"
            + (f" with {self.n_classes} classes." if self.n_classes else "."),
            f"Budget {self.budget.describe()}.",
            f"Model: {self.model}" + (f": {self.choice.reason}" if self.choice else "."),
            *self.plan.words(),
        ]
        if self.streamed:
            sentences.append(
                "The file is larger than memory: it is read once for each release, in constant memory."
                if self.options.get("algorithm") != "one-pass"
                else "The file is larger than memory: one pass in constant memory, and few readings for the scales."
            )
        if self.held_out:
            rows = self.n_rows - self.training.n_rows
            sentences.append(f"{rows} rows are held out, and the score on them is released under a budget of its own.")
        return sentences

    def check(self) -> None:
        """Read every row once and refuse what cannot be trained on. That answer is not private; nothing is spent."""
        for part in (self.training, *((self._rows("held-out"),) if self.held_out else ())):
            part.validate()

    def run(
        self,
        *,
        ledger: str | os.PathLike[str] | LateLedger | None = None,
        dataset: str | None = None,
        begin: Callable[[], None] | None = None,
        save: Callable[[TableFit], None] | None = None,
    ) -> TableFit:
        """Reserve, train, save, commit; then score. From the reservation on, what was reserved is spent.

        `begin` is called when the rows are read and nothing is spent yet. `save` gets what was released, first without
        and then with the score, each time before the ledger hears of it.
        """
        books = ledger if ledger is None or isinstance(ledger, LateLedger) else LateLedger.open(ledger)
        assert books is None or isinstance(books, LateLedger)
        estimator = self._estimator(books, dataset)
        rows = None if self.streamed else self.training.arrays()
        if self.table.changed():
            raise GratisError(f"{self.table.path.name!r} changed after it was opened: nothing was spent, start again")
        if begin is not None:
            begin()
        estimator.fit(*((self.training,) if rows is None else rows), plan=self.plan)
        with uninterrupted():
            # Classes are given as positions: what that assumed about the file is known only here.
            stated = estimator.certificate_.assumptions + self.assumptions
            estimator.certificate_ = replace(estimator.certificate_, assumptions=stated)
            done = _settled(TableFit(estimator, None, self._context(estimator)), books, save)
        if self.held_out:
            score, why = self._score(estimator, books, dataset)
            with uninterrupted():
                done = _settled(TableFit(estimator, score, self._context(estimator, score, why)), books, save)
        return done

    def _estimator(self, ledger: LateLedger | None, dataset: str | None) -> Any:
        choices: dict[str, Any] = {}
        if self.n_classes is not None:
            choices["classes"] = list(range(self.n_classes))
        return self.plan.estimator(on_invalid="impute", ledger=ledger, dataset=dataset, **choices)

    def _score(
        self, estimator: Any, ledger: LateLedger | None, dataset: str | None
    ) -> tuple[HeldOutScore | None, str | None]:
        """Release the score on held-out rows, or say why there is none. The model stands in any case."""
        if self.table.changed():
            return None, "the file changed while the model was trained"
        try:
            X, y = self._rows("held-out").arrays()
        except GratisError as error:
            return None, str(error)
        event = evaluation_event(len(y), self.budget, classes=self.n_classes)
        release = Release(
            event, self.budget, NoiseSource.secure(), ledger=ledger, dataset=dataset, purpose="evaluation",
            assumptions=(DISJOINT, *self.assumptions),
        )  # fmt: skip
        try:
            with release:
                estimates = evaluate_privately(estimator, X, y, release)
        except BudgetExceededError:
            return None, "the ledger had no room left for a release on the held-out rows"
        return HeldOutScore(estimates, release.certificate), None

    def _context(self, estimator: Any, score: HeldOutScore | None = None, why: str | None = None) -> dict[str, Any]:
        plan, expected = estimator.plan_, getattr(estimator, "expected_score_", None)
        return {
            "table": {
                "schema": self.schema.to_json(),
                "target": {"name": self.target.name, **self.target.to_json()},
                "task": self.task,
            },
            "file": self.table.path.name,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "model": self.model,
            "rows": self.training.n_rows,
            "columns": len(self.schema.names),
            "words": self.words(),
            "reasons": list(plan.reasons),
            "assumptions": list(self.assumptions),
            "expected_score": expected.to_json() if expected is not None else None,
            "held_out": self.held_out,
            "held_out_score": None if score is None else score.estimate.to_json(),
            "held_out_scores": None if score is None else [one.to_json() for one in score.estimates],
            "held_out_certificate": None if score is None else score.certificate.to_json(),
            "no_score": why,
            "changed": self.streamed and self.table.changed(),
        }


def _settled(done: TableFit, ledger: LateLedger | None, save: Callable[[TableFit], None] | None) -> TableFit:
    """Save what was released, then tell the ledger; return it with a certificate that says so."""
    if save is not None:
        save(done)
    entry = None if ledger is None else ledger.settle()
    if entry is None:
        return done
    if done.score is not None:
        certificate = replace(done.score.certificate, ledger_entry=entry)
        return replace(done, score=replace(done.score, certificate=certificate))
    done.estimator.certificate_ = replace(done.estimator.certificate_, ledger_entry=entry)
    return done


def plan_table_fit(
    path: str | os.PathLike[str],
    target: str,
    budget: Budget,
    *,
    model: str = "auto",
    task: str = "auto",
    classes: Sequence[str] | None = None,
    schema: str | os.PathLike[str] | None = None,
    ignore: Sequence[str] = (),
    hash_buckets: int | None = None,
    held_out: float = 0.0,
    memory_bytes: float = 4e9,
    options: dict[str, Any] | None = None,
    any_delta: bool = False,
    planned: FitPlan | None = None,
) -> TableJob:
    """Open a table and plan everything, in the order in which mistakes are cheapest to find.

    Parameters
    ----------
    path, target : the file and its target column.
    budget : Budget with epsilon and delta.
    model : "auto" or one of `MODELS`; task : "auto", "regression" or "classification".
    classes : public list of classes; otherwise those that occur are taken to be public.
    schema, ignore, hash_buckets : how columns are read, see `gratis.rows.encoding`.
    held_out : share of the rows that is kept for a private score.
    memory_bytes : above this the rows are streamed.
    options : further parameters of the estimator.
    any_delta : accept a delta of one over the number of rows and more, which allows to publish a row as it is.
    planned : a plan made before, which must be for these rows, columns, classes and this budget.
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
    table, full, column, task, assumptions = _opened(path, target, task, model, classes, schema, ignore, hash_buckets)
    n_rows = table.count_rows()
    if not any_delta and budget.delta * n_rows >= 1:
        raise GratisError(
            f"delta {budget.delta:g} is not below one over the number of rows, {n_rows}: it would allow to publish a "
            "row as it is; take a smaller one (or --force-delta)"
        )
    rows = EncodedRows(table, full, column, n_rows, held_out=held_out, part="training")
    if min(rows.n_rows, n_rows - rows.n_rows if held_out else 2) < 2:
        raise GratisError(f"the file has {n_rows} rows, too few to train on")
    streamed = _COPIES * 8.0 * rows.n_rows * rows.n_features > memory_bytes
    n_classes = None if column.levels is None else len(column.levels)
    linear = "linear" if n_classes is None else "logistic"
    if streamed and model not in ("auto", linear, "additive"):
        raise GratisError(f"only {linear} and additive can be trained on a file larger than memory; raise --memory")
    options = dict(options or {})
    facts = Facts(rows=rows.n_rows, columns=rows.n_features, classes=n_classes)
    choice = choose_model(facts, budget) if model == "auto" else None
    chosen = choice.model if choice else model
    estimator = make_estimator(chosen, task, epsilon=budget.epsilon, delta=budget.delta, **options)
    if chosen == "random-features":
        check_features(estimator, rows.n_features, n_classes, options)
    if planned is not None and (planned.facts != facts or planned.budget != budget):
        raise GratisError(
            f"the plan is for {planned.facts.rows} rows, {planned.facts.columns} columns and "
            f"{planned.facts.classes or 'no'} classes at {planned.budget.describe()}, not for this file"
        )
    return TableJob(
        table=table, schema=full, target=column, task=task, budget=budget, n_rows=n_rows, held_out=held_out,
        streamed=streamed, model=chosen, choice=choice, assumptions=assumptions,
        options=options, plan=planned or plan(chosen, **asdict(facts), budget=budget, **options),
    )  # fmt: skip


def table_sizes(
    path: str | os.PathLike[str],
    target: str,
    *,
    schema: str | os.PathLike[str] | None = None,
    ignore: Sequence[str] = (),
    hash_buckets: int | None = None,
) -> tuple[int, int, int | None]:
    """Return rows, encoded columns and the number of classes (None for regression) of a table."""
    table, full, column, _, _ = _opened(path, target, "auto", "auto", None, schema, ignore, hash_buckets)
    return table.count_rows(), len(full.names), None if column.levels is None else len(column.levels)


def _opened(
    path: str | os.PathLike[str],
    target: str,
    task: str,
    model: str,
    classes: Sequence[str] | None,
    schema: str | os.PathLike[str] | None,
    ignore: Sequence[str],
    hash_buckets: int | None,
) -> tuple[Table, TableSchema, Column, str, tuple[str, ...]]:
    """Open a table and say how its columns and its target are read."""
    declared = None if schema is None else TableSchema.read(schema)
    table = open_table(path)
    if target not in table.types:
        raise GratisError(f"there is no column {target!r} in {Path(path).name!r}")
    full = TableSchema.of(table, target=target, declared=declared, ignored=ignore, buckets=hash_buckets)
    full.check_types(table)
    if not full.names:
        raise GratisError("there is no column left to learn from")
    stated = None if declared is None else declared.column(target)
    column, task, assumptions = _target(table, target, stated, task, classes, model)
    assumptions += ("that cells can be read, and targets are present and of more than one value, is public",)
    if isinstance(table, CSVTable):
        assumptions += ("the types of columns, guessed from the first cells of the CSV file, are public",)
    return table, full, column, task, assumptions


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
    offered = [known for known in TASKS if model in MODELS[known]]
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
        raise GratisError(f"the target {name!r} has more than {limit} classes; declare them with --classes")
    return (
        Column(name=name, kind=Kind.CATEGORICAL, levels=values),
        "classification",
        ("the set of classes that occur is public",),
    )
