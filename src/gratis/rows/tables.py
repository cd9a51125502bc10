"""Tables in files, read in batches in their stored order: Parquet (or a folder of it), Arrow IPC (Feather 2), CSV.

JSON lines, Excel sheets and data frames, which are held in memory: `gratis.rows.frames`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from gratis.records.errors import ChangedTableError, GratisError
from gratis.rows.amounts import Writing, unreadable, written
from gratis.rows.dialects import known_decimal, read_dialect, text_stream

__all__ = [
    "ArrowTable",
    "CSVTable",
    "ParquetFolder",
    "ParquetTable",
    "Table",
    "open_table",
    "pandas_index",
    "refuse_headless",
    "refuse_same_names",
    "unreadable",
]

_BUFFER_BYTES = 2**16
_END_BYTES = 2**16  # holds the footer of most Parquet files: sizes, places and ranges of all columns
_PARQUET_NUMBERS, _PARQUET_ROWS = 2**21, 2**16  # decoded together: a call a column and batch costs more than the cells
FIRST_BYTES = 2**22  # of text, from which types are guessed; a wide row may take 100 kB, and a block costs calls
MISSING = ["", "?", "NA", "N/A", "#N/A", "nan", "NaN", "NAN", "null", "NULL", "None"]
_NUMBER_IN_HEADER = (
    r"^[+-]?[$€£]?(\d[\d., ]*([eE][+-]?\d+)?%?|[.,]\d+|\d+[-/.:]\d+[-/.:]\d+.*)$|^(?i:nan|na|n/a|null|none|\?)$"
)
_LEAST_COUNTED = 4  # fewer numbers in a row are seen in records, too
_FIRST = 1000  # cells, from which it is seen how a column writes numbers and dates


class Table(ABC):
    """Column names and types, the number of rows where the format stores it, and record batches."""

    path: Path
    types: dict[str, Any]
    n_rows: int | None
    states_types: bool = True  # or guessed from the first cells
    is_text: bool = False  # parsed at every reading
    skips: bool = False  # whether rows can be read without those before them
    held: bool = False  # whole in memory: whoever is sent a part of it is sent all of it
    for_python: bool = False  # refusals name options of the command line, or parameters
    index_columns: tuple[str, ...] = ()  # what pandas says that it wrote as an index
    decimal: str | None = None  # of numbers in text, where it was told

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise GratisError(f"there is no file {os.fspath(path)!r}")
        self._as_opened = self._stamp()
        self._open_head()
        self._content_as_opened = self._content()

    @abstractmethod
    def _open_head(self) -> None:
        """Read names and types of the columns, and the number of rows where it is stored."""

    @abstractmethod
    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        """Yield record batches of the chosen columns, of any length up to batch_rows."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        """Yield record batches of at most batch_rows rows in stored order.

        Raise `ChangedTableError` at the end if the file was written to meanwhile: of the old and the new rows, one
        could have been read twice. Between two readings it may change, each is of one file.
        """
        seen = self._seen()
        try:
            for batch in self._read(columns, batch_rows):
                sound = batch if self.is_text else _sound(batch)
                for start in range(0, batch.num_rows, batch_rows):
                    yield sound.slice(start, batch_rows)
            if self._seen() != seen:
                raise ChangedTableError
            return
        except (pa.ArrowException, OSError):
            pass
        # Arrow's own message may quote a cell: raised outside the handler, so that no context holds it.
        raise GratisError("the file is damaged, or its rows do not all have the same columns")

    def first_cells(self, names: Sequence[str]) -> dict[str, Any]:
        """The first cells of columns of text, those that are not missing."""
        batch = next(iter(self.batches(names, _FIRST)), None) if names else None
        cells = {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
        return {
            name: (found.dictionary_decode() if pa.types.is_dictionary(found.type) else found)
            .cast(pa.string())
            .drop_null()
            for name, found in cells.items()
        }

    @cached_property
    def writing(self) -> Writing:
        """How columns whose cells are text write numbers, by the first of them."""
        return written(self.first_cells([n for n, kind in self.types.items() if self._is_written(kind)]), self.decimal)

    def _is_written(self, kind: Any) -> bool:
        return _family(kind) == "text"

    def span(self, columns: Sequence[str], batch_rows: int, start: int, stop: int) -> Iterator[Any]:
        """Yield batches of the rows start … stop−1, and raise `ChangedTableError` if this is another file by now.

        Of two files a row could be in two spans. What comes before a span is read, unless the format can skip it.
        """
        self._refuse_other_content()
        yield from self._span(columns, batch_rows, start, stop)
        self._refuse_other_content()

    def _span(self, columns: Sequence[str], batch_rows: int, start: int, stop: int) -> Iterator[Any]:
        position = 0
        for batch in self.batches(columns, batch_rows):
            first, last = max(start - position, 0), min(stop - position, batch.num_rows)
            if first < last:
                yield batch.slice(first, last - first)
            position += batch.num_rows
            if position >= stop:
                return

    def changed(self) -> bool:
        """Say whether the file is no longer the one that was opened: its size, time of change, or columns."""
        try:
            return self._stamp() != self._as_opened or self._reopened().types != self.types
        except (GratisError, OSError):
            return True

    def refuse_changed(self) -> None:
        """Refuse a file that changed: asked when its rows have been read, and before anything is paid for them."""
        if self.changed():
            raise GratisError(
                f"{self.path.name!r} changed after it was opened: nothing was spent on a model, start again"
            )

    def _refuse_other_content(self) -> None:
        if self._content() != self._content_as_opened:
            raise ChangedTableError

    def _seen(self) -> tuple[Any, ...]:
        """What a write to the file changes."""
        return (*self._stamp(), *self._content())

    def _content(self) -> tuple[Any, ...]:
        """Size and last bytes: the same on every machine, where the time of change may differ."""
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END_BYTES))
            return size, hashlib.sha256(file.read()).digest()

    def _reopened(self) -> Table:
        return type(self)(self.path)

    def _stamp(self) -> tuple[Any, ...]:
        facts = self.path.stat()
        return facts.st_size, facts.st_mtime_ns

    def count_rows(self) -> int:
        """Return the number of rows, reading the file once where the format does not store it."""
        if self.n_rows is not None:
            return self.n_rows
        return sum(batch.num_rows for batch in self.batches(list(self.types)[:1], 2**20))


class ParquetTable(Table):
    """A Parquet file; only the chosen columns are read, through small buffers, so row groups may be large."""

    skips = True

    def _open_head(self) -> None:
        try:
            with self._open() as file:
                self.types = _types(file.schema_arrow)
                self.index_columns = pandas_index(file.schema_arrow)
                self.n_rows = file.metadata.num_rows
                return
        except (pa.ArrowException, OSError):
            pass
        raise GratisError(f"{self.path.name!r} is damaged, or no Parquet file")

    def _open(self) -> Any:
        # pre_buffer would read whole row groups ahead.
        return pa.parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=_BUFFER_BYTES)

    def _read(self, columns: Sequence[str], batch_rows: int, row_groups: Sequence[int] | None = None) -> Iterator[Any]:
        several = min(_PARQUET_ROWS, _PARQUET_NUMBERS // max(1, len(columns))) // batch_rows
        with self._open() as file:
            yield from file.iter_batches(
                batch_size=batch_rows * max(1, several), columns=list(columns), row_groups=row_groups
            )

    def _span(self, columns: Sequence[str], batch_rows: int, start: int, stop: int) -> Iterator[Any]:
        with self._open() as file:
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        ends = np.cumsum(sizes)
        held = [group for group, end in enumerate(ends) if end > start and end - sizes[group] < stop]
        if held:
            before = int(ends[held[0]] - sizes[held[0]])
            part = _RowGroups(self, held)
            yield from part._span(columns, batch_rows, start - before, stop - before)


class _RowGroups(Table):
    """Some consecutive row groups of a Parquet file."""

    def __init__(self, whole: ParquetTable, groups: Sequence[int]) -> None:
        self._whole, self._groups = whole, groups

    def _open_head(self) -> None:
        """Nothing: the whole file was opened."""

    def _seen(self) -> tuple[Any, ...]:
        return ()  # `span` compares the file

    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        yield from self._whole._read(columns, batch_rows, self._groups)


class ParquetFolder(Table):
    """All Parquet files of a folder as one table, in the order of their names; they must have the same columns.

    Types are those of the first file. Of numbers, and of texts, others may have another one: a single missing value in
    a file makes its writer choose it.
    """

    skips = True

    def _open_head(self) -> None:
        self._files = [ParquetTable(path) for path in self._paths()]
        if not self._files:
            raise GratisError(f"there is no .parquet file in {self.path.name!r}")
        self.types, self.index_columns = self._files[0].types, self._files[0].index_columns
        self.n_rows = sum(file.n_rows or 0 for file in self._files)
        for file in self._files:
            if not _alike(file.types, self.types):
                raise GratisError(f"{file.path.name!r} has other columns or types than {self._files[0].path.name!r}")
            file.types = self.types  # one object: a block of a cluster's rows is sent with it

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.path.iterdir() if path.name.lower().endswith(".parquet"))

    def _content(self) -> tuple[Any, ...]:
        return ()  # every file has its own

    def _stamp(self) -> tuple[Any, ...]:
        return tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self._paths())

    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        for file in self._files:
            yield from file._read(columns, batch_rows)

    def span(self, columns: Sequence[str], batch_rows: int, start: int, stop: int) -> Iterator[Any]:
        """Yield batches of the rows start … stop−1, from the files that hold them."""
        before = 0
        for file in self._files:
            size = file.n_rows or 0
            first, last = max(start - before, 0), min(stop - before, size)
            if first < last:
                yield from file.span(columns, batch_rows, first, last)
            before += size


class ArrowTable(Table):
    """An Arrow IPC (Feather 2) file, memory-mapped."""

    def _open_head(self) -> None:
        try:
            with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as reader:
                self.types = _types(reader.schema)
                self.index_columns = pandas_index(reader.schema)
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
    """A text file of cells with a header, packed or not; its number of rows is not stored.

    A column's type is the one that its first block of cells suggests. Cells are read as bytes, so that one that does
    not fit, or is no UTF-8, becomes a missing value and not an error in the middle of a pass. In `broken` stand the
    columns in which that happened because of the encoding, for whoever checks before anything is spent.
    """

    n_rows = None
    states_types = False
    is_text = True

    def __init__(self, path: str | os.PathLike[str], **told: str | None) -> None:
        self._told = told
        self.broken: set[str] = set()
        super().__init__(path)

    def _open_head(self) -> None:
        if self.path.stat().st_size == 0:
            raise GratisError(f"{self.path.name!r} is empty")
        self.dialect = read_dialect(self.path, **self._told)
        self.decimal = self.dialect.decimal
        self.types = self._guessed(".")
        if self.writing.commas:
            comma = self._guessed(",")
            self.types |= {name: comma[name] for name in self.writing.commas if _family(comma[name]) == "number"}
        if any(map(_is_text, self.types.values())):  # 31.12.2015, which no country writes in another order
            dated = self._guessed(".", "%d.%m.%Y")
            self.types |= {
                name: pa.date32()
                for name, kind in self.types.items()
                if _is_text(kind) and pa.types.is_timestamp(dated[name])
            }

    def _is_written(self, kind: Any) -> bool:
        return _family(kind) in ("text", "number")

    def _guessed(self, decimal: str, date: str | None = None) -> dict[str, Any]:
        with self._open(None, decimal, date) as reader:
            refuse_headless(reader.schema)
            found = _types(reader.schema)
        # Where a first cell is no UTF-8 Arrow says bytes: it is text all the same, of another encoding.
        return {name: pa.string() if pa.types.is_binary(kind) else kind for name, kind in found.items()}

    def _reopened(self) -> Table:
        return type(self)(self.path, **self._told)

    def _open(self, columns: Sequence[str] | None, decimal: str = ".", date: str | None = None) -> Any:
        try:
            return pa.csv.open_csv(
                text_stream(self.path, self.dialect.encoding),
                read_options=pa.csv.ReadOptions(block_size=FIRST_BYTES),
                # Otherwise how a row is cut would depend on the length of the rows before it.
                parse_options=pa.csv.ParseOptions(newlines_in_values=True, delimiter=self.dialect.separator),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=columns,
                    column_types={name: pa.binary() for name in columns or ()},
                    null_values=MISSING,
                    strings_can_be_null=True,
                    decimal_point=decimal,
                    timestamp_parsers=None if date is None else [date],
                ),
            )
        except (pa.ArrowException, OSError, UnicodeError):
            pass
        raise GratisError(
            "the CSV file could not be read; it needs a header and rows of equal length (read as "
            f"--encoding {self.dialect.encoding} --separator {self.dialect.separator!r}: give others if they are wrong)"
        )

    def _read(self, columns: Sequence[str], batch_rows: int) -> Iterator[Any]:
        with self._open(columns) as reader:
            for batch in reader:
                cells = [self._text(name, cells) for name, cells in zip(batch.schema.names, batch.columns, strict=True)]
                yield pa.RecordBatch.from_arrays(cells, batch.schema.names)

    def _text(self, name: str, cells: Any) -> Any:
        """Bytes as text; a cell that cannot be decoded is missing, and the others are read as if it were not there."""
        try:
            return cells.cast(pa.string())
        except pa.ArrowInvalid:
            self.broken.add(name)
        return pa.array([_decoded(cell) for cell in cells.to_pylist()], pa.string())


def open_table(
    path: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    columns: Iterable[str] | None = None,
) -> Table:
    """Open a file by its ending, or a folder of Parquet files.

    Text (.csv, .tsv, .txt) may be packed (.gz, .bz2, .zst); `encoding` and `separator` are told or read off the header
    (`gratis.rows.dialects`). Also .parquet, .arrow, .feather, .jsonl, .ndjson and .xlsx. `decimal` is the sign of
    numbers in text, told or seen in the first cells; `columns` are the keys of JSON lines that are read, by default
    those of the first lines.
    """
    told = {"encoding": encoding, "separator": separator, "decimal": decimal}
    name = Path(path).name.lower()
    bare = name.removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")
    if bare.endswith((".csv", ".tsv", ".txt")) and not Path(path).is_dir():
        return CSVTable(path, **told)
    if encoding or separator:
        raise GratisError("encoding and separator belong to text files such as .csv")
    table = _open_other(path, name, bare, columns)
    table.decimal = known_decimal(decimal)
    return table


def _open_other(path: str | os.PathLike[str], name: str, bare: str, columns: Iterable[str] | None) -> Table:
    if Path(path).is_dir():
        return ParquetFolder(path)
    if name.endswith((".parquet", ".pq")):
        return ParquetTable(path)
    if name.endswith((".arrow", ".feather")):
        return ArrowTable(path)
    if bare.endswith((".jsonl", ".ndjson")) or name.endswith(".xlsx"):
        from gratis.rows.frames import ExcelTable, JSONLinesTable

        return ExcelTable(path) if name.endswith(".xlsx") else JSONLinesTable(path, columns)
    raise GratisError(
        f"expected a .csv, .tsv, .txt (or one of them with .gz, .bz2, .zst), .parquet, .arrow, .feather, .jsonl or "
        f".xlsx file, or a folder of .parquet files, got {Path(path).name!r}"
    )


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two files have the same columns, each of numbers in both, or of texts, or of the same type, or empty."""
    return one.keys() == other.keys() and all(
        kind == other[name] or _family(kind) == _family(other[name]) or None in (_family(kind), _family(other[name]))
        for name, kind in one.items()
    )


