"""From the columns of a table to a matrix, by rules that are public: a schema, and never the private rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gratis.numerics.chunks import whole_chunks
from gratis.records.errors import ChangedTableError, GratisError
from gratis.records.progress import counted
from gratis.records.strict_json import read_json
from gratis.rows.amounts import numbers_into, spread, unreadable
from gratis.rows.columns import Column, Kind, as_text, can_be_target, in_words, is_number, is_text
from gratis.rows.first_cells import first_looks
from gratis.rows.readings import ColumnReading, left_out_by_name, read_columns, repeated_ids
from gratis.rows.tables import Table
from gratis.rows.undecided import Problems, advised, refuse_undecided

__all__ = [
    "Column",
    "EncodedRows",
    "Kind",
    "TableSchema",
    "can_be_target",
    "distinct_values",
    "held_out_rows",
    "refuse_without_numbers",
    "written_as",
]

Array = NDArray[np.float64]
_POSITIONS_AT_ONCE = 2**20  # rows of which it is said together whether they are chosen
_NUMBERS_AT_ONCE = 2**19
_WIDE_ROWS, _WIDE_NUMBERS = 256, 2**23


@dataclass(frozen=True, slots=True)
class TableSchema:
    """How every column is read, in the order of the matrix. All of it is public.

    >>> schema = TableSchema.from_json({"columns": {"age": "numeric", "sex": {"kind": "categorical",
    ...                                                                      "levels": ["f", "m"]}}})
    >>> schema.names
    ('age', 'sex=f', 'sex=m')
    """

    columns: tuple[Column, ...]
    released: bool = False  # by an earlier search for levels, which was paid for by itself

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that are not ignored."""
        return tuple(column for column in self.columns if column.kind is not Kind.IGNORED)

    def matrix(self, batch: Any) -> Array:
        """Encode a record batch that has all used columns."""
        cells, place = _cells(batch), 0
        X = np.empty((batch.num_rows, len(self.names)))
        numeric: dict[int, Column] = {}
        for column in self.used:
            if column.kind is Kind.NUMERIC:
                numeric[place] = column
                place += 1
            else:
                found = column.encode(cells[column.name])
                X[:, place : place + found.shape[1]] = found
                place += found.shape[1]
        numbers_into(X, {place: (cells[column.name], column.decimal) for place, column in numeric.items()})
        for place, column in numeric.items():
            if column.missing is not None:
                X[:, place] = column.filled(X[:, place])
        return X

    def with_references(self) -> TableSchema:
        """The same with the first level of every category left out, where no other reference is declared.

        With all levels, columns of a category add up to one, and no coefficient of theirs is determined.
        """
        return TableSchema(
            tuple(
                replace(column, reference=(column.levels or ("",))[0])
                if column.kind is Kind.CATEGORICAL and column.reference is None and len(column.levels or ()) > 1
                else column
                for column in self.columns
            )
        )

    def column(self, name: str) -> Column | None:
        """Look a column up."""
        return next((column for column in self.columns if column.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"columns": {column.name: column.to_json() for column in self.columns}}

    @classmethod
    def from_json(cls, data: Any) -> TableSchema:
        """Read {"columns": {name: kind or object}}, beside which counts and certificate of found levels may stand."""
        beside = {"columns", "counts", "certificate"}
        if not isinstance(data, Mapping) or not isinstance(data.get("columns"), Mapping) or not set(data) <= beside:
            raise GratisError('a schema is a JSON object {"columns": {name: kind or object, …}}')
        columns = tuple(Column.from_json(name, value) for name, value in data["columns"].items())
        return cls(columns, released="certificate" in data)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TableSchema:
        """Read a schema file."""
        return cls.from_json(read_json(path, "the schema file"))

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        target: str | None = None,
        declared: TableSchema | None = None,
        ignored: Sequence[str] = (),
        buckets: int | None = None,
    ) -> TableSchema:
        """Read all columns but the target as declared, else as the file's own types say; text needs more than that."""
        for name in (*ignored, *(c.name for c in (declared.columns if declared else ()))):
            if name not in table.types:
                raise GratisError(f"there is no column {name!r} in {table.path.name!r}")
        known = {column.name: column for column in (declared.columns if declared else ())}
        known |= {name: Column(name=name, kind=Kind.IGNORED) for name in ignored}
        left_out = {name: Column(name=name, kind=Kind.IGNORED) for name in left_out_by_name(table)}
        columns = {
            name: known.get(name) or left_out.get(name) or Column.of_type(name, kind)
            for name, kind in table.types.items()
            if name != target
        }
        looks = first_looks(table, [name for name, column in columns.items() if column is None])
        columns |= {column.name: column for column in looks.columns}
        if buckets is not None:
            hashed = [name for name, column in columns.items() if column is None and is_text(table.types[name])]
            columns |= {name: Column(name=name, kind=Kind.CATEGORICAL, buckets=buckets) for name in hashed}
        undecided = {name: table.types[name] for name, column in columns.items() if column is None}
        others = [name for name, column in columns.items() if column is not None and column.kind is not Kind.IGNORED]
        if undecided:
            repeated = repeated_ids(table, [*undecided, *others])
            refuse_undecided(undecided, others, looks, repeated, python=table.for_python)
        schema = cls(tuple(column for column in columns.values() if column is not None)).written_as(table)
        for column in schema.used:
            refuse_without_numbers(column, table)
        return schema

    def written_as(self, table: Table) -> TableSchema:
        """The same for numbers in text as this table writes them, where the schema does not say or others were told."""
        return TableSchema(tuple(written_as(column, table) for column in self.columns), self.released)

    def readings(
        self, table: Table, target: Column | None = None, unit: str | None = None
    ) -> tuple[ColumnReading, ...]:
        """What every column of a table became, in its order, with warnings from names, types and first cells."""
        return read_columns(table, {column.name: column for column in self.columns}, target, unit)

    def check_types(self, table: Table) -> None:
        """Refuse a column that is declared numeric where the file's own type says otherwise."""
        for column in self.used:
            kind = table.types.get(column.name)
            if kind is None:
                raise GratisError(f"there is no column {column.name!r} in {table.path.name!r}")
            # A CSV file states no types: `validate` looks at its cells.
            if column.kind is not Kind.NUMERIC or not table.states_types:
                continue
            number = is_number(kind) or pa.types.is_null(kind) or (column.lenient and pa.types.is_boolean(kind))
            if not number and not (is_text(kind) and (column.lenient or column.name in table.writing.numbers)):
                raise GratisError(f"column {column.name!r} should hold numbers, but holds {in_words(kind)}")


