"""Replay audit: exact, white-box, and without a thousand trainings.

Train on D and record every release: the value before noise, its deviation, and the output. Train on the neighbour D′
with the recorded outputs in the place of value + noise. Then everything that a release depends on is equal but the
record, and √Σ‖value_D − value_D′‖²/σ² must not exceed the certified μ, for every history. What is equal on both sides
must be equal bit for bit: the sequence of calls, shapes, deviations, exceptions, warnings, and all that is published.

Three kinds of training, three statements:

* Gaussian releases and full-batch descent: the sum above, the whole guarantee of one pair and one history.
* One pass (amplification by iteration): only the last iterate is released. With equal noise on both sides the two runs
  end ‖Δ‖ apart, and the noise from the record's step on, of variance V, hides a shift of ‖Δ‖ at cost ‖Δ‖/√V. A
  trainer with clip and cap keeps this below ρ; one without goes above it on some rows. It is a necessary condition
  (`coupled` counts such releases): that every step is non-expansive everywhere is the proof's work.
* Noise drawn apart from its value (`NoiseSource.normal`; the dual engine of random features): values are not visible.
  Only the sequence of draws, and shape and lattice of what is published, are compared (`hidden` counts the draws).
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr

from gratis.accounting import compose_mu, leaf_mu
from gratis.audits.published import differences
from gratis.audits.tape import Call, Diverged, PlayingNoise, RecordingNoise
from gratis.mechanisms.noise import NoiseSource
from gratis.records.events import (
    Composition,
    Event,
    FullBatchDescent,
    GaussianRelease,
    LeafEvent,
    OnePassIteration,
    PoissonSubsampledGaussian,
    ThresholdedCounts,
)
from gratis.records.record import JsonObject

__all__ = ["Comparison", "Fitted", "NoiseBook", "Recording", "ReplayAudit", "compare", "record", "replay"]

Array = NDArray[Any]

TOLERANCE = 1e-6
_VALUED = ("release", "perturb")
_IMPROBABLE = 1e-12  # χ² level below which recorded noise counts as too small


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two trainings on neighbours: √Σ‖Δ‖²/σ² over the certified μ, and whatever else differs.

    `refused`: the exception with which both ended before any noise was drawn.
    """

    ratio: float
    mu: float
    differences: tuple[str, ...]
    refused: str = ""
    hidden: int = 0
    coupled: int = 0

    @property
    def alarm(self) -> bool:
        """Whether the pair shows more than the certificate allows."""
        return bool(self.differences) or not self.ratio <= 1 + TOLERANCE


def compare(first: Recording, second: Recording, *, row: int, steps_apart: int = 1) -> Comparison:
    """Compare a recording with its replay on a neighbour.

    Parameters
    ----------
    row : int
        Position of the record in which the two data sets differ.
    steps_apart : int
        2 where records are exchanged under a guarantee about zeroing one out: two steps between neighbours.
    """
    found = []
    if first.error != second.error:
        found.append(f"exception: {_first(first.error)} against {_first(second.error)}")
    if first.warnings != second.warnings:
        extra = (Counter(first.warnings) - Counter(second.warnings)) + (
            Counter(second.warnings) - Counter(first.warnings)
        )
        found.append(f"warning on one side: {next(iter(extra), 'in another order')}")
    if second.diverged and not first.error:
        found.append(second.diverged)
    if first.error and first.calls:
        found.append(f"raised after noise was drawn: {_first(first.error)}")
    if first.fitted is None or second.fitted is None:
        refused = "" if found or first.calls else _first(first.error)
        return Comparison(0.0, math.nan, tuple(found), refused=refused)
    if len(second.calls) < len(first.calls):
        found.append(f"{len(first.calls) - len(second.calls)} calls to the noise source fewer on the neighbour")
        return Comparison(math.inf, math.nan, tuple(found))
    if first.fitted.event != second.fitted.event:
        found.append("the certified event")
    sums = _Sums.over(first.fitted.event, first.calls, second.calls, row)
    found += sums.problems
    found += [
        f"published {what}"
        for what in differences(first.fitted.published, second.fitted.published, values_may_differ=bool(sums.hidden))
    ]
    mu, ratio = sums.mu, sums.ratio / steps_apart
    return Comparison(ratio, mu, tuple(found), hidden=sums.hidden, coupled=sums.coupled)


def _first(error: tuple[str, ...]) -> str:
    return error[0] if error else "none"


