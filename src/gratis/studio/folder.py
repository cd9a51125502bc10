"""The folder that the studio was started in: nothing outside it is read, written or named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from gratis.records.errors import GratisError

__all__ = ["LEDGERS", "MODELS", "TABLES", "WORK", "StudioFolder"]

_TEXTS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
TABLES = (
    ".parquet", ".pq", ".arrow", ".feather", ".xlsx",
    *(text + packed for text in _TEXTS for packed in ("", ".gz", ".bz2", ".zst")),
)  # fmt: skip
MODELS = (".gratis",)
LEDGERS = (".ledger",)
WORK = "gratis-studio"  # everything that the studio writes, ledgers apart, lies in this folder
_MOST_FILES, _DEEPEST = 500, 6
_NAME = re.compile(r"[\w][\w .()+-]{0,59}")


class StudioFolder:
    """Paths below one folder. A path is text relative to it; what leads outside, by whatever way, is refused."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise GratisError(f"there is no folder {os.fspath(root)!r}")

    def find(self, text: object, endings: tuple[str, ...]) -> Path:
        """Return an existing file with one of the endings."""
        path = self.inside(text)
        if not path.name.lower().endswith(endings):
            raise GratisError(f"expected a file that ends with {' or '.join(endings)}, got {path.name!r}")
        if not path.is_file():
            raise GratisError(f"there is no file {self.shown(path)!r}")
        return path

    def inside(self, text: object) -> Path:
        """Return the path, which need not exist; links are followed before it is compared."""
        if not isinstance(text, str) or not text or len(text) > 1000 or "\0" in text:
            raise GratisError("a path is a text of at most 1000 characters")
        parts = re.split(r"[/\\]" if os.name == "nt" else "/", text)
        if os.path.isabs(text) or ".." in parts or (os.name == "nt" and ":" in text):
            raise GratisError("a path must lie below the folder that the studio was started in")
        found = Path(os.path.realpath(self.root / text))
        if self.root not in found.parents:
            raise GratisError("a path must lie below the folder that the studio was started in")
        return found

    def shown(self, path: Path) -> str:
        """Return a path as it is shown and sent back."""
        return path.relative_to(self.root).as_posix()

    def files(self, endings: tuple[str, ...]) -> list[str]:
        """Names of files with these endings: no hidden ones, no links that lead outside, a bounded number of them."""
        found = []
        for path in self._walk():
            if path.name.lower().endswith(endings):
                found.append(self.shown(path))
            if len(found) >= _MOST_FILES:
                break
        return sorted(found)

    def _walk(self) -> Iterator[Path]:
        for place, folders, names in os.walk(self.root):
            depth = len(Path(place).relative_to(self.root).parts)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and depth < _DEEPEST)
            for name in sorted(names):
                path = Path(place, name)
                real = Path(os.path.realpath(path))
                if not name.startswith(".") and self.root in real.parents:
                    yield path

    def work(self, name: object) -> Path:
        """Return the folder of one run, by a name that is a plain file name."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith((".", " ")):
            raise GratisError("a name has 1 to 60 letters, digits, spaces or . _ ( ) + -, and begins with none of them")
        return self.inside(f"{WORK}/{name}")
