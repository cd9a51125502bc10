"""Tables in files, read in batches in their stored order: Parquet, Arrow IPC (Feather 2), CSV plain or gzipped."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from gratis.specs.errors import GratisError

__all__ = ["ArrowTable", "CSVTable", "ParquetTable", "Table", "numbers", "open_table", "unreadable"]

_BUFFER_BYTES = 2**16
_CSV_BLOCK_BYTES = 2**20
_MISSING = ["", "?", "NA", "N/A", "#N/A", "nan", "NaN", "NAN", "null", "NULL", "None"]
_NUMBER = r"^\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|nan)\s*$"


class Table(ABC):
    """Column names and types, the number of rows where the format stores it, and record batches."""

    path: Path
    types: dict[str, Any]
    n_rows: int | None

    @abstractmethod
    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        """Yield record batches of the chosen columns, of any length up to batch_rows."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        """Yield record batches of at most batch_rows rows in stored order."""
        try:
            for batch in self._read(columns, batch_rows):
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)
            return
        except (pa.ArrowException, OSError):
            pass
        # Arrow's own message may quote a cell: raised outside the handler, so that no context holds it.
        raise GratisError("the file is damaged, or its rows do not all have the same columns")

    def count_rows(self) -> int:
        """Return the number of rows, reading the file once where the format does not store it."""
        if self.n_rows is not None:
            return self.n_rows
        return sum(batch.num_rows for batch in self.batches(list(self.types)[:1], 2**20))


class ParquetTable(Table):
    """A Parquet file; only the chosen columns are read, through small buffers, so row groups may be large."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _existing(path)
        try:
            with self._open() as file:
                self.types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
                self.n_rows = file.metadata.num_rows
                return
        except (pa.ArrowException, OSError):
            pass
        raise GratisError(f"{self.path.name!r} is damaged, or no Parquet file")

    def _open(self) -> Any:
        # pre_buffer would read whole row groups ahead.
        return pa.parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=_BUFFER_BYTES)

    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        with self._open() as file:
            yield from file.iter_batches(batch_size=batch_rows, columns=list(columns))


class ArrowTable(Table):
    """An Arrow IPC (Feather 2) file, memory-mapped."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _existing(path)
        try:
            with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as reader:
                self.types = dict(zip(reader.schema.names, reader.schema.types, strict=True))
                self.n_rows = sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
                return
        except (pa.ArrowException, OSError):
            pass
        raise GratisError(f"{self.path.name!r} is damaged, or no Arrow file")

    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as reader:
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i).select(list(columns))


class CSVTable(Table):
    """A CSV file with a header; its number of rows is not stored.

    A column's type is the one that its first block of cells suggests. Cells are read as text, so that one that does not
    fit becomes a missing value and not an error in the middle of a pass.
    """

    n_rows = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _existing(path)
        with self._open(None) as reader:
            self.types = dict(zip(reader.schema.names, reader.schema.types, strict=True))

    def _open(self, columns: Sequence[str] | None) -> Any:
        try:
            return pa.csv.open_csv(
                self.path,
                read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
                # Otherwise how a row is cut would depend on the length of the rows before it.
                parse_options=pa.csv.ParseOptions(newlines_in_values=True),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=columns,
                    column_types={name: pa.string() for name in columns or ()},
                    null_values=_MISSING,
                    strings_can_be_null=True,
                ),
            )
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            pass
        raise GratisError("the CSV file could not be read; it needs a header and rows of equal length")

    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        with self._open(columns) as reader:
            yield from reader


def open_table(path: str | os.PathLike[str]) -> Table:
    """Open a file by its ending: .parquet, .arrow, .feather, .csv or .csv.gz."""
    name = Path(path).name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return CSVTable(path)
    if name.endswith(".parquet"):
        return ParquetTable(path)
    if name.endswith((".arrow", ".feather")):
        return ArrowTable(path)
    raise GratisError(f"expected a .parquet, .arrow, .feather, .csv or .csv.gz file, got {Path(path).name!r}")


def numbers(column: Any) -> NDArray[Any]:
    """Return a column as floats, NaN where a value is missing or no number."""
    if pa.types.is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        readable = pc.match_substring_regex(column, _NUMBER, ignore_case=True)
        column = pc.if_else(readable, column, pa.scalar(None, pa.string()))
    if not pa.types.is_floating(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def unreadable(column: Any) -> bool:
    """Say whether a column of text holds a cell that is there and is no number."""
    if not pa.types.is_string(column.type):
        return False
    return bool(pc.any(pc.invert(pc.match_substring_regex(column, _NUMBER, ignore_case=True))).as_py())


def _existing(path: str | os.PathLike[str]) -> Path:
    if not Path(path).is_file():
        raise GratisError(f"there is no file {os.fspath(path)!r}")
    return Path(path)
