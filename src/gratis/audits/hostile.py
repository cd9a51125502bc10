"""Neighbours that a careless program stumbles over: one record of a table, exchanged for the worst that fits there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TABLES", "HostileTables", "Table", "null_record"]

Array = NDArray[Any]
Rng = np.random.Generator
_HUGE, _TINY = 1.7e308, 5e-324


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and targets with a hostile record at `row`; `name` says what all of it is. `groups`: whose rows they are."""

    name: str
    X: Array
    y: Array
    row: int
    groups: Array | None = None


# Feature records: (rows, position, rng) → one row.
_Maker = Callable[[Array, int, Rng], Array]


def _other(X: Array, row: int, rng: Rng) -> Array:
    return np.array(X[(row + 1 + int(rng.integers(len(X) - 1))) % len(X)])


def _cell(value: float) -> _Maker:
    def make(X: Array, row: int, rng: Rng) -> Array:
        record = np.array(X[row])
        record[rng.integers(record.size)] = value
        return record

    return make


def _filled(value: float) -> _Maker:
    return lambda X, row, rng: np.full(X.shape[1], value)


def _signs(size: float) -> _Maker:
    return lambda X, row, rng: size * rng.choice([-1.0, 1.0], X.shape[1])


def _tie(X: Array, row: int, rng: Rng) -> Array:
    record, column = np.array(X[row]), int(rng.integers(X.shape[1]))
    record[column] = _other(X, row, rng)[column]
    return record


def _beyond(sign: float) -> _Maker:
    """Past the largest or smallest of every column: moves every other record's rank by one."""

    def make(X: Array, row: int, rng: Rng) -> Array:
        finite = np.where(np.isfinite(X), X, 0.0)
        edge = finite.max(axis=0) if sign > 0 else finite.min(axis=0)
        return np.asarray(np.nextafter(edge, sign * np.inf))

    return make


def _near(gap: float) -> _Maker:
    return lambda X, row, rng: _other(X, row, rng) + gap


FINITE_RECORDS: dict[str, _Maker] = {
    "own": lambda X, row, rng: np.array(X[row]),
    "zeros": _filled(0.0),
    "negative zeros": _filled(-0.0),
    "ones": _filled(1.0),
    "denormals": _signs(_TINY),
    "1e-42": _signs(1e-42),
    "1e-160": _signs(1e-160),
    "1e39": _signs(1e39),
    "1e154": _signs(1e154),
    "1e308": _signs(_HUGE),
    "one cell 1e308": _cell(_HUGE),
    "one cell -1e308": _cell(-_HUGE),
    "outlier": _filled(1e6),
    "opposite outlier": _filled(-1e6),
    "moderate": _filled(3.0),
    "opposite moderate": _filled(-3.0),
    "random signs": _signs(10.0),
    "duplicate": _other,
    "near duplicate": _near(1e-9),
    "one ulp from a duplicate": lambda X, row, rng: np.nextafter(_other(X, row, rng), np.inf),
    "opposite of a row": lambda X, row, rng: -_other(X, row, rng),
    "tie in one column": _tie,
    "first in every order": _beyond(-1.0),
    "last in every order": _beyond(1.0),
}
INVALID_RECORDS: dict[str, _Maker] = {
    "all missing": _filled(np.nan),
    "one cell missing": _cell(np.nan),
    "one cell inf": _cell(np.inf),
    "one cell -inf": _cell(-np.inf),
    "all inf": _filled(np.inf),
    "all -inf": _filled(-np.inf),
    "missing and inf": lambda X, row, rng: rng.choice([np.nan, np.inf, -np.inf], X.shape[1]),
}
FINITE_TARGETS = (0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 1e6, -1e6, 1e99, 1e101, -1e101, 1e154, _HUGE, -_HUGE, _TINY, 1e-160)
INVALID_TARGETS = (np.nan, np.inf, -np.inf)
NUMBERS_OUTSIDE = (np.nan, 0.5, np.inf, -np.inf, -1.0, 99.0, _HUGE, _TINY, 2.0**53)
OBJECTS_OUTSIDE = (None, b"a", "elsewhere", "", 2**80, 0.5, float("nan"), True, ("a",))