def _family(kind: Any) -> str | None:
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "number" if number else "text" if _is_text(kind) else str(kind)


def _sound(batch: Any) -> Any:
    """The batch with a cell of text that is no UTF-8 missing; formats other than text do not check that."""
    for place, column in enumerate(batch.columns):
        kind = column.type
        if not _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            cells = column.dictionary_decode() if pa.types.is_dictionary(kind) else column
            cells = cells.cast(pa.large_binary() if pa.types.is_large_string(cells.type) else pa.binary())
            text = pa.array([_decoded(cell) for cell in cells.to_pylist()], pa.string())
            batch = batch.set_column(place, batch.schema.names[place], text)
    return batch


def _decoded(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


def _types(schema: Any) -> dict[str, Any]:
    """Names and types of the columns, each name once: by its name alone a second could not be found."""
    try:
        names = schema.names
    except UnicodeDecodeError:
        names = None  # the exception holds the header's bytes: it must not be the context of ours
    if names is None:
        raise GratisError("the names of the columns must be UTF-8 text")
    refuse_same_names(names)
    return dict(zip(names, schema.types, strict=True))


def refuse_same_names(names: Sequence[str]) -> None:
    """Refuse a name that two columns have."""
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise GratisError(f"the column name {twice!r} occurs more than once; rename one of them")


def refuse_headless(schema: Any) -> None:
    """Refuse a header that looks like a record: names of columns are public and printed, a first record is neither.

    A third of its cells being numbers is too many, unless they count something (0, 1, 2, 3 or 2010, 2015, 2020, 2025).
    """
    try:
        names = [name.strip() for name in schema.names if name.strip()]
    except UnicodeDecodeError:
        return  # `_types` says it
    found = [name for name in names if re.match(_NUMBER_IN_HEADER, name)]
    whole = [int(name) for name in found if re.match(r"^\d{1,9}$", name)]
    steps = {after - before for before, after in pairwise(whole)}
    counting = len(whole) == len(found) >= _LEAST_COUNTED and len(steps) == 1 and min(steps) > 0
    if not names or (3 * len(found) >= len(names) and found and not counting):
        raise GratisError(
            "the file seems to have no header: its first row looks like a record, and names of columns would be "
            "published; write a first row of names, with words in them, into the file (its cells are not shown here)"
        )


def pandas_index(schema: Any) -> tuple[str, ...]:
    """Names of the columns that pandas' own metadata calls its index."""
    try:
        named = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return tuple(name for name in named if isinstance(name, str))
    except (ValueError, AttributeError, TypeError):
        return ()  # metadata of another writer
