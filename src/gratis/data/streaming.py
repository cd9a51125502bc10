"""Rows that arrive in batches, in their stored order: arrays, memory maps, Parquet, CSV, Arrow.

Memory stays bounded by one batch, whatever the size of the source. Row order is never changed: sorting or grouping
by private values would void amplification by iteration (spec section 1).

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
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import ArrayLike, NDArray

from gratis.specs.checks import check_count
from gratis.specs.errors import GratisError

__all__ = ["ArrayRows", "ArrowRows", "CSVRows", "ParquetRows", "RowStream", "open_rows"]

_NUMBERS_AT_ONCE = 2**19
_BUFFER_BYTES = 2**16
_CSV_BLOCK_BYTES = 2**20

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


class _Columns:
    """What the three file formats share: a checked choice of numeric columns, and batches as matrices."""

    def __init__(
        self, schema: Any, target: str, features: Sequence[str] | None, n_rows: int, batch_rows: int | None
    ) -> None:
        types = dict(zip(schema.names, schema.types, strict=True))
        names = [name for name in schema.names if name != target] if features is None else list(features)
        if not names or target in names or len(set(names)) != len(names):
            raise GratisError("features must name at least one column, each once, and not the target")
        for name in (*names, target):
            if name not in types:
                raise GratisError(f"there is no column {name!r}")
            if not _is_numeric(types[name]):
                raise GratisError(
                    f"column {name!r} must hold numbers, but has the type {types[name]}; encode or drop it"
                )
        single = all(pa.types.is_float32(types[name]) for name in names)
        self._dtype = np.dtype(np.float32 if single else np.float64)
        self.target, self.features = target, tuple(names)
        self.n_rows, self.n_features = check_count("n_rows", n_rows), len(names)
        self._batch_rows = _rows_at_once(self.n_features, batch_rows)

    def _record_batches(self) -> Iterator[Any]:
        raise NotImplementedError

    def batches(self) -> Iterator[Batch]:
        """Yield (X, y) in stored order."""
        try:
            for table in self._record_batches():
                for start in range(0, table.num_rows, self._batch_rows):
                    yield self._matrix(table.slice(start, self._batch_rows))
        except pa.ArrowException:
            # Arrow's own message may quote a cell.
            raise GratisError("the file is damaged, or its rows do not all have the same columns") from None

    def _matrix(self, table: Any) -> Batch:
        X = np.empty((table.num_rows, self.n_features), dtype=self._dtype)
        for j, name in enumerate(self.features):
            X[:, j] = _numbers(table.column(name))
        return X, np.asarray(_numbers(table.column(self.target)), dtype=np.float64)

    def validate(self) -> None:
        """Raise if a value is not finite (see the module's note)."""
        _validate(self)


class ParquetRows(_Columns):
    """Rows of a Parquet file; only the chosen columns are read, through small buffers, so row groups may be large."""

    def __init__(
        self, path: str | os.PathLike[str], *, target: str, features: Sequence[str] | None = None,
        batch_rows: int | None = None,
    ) -> None:  # fmt: skip
        self._path = _existing(path)
        with self._open() as file:
            super().__init__(file.schema_arrow, target, features, file.metadata.num_rows, batch_rows)

    def _open(self) -> Any:
        # pre_buffer would read whole row groups ahead.
        return pa.parquet.ParquetFile(self._path, pre_buffer=False, buffer_size=_BUFFER_BYTES)

    def _record_batches(self) -> Iterator[Any]:
        with self._open() as file:
            yield from file.iter_batches(batch_size=self._batch_rows, columns=[*self.features, self.target])


class ArrowRows(_Columns):
    """Rows of an Arrow IPC (Feather 2) file, memory-mapped."""

    def __init__(
        self, path: str | os.PathLike[str], *, target: str, features: Sequence[str] | None = None,
        batch_rows: int | None = None,
    ) -> None:  # fmt: skip
        self._path = _existing(path)
        with pa.memory_map(str(self._path)) as source, pa.ipc.open_file(source) as reader:
            rows = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
            super().__init__(reader.schema, target, features, rows, batch_rows)

    def _record_batches(self) -> Iterator[Any]:
        with pa.memory_map(str(self._path)) as source, pa.ipc.open_file(source) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)


class CSVRows(_Columns):
    """Rows of a CSV file with a header. Its number of rows is not stored, so it must be declared.

    Columns are numeric or not by the first block of the file; a later cell that is no number is a missing value.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, target: str, n_rows: int, features: Sequence[str] | None = None,
        batch_rows: int | None = None,
    ) -> None:  # fmt: skip
        self._path = _existing(path)
        with self._open(None) as reader:
            for name, kind in zip(reader.schema.names, reader.schema.types, strict=True):
                if pa.types.is_boolean(kind) and (features is None or name in features or name == target):
                    raise GratisError(
                        f"column {name!r} must hold numbers, but holds truth values; write them as 0 and 1"
                    )
            super().__init__(reader.schema, target, features, n_rows, batch_rows)

    def _open(self, columns: Sequence[str] | None) -> Any:
        try:
            return pa.csv.open_csv(
                self._path,
                read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
                # Read as text: a cell that is no number must become NaN, not an error in the middle of a pass.
                convert_options=pa.csv.ConvertOptions(
                    include_columns=columns, column_types={name: pa.string() for name in columns or ()}
                ),
            )
        except pa.ArrowException:
            raise GratisError("the CSV file could not be read; it needs a header and rows of equal length") from None

    def _record_batches(self) -> Iterator[Any]:
        with self._open([*self.features, self.target]) as reader:
            yield from reader


def open_rows(path: str | os.PathLike[str], *, target: str, n_rows: int | None = None, **choices: Any) -> RowStream:
    """Open a file by its ending: .parquet, .csv (needs n_rows), .arrow or .feather."""
    ending = Path(path).suffix.lower()
    if ending == ".csv":
        if n_rows is None:
            raise GratisError("a CSV file does not store how many rows it has; pass n_rows")
        return CSVRows(path, target=target, n_rows=n_rows, **choices)
    if ending not in (".parquet", ".arrow", ".feather"):
        raise GratisError(f"expected a .parquet, .csv, .arrow or .feather file, got {ending!r}")
    stream = (ParquetRows if ending == ".parquet" else ArrowRows)(path, target=target, **choices)
    if n_rows is not None and n_rows != stream.n_rows:
        raise GratisError(f"{n_rows} rows were declared, but the file holds {stream.n_rows}")
    return stream


_NUMBER = r"^\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|nan)\s*$"


def _numbers(column: Any) -> NDArray[Any]:
    """Return a column as floats, NaN where a value is missing or no number."""
    if pa.types.is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        readable = pc.match_substring_regex(column, _NUMBER, ignore_case=True)
        column = pc.if_else(readable, column, pa.scalar(None, pa.string()))
    if not pa.types.is_floating(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _is_numeric(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


def _rows_at_once(n_features: int, batch_rows: int | None) -> int:
    if n_features < 1:
        raise GratisError("X needs at least one column")
    return (
        max(1, min(2**16, _NUMBERS_AT_ONCE // n_features))
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


def _existing(path: str | os.PathLike[str]) -> Path:
    if not Path(path).is_file():
        raise GratisError(f"there is no file {os.fspath(path)!r}")
    return Path(path)
