"""Neighbours that a careless program stumbles over: one record of a table, exchanged for the worst that fits there.

`HostilePersons`: neighbours that differ in a whole person, all rows exchanged for as many others as one likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TABLES", "HostilePersons", "HostileTables", "Table"]

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

    def without(self, table: Table, rng: Rng) -> Table:
        """Return the same table with a record that contributes nothing: one without a target (needs `invalid`).

        Half of them have features, to which a step that does not look at the target would still listen.
        """
        chosen = self._maker(rng) if rng.random() < 0.5 else "all missing"
        record, target = self._record(chosen, table, rng), None if self._objects else np.nan
        return _with(table, f"{table.name.split(';')[0]}; null record ({chosen})", record, target)

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
        chosen = self._maker(rng)
        record, target = self._record(chosen, table, rng), self._target(table, rng)
        return _with(table, f"{table.name.split(';')[0]}; {chosen}, target {target!r}", record, target)

    def _maker(self, rng: Rng) -> str:
        names = [*FINITE_RECORDS, *(INVALID_RECORDS if self.invalid else ())]
        return names[int(rng.integers(len(names)))]

    def _record(self, maker: str, table: Table, rng: Rng) -> Array:
        with np.errstate(all="ignore"):
            record = (FINITE_RECORDS | INVALID_RECORDS)[maker](table.X, table.row, rng)
        return record if self.invalid else np.where(np.isfinite(record), record, 0.0)

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


_HOSTILE = "the one"
_SIZES = (1, 1, 2, 3, 7, 60)


@dataclass(frozen=True, slots=True)
class HostilePersons:
    """Tables of `persons.n` persons with one to four rows each, but for a hostile one with up to sixty.

    The hostile person's rows are the records of `persons`, all alike or each drawn by itself, and stand anywhere among
    those of others, whose rows keep their order. Where records may be invalid, some rows belong to nobody.

    >>> tables = HostilePersons(HostileTables(n=20, d=2))
    >>> table = tables.draw(np.random.default_rng(0))
    >>> near = tables.neighbour(table, np.random.default_rng(1))
    >>> len(set(table.groups)), len(set(near.groups))
    (20, 20)
    """

    persons: HostileTables

    @property
    def invalid(self) -> bool:
        """Whether records may be invalid."""
        return self.persons.invalid

    def draw(self, rng: Rng) -> Table:
        """Return a table with a hostile person."""
        table = self.persons.draw(rng)
        sizes = rng.integers(1, 5, self.persons.n)
        sizes[table.row] = 1
        rows = rng.permutation(np.repeat(np.arange(self.persons.n), sizes))
        X = table.X[rows]
        moved = rng.standard_normal(X.shape) * (rng.random() < 0.5)  # else a person's rows are all the same
        with np.errstate(all="ignore"):
            X = np.where((rows != table.row)[:, None] & np.isfinite(X + moved), X + moved, X)
        ids: list[Any] = [_HOSTILE if row == table.row else int(row) for row in rows]
        if self.invalid and rng.random() < 0.5:
            nobody = np.array([None, np.nan, ""], dtype=object)
            X, y = np.vstack([X, X[:3]]), np.concatenate([table.y[rows], table.y[rows][:3]])
            return self.neighbour(_table(table, X, y, [*ids, *nobody]), rng)
        return self.neighbour(_table(table, X, table.y[rows], ids), rng)

    def neighbour(self, table: Table, rng: Rng) -> Table:
        """Return the same table with other rows of the hostile person, as many as it may be, anywhere."""
        others, single = self._others(table)
        size = int(rng.choice(_SIZES))
        first = self.persons.neighbour(single, rng)
        alike = rng.random() < 0.5
        records = [first, *(first if alike else self.persons.neighbour(single, rng) for _ in range(size - 1))]
        name = f"{first.name}, {size} rows{' alike' if alike and size > 1 else ''}"
        return self._with(others, records, name, rng)

    def without(self, table: Table, rng: Rng) -> Table:
        """Return the same table with a hostile person who contributes nothing."""
        others, single = self._others(table)
        nothing = self.persons.without(single, rng)
        return self._with(others, [nothing], nothing.name, None)

    def _others(self, table: Table) -> tuple[Table, Table]:
        """The rows of the others; and those with one row of the hostile person, whose record can be exchanged."""
        assert table.groups is not None
        theirs = np.array([name != _HOSTILE if isinstance(name, str) else True for name in table.groups])
        own = int(np.flatnonzero(~theirs)[0])
        kept = np.flatnonzero(theirs)
        single = np.append(kept, own)
        name = table.name.split(";")[0]
        # Makers look at other rows, and at as many targets as there are persons.
        alone = Table(name, table.X[single], table.y[single], len(kept))
        return Table(name, table.X[kept], table.y[kept], 0, table.groups[kept]), alone

    def _with(self, others: Table, records: Sequence[Table], name: str, rng: Rng | None) -> Table:
        assert others.groups is not None
        X = np.vstack([others.X, *(one.X[one.row][None] for one in records)])
        y = np.concatenate([others.y, *(one.y[one.row : one.row + 1] for one in records)])
        groups = _ids([*others.groups, *[_HOSTILE] * len(records)])
        count = len(others.y)
        places = np.arange(len(y), dtype=np.float64)
        if rng is not None:
            places[count:] = rng.uniform(-1, count, len(records))
        order = np.argsort(places, kind="stable")
        return Table(name, X[order], y[order], 0, groups[order])


def _ids(names: Sequence[Any]) -> Array:
    found = np.empty(len(names), dtype=object)
    found[:] = names
    return found


def _table(table: Table, X: Array, y: Array, ids: Sequence[Any]) -> Table:
    return replace(table, X=X, y=y, groups=_ids(ids))
