"""Estimators of raw tables: a data frame in, encoding and private model in one object; `gratis fit` from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gratis.estimators.leaks import Watched, note_training, one_of_several, warn_about_fit
from gratis.estimators.model_file import load_model, save_model
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Prediction

if TYPE_CHECKING:
    from gratis.estimators.table_fit import TableJob

__all__ = ["DPTableClassifier", "DPTableRegressor"]

_ROWS_AT_ONCE = 2**16
_MEMORY = 4e9  # bytes; a larger fit of a file reads it again for every release, as `gratis fit` does


class _NamedTarget(Watched):
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² or accuracy on rows; y may be the name of a column. Computed without noise: not for private rows."""
        targets = y if (name := _name_in(X, y)) is None else _column(X, name)
        return super().score(X, targets, sample_weight)


@dataclass(eq=False, repr=False)
class _TableModel(BaseEstimator):
    """What both tasks share."""

    epsilon: float | None = None
    delta: float | None = None
    _: KW_ONLY
    neighbouring: str = "replace-one"
    model: str = "auto"
    levels: Mapping[str, Sequence[str]] | None = None
    private_levels: Sequence[str] | None = None
    hash_buckets: int | None = None
    ignore: Sequence[str] | None = None
    numeric: Sequence[str] | None = None
    schema: Any = None
    missing_target: str = "refuse"
    held_out: float = 0.0
    unit: str | None = None
    options: Mapping[str, Any] | None = None
    ledger: Any = None
    dataset: str | None = None

    def plan(self, X: Any, y: Any) -> TableJob:
        """Return the fit as it is planned: words, how columns are read, plan. Nothing is spent."""
        return self._job(X, y)

    def fit(self, X: Any, y: Any) -> Self:
        """Plan, reserve, train, certify.

        X is a data frame of pandas, polars or Arrow, raw, and y the name of one of its columns, or the targets; or X is
        a file, as a path or opened by `gratis.open_table`, and y the name of a column.
        """
        warn_about_fit(self)
        job = self._job(X, y)
        job.check()
        if (self.ledger is None) != (self.dataset is None):
            raise GratisError("give both ledger (a file) and dataset (the name of its budget), or neither")
        done = job.run(ledger=_ledger(self.ledger), dataset=self.dataset)
        if one_of_several(self):
            done.estimator.certificate_ = replace(done.estimator.certificate_, selection=Selection.NOT_COVERED)
        self._take(done.estimator, done.context)
        note_training(self, X)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict rows of a raw data frame, which has the columns of the training table but the target."""
        return np.concatenate([self._answers(rows) for rows in self._matrices(X)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file, which `load` and `gratis predict` read."""
        check_is_fitted(self, "estimator_")
        save_model(path, self.estimator_, self._context)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model file of `save` or of `gratis fit`."""
        saved = load_model(path)
        if saved.table() is None:
            raise GratisError("this model was not made from a table: read it with gratis.load_model")
        if saved.context["table"]["task"] != cls._task():  # type: ignore[index, call-overload]
            raise GratisError(f"this model is no {cls._task()}: load it with the other table estimator")
        budget = saved.estimator.certificate_.budget
        made = cls(budget.epsilon, budget.delta, neighbouring=str(budget.neighbouring))
        made._take(saved.estimator, saved.context)
        return made

    @classmethod
    def _task(cls) -> str:
        raise NotImplementedError

    def _classes(self) -> list[str] | None:
        return None

    def _job(self, X: Any, y: Any) -> TableJob:
        from gratis.estimators.table_fit import plan_table_fit  # brings pyarrow
        from gratis.estimators.table_reading import TableReading
        from gratis.rows.frames import FrameTable

        if self.epsilon is None or self.delta is None:
            raise GratisError("give epsilon and delta: nothing is spent by accident")
        columns = TableReading(schema=self.schema).columns(y) if isinstance(y, str) else None
        table, target = _opened(X, y, columns)
        budget = Budget(epsilon=self.epsilon, delta=self.delta, neighbouring=Neighbouring.parse(self.neighbouring))
        return plan_table_fit(
            table, target, budget, model=self.model, task=self._task(), classes=self._classes(),
            schema=self.schema, levels=self.levels or {}, private_levels=tuple(self.private_levels or ()),
            hash_buckets=self.hash_buckets, ignore=tuple(self.ignore or ()), numeric=tuple(self.numeric or ()),
            missing_target=self.missing_target, held_out=self.held_out, unit=self.unit,
            options=dict(self.options or {}),
            memory_bytes=float("inf") if isinstance(table, FrameTable) else _MEMORY,
        )  # fmt: skip

    def _take(self, estimator: Any, context: Any) -> None:
        from gratis.rows.encoding import TableSchema

        self.estimator_, self.certificate_, self._context = estimator, estimator.certificate_, dict(context)
        self.schema_ = TableSchema.from_json(context["table"]["schema"])
        self.target_ = context["table"]["target"]["name"]
        self.readings_ = context.get("readings", [])
        self.plan_ = getattr(estimator, "plan_", None)
        expected = context.get("expected_score")
        self.expected_score_ = None if expected is None else Prediction.from_json(expected)
        self.held_out_scores_ = context.get("held_out_scores")

    def _matrices(self, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        names = [column.name for column in self.schema_.used]
        table = _table(X, names)
        schema = self.schema_.written_as(table)
        schema.check_types(table)
        yield from (schema.matrix(batch) for batch in table.batches(names, _ROWS_AT_ONCE))

    def _answers(self, rows: NDArray[np.float64]) -> NDArray[Any]:
        return np.asarray(self.estimator_.predict(rows))


@dataclass(eq=False, repr=False)
class DPTableRegressor(_NamedTarget, RegressorMixin, _TableModel):
    """Regression of a raw table under (ε, δ)-differential privacy: reading, encoding and model in one object.

    **Guarantee**: that of the model that it trains; `certificate_` holds it, the search for levels included. How
    columns are read is public: types, the declarations below, and levels that were found within the budget.

    Parameters
    ----------
    epsilon, delta : float, default None and None
        The budget, under `neighbouring`; both must be given, so that nothing is spent by accident.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        Which data sets must be hard to tell apart.
    model : str, default "auto"
        "auto" chooses by public sizes; or "linear", "additive", "random-features".
    levels : mapping of column to list of str, default None
        Public levels of columns of text.
    private_levels : list of str, default None
        Columns of text whose common levels are found within the budget.
    hash_buckets : int, default None
        Buckets into which every other column of text is hashed.
    ignore : list of str, default None
        Columns that are left out.
    numeric : list of str, default None
        Columns that are read as numbers; cells that are none are missing.
    schema : TableSchema or path, default None
        How columns are read, in full (docs/howto/categories.md).
    missing_target : "refuse" or "leave-out", default "refuse"
        Rows without a target are refused, which tells that there are some; or contribute nothing, and are counted.
    held_out : float, default 0.0
        Share of the rows, by their positions, that is kept for scores. They cost nothing more: rows are disjoint.
    unit : str, default None
        The column that says whose row it is: then all rows of a person together are the unit of privacy.
    options : mapping, default None
        Further parameters of the estimator that is trained.
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it, where the run is reserved before rows are touched.

    Attributes
    ----------
    estimator_, certificate_, schema_, readings_ : the private model, what was proved, how columns are read.
    expected_score_ : R² on fresh rows with a range, of models that release it; None of others.
    held_out_scores_ : scores on the rows that were held out, each with its range; None without.

    >>> import pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> area, town = rng.normal(80, 20, 4000), rng.choice(["Rome", "Oslo"], 4000)
    >>> frame = pa.table({"area": area, "town": town, "price": 3 * area + 50 * (town == "Oslo")})
    >>> model = DPTableRegressor(2.0, 1e-5, private_levels=["town"], model="linear").fit(frame, "price")
    >>> sorted(model.schema_.names), bool(model.score(frame, "price") > 0.8)
    (['area', 'town=Oslo', 'town=Rome'], True)
    """

    @classmethod
    def _task(cls) -> str:
        return "regression"


@dataclass(eq=False, repr=False)
class DPTableClassifier(_NamedTarget, ClassifierMixin, _TableModel):
    """Classification of a raw table under (ε, δ)-differential privacy: reading, encoding and model in one object.

    **Guarantee**: that of the model that it trains; `certificate_` holds it, the search for levels included. Which
    classes occur is taken to be public unless `classes` lists them.

    Parameters
    ----------
    epsilon, delta : float, default None and None
        The budget, under `neighbouring`; both must be given, so that nothing is spent by accident.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        Which data sets must be hard to tell apart.
    model : str, default "auto"
        "auto" chooses by public sizes; or "logistic", "additive", "random-features", "mlp".
    levels : mapping of column to list of str, default None
        Public levels of columns of text.
    private_levels : list of str, default None
        Columns of text whose common levels are found within the budget.
    hash_buckets : int, default None
        Buckets into which every other column of text is hashed.
    ignore : list of str, default None
        Columns that are left out.
    numeric : list of str, default None
        Columns that are read as numbers; cells that are none are missing.
    schema : TableSchema or path, default None
        How columns are read, in full (docs/howto/categories.md).
    missing_target : "refuse" or "leave-out", default "refuse"
        Rows without a target are refused, which tells that there are some; or contribute nothing, and are counted.
    held_out : float, default 0.0
        Share of the rows, by their positions, that is kept for scores. They cost nothing more: rows are disjoint.
    unit : str, default None
        The column that says whose row it is: then all rows of a person together are the unit of privacy.
    options : mapping, default None
        Further parameters of the estimator that is trained.
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it, where the run is reserved before rows are touched.
    classes : list, default None
        Public list of classes; other targets count as missing.

    Attributes
    ----------
    classes_ : the classes, as they stand in the table.
    estimator_, certificate_, schema_, readings_ : the private model, what was proved, how columns are read.
    expected_score_ : accuracy on fresh rows with a range, of models that release it; None of others.
    held_out_scores_ : scores on the rows that were held out, each with its range; None without.
    """

    classes: Sequence[Any] | None = None

    @classmethod
    def _task(cls) -> str:
        return "classification"

    def _classes(self) -> list[str] | None:
        return (
            None
            if self.classes is None
            else [str(one).lower() if isinstance(one, bool) else str(one) for one in self.classes]
        )

    def _take(self, estimator: Any, context: Any) -> None:
        super()._take(estimator, context)
        self.classes_ = _as_numbers(context["table"]["target"]["levels"])

    def _answers(self, rows: NDArray[np.float64]) -> NDArray[Any]:
        return np.asarray(self.classes_[self.estimator_.predict(rows).astype(int)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of `classes_` for rows of a raw data frame."""
        return np.concatenate([self.estimator_.predict_proba(rows) for rows in self._matrices(X)])


