"""The file: one SQLite database, written durably, read with every byte checked.

Rollback journal, not WAL: at rest the ledger is one file, so a copy can never leave reservations behind in a
side file, and its bytes are a function of its entries alone, which `read` exploits. The price, that a writer
blocks readers for a few milliseconds, is nothing for a file written twice a run. synchronous=EXTRA also
flushes the directory once the journal is gone: otherwise a power cut could bring the journal back and undo a
reservation that was already reported.
"""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gratis.ledger.chain import Entry, read_chain, sha256_hex
from gratis.records.errors import LedgerError

__all__ = ["FORMAT", "Snapshot", "append", "create_file", "read", "transact", "writer"]

FORMAT = 1
_APPLICATION_ID = 0x47524C44  # "GRLD"
_BUSY_SECONDS = 60.0
_Result = TypeVar("_Result")

_SCHEMA = {
    "entries": "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, entry TEXT NOT NULL, hash TEXT NOT NULL)",
    "no_update": "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN"
    " SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "no_delete": "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN"
    " SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    # INSERT OR REPLACE deletes without firing no_delete; insisting on the next number closes that door.
    "next_only": "CREATE TRIGGER next_only BEFORE INSERT ON entries"
    " WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence) + 1, 0) FROM entries) BEGIN"
    " SELECT RAISE(ABORT, 'the ledger is append-only'); END",
}
_SCHEMA_ROWS = [(sql.split()[1].lower(), name, "entries", sql) for name, sql in _SCHEMA.items()]
_INSERT = "INSERT INTO entries (sequence, entry, hash) VALUES (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The verified content of a ledger file; `every_byte` tells whether its whole image was reproduced."""

    entries: tuple[Entry, ...]
    every_byte: bool

    @property
    def head(self) -> Entry:
        """The newest entry."""
        return self.entries[-1]


def _damaged(path: Path, what: str) -> LedgerError:
    return LedgerError(f"the ledger {path} is damaged: {what}; restore it from a copy, and reserve nothing until then")


@lru_cache(maxsize=1)
def writer() -> str:
    """Return SQLite's version number and a digest of its build; the layout of the file may depend on both."""
    with closing(sqlite3.connect(":memory:")) as connection:
        options = [row[0] for row in connection.execute("PRAGMA compile_options")]
        source = connection.execute("SELECT sqlite_source_id()").fetchone()[0]
    major, minor, patch = sqlite3.sqlite_version_info
    return f"{major * 1_000_000 + minor * 1_000 + patch}-{sha256_hex(chr(10).join([source, *options]))[:16]}"


def _lay_out(connection: sqlite3.Connection, rows: Sequence[tuple[int, str, str]]) -> None:
    """Write a whole ledger into an empty database; every setting that shapes the file is stated."""
    for pragma in ("page_size = 4096", "auto_vacuum = NONE", "encoding = 'UTF-8'", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN IMMEDIATE")
    for sql in _SCHEMA.values():
        connection.execute(sql)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.executemany(_INSERT, rows)
    connection.execute("COMMIT")


def create_file(path: Path, entries: Sequence[Entry]) -> None:
    """Create the file with its first entries: complete and durable under its name, or not there at all."""
    if not path.parent.is_dir():
        raise LedgerError(f"the ledger {path} cannot be created: its folder does not exist")
    for existing in (path, *(path.with_name(path.name + suffix) for suffix in ("-journal", "-wal"))):
        # SQLite would play a left-over journal of that name back into the new file.
        if os.path.lexists(existing):
            raise LedgerError(f"{existing} exists already and is not overwritten; open it, or choose another path")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ledger-") as folder:
            draft = Path(folder) / "ledger"
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("PRAGMA synchronous = EXTRA")
                _lay_out(connection, [(e.sequence, e.text, e.hash) for e in entries])
            os.link(draft, path)  # unlike rename, link refuses to overwrite
        _flush_directory(path.parent)
    except FileExistsError:
        raise LedgerError(f"{path} exists already and is not overwritten; open it, or choose another path") from None
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"the ledger {path} cannot be created here ({error})") from None


