"""Tables in memory: data frames of pandas, polars or Arrow, JSON lines and Excel sheets."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json

from gratis.records.errors import GratisError
from gratis.rows.tables import Table, _types, pandas_index, refuse_headless, refuse_same_names

__all__ = ["ExcelTable", "FrameTable", "JSONLinesTable", "arrow_table"]

_FIRST_ROWS = 1000  # of a sheet, from which the types of its columns are guessed


class FrameTable(Table):
    """A data frame that is in memory already; it has no file, and does not change."""

    held = True
    for_python = True

    def __init__(self, frame: Any, name: str = "the data frame") -> None:
        self.path = Path(name)
        self._hold(arrow_table(frame))

    def _hold(self, table: Any) -> None:
        self._table, self.n_rows = table, table.num_rows
        self.types, self.index_columns = _types(table.schema), pandas_index(table.schema)

    def _open_head(self) -> None:
        raise NotImplementedError

    def changed(self) -> bool:
        """Never: it is this object's own."""
        return False

    def _refuse_other_content(self) -> None:
        """Never: what is read is what is held."""

    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        # Chunks of a table may end anywhere: how rows are cut must not depend on where it came from.
        chosen = self._table.select(list(columns)).combine_chunks()
        yield from chosen.to_batches(max_chunksize=batch_rows)


class _HeldFile(FrameTable):
    """A file that is read whole."""

    for_python = False

    def __init__(self, path: Any) -> None:
        Table.__init__(self, path)

    def changed(self) -> bool:
        """Say whether the file is no longer the one that was opened."""
        return Table.changed(self)


class JSONLinesTable(_HeldFile):
    """One JSON object a line; the type of a column is the same in all of them."""

    def _open_head(self) -> None:
        try:
            with pa.input_stream(str(self.path), compression="detect") as source:
                found = pa.json.read_json(source)
        except (pa.ArrowException, OSError, UnicodeError):
            found = None
        if found is None:
            raise GratisError(
                f"{self.path.name!r} cannot be read: every line must be a JSON object, with columns of one type each"
            )
        self._hold(found)


class ExcelTable(_HeldFile):
    """The first sheet of an Excel file, its first row the header.

    A column's type is the one of its first cells; a cell that does not fit is missing.
    """

    states_types = False

    def _open_head(self) -> None:
        try:
            import openpyxl  # type: ignore[import-untyped, unused-ignore]
        except ModuleNotFoundError:
            openpyxl = None
        if openpyxl is None:
            raise GratisError("Excel files need openpyxl: pip install 'gratis[excel]'; or save the sheet as CSV")
        try:
            with self.path.open("rb") as file:  # of a path the reader would keep its file open
                sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
                rows = list(sheet.iter_rows(values_only=True))
        except Exception:  # whatever a damaged archive makes its reader raise, which may quote cells
            rows = []
        if not rows:
            raise GratisError(f"{self.path.name!r} is damaged, or its first sheet is empty")
        names = ["" if name is None else str(name) for name in rows[0]]
        columns = [
            _typed([row[place] if place < len(row) else None for row in rows[1:]]) for place in range(len(names))
        ]
        found = pa.Table.from_arrays(columns, names=names)
        refuse_headless(found.schema)
        self._hold(found)


def _typed(cells: list[Any]) -> Any:
    first = {type(cell) for cell in cells[:_FIRST_ROWS]} - {type(None)}
    if first <= {bool} and first:
        return pa.array([cell if isinstance(cell, bool) else None for cell in cells], pa.bool_())
    if first <= {int, float}:
        return pa.array([float(cell) if type(cell) in (int, float) else None for cell in cells], pa.float64())
    if first <= {datetime.datetime, datetime.date}:
        return pa.array([cell if isinstance(cell, datetime.date) else None for cell in cells], pa.timestamp("us"))
    return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())


def arrow_table(frame: Any) -> Any:
    """Return a data frame of pandas, polars or Arrow (or anything with Arrow's own interface) as an Arrow table."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    pandas = type(frame).__module__.partition(".")[0] == "pandas"
    if pandas:
        refuse_same_names([str(name) for name in getattr(frame, "columns", ())])
    try:
        if hasattr(frame, "to_arrow"):
            return frame.to_arrow()  # polars
        if pandas:
            # Mixed objects cannot be converted: said below, in words that quote none of them.
            return pa.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):
        mixed = True
    else:
        mixed = False
    if mixed:
        names = ", ".join(map(repr, _mixed(frame))) or "a column of the data frame"
        raise GratisError(
            f"{names} holds values of several types: make text of it, frame.astype({{name: str}}), and name it in "
            "numeric=[…] if it should hold numbers, where other cells are missing"
        )
    raise GratisError("expected a data frame of pandas, polars or Arrow")


def _mixed(frame: Any) -> list[str]:
    """The columns of a pandas frame that Arrow has no type for."""
    found = []
    for name in getattr(frame, "columns", ()):
        try:
            pa.Array.from_pandas(frame[name])
        except (pa.ArrowException, TypeError, ValueError):
            found.append(str(name))
    return found