def _as_numbers(levels: list[str]) -> NDArray[Any]:
    """Classes as they stood in the table: whole numbers and truth values were written as text."""
    if set(levels) <= {"true", "false"}:
        return np.array([level == "true" for level in levels])
    try:
        return np.array([int(level) for level in levels])
    except ValueError:
        return np.array(levels)


def _table(X: Any, columns: Sequence[str] | None = None) -> Any:
    """A table of a data frame, or of a file: a path, or opened already."""
    from gratis.rows.frames import FrameTable
    from gratis.rows.tables import Table, open_table

    if not isinstance(X, str | os.PathLike | Table):
        return FrameTable(X)
    table = X if isinstance(X, Table) else open_table(X, columns=columns)
    table.for_python = True
    return table


def _opened(X: Any, y: Any, columns: Sequence[str] | None) -> tuple[Any, str]:
    """A table that holds the target, and the target's name."""
    from gratis.rows.frames import FrameTable
    from gratis.rows.tables import Table

    if not isinstance(X, str | os.PathLike | Table):
        frame, name = _with_target(X, y)
        return FrameTable(frame), name
    if not isinstance(y, str):
        raise GratisError("the target of a file is given as the name of a column")
    return _table(X, columns), y


def _with_target(X: Any, y: Any) -> tuple[Any, str]:
    """A table with its target, and the target's name."""
    import pyarrow as pa

    from gratis.rows.frames import arrow_table, by_first_cells

    table = arrow_table(X)
    if (told := _name_in(X, y)) is not None:
        if told not in table.column_names:
            raise GratisError(f"there is no column {told!r} in the data frame")
        return table, told
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) and name not in table.column_names else "target"
    if name in table.column_names:
        raise GratisError("give y as the name of a column, or targets under a name that no column has")
    try:
        entries = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
        values = pa.chunked_array([by_first_cells(entries.tolist()) if entries.dtype == object else pa.array(entries)])
    except (pa.ArrowException, ValueError, TypeError):
        values = None
    if values is None or len(values) != table.num_rows:
        raise GratisError("y must be the name of a column, or have one value of one type for each row")
    return table.append_column(name, values), name


def _name_in(X: Any, y: Any) -> str | None:
    """The name of a column, as text: that of a pandas frame may be a number. None where y are the targets."""
    if isinstance(y, str):
        return y
    numbered = isinstance(y, int | np.integer) and any(y == name for name in getattr(X, "columns", ()))
    return str(y) if numbered else None


def _column(X: Any, name: str) -> NDArray[Any]:
    from gratis.rows.frames import arrow_table

    return np.asarray(arrow_table(X).column(name).to_numpy())


def _ledger(ledger: Any) -> Any:
    from gratis.estimators.release import LateLedger

    if ledger is None or isinstance(ledger, LateLedger):
        return ledger
    return LateLedger.open(getattr(ledger, "path", ledger))
