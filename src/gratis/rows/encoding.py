"""From the columns of a table to a matrix, by rules that are public: a schema, and never the private rows.

Which levels a category has is read from a schema file or not at all: a level that occurs once gives its owner away.
Without a list, text is hashed into a fixed number of buckets. Both become columns of zeros and ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gratis.records.checks import check_finite
from gratis.records.errors import GratisError
from gratis.records.progress import counted
from gratis.records.strict_json import read_json
from gratis.rows.tables import CSVTable, Table, numbers, numbers_side_by_side, unreadable

__all__ = ["Column", "EncodedRows", "Kind", "TableSchema", "can_be_target", "distinct_values", "held_out_rows"]

Array = NDArray[np.float64]
_NUMBERS_AT_ONCE = 2**19
_WIDE_ROWS, _WIDE_NUMBERS = 256, 2**23
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


class Kind(StrEnum):
    """What a column holds."""

    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    CATEGORICAL = "categorical"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column and how it becomes numbers.

    `levels` (public) or `buckets` for categories; `missing` is a public number to put where a number is missing,
    None leaves it to the estimator, which puts the privately released centre there.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] | None = None
    buckets: int | None = None
    missing: float | None = None

    def __post_init__(self) -> None:
        if self.kind is Kind.CATEGORICAL:
            if (self.levels is None) == (self.buckets is None):
                raise GratisError(f"the category {self.name!r} needs a public list of levels, or a number of buckets")
            if self.levels is not None and (not self.levels or len(set(self.levels)) != len(self.levels)):
                raise GratisError(f"the levels of {self.name!r} must be a list of different texts")
            if self.buckets is not None and not 2 <= self.buckets <= 2**16:
                raise GratisError(f"the buckets of {self.name!r} must be between 2 and 65536")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        if self.kind is Kind.IGNORED:
            return ()
        if self.levels is not None:
            return tuple(f"{self.name}={level}" for level in self.levels)
        return (self.name,) if self.buckets is None else tuple(f"{self.name}#{i}" for i in range(self.buckets))

    def encode(self, cells: Any) -> Array:
        """Return (rows, width): numbers, or one 1 a row; unknown or missing categories are all zero."""
        if self.kind is Kind.NUMERIC:
            return self.filled(numbers(cells).astype(np.float64, copy=False)[:, None])
        if self.kind is Kind.BOOLEAN:
            return self._truth(cells)[:, None]
        place, width = self.positions(cells), len(self.names)
        return np.asarray(place[:, None] == np.arange(width), dtype=np.float64)

    def filled(self, values: Array) -> Array:
        """Return numbers with the public one where they are missing."""
        return values if self.missing is None else np.where(np.isfinite(values), values, self.missing)

    def positions(self, cells: Any) -> NDArray[np.int64]:
        """Return the level's or bucket's number, −1 where there is none."""
        text = _as_text(cells)
        if self.levels is not None:
            found = pc.index_in(text, value_set=pa.array(self.levels, pa.string()))
            return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
        assert self.buckets is not None
        coded = text.dictionary_encode()
        buckets = [_bucket(value, self.buckets) for value in coded.dictionary.to_pylist()]
        index = np.asarray(pc.fill_null(coded.indices, len(buckets)).to_numpy(zero_copy_only=False), dtype=np.int64)
        return np.array([*buckets, -1], dtype=np.int64)[index]

    def _truth(self, cells: Any) -> Array:
        if pa.types.is_boolean(cells.type):
            return np.asarray(numbers(cells), dtype=np.float64)
        text = pc.utf8_lower(_as_text(cells))
        yes, no = (
            pc.fill_null(pc.is_in(text, value_set=pa.array(words)), False).to_numpy(zero_copy_only=False)
            for words in (_TRUE, _FALSE)
        )
        return np.where(yes, 1.0, np.where(no, 0.0, np.nan if self.missing is None else self.missing))

    @classmethod
    def of_type(cls, name: str, kind: Any, buckets: int | None = None) -> Column:
        """Return how a column of a file's own type is read; text needs buckets."""
        if pa.types.is_boolean(kind):
            return cls(name=name, kind=Kind.BOOLEAN)
        if _is_number(kind) or pa.types.is_null(kind):
            return cls(name=name, kind=Kind.NUMERIC)
        if _is_text(kind) and buckets is not None:
            return cls(name=name, kind=Kind.CATEGORICAL, buckets=buckets)
        advice = "list its public levels in a --schema file, hash it with --hash N, or leave it out with --ignore"
        if not _is_text(kind):
            advice = "leave it out with --ignore, or turn it into numbers first"
        raise GratisError(
            f"column {name!r} holds {_in_words(kind)}: {advice} (levels are never read from private rows)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data: dict[str, Any] = {"kind": str(self.kind)}
        if self.levels is not None:
            data["levels"] = list(self.levels)
        return data | {k: v for k in ("buckets", "missing") if (v := getattr(self, k)) is not None}

    @classmethod
    def from_json(cls, name: str, data: Any) -> Column:
        """Read a column: a kind, or an object with `kind` and, where they apply, `levels`, `buckets`, `missing`."""
        data = {"kind": data} if isinstance(data, str) else data
        if not isinstance(data, Mapping) or not set(data) <= {"kind", "levels", "buckets", "missing"}:
            raise GratisError(f"the schema of {name!r} must be a kind, or have kind, levels, buckets, missing")
        if data.get("kind") not in list(Kind):
            raise GratisError(f"the kind of {name!r} must be one of {', '.join(Kind)}, got {data.get('kind')!r}")
        levels, buckets, missing = (data.get(key) for key in ("levels", "buckets", "missing"))
        if levels is not None and not isinstance(levels, list):
            raise GratisError(f"the levels of {name!r} must be a list")
        if buckets is not None and (isinstance(buckets, bool) or not isinstance(buckets, int)):
            raise GratisError(f"the buckets of {name!r} must be a whole number")
        if missing is not None:
            missing = check_finite(f"the value for missing entries of {name!r}", missing)
        return cls(
            name=name,
            kind=Kind(data["kind"]),
            levels=None if levels is None else tuple(map(str, levels)),
            buckets=buckets,
            missing=missing,
        )


@dataclass(frozen=True, slots=True)
class TableSchema:
    """How every column is read, in the order of the matrix. All of it is public.

    >>> schema = TableSchema.from_json({"columns": {"age": "numeric", "sex": {"kind": "categorical",
    ...                                                                      "levels": ["f", "m"]}}})
    >>> schema.names
    ('age', 'sex=f', 'sex=m')
    """

    columns: tuple[Column, ...]

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
        if numeric:
            X[:, list(numeric)] = numbers_side_by_side([cells[column.name] for column in numeric.values()])
        for place, column in numeric.items():
            if column.missing is not None:
                X[:, place] = column.filled(X[:, place])
        return X

    def column(self, name: str) -> Column | None:
        """Look a column up."""
        return next((column for column in self.columns if column.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"columns": {column.name: column.to_json() for column in self.columns}}

    @classmethod
    def from_json(cls, data: Any) -> TableSchema:
        """Read {"columns": {name: kind or object}}."""
        if not isinstance(data, Mapping) or not isinstance(data.get("columns"), Mapping) or len(data) != 1:
            raise GratisError('a schema is a JSON object {"columns": {name: kind or object, …}}')
        return cls(tuple(Column.from_json(name, value) for name, value in data["columns"].items()))

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
        columns = [
            known.get(name) or Column.of_type(name, kind, buckets)
            for name, kind in table.types.items()
            if name != target
        ]
        return cls(tuple(columns))

    def check_types(self, table: Table) -> None:
        """Refuse a column that is declared numeric where the file's own type says otherwise."""
        for column in self.used:
            kind = table.types.get(column.name)
            if kind is None:
                raise GratisError(f"there is no column {column.name!r} in {table.path.name!r}")
            # A CSV file states no types: `validate` looks at its cells.
            stated = not isinstance(table, CSVTable)
            if stated and column.kind is Kind.NUMERIC and not (_is_number(kind) or pa.types.is_null(kind)):
                raise GratisError(f"column {column.name!r} should hold numbers, but holds {_in_words(kind)}")


class EncodedRows:
    """The encoded rows of a table as a stream: X by the schema, and the target as numbers or class positions.

    `part` chooses rows by their position alone: "all", "training" or "held-out" of `held_out_rows`.
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
    ) -> None:
        self._table, self._schema, self._target = table, schema, target
        self._total, self._held_out, self._part = n_rows, held_out, part
        self.n_features = len(schema.names)
        chosen = self._chosen(0, n_rows)
        self.n_rows = n_rows if chosen is None else int(chosen.sum())
        # Every column of a batch costs some microseconds whatever its length: wide tables take larger batches.
        wide = min(_WIDE_ROWS, _WIDE_NUMBERS // max(self.n_features, 1))
        self._batch_rows = max(1, wide, min(2**16, _NUMBERS_AT_ONCE // max(self.n_features, 1)))

    def batches(self) -> Iterator[tuple[Array, Array]]:
        """Yield (X, y) in stored order."""
        for batch in self._read():
            yield self._encoded(batch)

    def _encoded(self, batch: Any) -> tuple[Array, Array]:
        try:
            return self._schema.matrix(batch), self._targets(batch.column(self._target.name))
        except (pa.ArrowException, UnicodeDecodeError):
            pass
        # Parquet does not check that text is text. Arrow's own message may quote a cell: raised outside the handler, so
        # that no context holds it.
        raise GratisError("the file holds text that cannot be read (it must be UTF-8)")

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

    def validate(self) -> None:
        """Read everything once; refuse text among numbers and missing targets. Not private: before any reservation."""
        seen = 0
        for batch in self._read():
            seen += batch.num_rows
            wrong = self._first_unreadable(batch)
            if wrong is not None:
                raise GratisError(f"the numeric column {wrong!r} holds text; correct it, or declare another kind")
            if not np.isfinite(self._encoded(batch)[1]).all():
                raise GratisError(
                    f"the target {self._target.name!r} is missing, infinite or no declared class in some rows"
                )
        if seen != self.n_rows:
            raise GratisError(f"{self.n_rows} rows were expected, but {seen} were read")

    def _first_unreadable(self, batch: Any) -> str | None:
        cells = _cells(batch)
        names = [column.name for column in self._schema.used if column.kind is Kind.NUMERIC]
        texts = [name for name in names if pa.types.is_string(cells[name].type)]
        if not texts or not unreadable(pa.concat_arrays([cells[name] for name in texts])):
            return None
        return next(name for name in texts if unreadable(cells[name]))

    def _read(self) -> Iterator[Any]:
        position = 0
        columns = [column.name for column in self._schema.used]
        with counted("reading", self._total) as advance:
            for batch in self._table.batches([*columns, self._target.name], self._batch_rows):
                chosen = self._chosen(position, batch.num_rows)
                position += batch.num_rows
                yield batch if chosen is None else batch.filter(pa.array(chosen))
                advance(batch.num_rows)

    def _chosen(self, start: int, count: int) -> NDArray[np.bool_] | None:
        if self._part == "all":
            return None
        held = held_out_rows(start, count, self._held_out)
        return held if self._part == "held-out" else ~held

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
            value for value in pc.unique(_as_text(batch.column(name))).to_pylist() if value not in (None, "nan")
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


def _as_text(cells: Any) -> Any:
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_float16(cells.type):  # Arrow compares no half floats
        cells = cells.cast(pa.float32())
    if pa.types.is_floating(cells.type):
        # 3.0 and 3 are the same level; decided cell by cell, for one record must not change how others are read.
        whole = pc.cast(cells, pa.int64(), safe=False)
        same = pc.equal(pc.cast(whole, cells.type, safe=False), cells)
        cells = pc.if_else(same, pc.cast(whole, pa.string()), pc.cast(cells, pa.string()))
    return pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))


def _bucket(value: str | None, buckets: int) -> int:
    if value is None:
        return -1
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "big") % buckets


def _is_number(kind: Any) -> bool:
    return any(test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def can_be_target(kind: Any) -> bool:
    """Say whether a column of this type can be regressed or holds classes that can be written as text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    dated = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    return _is_number(kind) or _is_text(kind) or pa.types.is_boolean(kind) or dated


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string))


def _in_words(kind: Any) -> str:
    if _is_text(kind):
        return "text"
    return "truth values" if pa.types.is_boolean(kind) else f"values of the type {kind}"
