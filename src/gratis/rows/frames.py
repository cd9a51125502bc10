"""Tables in memory: data frames of pandas, polars or Arrow, JSON lines and Excel sheets.

What states no types (JSON lines, sheets, objects in a data frame) gets them from its first cells, as a CSV file does:
no later record decides what a column is called or holds. A cell that does not fit is missing.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain, islice
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gratis.records.errors import GratisError
from gratis.records.extras import missing_extra
from gratis.rows.tables import FIRST_BYTES, MISSING, Table, _types, pandas_index, refuse_headless, refuse_same_names

__all__ = ["ExcelTable", "FrameTable", "JSONLinesTable", "arrow_table", "by_first_cells"]

_FIRST_ROWS = 1000  # of objects, from which the types of columns are guessed
_LINES_AT_ONCE = 2**14
_WHOLE = 2**53  # larger numbers are names rather than numbers: two of them may be one as a float


class FrameTable(Table):
    """A data frame that is in memory already; it has no file, and does not change."""

    held = True
    for_python = True

    def __init__(self, frame: Any, name: str = "the data frame") -> None:
        self.path = Path(name)
        self._hold(arrow_table(frame))

    def _hold(self, table: Any, types: dict[str, Any] | None = None) -> None:
        """Keep a table; its columns are of its own types, or of `types` where cells are kept as text."""
        self._table, self.n_rows = table, table.num_rows
        self.types, self.index_columns = types or _types(table.schema), pandas_index(table.schema)

    def _open_head(self) -> None:
        raise NotImplementedError

    def changed(self) -> bool:
        """Never: it is this object's own."""
        return False

    def _refuse_other_content(self) -> None:
        """Never: what is read is what is held."""

    def _seen(self) -> tuple[Any, ...]:
        return ()

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
        """Say whether the file is no longer the one that was opened; what is used of it is held."""
        try:
            return self._stamp() != self._as_opened
        except OSError:
            return True


class _Number(str):
    """A number of a JSON file as it was written; read later, by itself, as the cells of a CSV file are."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=lambda _: None)


class JSONLinesTable(_HeldFile):
    """One JSON object a line; its keys are the columns.

    Which there are is told (`columns`), or said by the first lines, as many bytes of them as of a CSV file; those say
    the types. Other keys are ignored, a later line that is no object is a record without cells, and cells are kept as
    text: what does not fit its column is found as in a CSV file.
    """

    states_types = False

    def __init__(self, path: Any, columns: Iterable[str] | None = None) -> None:
        self._columns = columns
        super().__init__(path)

    def _open_head(self) -> None:
        try:
            with pa.input_stream(str(self.path), compression="detect") as source:
                lines = (line for line in io.BufferedReader(source) if line.strip())
                first, types = self._first(lines)
                records, parts = chain(first, (_record(line) or {} for line in lines)), []
                while some := list(islice(records, _LINES_AT_ONCE)):
                    parts.append(pa.table({name: _texts(record.get(name) for record in some) for name in types}))
        except (pa.ArrowException, OSError, EOFError):
            parts = []
        if not parts:
            raise GratisError(f"{self.path.name!r} cannot be read: every line must be a JSON object")
        self._hold(pa.concat_tables(parts), types)

    def _first(self, lines: Iterator[bytes]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The first records, and the columns that they have; nothing if one of them is none."""
        found, size = list[dict[str, Any]](), 0
        for line in lines:
            record = _record(line.removeprefix(b"\xef\xbb\xbf") if not found else line)
            if record is None:
                raise OSError
            found.append(record)
            size += len(line)
            if size >= FIRST_BYTES:
                break
        names = dict.fromkeys(chain.from_iterable(found) if self._columns is None else self._columns)
        if any(_text(name) is None and name for name in names):
            raise OSError
        return found, {name: _json_type(record.get(name) for record in found) for name in names}


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = _DECODER.decode(line.decode("utf-8", "surrogateescape").strip())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _json_type(cells: Iterable[Any]) -> Any:
    known = [cell for cell in cells if _text(cell) is not None or isinstance(cell, (list, dict))]
    kinds = {type(cell) for cell in known}
    if not kinds:
        return pa.null()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {_Number}:
        return pa.float64() if any({*cell} & {*".eE"} for cell in known) else pa.int64()
    return pa.list_(pa.null()) if kinds <= {list, dict} else pa.string()