def _flush_directory(folder: Path) -> None:
    with suppress(OSError):  # some systems cannot open a directory; the file itself is already durable
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def transact(path: Path, work: Callable[[sqlite3.Connection], _Result], *, write: bool) -> _Result:
    """Run `work` inside one transaction; on return what it wrote is on the disk, whole.

    On an error nothing was written; only if the disk fails during COMMIT is that unknown, and the message says
    to check the file.
    A connection lives for one transaction only: SQLite's must not cross a fork, and so a `Ledger` may.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return _attempt(path, work, write=write)
        except (UnicodeDecodeError, MemoryError):
            # The sqlite3 module itself stumbles over a mangled schema or size.
            raise _damaged(path, "its pages hold nonsense") from None
        except (sqlite3.Error, OSError) as error:
            code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                if time.monotonic() < deadline:
                    time.sleep(random.uniform(0.001, 0.02))
                    continue
                raise LedgerError(
                    f"the ledger {path} stayed locked by another process for {_BUSY_SECONDS:g} seconds; "
                    "nothing was written, try again"
                ) from None
            if not path.is_file():
                raise LedgerError(f"there is no ledger at {path}; create one first") from None
            if code == sqlite3.SQLITE_NOTADB:
                raise LedgerError(f"{path} is not a ledger of Gratis") from None
            if code in (0, sqlite3.SQLITE_CORRUPT):  # 0: the sqlite3 module could not decode a text
                raise _damaged(path, f"SQLite says '{error}'") from None
            raise LedgerError(f"the ledger {path} cannot be used ({error}); check the file before going on") from None


def _attempt(path: Path, work: Callable[[sqlite3.Connection], _Result], *, write: bool) -> _Result:
    # mode=rw never creates a missing file; SQLite itself falls back to reading if the file is read-only.
    uri = path.as_uri() + "?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_SECONDS / 2)) as connection:
        for pragma in (
            "synchronous = EXTRA",
            "secure_delete = ON",
            "cell_size_check = ON",
            "trusted_schema = OFF",
        ):
            connection.execute(f"PRAGMA {pragma}")
        # IMMEDIATE locks before the first read: between the check and the entry nobody else spends.
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        result = work(connection)
        connection.execute("COMMIT")  # an exception above closes the connection, which rolls back
        return result


def read(connection: sqlite3.Connection, path: Path) -> Snapshot:
    """Return the entries if nothing about the file is amiss: marks, schema, chain, every page's image."""
    marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if marks[0] != _APPLICATION_ID:
        raise LedgerError(f"{path} is not a ledger of Gratis")
    if marks[1] != FORMAT:
        raise LedgerError(f"{path} has ledger format {marks[1]}, this version of Gratis reads format {FORMAT}")
    schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid").fetchall()
    if schema != _SCHEMA_ROWS:
        raise _damaged(path, "its tables or triggers were changed")
    rows = connection.execute("SELECT sequence, entry, hash FROM entries ORDER BY sequence").fetchall()
    entries = read_chain(rows)
    if not entries:
        raise _damaged(path, "it has no entries")
    every_byte = _image_is_reproduced(connection, path, entries)
    if not every_byte:
        # Another SQLite build may lay pages out differently; what this build alone wrote must match.
        if all(entry.payload.get("writer") == writer() for entry in entries):
            raise _damaged(path, "its bytes are not those that its entries produce")
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise _damaged(path, "SQLite's integrity check fails")
    return Snapshot(entries, every_byte)


def _image_is_reproduced(connection: sqlite3.Connection, path: Path, entries: tuple[Entry, ...]) -> bool:
    """Tell whether writing the same entries into an empty database gives this file, byte for byte.

    This covers what neither the chain nor SQLite looks at, such as free space inside pages. The pages
    come through SQLite: to open and close the file here would drop the locks that other threads hold (POSIX).
    """
    image = bytearray(connection.serialize())
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as replica:
        _lay_out(replica, [(e.sequence, e.text, e.hash) for e in entries])
        expected = bytearray(replica.serialize())
    # Header: bytes 24–27 count the changes, 92–95 repeat that count, 96–99 are the version that wrote last.
    counters_agree = image[24:28] == image[92:96]
    version = str(int.from_bytes(image[96:100], "big"))
    version_agrees = str(entries[-1].payload.get("writer", "")).partition("-")[0] == version
    for header in (image, expected):
        header[24:28], header[92:100] = bytes(4), bytes(8)
    return counters_agree and version_agrees and image == expected and path.stat().st_size == len(image)


def append(connection: sqlite3.Connection, entry: Entry) -> None:
    """Add one entry inside a write transaction."""
    connection.execute(_INSERT, (entry.sequence, entry.text, entry.hash))
