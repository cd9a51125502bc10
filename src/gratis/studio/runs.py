"""Fits under way and done: each is the command `gratis fit`, in a session of its own that outlives the studio.

One at a time: a lock on a file is handed to the fit's process and free again when that has ended, whatever becomes of
the server. What a run is and how far it has come is read from its folder and the ledger, never remembered, so that a
studio that was killed and started anew tells the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gratis.ledger import Ledger
from gratis.records.errors import GratisError
from gratis.studio.folder import WORK, StudioFolder

if sys.platform != "win32":  # there a studio knows its own run only
    import fcntl

__all__ = ["Runs"]

_PROGRAM = [sys.executable, "-c", "from gratis.cli import main; main()"]
_RECORD, _LOG = "run.json", "fit.log"
_LONGEST_LOG = 2**16


class Runs:
    """The fits of one folder."""

    def __init__(self, folder: StudioFolder) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._own: subprocess.Popen[bytes] | None = None

    def start(self, name: str, arguments: Sequence[str], record: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """Start a fit in a new folder, or refuse: while another one runs, or where there is something already."""
        place = self._folder.work(name)
        with self._guard:
            self._reap()
            place.parent.mkdir(exist_ok=True)
            lock = self._taken()
            if lock is None:
                raise GratisError("a training is under way: nothing was spent for this one; wait until it has ended")
            try:
                try:
                    place.mkdir()
                except FileExistsError:
                    raise GratisError(f"there is a run {name!r} already; give this one another name") from None
                for file, content in files.items():
                    (place / file).write_text(content, encoding="utf-8")
                started = {**record, "started": time.strftime("%Y-%m-%d %H:%M:%S")}
                (place / _RECORD).write_text(json.dumps(started, indent=1), encoding="utf-8")
                os.truncate(lock, 0)
                os.pwrite(lock, name.encode(), 0)
                with (place / _LOG).open("wb") as log:
                    self._own = subprocess.Popen(
                        [*_PROGRAM, *arguments], cwd=self._folder.root, stdin=subprocess.DEVNULL, stdout=log,
                        stderr=log, start_new_session=True, pass_fds=() if sys.platform == "win32" else (lock,),
                    )  # fmt: skip
            finally:
                os.close(lock)  # the fit's process holds it now

    def running(self) -> str | None:
        """Return the name of the run that is under way, also of one that an earlier studio started."""
        with self._guard:
            self._reap()
            path = self._lock_path()
            if not path.exists():
                return None
            lock = self._taken()
            if lock is not None:
                os.close(lock)
                return None
            return path.read_text(encoding="utf-8") or None

    def listed(self) -> list[dict[str, Any]]:
        """All runs of the folder, the newest first."""
        work = self._folder.root / WORK
        running = self.running()
        places = [path.parent for path in work.glob(f"*/{_RECORD}")] if work.is_dir() else []
        found = [self._summary(place, running) for place in places]
        return sorted(found, key=lambda run: str(run["started"]), reverse=True)

    def described(self, name: str) -> dict[str, Any]:
        """How far one run has come, what it said, and what it left."""
        place = self._folder.work(name)
        if not (place / _RECORD).is_file():
            raise GratisError(f"there is no run {name!r}")
        found = self._summary(place, self.running())
        log = _tail(place / _LOG)
        found["log"] = [line for line in log if line.strip()]
        if found["state"] == "failed":
            said = next((line for line in reversed(log) if line.startswith("gratis: ")), None)
            found["words"] = [said.removeprefix("gratis: ") if said else "The fit was stopped.", self._spent(place)]
        return found

    def _summary(self, place: Path, running: str | None) -> dict[str, Any]:
        record = json.loads((place / _RECORD).read_text(encoding="utf-8"))
        files = {
            kind: self._folder.shown(place / name)
            for kind, name in (
                ("model", "model.gratis"),
                ("certificate", "certificate.json"),
                ("report", "report.html"),
            )
            if (place / name).is_file()
        }
        state = "running" if place.name == running else "done" if "model" in files else "failed"
        steps = [
            ["Plan and read the table", True],
            ["Reserve the budget and train", (place / "unfinished.json").exists() or "model" in files],
            ["Save model and certificate", "model" in files],
            ["Audit, predict other budgets, write the report", state == "done"],
        ]
        return {
            "name": place.name,
            "state": state,
            "steps": steps,
            "files": files,
            **{
                key: record.get(key)
                for key in ("started", "command", "file", "target", "budget_words", "ledger", "budget")
            },
        }

    def _spent(self, place: Path) -> str:
        """What a run without a model cost, by the ledger."""
        record = json.loads((place / _RECORD).read_text(encoding="utf-8"))
        try:
            status = Ledger.open(self._folder.inside(record["ledger"])).status(record["budget"])
        except GratisError as error:
            return f"What was spent is not known: {error}."
        lost = [reserved for reserved in status.never_committed if reserved.sequence >= record["entries"]]
        if not lost:
            return "The ledger holds no reservation without a model since it began: nothing was spent."
        return (
            f"The ledger holds a reservation without a model, made after it began (entry {lost[0].sequence}): that "
            "stays spent, because a training may have begun."
        )

    def _reap(self) -> None:
        if self._own is not None and self._own.poll() is not None:
            self._own = None

    def _lock_path(self) -> Path:
        return self._folder.root / WORK / ".running"

    def _taken(self) -> int | None:
        """Take the lock, or return None while a fit has it."""
        lock = os.open(self._lock_path(), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if self._own is not None:
                raise OSError
            if sys.platform != "win32":
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return lock


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.path.getsize(path) - _LONGEST_LOG))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