def _text(cell: Any) -> str | None:
    """A cell as text; None where it is missing, no single value, or no UTF-8."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if not isinstance(cell, str) or cell in MISSING:
        return None
    try:
        cell.encode()
    except UnicodeEncodeError:
        return None
    return cell


def _texts(cells: Iterable[Any]) -> Any:
    return pa.array(map(_text, cells), pa.string())


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
            raise missing_extra("Excel files need openpyxl", "excel", "; or save the sheet as CSV")
        try:
            with self.path.open("rb") as file:  # of a path the reader would keep its file open
                sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
                rows = list(sheet.iter_rows(values_only=True))
        except Exception:  # whatever a damaged archive makes its reader raise, which may quote cells
            rows = []
        if not rows:
            raise GratisError(f"{self.path.name!r} is damaged, or its first sheet is empty")
        # A cell far to the right of the table makes every row as long: what has no name at the end is no column.
        names = ["" if name is None else str(name) for name in rows[0]]
        while names and not names[-1].strip():
            names.pop()
        columns = [
            by_first_cells([row[place] if place < len(row) else None for row in rows[1:]])
            for place in range(len(names))
        ]
        found = pa.Table.from_arrays(columns, names=names)
        refuse_headless(found.schema)
        self._hold(found)


def by_first_cells(cells: list[Any]) -> Any:
    """Objects as a column of the type that the first of them have; another cell is missing.

    >>> by_first_cells([1, None, 2.5] + [3.0] * 1000 + ["three", True]).null_count
    3
    >>> by_first_cells([1, "two", datetime.date(2013, 1, 2)]).to_pylist()
    ['1', 'two', '2013-01-02']
    """
    kinds = {kind for cell in cells[:_FIRST_ROWS] if (kind := _kind(cell)) is not None}
    if kinds == {bool}:
        return pa.array([bool(cell) if _kind(cell) is bool else None for cell in cells], pa.bool_())
    if kinds <= {float}:
        return pa.array([_float(cell) for cell in cells], pa.float64())
    if kinds <= {datetime.date, datetime.datetime}:
        moments = [_moment(cell) if _kind(cell) in (datetime.date, datetime.datetime) else None for cell in cells]
        stamps = pa.array(moments, pa.timestamp("us"))
        return stamps.cast(pa.date32()) if kinds == {datetime.date} else stamps
    if kinds == {datetime.time}:
        return pa.array([cell if _kind(cell) is datetime.time else None for cell in cells], pa.time64("us"))
    if kinds == {object}:
        return pa.nulls(len(cells), pa.binary())  # lists, bytes and the like, which nothing reads
    return _texts(None if _kind(cell) in (None, object) else str(cell) for cell in cells)


def _kind(cell: Any) -> type | None:
    """What a cell is: one of a few types; None where it is missing."""
    if cell is None or (isinstance(cell, (float, np.floating, Decimal)) and cell != cell):
        return None
    if isinstance(cell, (bool, np.bool_)):
        return bool
    if isinstance(cell, Integral) and abs(int(cell)) > _WHOLE:
        return str
    if isinstance(cell, (int, float, np.number, Decimal)) and not isinstance(cell, np.complexfloating | np.timedelta64):
        return float
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(cell, datetime.datetime):
        return datetime.datetime
    return next((kind for kind in (datetime.date, datetime.time, str) if isinstance(cell, kind)), object)


def _float(cell: Any) -> float | None:
    try:
        return float(cell) if _kind(cell) is float else None
    except OverflowError:
        return None


def _moment(cell: datetime.date) -> datetime.datetime:
    """A day, or a moment on the clock that wrote it."""
    clock = (cell.hour, cell.minute, cell.second, cell.microsecond) if isinstance(cell, datetime.datetime) else ()
    return datetime.datetime(cell.year, cell.month, cell.day, *clock)


def _objects(frame: Any) -> list[Any]:
    """The columns of a pandas frame that hold objects of any type."""
    if type(frame).__module__.partition(".")[0] != "pandas" or not hasattr(frame, "columns"):
        return []
    return [name for name, kind in frame.dtypes.items() if _of_objects(kind)]


def _of_objects(kind: Any) -> bool:
    categories = getattr(kind, "categories", None)
    kind = kind if categories is None else categories.dtype
    return isinstance(kind, np.dtype) and kind.hasobject


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
        if pandas and hasattr(frame, "columns"):
            typed = pa.Table.from_pandas(frame.drop(columns=(objects := _objects(frame))), preserve_index=False)
            columns = {
                str(name): by_first_cells(frame[name].tolist()) if name in objects else typed.column(str(name))
                for name in frame.columns
            }
            return pa.table(columns, metadata=typed.schema.metadata)
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):
        unknown = True
    else:
        unknown = False
    if unknown:
        raise GratisError("the data frame has a column of a type that Arrow lacks: convert it, or leave it out")
    raise GratisError("expected a data frame of pandas, polars or Arrow")