def written_as(column: Column, table: Table) -> Column:
    """The column with the decimal sign that this table has in it, where it is one of numbers in text."""
    if column.kind is not Kind.NUMERIC or not (table.is_text or is_text(table.types.get(column.name, pa.null()))):
        return column
    if table.decimal is not None:
        return replace(column, decimal=table.decimal)
    return replace(column, decimal=",") if not column.decimal and column.name in table.writing.commas else column


def refuse_without_numbers(column: Column, table: Table) -> None:
    """Refuse a column that was said to hold numbers, if its first cells are none."""
    if not column.lenient or not is_text(table.types.get(column.name, pa.null())):
        return
    first = table.first_cells([column.name]).get(column.name, ())
    if len(first) and spread(first, column.decimal) is None:
        raise GratisError(
            f"no cell of {column.name!r}, as far as its first ones show, can be read as a number: see how it writes "
            f"them, or leave it out ({advised({'ignore': (column.name,)}, python=table.for_python)})"
        )


class EncodedRows:
    """The encoded rows of a table as a stream: X by the schema, and the target as numbers or class positions.

    `part` chooses rows by their position alone: "all", "training" or "held-out" of `held_out_rows`. `chosen` says of
    every row of the table whether it is taken, in the place of that.
    """

    def __init__(
        self,
        table: Table,
        schema: TableSchema,
        target: Column,
        n_rows: int,
        *,
        held_out: float = 0.0,
        part: str = "all",
        chosen: NDArray[np.bool_] | None = None,
    ) -> None:
        self._mask = chosen
        self.table, self._schema, self._target = table, schema, written_as(target, table)
        self._total, self._held_out, self._part = n_rows, held_out, part
        self._span: tuple[int, int] | None = None  # of positions in the table; None: all
        self.n_features = len(schema.names)
        self.n_rows = self._count(0, n_rows)
        # Every column of a batch costs some microseconds whatever its length: wide tables take larger batches.
        wide = min(_WIDE_ROWS, _WIDE_NUMBERS // max(self.n_features, 1))
        self._batch_rows = whole_chunks(max(1, wide, min(2**16, _NUMBERS_AT_ONCE // max(self.n_features, 1))))

    @property
    def text_file(self) -> Path | None:
        """The file, if it is text that every reading parses anew."""
        return self.table.path if self.table.is_text else None

    def batches(self) -> Iterator[tuple[Array, Array]]:
        """Yield (X, y) in stored order."""
        for batch in self._read():
            yield self._encoded(batch)

    def targets(self) -> Iterator[tuple[Array]]:
        """Yield (y,) in stored order; no other column is read."""
        for batch in self._read((self._target.name,)):
            yield self._encoded(batch, alone=True)[1:]

    def _encoded(self, batch: Any, *, alone: bool = False) -> tuple[Array, Array]:
        y = self._targets(batch.column(self._target.name))
        return (y if alone else self._schema.matrix(batch)), y

    def texts(self, names: Sequence[str]) -> Iterator[tuple[list[list[str | None]], Array]]:
        """Yield columns as text (None where a cell is missing) and the targets, in stored order."""
        for batch in self._read():
            cells = _cells(batch)
            found = [as_text(cells[name]).to_pylist() for name in names]
            yield found, self._targets(cells[self._target.name])

    def arrays(self) -> tuple[Array, Array]:
        """Return all rows at once."""
        X, y = np.empty((self.n_rows, self.n_features)), np.empty(self.n_rows)
        start = 0
        for rows, targets in self.batches():
            stop = start + len(targets)
            if stop > self.n_rows:
                break
            X[start:stop], y[start:stop] = rows, targets
            start = stop
        if start != self.n_rows:
            raise GratisError("the file changed while it was read")
        return X, y

    def validate(self, *, missing_targets: bool = False) -> None:
        """Read everything once; refuse what cannot be read, and missing targets unless they are allowed.

        Not private: only before a budget is reserved.
        """
        self.refuse(self.problems(missing_targets=missing_targets))

    def refuse(self, found: Problems) -> None:
        """Refuse what was found, if anything was, in one sentence with the options that let it pass."""
        found.refuse(self.table.types, self._target.name, python=self.table.for_python)

    def problems(self, *, missing_targets: bool = False) -> Problems:
        """Read everything once; return what `validate` refuses."""
        seen, unreadable, missing, known = 0, frozenset[str](), False, False
        for batch in self._read():
            seen += batch.num_rows
            unreadable |= self._unreadable(batch)
            if not (missing_targets or (missing and known)):
                finite = np.isfinite(self._encoded(batch)[1])
                missing, known = missing or not finite.all(), known or bool(finite.any())
        if seen != self.n_rows:
            raise GratisError(f"{self.n_rows} rows were expected, but {seen} were read")
        used = {self._target.name, *(column.name for column in self._schema.used)}
        return Problems(unreadable, frozenset(used & getattr(self.table, "broken", set())), missing, known)

    def _unreadable(self, batch: Any) -> frozenset[str]:
        cells = _cells(batch)
        signs: dict[str | None, list[str]] = {}
        for column in self._schema.used:
            if column.kind is Kind.NUMERIC and not column.lenient and pa.types.is_string(cells[column.name].type):
                signs.setdefault(column.decimal, []).append(column.name)
        return frozenset(
            name
            for decimal, names in signs.items()
            if unreadable(pa.concat_arrays([cells[name] for name in names]), decimal)
            for name in names
            if unreadable(cells[name], decimal)
        )

    def blocks(self, size: int) -> list[EncodedRows]:
        """Return the same rows as streams of `size` rows each (the last may be shorter), each read by itself."""
        return [self._within(first, last) for first, last in pairwise([0, *self._edges(size), self._total])]

    def _edges(self, size: int) -> Iterator[int]:
        """Where in the table the chosen rows `size`, 2·`size`, … stand."""
        before = 0
        for start in range(0, self._total, _POSITIONS_AT_ONCE):
            count = min(_POSITIONS_AT_ONCE, self._total - start)
            chosen = self._chosen(start, count)
            places = np.arange(count) if chosen is None else np.flatnonzero(chosen)
            yield from (int(start + place) for place in places[-before % size if before else size :: size])
            before += len(places)

    def _within(self, start: int, stop: int) -> EncodedRows:
        part = copy(self)
        part._span = (start, stop)
        part.n_rows = self._count(start, stop)
        return part

    def _read(self, names: Sequence[str] = ()) -> Iterator[Any]:
        names = names or [*(column.name for column in self._schema.used), self._target.name]
        position = 0
        # A whole table is read to its end, so that a row too many is noticed.
        batches = self.table.batches(names, self._batch_rows)
        if self._span is not None:
            position = self._span[0]
            batches = self.table.span(names, self._batch_rows, *self._span)
        with counted("reading", self._total) as advance:
            for batch in batches:
                chosen = self._chosen(position, batch.num_rows)
                position += batch.num_rows
                yield batch if chosen is None else batch.filter(pa.array(chosen))
                advance(batch.num_rows)
        if self._span is not None and position != self._span[1]:
            raise ChangedTableError

    def _chosen(self, start: int, count: int) -> NDArray[np.bool_] | None:
        if self._mask is not None:
            return self._mask[start : start + count]
        if self._part == "all" or (self._part == "training" and not self._held_out):
            return None
        held = held_out_rows(start, count, self._held_out)
        return held if self._part == "held-out" else ~held

    def _count(self, start: int, stop: int) -> int:
        """How many rows from `start` to `stop` are chosen; in parts, because positions of all rows would be large."""
        total = 0
        for first in range(start, stop, _POSITIONS_AT_ONCE):
            count = min(_POSITIONS_AT_ONCE, stop - first)
            chosen = self._chosen(first, count)
            total += count if chosen is None else int(chosen.sum())
        return total

    def _targets(self, cells: Any) -> Array:
        if self._target.kind is Kind.CATEGORICAL:
            place = self._target.positions(cells).astype(np.float64)
            return np.where(place >= 0, place, np.nan)
        return self._target.encode(cells)[:, 0]


def held_out_rows(start: int, count: int, share: float) -> NDArray[np.bool_]:
    """Say which of the rows start … start+count−1 are held out: a public function of the position alone.

    >>> int(held_out_rows(0, 10_000, 0.2).sum())
    2000
    """
    # Multiples of the golden ratio modulo 1 spread evenly over every stretch of rows.
    return np.asarray(((np.arange(start, start + count) + 1) * 0.6180339887498949) % 1.0 < share)


def distinct_values(table: Table, name: str, limit: int) -> tuple[str, ...] | None:
    """Return the different values of a column as text, sorted, or None if there are more than `limit`.

    They are read from the rows: whoever uses them assumes that they are public.
    """
    found: set[Any] = set()
    for batch in table.batches([name], 2**16):
        found.update(
            value for value in pc.unique(as_text(batch.column(name))).to_pylist() if value not in (None, "nan")
        )
        if len(found) > limit:
            return None
    try:
        return tuple(sorted(found, key=float))
    except ValueError:
        return tuple(sorted(found))


def _cells(batch: Any) -> dict[str, Any]:
    # Looked up by name one at a time, the columns of a wide batch take longer to find than to read.
    return dict(zip(batch.schema.names, batch.columns, strict=True))
