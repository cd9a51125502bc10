"""A planned fit of a table, and its run: reserve, train, save, commit, score.

Nothing private is used before `TableJob.run` except what the certificate names: the number of rows, that the cells are
readable, and (where no list was declared) which classes occur.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gratis.accounting import issue_certificate, remaining_budget
from gratis.estimators.evaluation import DISJOINT, HeldOutScore, evaluate_privately, evaluate_rows, evaluation_event
from gratis.estimators.fit_plan import FitPlan, plan
from gratis.estimators.model_choice import ModelChoice, choose_model, model_parameters
from gratis.estimators.persons import TablePersons
from gratis.estimators.private_levels import ASSUMED_LEVELS, MOST_LEVELS, FoundLevels, LevelSearch
from gratis.estimators.release import LateLedger, Release, uninterrupted
from gratis.estimators.table_reading import TableReading
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.errors import GratisError
from gratis.records.events import Composition, Event, Parallel
from gratis.rows.cluster_table import ClusterTable
from gratis.rows.columns import Column
from gratis.rows.encoding import EncodedRows, TableSchema
from gratis.rows.person_ids import ids_name
from gratis.rows.readings import ColumnReading
from gratis.rows.scratch import scratch_folder
from gratis.rows.tables import Table

__all__ = ["StoredTableJob", "TableFit", "TableJob"]


@dataclass(frozen=True, slots=True)
class TableFit:
    """What `TableJob.run` made."""

    estimator: Any
    score: HeldOutScore | None
    context: dict[str, Any] = field(repr=False)
    job: TableJob = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredTableJob:
    """What a planned fit is once it was pickled: what is public of it, and no row. It can be read, and not run."""

    plan: FitPlan
    event: Event
    readings: tuple[ColumnReading, ...]
    sentences: tuple[str, ...]

    def words(self) -> list[str]:
        """The plan in sentences."""
        return list(self.sentences)

    def run(self, **_: Any) -> TableFit:
        """Refuse: the rows were left behind."""
        raise GratisError("this planned fit was stored, without its rows: plan it anew from the table")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob:
    """A fit that is planned to the end and has spent nothing.

    It may hold the rows of a data frame; pickled, it becomes a `StoredTableJob`, which holds none.
    """

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
    reading: TableReading = field(default_factory=TableReading)
    search: LevelSearch | None = None
    found: FoundLevels | None = None
    missing_target: str = "refuse"
    task_words: str | None = None
    persons: TablePersons | None = None

    def __reduce__(self) -> tuple[type[StoredTableJob], tuple[Any, ...]]:
        return StoredTableJob, (self.plan, self.event, self.readings, tuple(self.words()))

    def __copy__(self) -> TableJob:
        return self

    def __deepcopy__(self, _: Any) -> TableJob:
        return self

    @property
    def training(self) -> EncodedRows:
        """The rows that the model is trained on."""
        return self._rows("training" if self.held_out else "all")

    def _rows(self, part: str) -> EncodedRows:
        chosen = None if self.persons is None else self.persons.rows(part)
        return EncodedRows(
            self.table, self.schema, self.target, self.n_rows, held_out=self.held_out, part=part, chosen=chosen
        )

    @property
    def n_records(self) -> int:
        """How many units of privacy the model is trained on: rows, or persons."""
        return self.training.n_rows if self.persons is None else self.persons.count("training")

    @property
    def readings(self) -> tuple[ColumnReading, ...]:
        """What every column became, the target too."""
        unit = None if self.persons is None else self.persons.column
        found = self.schema.readings(self.table, self.target, unit)
        if self.search is None or self.found is not None:
            return found
        words = "text: its common levels are found within the budget"
        return tuple(
            replace(one, read_as=words, becomes=(), warning=None) if one.name in self.search.columns else one
            for one in found
        )

    @property
    def unit(self) -> str:
        """What `n_records` counts."""
        return "rows" if self.persons is None else "persons"

    @property
    def n_held_out(self) -> int:
        """How many units of privacy are kept for the score."""
        return self.n_rows - self.training.n_rows if self.persons is None else self.persons.count("held-out")

    @property
    def score_event(self) -> Event | None:
        """The release on the held-out rows, within the model's own budget; None where there are none."""
        if not self.held_out:
            return None
        return evaluation_event(self.n_held_out, self.plan.budget, classes=self.n_classes)

    @property
    def event(self) -> Event:
        """All that the run releases, as the ledger will have it: its price is what this costs.

        Model and score are of disjoint rows, and cost the larger of the two (docs/proofs/parallel.md). Levels are
        counted on the model's rows alone, before the model is planned: an entry of their own, which adds up with the
        rest. Until they are found, the plan is for an assumed number of them, and costs the same.
        """
        score = self.score_event
        own = self.plan.event if score is None else Parallel((self.plan.event, score))
        return own if self.search is None else Composition((self.search.event, own))

    @property
    def n_classes(self) -> int | None:
        """Number of classes, or None."""
        return None if self.target.levels is None else len(self.target.levels)

    def words(self, *, cluster: bool = False) -> list[str]:
        """The plan in sentences, for one machine or for the workers of a cluster."""
        columns, kind = len(self.schema.names), self.task
        sentences = [
            f"{self.n_records} {self.unit}, {columns} columns after encoding; {kind} of {self.target.name!r}"
            + (f" with {self.n_classes} classes." if self.n_classes else "."),
            *([self.task_words] if self.task_words else []),
            *([self.persons.words()] if self.persons else []),
            f"Budget {self.budget.describe()}.",
            *([self.search.words(self.training.n_rows)] if self.search and self.found is None else []),
            f"Model: {self.model}" + (f": {self.choice.reason}" if self.choice else "."),
            *self.plan.words(),
        ]
        if cluster:
            sentences.append("The workers of the cluster read the file; only sums and counts come back.")
        elif self.streamed:
            sentences.append(
                "The file is larger than memory: it is read once for each release, in constant memory."
                if self.options.get("algorithm") != "one-pass"
                else "The file is larger than memory: one pass in constant memory, and few readings for the scales."
            )
            rows = self.training
            if rows.text_file and (folder := scratch_folder(rows.text_file, rows.n_rows, rows.n_features)):
                place = "beside it" if folder == rows.text_file.resolve().parent else "among temporary files"
                sentences.append(
                    f"It is text, and parsed once: its numbers go to a scratch file {place}, of at most "
                    f"{8e-9 * rows.n_rows * (rows.n_features + 1):.2g} GB, without a name and gone when the run ends."
                )
        if self.held_out:
            sentences.append(
                f"{self.n_held_out} {self.unit} are held out, and the score on them costs nothing more: each is in the "
                "model or in the score, so that both together cost the larger of the two."
            )
        return sentences

    def check(self, cluster: Any = None) -> None:
        """Read every row once and refuse what cannot be trained on. That answer is not private; nothing is spent."""
        self._refuse_impossible(cluster)
        if self.persons is not None and self.missing_target != "leave-out":
            self.persons.check()
        for rows in (self.training, *((self._rows("held-out"),) if self.held_out else ())):
            part = rows if cluster is None else ClusterTable(cluster, rows)
            part.validate(missing_targets=self.missing_target == "leave-out")

    def _refuse_impossible(self, cluster: Any) -> None:
        """Refuse what public facts rule out, before levels are paid for."""
        if cluster is None and not self.streamed:
            return
        if cluster is not None and self.plan.choices.get("algorithm") == "one-pass":
            raise GratisError("one pass takes the rows in their order, on one machine: leave --cluster out")
        if cluster is not None and self.persons is not None:
            raise GratisError("--unit needs all rows in one memory, to find those of a person: leave --cluster out")
        told = model_parameters(
            self.model, self.task, epsilon=self.budget.epsilon, delta=self.budget.delta,
            neighbouring=str(self.budget.neighbouring), **self.plan.choices,
        )  # fmt: skip
        if told._recipe(self.plan.facts).needs_arrays:
            advice = "raise --memory" if cluster is None else "leave --cluster out"
            raise GratisError(f"{self.model} with these settings needs all rows in one memory: {advice}")
        if cluster is not None:
            unknown = 0 if self.search is None or self.found is not None else len(self.search.columns)
            widest = len(self.schema.names) + unknown * (MOST_LEVELS - ASSUMED_LEVELS)
            ClusterTable(cluster, self.training).refuse_unless_kept(widest)

    def run(
        self,
        *,
        ledger: str | os.PathLike[str] | LateLedger | None = None,
        dataset: str | None = None,
        begin: Callable[[], None] | None = None,
        save: Callable[[TableFit], None] | None = None,
        keep: Callable[[FoundLevels], None] | None = None,
        cluster: Any = None,
    ) -> TableFit:
        """Reserve, train, save, commit; then score. From the reservation on, what was reserved is spent.

        `begin` is called when the rows are read and nothing is spent yet. `save` gets what was released, first without
        and then with the score, each time before the ledger hears of it; so does `keep` with levels that were searched.
        `cluster` is a Dask client whose workers read the table: only sums come back.
        """
        books = ledger if ledger is None or isinstance(ledger, LateLedger) else LateLedger.open(ledger)
        assert books is None or isinstance(books, LateLedger)
        self._refuse_impossible(cluster)
        if self.search is not None and self.found is None:
            whole = self._with_levels(books, dataset, begin, keep, cluster)
            return whole.run(ledger=books, dataset=dataset, save=save, cluster=cluster)
        estimator = self._estimator(books, dataset)
        rows: tuple[Any, ...] = (self.training,)
        if cluster is not None:
            rows = (ClusterTable(cluster, self.training),)
        elif not self.streamed:
            rows = self.training.arrays()
        self.table.refuse_changed()  # rows of a cluster ask again when they are loaded
        if begin is not None:
            begin()
        groups = None if self.persons is None else self.persons.groups("training")
        with nullcontext() if books is None else books.beside(self.score_event):
            estimator.fit(*rows, plan=self.plan, groups=groups)
        with uninterrupted():
            if hasattr(estimator, "inference_"):
                estimator.inference_ = estimator.inference_.renamed(self.schema.names)
            # Classes are given as positions: what that assumed about the file is known only here.
            stated = estimator.certificate_.assumptions + self.assumptions
            estimator.certificate_ = replace(estimator.certificate_, assumptions=stated)
            self._include_levels(estimator)
            done = TableFit(estimator, None, self._context(estimator, cluster), self)
            if save is not None:
                save(done)
            if not self.held_out:
                return _settled(done, books)
        score, why = self._score(estimator, cluster)
        with uninterrupted():
            done = TableFit(estimator, score, self._context(estimator, cluster, score, why), self)
            if save is not None:
                save(done)
            return _settled(done, books)

    def _with_levels(
        self, books: LateLedger | None, dataset: str | None, begin: Callable[[], None] | None,
        keep: Callable[[FoundLevels], None] | None, cluster: Any,
    ) -> TableJob:  # fmt: skip
        """Find the levels, keep them, tell the ledger; return the fit that is planned for them with what is left."""
        assert self.search is not None
        self.table.refuse_changed()
        if begin is not None:
            begin()
        release = Release(
            self.search.event, self.budget, NoiseSource.secure(), ledger=books, dataset=dataset, purpose="levels",
            assumptions=self.assumptions,
        )  # fmt: skip
        found = self.search.run(self.training if cluster is None else ClusterTable(cluster, self.training), release)
        with uninterrupted():
            if keep is not None:
                keep(found)
            entry = None if books is None else books.settle()
        if entry is not None:
            found = replace(found, certificate=replace(found.certificate, ledger_entry=entry))
        schema = self.reading.schema_of(self.table, self.target.name, found.levels)
        if not schema.names:
            raise GratisError("no level was common enough, and there is no other column to learn from")
        facts = replace(self.plan.facts, columns=len(schema.names))
        rest = remaining_budget(self.budget, self.search.event)
        choice = self.choice and choose_model(facts, rest)
        model = choice.model if choice else self.model
        return replace(
            self, schema=schema, found=found, choice=choice, model=model,
            plan=plan(model, **asdict(facts), budget=rest, **self.options),
        )  # fmt: skip

    def _include_levels(self, estimator: Any) -> None:
        """Let the certificate of a model state the release of its levels too, within the whole budget."""
        if self.found is None:
            return
        own, before = estimator.certificate_, self.found.certificate
        estimator.epsilon, estimator.delta = self.budget.epsilon, self.budget.delta
        whole = issue_certificate(
            event=Composition((before.event, own.event)), budget=self.budget, selection=Selection.INCLUDED,
            randomness=own.randomness, assumptions=before.assumptions + own.assumptions, plan=own.plan,
        )  # fmt: skip
        estimator.certificate_ = replace(whole, released=own.released)

    def _estimator(self, ledger: LateLedger | None, dataset: str | None) -> Any:
        choices: dict[str, Any] = {}
        if self.n_classes is not None:
            choices["classes"] = list(range(self.n_classes))
        return self.plan.estimator(on_invalid="impute", ledger=ledger, dataset=dataset, **choices)

    def _score(self, estimator: Any, cluster: Any) -> tuple[HeldOutScore | None, str | None]:
        """Release the score on held-out rows, or say why there is none. The model stands, and both are reserved."""
        held = self._rows("held-out")
        streamed = cluster is not None or self.streamed
        try:
            arrays = None if streamed else held.arrays()
        except GratisError as error:
            return None, str(error)
        if self.table.changed():
            return None, "the file changed while the model was trained"
        groups = None if self.persons is None else self.persons.groups("held-out")
        event = self.score_event
        assert event is not None
        release = Release(
            event, self.plan.budget, NoiseSource.secure(), persons=ids_name(groups),
            assumptions=(DISJOINT if groups is None else "disjoint-persons", *self.assumptions),
        )  # fmt: skip
        try:
            with release:
                if arrays is None:
                    estimates = evaluate_rows(estimator, _only_added(held, cluster), release)
                    if self.table.changed():
                        raise GratisError("the file changed while the held-out rows were read")
                else:
                    estimates = evaluate_privately(estimator, *arrays, release, groups=groups)
        except GratisError as error:
            if not streamed:
                raise
            return None, str(error)  # rows that can no longer be read
        return HeldOutScore(estimates, release.certificate), None

    def _expected(self, score: dict[str, Any]) -> dict[str, Any]:
        """The score of the fit: a mean over all rows, so that a row without a target counts as a wrong answer."""
        if self.missing_target == "refuse" or self.n_classes is None:
            return score
        return score | {"source": f"{score['source']}; a row without a target counts as a wrong answer"}

    def _context(
        self, estimator: Any, cluster: Any, score: HeldOutScore | None = None, why: str | None = None
    ) -> dict[str, Any]:
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
            "rows": self.n_records,
            "unit": self.unit,
            "columns": len(self.schema.names),
            "words": self.words(cluster=cluster is not None),
            "levels": None if self.found is None else self.found.to_json(),
            "readings": [reading.to_json() for reading in self.readings],
            "reasons": list(plan.reasons),
            "assumptions": list(self.assumptions),
            "expected_score": None if expected is None else self._expected(expected.to_json()),
            "held_out": self.held_out,
            "held_out_score": None if score is None else score.estimate.to_json(),
            "held_out_scores": None if score is None else [one.to_json() for one in score.estimates],
            "held_out_certificate": None if score is None else score.certificate.to_json(),
            "no_score": why,
            # Workers may read again what they keep: a lost worker's blocks.
            "changed": (self.streamed or cluster is not None) and self.table.changed(),
        }


def _only_added(rows: EncodedRows, cluster: Any) -> Any:
    """Rows for sums: on the workers of a cluster, or read from the file in constant memory."""
    if cluster is None:
        return Rows(rows.batches, rows.n_rows, rows.n_features)
    return ClusterTable(cluster, rows).rows(lambda X, y: (X, y), once=True)


def _settled(done: TableFit, ledger: LateLedger | None) -> TableFit:
    """Tell the ledger what was released and is saved; return it with certificates that say so."""
    entry = None if ledger is None else ledger.settle()
    if entry is None:
        return done
    if done.score is not None:
        score = replace(done.score, certificate=replace(done.score.certificate, ledger_entry=entry))
        context = done.context | {"held_out_certificate": score.certificate.to_json()}
        done = replace(done, score=score, context=context)
    if done.job.found is not None:
        first = done.job.found.certificate.ledger_entry
        entry = {"name": entry["name"], "id": entry["id"], "entries": [first, entry]}
    done.estimator.certificate_ = replace(done.estimator.certificate_, ledger_entry=entry)
    return done
