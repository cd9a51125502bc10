"""Ctrl-C and SIGTERM as an exception that says, where the command knows it, what was spent and what is on the disk."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupted", "interruptible"]


class Interrupted(BaseException):
    """The process was told to stop. Not a KeyboardInterrupt: typer turns those into a silent exit."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted" if number == signal.SIGINT else "stopped")
        self.code = 128 + number


def _interrupt(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into `Interrupted` inside the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if handler not in (None, signal.SIG_IGN):  # `nohup` and the like stay in force
            before[number] = handler
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
