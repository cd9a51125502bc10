"""What was paid for is on the disk before the ledger hears that it was released."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gratis.ledger import Ledger
from gratis.ledger.accounts import Reservation
from gratis.records.events import Event

__all__ = ["LateLedger", "uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block has ended; the first that came is raised then.

    Blocking them for the thread would not do: the system may deliver them to a thread of a numerical library, and
    Python would still run their handlers here.
    """
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    held: list[int] = []
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not None]
    before = {number: signal.signal(number, lambda came, _: held.append(came)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


class LateLedger(Ledger):
    """A ledger that is told of a release when `settle` is called, and not at the end of the training.

    Whoever writes models to files writes first and settles then: a process that dies in between leaves a model whose
    reservation was never committed (spent all the same), and never a committed release without a model.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.reservations: list[Reservation] = []
        self._ended: list[tuple[str, Event]] = []

    def reserve(self, name: str, event: Event, **words: Any) -> Reservation:
        """Reserve, and remember that something was: also when the process is told to stop meanwhile."""
        with uninterrupted():
            self.reservations.append(super().reserve(name, event, **words))
        return self.reservations[-1]

    def commit(self, reservation_id: str, event: Event) -> Reservation:
        """Note that the training has ended; `settle` writes it into the file."""
        self._ended.append((reservation_id, event))
        return self.reservation(reservation_id)

    def settle(self) -> dict[str, Any] | None:
        """Commit what has ended; return the last such reservation as certificates hold it."""
        last = None
        while self._ended:
            last = super().commit(*self._ended[0])
            del self._ended[0]
        return None if last is None else last.to_json()
