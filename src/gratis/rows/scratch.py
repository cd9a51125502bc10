"""The numbers of a text file in a scratch file: parsed once, and read from there at every release."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gratis.records.errors import GratisError
from gratis.records.progress import counted

__all__ = ["ScratchRows", "parsed_once", "scratch_folder"]

_ROOM = 1.1  # times the size of the numbers, before packing: what the disk must have free


class ScratchRows:
    """The rows of a stream, written once, in batches that are packed one by one.

    The file has no name: nobody else can open it, and the system removes it when this object or the process ends,
    however it ends (where a system cannot do that, on closing; a network file system may keep a hidden name until
    then). It holds the rows as they are, unencrypted.
    """

    def __init__(self, stream: Any, folder: Path) -> None:
        self.n_rows, self.n_features = stream.n_rows, stream.n_features
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with this object
        weakref.finalize(self, _closed, self._file)
        self._codec, self._parts = pa.Codec("lz4"), list[tuple[int, int]]()  # bytes and rows of every batch
        with counted("converting", self.n_rows) as advance:
            for X, y in stream.batches():
                packed = self._codec.compress(np.column_stack([X, y]).astype(np.float64), asbytes=True)
                self._file.write(packed)
                self._parts.append((len(packed), len(y)))
                advance(len(y))
        self._file.flush()  # a disk that is full is noticed here, and not at a release
        if sum(rows for _, rows in self._parts) != self.n_rows:
            raise GratisError(f"the source does not hold the {self.n_rows} rows that were declared; nothing was spent")

    def batches(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield (X, y) in stored order."""
        place, width = 0, self.n_features + 1
        for size, rows in self._parts:
            self._file.seek(place)
            place += size
            numbers = self._codec.decompress(self._file.read(size), 8 * rows * width)
            both = np.frombuffer(numbers, dtype=np.float64).reshape(rows, width)
            yield np.ascontiguousarray(both[:, :-1]), both[:, -1].copy()


def _closed(file: Any) -> None:
    with suppress(OSError):  # a full disk does not take what is left, which nobody needs
        file.close()


def parsed_once(stream: Any) -> Any:
    """The stream, or its numbers in a scratch file if it is text that would be parsed again for every release."""
    path = getattr(stream, "text_file", None)
    folder = None if path is None else scratch_folder(path, stream.n_rows, stream.n_features)
    if folder is None:
        return stream
    try:
        return ScratchRows(stream, folder)
    except OSError:  # a disk that is full after all
        return stream


def scratch_folder(path: Path, n_rows: int, n_features: int) -> Path | None:
    """Where the numbers of a file find room: beside it, else where temporary files go, else nowhere."""
    size = _ROOM * 8 * n_rows * (n_features + 1)
    for folder in (path.resolve().parent, Path(tempfile.gettempdir())):
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > size:
            return folder
    return None
