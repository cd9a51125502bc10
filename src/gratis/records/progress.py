"""How far a run has come, as a share of public counts: settings tried, chunks read, releases made, pairs audited.

Work says what it does in `counted` and `tracked`; whoever wants to see it says so once with `following`, around
everything. Nobody listens by default. No count depends on private values: sizes, plans and events fix them all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TextIO, TypeVar

__all__ = ["RELEASES", "Listener", "ProgressLine", "counted", "following", "released", "tracked"]

T = TypeVar("T")
Listener = Callable[[str, float], None]
RELEASES = "training"  # the task that counts releases
_BAR = 24


@dataclass(slots=True, eq=False)
class _Task:
    name: str
    total: int
    done: int = 0


@dataclass(slots=True)
class _Follower:
    """Tasks inside one another: the share of the outermost, refined by those inside it."""

    listener: Listener
    tasks: list[_Task] = field(default_factory=list)
    shown: float = 0.0

    def open(self, name: str, total: int) -> _Task:
        if not self.tasks:
            self.shown = 0.0
        task = _Task(name, max(1, total))
        self.tasks.append(task)
        self.tell()
        return task

    def close(self, task: _Task) -> None:
        if task in self.tasks:
            del self.tasks[self.tasks.index(task) :]

    def tell(self) -> None:
        share, width = 0.0, 1.0
        for task in self.tasks:
            share += width * min(1.0, task.done / task.total)
            width *= 0.0 if task.done >= task.total else 1 / task.total
        self.shown = max(self.shown, min(1.0, share))
        with suppress(Exception):  # a line that cannot be shown stops no training
            self.listener(self.tasks[0].name, self.shown)


_current: ContextVar[_Follower | None] = ContextVar("gratis_progress", default=None)


@contextmanager
def following(listener: Listener | None) -> Iterator[None]:
    """Tell `listener` (name of the outermost task, share of it that is done) about everything inside.

    >>> seen = []
    >>> with following(lambda name, share: seen.append((name, share))):
    ...     for _ in tracked([1, 2], "planning"):
    ...         for _ in tracked([1, 2], "inside"):
    ...             pass
    >>> seen[0], seen[2], seen[-1]
    (('planning', 0.0), ('planning', 0.25), ('planning', 1.0))
    """
    token = _current.set(None if listener is None else _Follower(listener))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def counted(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A task of `total` parts; call what it gives with the number of parts that were done."""
    follower = _current.get()
    if follower is None:
        yield lambda parts: None
        return
    task = follower.open(name, total)

    def advance(parts: int = 1) -> None:
        task.done += parts
        follower.tell()

    try:
        yield advance
    finally:
        follower.close(task)


def tracked(items: Iterable[T], name: str, total: int | None = None) -> Iterator[T]:
    """The items, counted as they are used up; `total` where they have no length."""
    if _current.get() is None:
        yield from items
        return
    with counted(name, len(items) if total is None else total) as advance:  # type: ignore[arg-type]
        for item in items:
            yield item
            advance(1)


def released() -> None:
    """Count a release, for the nearest task that counts them (`RELEASES`)."""
    follower = _current.get()
    if follower is not None:
        task = next((task for task in reversed(follower.tasks) if task.name == RELEASES), None)
        if task is not None:
            task.done += 1
            follower.tell()


class ProgressLine:
    """A listener that writes: one line that is drawn anew on a terminal, elsewhere a new line every so often.

    Nothing is written of what ends within `patience` seconds; on a terminal `what` stands there from the beginning.
    """

    def __init__(
        self,
        what: str | None = None,
        *,
        stream: TextIO | None = None,
        every: float = 10.0,
        patience: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._stream = what, sys.stderr if stream is None else stream
        self._every, self._patience, self._clock = every, patience, clock
        self._terminal = self._stream.isatty()
        self._name, self._begun, self._due = "", clock(), 0.0

    def __enter__(self) -> ProgressLine:
        if self._terminal and self._what is not None:
            self._write(f"\r\x1b[2K{self._what} …")
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._write("\r\x1b[2K")

    def __call__(self, name: str, share: float) -> None:
        """Show the share of a task that is done, and how long the rest will take if it goes on like this."""
        now = self._clock()
        if name != self._name:
            self._name, self._begun = name, now
            self._due = now + (0.2 if self._terminal else self._patience)
        if now < self._due:
            return
        self._due = now + (0.1 if self._terminal else self._every)
        spent = now - self._begun
        left = f", about {_duration(spent * (1 - share) / share)} left" if share > 0.01 else ""
        done = f"{100 * share:.0f} % after {_duration(spent)}{left}"
        filled = round(_BAR * share)
        bar = f" {'━' * filled}{'─' * (_BAR - filled)}"
        what = self._what or name
        self._write(f"\r\x1b[2K{what}{bar} {done}" if self._terminal else f"{what}: {done}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError, UnicodeError):  # nobody reads it any more
            self._stream.write(text)
            self._stream.flush()


def _duration(seconds: float) -> str:
    """Whole seconds, minutes or hours.

    >>> _duration(12.3), _duration(200), _duration(9000)
    ('12 s', '3 min 20 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
