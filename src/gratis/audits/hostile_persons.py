"""Neighbours that differ in a whole person: all rows of one, exchanged for as many others as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.audits.hostile import HostileTables, Rng, Table

__all__ = ["HostilePersons"]

Array = NDArray[Any]
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

    def without(self, table: Table) -> Table:
        """Return the same table with a hostile person who contributes nothing."""
        others, single = self._others(table)
        return self._with(others, [self.persons.without(single)], self.persons.without(single).name, None)

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
