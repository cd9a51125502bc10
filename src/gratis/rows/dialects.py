"""How a text file is written: encoding, separator, decimal sign. Told by the user, or read off public facts.

Public are the byte-order mark, the header line and the file's name. What cells hold is not looked at, except that the
types of columns (and with them the decimal sign) are guessed from the first cells, as certificates state.
"""

from __future__ import annotations

import codecs
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gratis.records.errors import GratisError

__all__ = ["Dialect", "known_decimal", "read_dialect", "text_stream"]

_HEAD_BYTES = 2**16
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How cells are written; `decimal` None: each column by its first cells (`gratis.rows.amounts`)."""

    encoding: str = "utf-8"
    separator: str = ","
    decimal: str | None = None


def read_dialect(
    path: Path, *, encoding: str | None = None, separator: str | None = None, decimal: str | None = None
) -> Dialect:
    """Return the dialect of a text file: what was told, and the rest from its first bytes and its header line."""
    if encoding is not None:
        encoding = _known(encoding)
    if separator is not None:
        separator = _NAMES.get(separator, separator)
        if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
            raise GratisError("the separator must be one character, such as ';', or 'tab'")
    head = _head(path)
    encoding = encoding or _encoding(head)
    header = head.decode(encoding, errors="replace").lstrip("\ufeff").split("\n", 1)[0]
    tabbed = ".tsv" in path.name.lower() and "\t" in header
    return Dialect(encoding, separator or ("\t" if tabbed else _separator(header)), known_decimal(decimal))


def text_stream(path: Path, encoding: str) -> Any:
    """Open a text file, packed or not, as a stream of UTF-8 bytes. Bytes that the encoding lacks raise nothing."""
    source = pa.input_stream(str(path), compression="detect")
    return source if encoding == "utf-8" else pa.PythonFile(_Transcoded(source, encoding), mode="r")


class _Transcoded(io.RawIOBase):
    """Bytes of one encoding as those of UTF-8, in pieces; a character split between pieces is put together."""

    def __init__(self, source: Any, encoding: str) -> None:
        super().__init__()
        self._source, self._rest = source, b""
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._rest) < size:
            piece = self._source.read(_HEAD_BYTES)
            self._rest += self._decoder.decode(piece, final=not piece).encode()
            if not piece:
                break
        taken, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return taken

    def close(self) -> None:
        self._source.close()
        super().close()


def known_decimal(decimal: str | None) -> str | None:
    """The decimal sign that was told, if any."""
    if decimal not in (None, ".", ","):
        raise GratisError(f"the decimal sign must be '.' or ',', got {decimal!r}")
    return decimal


def _known(encoding: str) -> str:
    try:
        found = codecs.lookup(encoding).name
        "a".encode(found)  # refuses codecs of bytes and of text, such as zip and rot13
    except (LookupError, ValueError, TypeError):
        found = ""
    if not found:
        raise GratisError(f"unknown encoding {encoding!r}; expected utf-8, latin-1, windows-1252, utf-16 or the like")
    return found


def _head(path: Path) -> bytes:
    try:
        with pa.input_stream(str(path), compression="detect") as source:
            return bytes(source.read(_HEAD_BYTES))
    except (pa.ArrowException, OSError):
        pass
    raise GratisError(f"{path.name!r} cannot be opened: it is damaged, or packed in another way than its ending says")


def _encoding(head: bytes) -> str:
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    header = head.split(b"\n", 1)[0]
    if b"\0" in header:
        return "utf-16-be" if header[:1] == b"\0" else "utf-16-le"
    try:
        header.decode()
    except UnicodeDecodeError:
        return "cp1252"  # what remains of one byte a letter; Latin-1 is the same for letters
    return "utf-8"


def _separator(header: str) -> str:
    """The separator that occurs most outside of quotes; the comma where none does."""
    bare = "".join(header.split('"')[::2])
    return max(_SEPARATORS, key=lambda separator: bare.count(separator))
