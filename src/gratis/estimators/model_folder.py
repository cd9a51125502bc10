"""A folder with a model and its certificate: written as a pair, durably, and before anything else is tried."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gratis.estimators.model_file import load_model, save_model
from gratis.estimators.release import uninterrupted
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError
from gratis.records.record import plain

if TYPE_CHECKING:
    from gratis.estimators.private_levels import FoundLevels

__all__ = ["ModelFolder"]

_MARK = "unfinished.json"
_PARTIAL = ".partial-"
_ADDITIONS = ("evaluation-certificate.json", "report.html", "report-figure-*.png")


class ModelFolder:
    """`model.gratis` and `certificate.json` in one folder.

    Both are written and flushed in a folder of their own inside it, then renamed, the model first: it holds its
    certificate too, so that at every moment the folder has the old pair, or the new model with all that belongs to it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.model = self.path / "model.gratis"
        self.certificate = self.path / "certificate.json"
        self.report = self.path / "report.html"
        self.levels = self.path / "levels.json"
        self.whole: Path | None = None  # the model that `save` wrote, wherever it came to lie
        self._mark = self.path / _MARK
        self._earlier: bytes | None = None

    def prepare(self, *, force: bool) -> list[str]:
        """Find out before anything is spent that the pair can be written; return what is to be said of earlier runs."""
        self.path.mkdir(parents=True, exist_ok=True)
        probe = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.path))
        try:
            _write(probe / "probe", b"\0" * 2**16)
        finally:
            shutil.rmtree(probe, ignore_errors=True)
        if self.model.exists() and not force:
            raise GratisError(
                f"there is a model in {str(self.path)!r} already; choose another --output, or pass --force"
            )
        return [*self._said_of_the_last(), *self._said_of_levels(), *self._said_of_partials()]

    def _said_of_levels(self) -> list[str]:
        """Offer the levels of a run that was stopped before it had a model."""
        if not self.levels.exists() or (
            self.model.exists() and self.model.stat().st_mtime_ns >= self.levels.stat().st_mtime_ns
        ):
            return []
        return [
            f"An earlier run paid for levels and left no model: use them with --schema {str(self.levels)!r} in the "
            "place of --private-levels, and nothing is paid for levels again."
        ]

    def _said_of_the_last(self) -> list[str]:
        # A model that is younger than the mark is that of the run that set it.
        if not self._mark.exists() or (
            self.model.exists() and self.model.stat().st_mtime_ns >= self._mark.stat().st_mtime_ns
        ):
            return []
        try:
            last = json.loads(self._mark.read_text())
            words = f"of {last['time']} on {last['file']!r} ({last['budget']})"
        except (ValueError, KeyError, TypeError):
            words = "in this folder"
        return [
            f"The last run {words} was stopped before it ended and left no model: if it had begun to train, its budget "
            "is spent; count it, or keep a ledger, which does."
        ]

    def _said_of_partials(self) -> list[str]:
        """Name the models that were written and not put into place; what holds none is removed."""
        found = []
        for left in sorted(self.path.glob(f"{_PARTIAL}*")):
            try:
                load_model(left / self.model.name)
            except GratisError:
                if time.time() - left.stat().st_mtime > 3600:  # a younger one may be that of a run under way
                    shutil.rmtree(left, ignore_errors=True)
            else:
                found.append(f"An earlier run was stopped after it had written its model: {left / self.model.name}.")
        return found

    def begin(self, **facts: Any) -> None:
        """Leave a mark that a run is under way."""
        self._earlier = self._mark.read_bytes() if self._mark.exists() else None
        self._mark.write_text(json.dumps({**facts, "time": time.ctime()}))

    def refused(self) -> None:
        """Take the mark back: nothing was spent. That of a run which was stopped before this one stays."""
        if self._earlier is None:
            self._mark.unlink(missing_ok=True)
        else:
            self._mark.write_bytes(self._earlier)

    def keep_levels(self, found: FoundLevels) -> None:
        """Write levels that were searched, before the model is planned for them: they are paid for, as earlier ones."""
        if self.levels.exists():
            free = next(path for n in count(1) if not (path := self.path / f"levels-{n}.json").exists())
            os.replace(self.levels, free)
        _write(self.levels, (json.dumps(plain(found.to_json()), indent=1) + "\n").encode())

    def save(self, estimator: Any, context: dict[str, Any], score: Certificate | None = None) -> None:
        """Write model and certificate (and that of a score) as one; what belonged to an older pair goes."""
        with uninterrupted():
            failure = self._save(estimator, context, score)
        if failure is not None:
            raise GratisError(f"the model could not be put into {str(self.path)!r}: {failure}")

    def _save(self, estimator: Any, context: dict[str, Any], score: Certificate | None) -> str | None:
        staging = None
        try:
            staging = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.path))
            save_model(staging / self.model.name, estimator, context)
            self.whole = self.whole or staging / self.model.name
            estimator.certificate_.write(staging / self.certificate.name)
            if score is not None:
                score.write(staging / _ADDITIONS[0])
            for path in staging.iterdir():
                _flush(path)
            _flush(staging)
            os.replace(staging / self.model.name, self.model)
            self.whole = self.model
            os.replace(staging / self.certificate.name, self.certificate)
            self._mark.unlink(missing_ok=True)
            for pattern in _ADDITIONS:
                for old in self.path.glob(pattern):
                    old.unlink()
            if score is not None:
                os.replace(staging / _ADDITIONS[0], self.path / _ADDITIONS[0])
            _flush(self.path)
        except (OSError, GratisError, MemoryError) as error:
            return getattr(error, "strerror", None) or str(error) or "there is not enough memory"
        finally:
            if staging is not None and self.whole != staging / self.model.name:
                shutil.rmtree(staging, ignore_errors=True)
        return None


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    _flush(path)


def _flush(path: Path) -> None:
    """See a file, or the names in a folder, onto the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
