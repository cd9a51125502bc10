"""A training whose noise source is recorded, or plays back what was recorded."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gratis.audits.tape import Call, Diverged, PlayingNoise, RecordingNoise
from gratis.mechanisms.noise import NoiseSource
from gratis.records.events import Event

__all__ = ["Fitted", "Recording", "Tap", "Train", "record", "replay"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a training leaves behind: the event that its certificate states, and all that is published."""

    event: Event
    published: Any


Tap = Callable[[NoiseSource], NoiseSource]
Train = Callable[[Tap], Fitted]
"""A training on fixed rows; it passes its own noise source through the tap, and uses what it gets back."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One training: its calls to the noise source, and how it ended."""

    calls: list[Call] = field(repr=False)
    fitted: Fitted | None
    error: tuple[str, ...]
    warnings: tuple[str, ...]
    diverged: str = ""


def record(train: Train) -> Recording:
    """Train with a recorded noise source."""
    calls: list[Call] = []
    return _run(train, calls, lambda source: RecordingNoise(source, calls))


def replay(train: Train, recording: Recording) -> Recording:
    """Train with the outputs of a recording in the place of value + noise."""
    calls: list[Call] = []
    return _run(train, calls, lambda source: PlayingNoise(source, calls, recording.calls))


def _run(train: Train, calls: list[Call], tap: Tap) -> Recording:
    fitted: Fitted | None = None
    error: tuple[str, ...] = ()
    diverged = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted = train(tap)
        except Diverged as stop:
            diverged = str(stop)
        except Exception as failure:  # whatever it is: it must be the same on both sides
            error = _chain(failure)
    seen = tuple(f"{warning.category.__name__}: {warning.message}" for warning in caught)
    return Recording(calls, fitted, error, seen, diverged)


def _chain(failure: BaseException | None) -> tuple[str, ...]:
    """The exception and what it was raised from, hidden or not: a handler may keep a private value there."""
    words: list[str] = []
    while failure is not None and len(words) < 8:
        words.append(f"{type(failure).__name__}: {failure}")
        failure = failure.__cause__ or failure.__context__
    return tuple(words)