def _duplicated(X: Array) -> Array:
    return np.repeat(X[: -(-len(X) // 3)], 3, axis=0)[: len(X)]


def _with_extremes(X: Array) -> Array:
    X = np.array(X)
    X[1], X[-2] = 1e300, 0.0
    return X


TABLES: dict[str, Callable[[Array], Array]] = {
    "normal": lambda X: X,
    "zeros": lambda X: np.zeros_like(X),
    "duplicates": _duplicated,
    "sorted": lambda X: np.sort(X, axis=0),
    "ties": lambda X: np.round(X),
    "one constant column": lambda X: np.column_stack([np.ones(len(X)), X[:, 1:]]),
    "scales apart": lambda X: X * 10.0 ** np.arange(-3, 3 * X.shape[1] - 3, 3)[: X.shape[1]] + 7.0,
    "extreme others": _with_extremes,
}


def null_record(n_columns: int, *, objects: bool = False) -> tuple[Array, Any]:
    """The record that contributes nothing where invalid records may: all features and the target missing."""
    return np.full(n_columns, np.nan), None if objects else np.nan


@dataclass(frozen=True, slots=True)
class HostileTables:
    """Tables of one shape with a hostile record, and their hostile neighbours.

    Parameters
    ----------
    n, d : int
        Rows and columns.
    classes : sequence, optional
        The public classes, as the labels are written (numbers or texts); none for regression.
    invalid : bool
        Whether records may be invalid (on_invalid "zero" or "impute"); otherwise every record is finite and its label
        among the classes, since an invalid one is refused before anything is spent.
    outside : bool
        Whether labels outside the classes may occur; as `invalid` if left out.

    >>> tables = HostileTables(n=20, d=2)
    >>> table = tables.draw(np.random.default_rng(0))
    >>> near = tables.neighbour(table, np.random.default_rng(1))
    >>> bool(np.delete(table.X == near.X, table.row, axis=0).all())
    True
    """

    n: int
    d: int
    classes: Sequence[Any] | None = None
    invalid: bool = False
    outside: bool | None = None

    @property
    def _objects(self) -> bool:
        return self.classes is not None and any(isinstance(label, str) for label in self.classes)

    @property
    def _outside(self) -> bool:
        return self.invalid if self.outside is None else self.outside

    def draw(self, rng: Rng) -> Table:
        """Return a table whose record at a random position (often the first, middle or last) is hostile."""
        kind = list(TABLES)[int(rng.integers(len(TABLES)))]
        plain = rng.standard_normal((self.n, self.d))
        X = TABLES[kind](plain)
        y = self._targets(plain, rng)
        row = int(rng.choice([0, self.n // 2, self.n - 1, int(rng.integers(self.n))]))
        return self._exchanged(Table(f"{kind} rows", X, y, row), rng)

    def neighbour(self, table: Table, rng: Rng) -> Table:
        """Return the same table with another hostile record in the same row."""
        return self._exchanged(table, rng)

    def without(self, table: Table) -> Table:
        """Return the same table with a record that contributes nothing (needs `invalid`)."""
        record, target = null_record(self.d, objects=self._objects)
        return _with(table, f"{table.name.split(';')[0]}; null record", record, target)

    def _targets(self, rows: Array, rng: Rng) -> Array:
        scores = rows[:, 0] + 0.5 * rng.standard_normal(len(rows))
        if self.classes is None:
            return np.asarray(scores * rng.choice([0.0, 1.0, 1000.0]))
        ranks = np.argsort(np.argsort(scores)) * len(self.classes) // len(scores)
        # Every class occurs several times on both sides: which classes occur must not depend on one record.
        labels = [self.classes[rank] for rank in ranks]
        if self._outside and rng.random() < 0.1:
            # Half of the labels are unlike all others: one more would make scikit-learn warn.
            unlike = range(1000, 1000 + self.n // 2 - len(self.classes))
            labels[: len(unlike)] = [str(label) if self._objects else label for label in unlike]
        return np.array(labels, dtype=object) if self._objects else np.array(labels, dtype=np.float64)

    def _exchanged(self, table: Table, rng: Rng) -> Table:
        makers = FINITE_RECORDS | (INVALID_RECORDS if self.invalid else {})
        chosen = list(makers)[int(rng.integers(len(makers)))]
        with np.errstate(all="ignore"):
            record = makers[chosen](table.X, table.row, rng)
            if not self.invalid:
                record = np.where(np.isfinite(record), record, 0.0)
        target = self._target(table, rng)
        return _with(table, f"{table.name.split(';')[0]}; {chosen}, target {target!r}", record, target)

    def _target(self, table: Table, rng: Rng) -> Any:
        options: list[Any]
        if self.classes is None:
            options = [
                table.y[(table.row + 1) % len(table.y)],
                *FINITE_TARGETS,
                *(INVALID_TARGETS if self.invalid else ()),
            ]
        else:
            strange = OBJECTS_OUTSIDE if self._objects else NUMBERS_OUTSIDE
            options = [*self.classes, *(strange if self._outside and rng.random() < 0.5 else ())]
        return options[int(rng.integers(len(options)))]


def _with(table: Table, name: str, record: Array, target: Any) -> Table:
    X, y = np.array(table.X), np.array(table.y)
    X[table.row] = record
    if y.dtype == object:
        y[table.row : table.row + 1] = np.array([target, None], dtype=object)[:1]
    else:
        y[table.row] = target
    return Table(name, X, y, table.row)