@dataclass(slots=True)
class _Sums:
    """Walks along a certified event and the calls that should have caused it."""

    squares: float = 0.0
    mus: list[float] = field(default_factory=list)
    largest_step: float = 0.0  # of subsampled steps, over what one step may move
    hidden: int = 0
    coupled: int = 0
    problems: list[str] = field(default_factory=list)

    @classmethod
    def over(cls, event: Event, first: list[Call], second: list[Call], row: int) -> _Sums:
        sums, place = cls(), 0
        for leaf in event.leaves() if isinstance(event, Composition) else (event,):
            place = sums._leaf(leaf, first, second, place, row)
        if place < len(first):
            sums.problems.append(f"{len(first) - place} calls to the noise source that no event accounts for")
            for a, b in zip(first[place:], second[place:], strict=True):
                sums.squares += _squared_shift(a, b)
        return sums

    @property
    def mu(self) -> float:
        return compose_mu(self.mus) if self.mus else math.nan

    @property
    def ratio(self) -> float:
        shift = math.sqrt(self.squares)
        return max(self.largest_step, 0.0 if shift == 0 else shift / self.mu if self.mu > 0 else math.inf)

    def _leaf(self, leaf: LeafEvent, first: list[Call], second: list[Call], place: int, row: int) -> int:
        label = leaf.label or leaf.kind
        drawn = place
        while drawn < len(first) and first[drawn].kind not in _VALUED:
            drawn += 1
        if isinstance(leaf, PoissonSubsampledGaussian):
            return self._subsampled(leaf, first, second, place, label)
        self.mus.append(leaf_mu(leaf))
        if isinstance(leaf, FullBatchDescent) and drawn > place:
            self.hidden += drawn - place
            return drawn
        if isinstance(leaf, OnePassIteration):
            if drawn == len(first):
                self.problems.append(f"no release of the last iterate: {label}")
                return drawn
            self._stated(label, first[drawn].std, float(leaf.noise_stds.values[-1]))
            self.coupled += 1
            later = float(np.square(leaf.noise_stds.array()[row // leaf.batch_size :]).sum())
            gap = float(np.square(_gap(first[drawn], second[drawn])).sum())
            self.squares += 0.0 if gap == 0 else gap / later if later > 0 else math.inf
            return drawn + 1
        stds = _stated_stds(leaf)
        for a, b, std in zip(first[place:], second[place:], stds, strict=False):
            if a.kind not in _VALUED:
                self.problems.append(f"{a.describe()} where a release was certified: {label}")
            self._stated(label, a.std, std)
            self.squares += _squared_shift(a, b)
        if len(first) - place < len(stds):
            missing = len(stds) - (len(first) - place)
            self.problems.append(f"{missing} certified releases did not pass through the noise source: {label}")
        return min(len(first), place + len(stds))

    def _subsampled(
        self, leaf: PoissonSubsampledGaussian, first: list[Call], second: list[Call], place: int, label: str
    ) -> int:
        """Given the batches, each step is one Gaussian release: a record moves it by κ at most, or not at all."""
        allowed = leaf.neighbouring.sensitivity_factor / leaf.noise_multiplier
        steps = 0
        while steps < leaf.steps and place < len(first):
            if first[place].kind in _VALUED:
                self._stated(label, first[place].std, leaf.noise_multiplier)
                self.largest_step = max(
                    self.largest_step, math.sqrt(_squared_shift(first[place], second[place])) / allowed
                )
                steps += 1
            place += 1
        if steps < leaf.steps:
            self.problems.append(f"{leaf.steps - steps} certified steps did not pass through the noise source: {label}")
        return place

    def _stated(self, label: str, used: float, certified: float) -> None:
        if not used >= certified * (1 - 1e-9):
            self.problems.append(f"noise of deviation {used:.4g} where {certified:.4g} was certified: {label}")


def _stated_stds(leaf: LeafEvent) -> list[float]:
    if isinstance(leaf, GaussianRelease):
        return [leaf.noise_std] * leaf.count
    if isinstance(leaf, ThresholdedCounts):
        return [leaf.noise_std]
    assert isinstance(leaf, FullBatchDescent)
    # Trainers release gradients in units of learning rate × clip norm.
    return [float(std) for std in leaf.noise_stds.array() / (leaf.learning_rates.array() * leaf.clip_norm)]


def _gap(a: Call, b: Call) -> Array:
    return a.value - b.value if a.value is not None and b.value is not None else np.zeros(0)


def _squared_shift(a: Call, b: Call) -> float:
    gap = _gap(a, b)
    if not gap.any():
        return 0.0
    return float(np.square(gap / a.std).sum()) if a.std > 0 else math.inf


class NoiseBook:
    """Remembers the noise of all recordings of an audit: no two releases may share it, and none may be too small.

    Noise is output − value in units of the stated deviation. A key that was used twice makes two calls of one book
    begin with the same four numbers, which chance does once in 10²⁰ comparisons.
    """

    _PREFIX = 4

    def __init__(self) -> None:
        self._seen: dict[bytes, Array] = {}
        self._square, self._count = 0.0, 0

    def check(self, recording: Recording) -> list[str]:
        """Return what is wrong with the noise of one more recording, and of all so far together."""
        found, square, count = [], 0.0, 0
        for call in recording.calls:
            noise = call.noise
            square, count = square + float(np.square(noise).sum()), count + noise.size
            if noise.size < self._PREFIX:
                continue
            start = noise[: self._PREFIX]
            # Coarse key, fine test: rounding to the grid moves a release by 2^-21 of its deviation.
            key = np.rint(start * 2.0**8).astype(np.int32).tobytes()
            known = self._seen.setdefault(key, start)
            if known is not start and np.abs(known - start).max() <= 2.0**-18:
                found.append(f"two calls to the noise source gave the same noise: {call.describe()}")
        self._square, self._count = self._square + square, self._count + count
        if count and min(chdtr(count, square), chdtr(self._count, self._square)) < _IMPROBABLE:
            found.append("the noise that was added is smaller than its stated deviation")
        return found


@dataclass(slots=True)
class ReplayAudit:
    """The outcome over many pairs. `differences` counts them by their words, with the pair that showed each first."""

    mu: float = math.nan
    pairs: int = 0
    refused: int = 0
    refusal: str = ""
    largest_ratio: float = 0.0
    worst_pair: str = ""
    hidden: int = 0
    coupled: int = 0
    differences: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def alarm(self) -> bool:
        """Whether any pair showed more than the certificate allows."""
        return bool(self.differences) or not self.largest_ratio <= 1 + TOLERANCE

    def note(self, what: Iterable[str], pair: str) -> None:
        """Count differences of one pair."""
        for words in dict.fromkeys(what):
            self.differences[words] += 1
            self.examples.setdefault(words, pair)

    def add(self, found: Comparison, pair: str) -> None:
        """Count one pair."""
        self.note(found.differences, pair)
        if found.refused:
            self.refused, self.refusal = self.refused + 1, self.refusal or found.refused
            return
        self.pairs += 1
        self.hidden, self.coupled = max(self.hidden, found.hidden), max(self.coupled, found.coupled)
        if not math.isnan(found.mu):
            self.mu = found.mu if math.isnan(self.mu) else max(self.mu, found.mu)
        if found.ratio > self.largest_ratio:
            self.largest_ratio, self.worst_pair = found.ratio, pair

    def merge(self, other: ReplayAudit) -> None:
        """Count another audit's pairs as this one's."""
        self.pairs, self.refused = self.pairs + other.pairs, self.refused + other.refused
        self.refusal = self.refusal or other.refusal
        self.hidden, self.coupled = max(self.hidden, other.hidden), max(self.coupled, other.coupled)
        self.mu = other.mu if math.isnan(self.mu) else self.mu if math.isnan(other.mu) else max(self.mu, other.mu)
        if other.largest_ratio > self.largest_ratio:
            self.largest_ratio, self.worst_pair = other.largest_ratio, other.worst_pair
        self.differences += other.differences
        self.examples = other.examples | self.examples

    @property
    def limits(self) -> list[str]:
        """What these replays could not see."""
        said = []
        if self.hidden:
            said.append(
                f"values not visible: {self.hidden} draws of a fit were made apart from their values, whose sequence, "
                "deviations and shapes were compared, and the values on the primal of the same law"
            )
        if self.coupled:
            said.append(
                "one pass: distance at the end of two runs with equal noise, a necessary condition; that steps never "
                "expand is the proof's"
            )
        return said

    @property
    def verdict(self) -> str:
        """One sentence."""
        bound = "of what a step may move" if math.isnan(self.mu) else f"of the certified mu {self.mu:.4g}"
        seen = f"{self.pairs} hostile pairs replayed, largest √Σ‖Δ‖²/σ² is {self.largest_ratio:.4f} {bound}"
        if not self.pairs:
            words = f"all {self.refused} pairs were refused before any noise was drawn ({self.refusal})"
            return f"nothing was replayed: {words}"
        if self.alarm:
            what = next(iter(self.differences), f"the ratio exceeds 1 ({self.worst_pair})")
            more = f" and {len(self.differences) - 1} other differences" if len(self.differences) > 1 else ""
            return f"ALARM: {what}{more}; {seen}"
        return f"consistent with the proof; {seen}; nothing else differs"

    def to_json(self) -> JsonObject:
        """Return plain data for JSON."""
        return {
            "alarm": self.alarm,
            "verdict": self.verdict,
            "pairs": self.pairs,
            "refused": self.refused,
            "refusal": self.refusal,
            "largest_ratio": self.largest_ratio,
            "worst_pair": self.worst_pair,
            "mu": None if math.isnan(self.mu) else self.mu,
            "hidden_draws": self.hidden,
            "coupled_releases": self.coupled,
            "limits": list(self.limits),
            "differences": [
                {"what": what, "pairs": count, "example": self.examples[what]}
                for what, count in self.differences.most_common()
            ],
        }
