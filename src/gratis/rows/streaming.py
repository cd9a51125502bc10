"""Rows that arrive in batches, in their stored order: arrays, memory maps, Parquet, CSV, Arrow.

Memory stays bounded by one batch, whatever the size of the source. Row order is never changed: sorting or grouping
by private values would void amplification by iteration (docs/theory/conventions.md, statement 3).

A missing or unreadable number becomes NaN, and trainers count such a row as nothing. Whoever would rather stop calls
`validate()` first, before any budget is reserved: it reads the source once and raises; that answer is not private.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from gratis.numerics.chunks import whole_chunks
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.rows.amounts import numbers, numbers_into
from gratis.rows.tables import Table, open_table

__all__ = ["ArrayRows", "FileRows", "RowStream", "open_rows"]

_NUMBERS_AT_ONCE = 2**19

Batch = tuple[NDArray[Any], NDArray[np.float64]]


class RowStream(Protocol):
    """A source of rows with public sizes."""

    @property
    def n_rows(self) -> int:
        """Number of rows; public."""

    @property
    def n_features(self) -> int:
        """Columns of X; public."""

    def batches(self) -> Iterator[Batch]:
        """Yield (X, y): X row-major float32 or float64, y float64; missing values as NaN."""

    def validate(self) -> None:
        """Read everything once and raise if a value is not finite. Not private: only before a budget is reserved."""


class ArrayRows:
    """Rows of an array or a memory map, which is read batch by batch and never copied whole.

    >>> stream = ArrayRows(np.ones((5, 2), dtype=np.float32), np.arange(5), batch_rows=2)
    >>> [(X.shape, y.tolist()) for X, y in stream.batches()]
    [((2, 2), [0.0, 1.0]), ((2, 2), [2.0, 3.0]), ((1, 2), [4.0])]
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, *, batch_rows: int | None = None) -> None:
        self._X, self._y = np.asarray(X), np.asarray(y)
        if self._X.ndim != 2 or self._y.shape != self._X.shape[:1]:
            raise GratisError(
                f"X must be a table and y have one entry for each row, got shapes {self._X.shape} and {self._y.shape}"
            )
        if self._X.dtype.kind not in "biuf" or self._y.dtype.kind not in "biuf":
            raise GratisError(f"X and y must be real numbers, got the types {self._X.dtype} and {self._y.dtype}")
        self.n_rows, self.n_features = self._X.shape
        self._batch_rows = _rows_at_once(self.n_features, batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Yield consecutive slices; float32 and float64 rows are views."""
        dtype = self._X.dtype if self._X.dtype in (np.float32, np.float64) else np.float64
        for start in range(0, self.n_rows, self._batch_rows):
            rows = slice(start, start + self._batch_rows)
            yield np.ascontiguousarray(self._X[rows], dtype=dtype), np.asarray(self._y[rows], dtype=np.float64)

    def validate(self) -> None:
        """Raise if a value is not finite (see the module's note)."""
        _validate(self)


class FileRows:
    """Numeric columns of a table in a file, in stored order; only the chosen columns are read."""

    def __init__(
        self,
        table: Table,
        *,
        target: str,
        features: Sequence[str] | None = None,
        n_rows: int | None = None,
        batch_rows: int | None = None,
    ) -> None:
        names = [name for name in table.types if name != target] if features is None else list(features)
        if not names or target in names or len(set(names)) != len(names):
            raise GratisError("features must name at least one column, each once, and not the target")
        for name in (*names, target):
            kind = table.types.get(name)
            if kind is None:
                raise GratisError(f"there is no column {name!r}")
            if not _is_numeric(kind):
                raise GratisError(f"column {name!r} must hold numbers, but has the type {kind}; encode or drop it")
            if not table.states_types and pa.types.is_boolean(kind):
                raise GratisError(f"column {name!r} must hold numbers, but holds truth values; write them as 0 and 1")
        if table.n_rows is None and n_rows is None:
            raise GratisError("a CSV file does not store how many rows it has; pass n_rows")
        if None not in (n_rows, table.n_rows) and n_rows != table.n_rows:
            raise GratisError(f"{n_rows} rows were declared, but the file holds {table.n_rows}")
        single = all(pa.types.is_float32(table.types[name]) for name in names)
        self._table, self._dtype = table, np.dtype(np.float32 if single else np.float64)
        self.target, self.features = target, tuple(names)
        self.n_rows, self.n_features = check_count("n_rows", n_rows or table.n_rows), len(names)
        self._batch_rows = _rows_at_once(self.n_features, batch_rows)

    @property
    def text_file(self) -> Path | None:
        """The file, if it is text that every reading parses anew."""
        return self._table.path if self._table.is_text else None

    def batches(self) -> Iterator[Batch]:
        """Yield (X, y) in stored order."""
        for batch in self._table.batches([*self.features, self.target], self._batch_rows):
            cells = dict(zip(batch.schema.names, batch.columns, strict=True))
            X = np.empty((batch.num_rows, self.n_features), dtype=self._dtype)
            numbers_into(X, {place: (cells[name], self._decimal(name)) for place, name in enumerate(self.features)})
            yield X, numbers(cells[self.target], self._decimal(self.target)).astype(np.float64)

    def targets(self) -> Iterator[tuple[NDArray[np.float64]]]:
        """Yield (y,) in stored order; no other column is read."""
        for batch in self._table.batches([self.target], self._batch_rows):
            yield (numbers(batch.column(0), self._decimal(self.target)).astype(np.float64),)

    def _decimal(self, name: str) -> str | None:
        return "," if name in self._table.writing.commas else self._table.decimal

    def validate(self) -> None:
        """Raise if a value is not finite (see the module's note)."""
        _validate(self)


def open_rows(path: str | os.PathLike[str], *, target: str, **choices: Any) -> FileRows:
    """Open a file by its ending: .parquet, .arrow, .feather, or .csv and .csv.gz (which need n_rows)."""
    return FileRows(open_table(path), target=target, **choices)


def _is_numeric(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


def _rows_at_once(n_features: int, batch_rows: int | None) -> int:
    if n_features < 1:
        raise GratisError("X needs at least one column")
    return (
        whole_chunks(max(1, min(2**16, _NUMBERS_AT_ONCE // n_features)))
        if batch_rows is None
        else check_count("batch_rows", batch_rows)
    )


def _validate(stream: RowStream) -> None:
    rows = 0
    for X, y in stream.batches():
        rows += X.shape[0]
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            raise GratisError(
                "X and y must be finite: some values are missing or infinite; clean them, or pass on_invalid='zero' "
                "to let such rows contribute nothing"
            )
    if rows != stream.n_rows:
        raise GratisError(f"{stream.n_rows} rows were declared, but the source holds {rows}")
