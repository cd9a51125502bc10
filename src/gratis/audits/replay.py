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
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr

from gratis.audits.comparison import TOLERANCE, Comparison, compare
from gratis.audits.tape import Fitted, Recording, Tap, Train, record, replay
from gratis.records.record import JsonObject

__all__ = [
    "Comparison",
    "Fitted",
    "NoiseBook",
    "Recording",
    "ReplayAudit",
    "Tap",
    "Train",
    "compare",
    "record",
    "replay",
]


Array = NDArray[Any]
_IMPROBABLE = 1e-12  # χ² level below which recorded noise counts as too small


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
