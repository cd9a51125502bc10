"""A noise source that records what a training asks of it, and one that plays the answers back to another training.

Values before noise are kept: for public or synthetic rows only. A certificate made with either source says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.records.certificates import Randomness
from gratis.records.events import Event

__all__ = [
    "Call",
    "Diverged",
    "Fitted",
    "PlayingNoise",
    "Recording",
    "RecordingNoise",
    "Tap",
    "Train",
    "record",
    "replay",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One question to the noise source, and its answer.

    `kind` is "release" or "perturb" (then `value` is what the noise was added to), "normal" (noise alone), or
    "generator.random" and the like, with the arguments of the call.
    """

    kind: str
    std: float
    shape: tuple[int, ...]
    value: Array | None
    output: Any
    arguments: str = ""

    @property
    def question(self) -> tuple[str, float, tuple[int, ...], str]:
        """All that must be the same on neighbours."""
        return self.kind, self.std, self.shape, self.arguments

    def describe(self) -> str:
        """The question in words."""
        if self.kind.startswith("generator"):
            return f"{self.kind}({self.arguments})"
        return f"{self.kind} of shape {self.shape} with deviation {self.std:.6g}"

    @property
    def noise(self) -> Array:
        """The noise in units of its deviation; empty where there is none."""
        if self.kind.startswith("generator") or self.std == 0:
            return np.empty(0)
        return np.ravel(self.output if self.value is None else self.output - self.value) / self.std


class Diverged(BaseException):
    """The second training asks for something else than the first. No `Exception`: no training may catch it."""


class RecordingNoise(NoiseSource):
    """Answer as the wrapped source does, and keep questions and answers in `calls`.

    >>> tape: list[Call] = []
    >>> noised = RecordingNoise(NoiseSource.insecure(0), tape).release([1.0, 2.0], 0.5)
    >>> tape[0].describe(), tape[0].value.tolist(), bool((tape[0].output == noised).all())
    ('release of shape (2,) with deviation 0.5', [1.0, 2.0], True)
    """

    __slots__ = ("_source", "calls")

    def __init__(self, source: NoiseSource, calls: list[Call]) -> None:
        self._source, self.calls = source, calls

    @property
    def is_secure(self) -> bool:
        """Never: values before noise are kept."""
        return False

    @property
    def generator(self) -> Any:
        """The wrapped generator, each call recorded."""
        return _Dice(lambda name, positional, named: self._roll(name, positional, named))

    def normal(self, std: float, shape: int | tuple[int, ...]) -> Array:
        """Noise alone: what it is added to is not seen."""
        return self._answer("normal", None, std, _shape(shape), lambda: self._source.normal(std, shape))

    def perturb(self, values: ArrayLike, std: float) -> Array:
        """A value and its noise."""
        exact = _finite(values)
        return self._answer("perturb", exact, std, exact.shape, lambda: self._source.perturb(exact, std))

    def release(self, values: ArrayLike, std: float) -> Array:
        """A value and its noise, on the grid."""
        exact = _finite(values)
        return self._answer("release", exact, std, exact.shape, lambda: self._source.release(exact, std))

    def _answer(
        self, kind: str, value: Array | None, std: float, shape: tuple[int, ...], draw: Callable[[], object]
    ) -> Array:
        output = np.asarray(draw())
        self.calls.append(Call(kind, float(std), shape, value, output.copy()))
        return output

    def _roll(self, name: str, positional: tuple[object, ...], named: dict[str, object]) -> Any:
        output = getattr(self._source.generator, name)(*positional, **named)
        self.calls.append(
            Call(f"generator.{name}", 0.0, np.shape(output), None, np.copy(output), _words(positional, named))
        )
        return output

    def describe(self) -> Randomness:
        """What the certificate of an audited training says."""
        return self._source.describe() | {"key": "seen by a replay audit (insecure)", "secure": False}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r})"


class PlayingNoise(RecordingNoise):
    """Answer with a recording's outputs whatever the values are; stop where another question is asked."""

    __slots__ = ("_recorded",)

    def __init__(self, source: NoiseSource, calls: list[Call], recorded: list[Call]) -> None:
        super().__init__(source, calls)
        self._recorded = recorded

    def _answer(
        self, kind: str, value: Array | None, std: float, shape: tuple[int, ...], draw: Callable[[], object]
    ) -> Array:
        return np.asarray(self._play(Call(kind, float(std), shape, value, None)))

    def _roll(self, name: str, positional: tuple[object, ...], named: dict[str, object]) -> Any:
        place = len(self.calls)
        shape = self._recorded[place].shape if place < len(self._recorded) else ()
        return self._play(Call(f"generator.{name}", 0.0, shape, None, None, _words(positional, named)))

    def _play(self, asked: Call) -> Any:
        place = len(self.calls)
        if place >= len(self._recorded):
            raise Diverged(f"one more call to the noise source on the neighbour: {asked.describe()}")
        known = self._recorded[place]
        if asked.question != known.question:
            raise Diverged(f"another call to the noise source: {known.describe()} against {asked.describe()}")
        self.calls.append(
            Call(asked.kind, asked.std, asked.shape, asked.value, known.output, arguments=asked.arguments)
        )
        return np.copy(known.output)


class _Dice:
    """Stands in for a `numpy.random.Generator`."""

    def __init__(self, roll: Callable[[str, tuple[object, ...], dict[str, object]], Any]) -> None:
        self._roll = roll

    def __getattr__(self, name: str) -> Any:
        return lambda *positional, **named: self._roll(name, positional, named)


def _words(positional: tuple[object, ...], named: dict[str, object]) -> str:
    return ", ".join([*map(repr, positional), *(f"{key}={value!r}" for key, value in named.items())])


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (int(shape),) if np.ndim(shape) == 0 else tuple(int(size) for size in shape)  # type: ignore[union-attr, arg-type]


def _finite(values: ArrayLike) -> Array:
    """A copy as the mechanism reads it: non-finite values count as 0."""
    exact = np.array(values, dtype=np.float64)
    exact[~np.isfinite(exact)] = 0.0
    return exact


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
