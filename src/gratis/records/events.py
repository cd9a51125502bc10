"""Events: what a mechanism did, as data. The accountant reads nothing else.

The set is closed and only grows: a certificate written today must verify tomorrow. Every event states
everything its guarantee rests on, including the neighbouring relation under which its sensitivity was derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gratis.records.checks import check_count, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.records.record import Record, read_as
from gratis.records.sequences import MOST, Runs

__all__ = [
    "Composition",
    "Event",
    "FullBatchDescent",
    "GaussianRelease",
    "OnePassIteration",
    "Parallel",
    "PoissonSubsampledGaussian",
    "ThresholdedCounts",
    "event_from_json",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf(Record):
    """What all single events share."""

    neighbouring: Neighbouring
    label: str = ""

    def _check_common(self) -> None:
        object.__setattr__(self, "neighbouring", Neighbouring.parse(self.neighbouring))
        if not isinstance(self.label, str):
            raise GratisError("an event's label must be a string")

    def leaves(self) -> tuple[LeafEvent, ...]:
        """Return the event itself: it is a single one."""
        return (self,)  # type: ignore[return-value]


_SMALLEST, _LARGEST = 1e-50, 1e50


def _check_magnitudes(**sequences: Runs | float) -> None:
    """Refuse magnitudes whose products could underflow or overflow: then 0 would stand for a shift that is not 0."""
    for name, values in sequences.items():
        for value in values.values if isinstance(values, Runs) else (values,):
            if value != 0 and not _SMALLEST <= value <= _LARGEST:
                raise GratisError(f"{name} must be 0 or lie between {_SMALLEST:g} and {_LARGEST:g}, got {value:g}")


def _check_many(name: str, value: int) -> int:
    if check_count(name, value) > MOST:
        raise GratisError(f"{name} must be at most {MOST}, got {value}")
    return int(value)


def _check_inflation(value: float) -> float:
    inflation = check_positive("rounding_inflation", value)
    if not 1 <= inflation <= _LARGEST:
        raise GratisError(f"rounding_inflation must lie between 1 and {_LARGEST:g}, got {inflation}")
    return inflation


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianRelease(_Leaf):
    """A vector of ℓ2 sensitivity `sensitivity` released with N(0, noise_std²) noise, `count` times.

    >>> event = GaussianRelease(sensitivity=1.0, noise_std=2.0, neighbouring="zero-out")
    >>> event_from_json(event.to_json()) == event
    True
    """

    kind: ClassVar[str] = "gaussian-release"
    sensitivity: float
    noise_std: float
    count: int = 1

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "sensitivity", check_non_negative("sensitivity", self.sensitivity))
        object.__setattr__(self, "noise_std", check_non_negative("noise_std", self.noise_std))
        object.__setattr__(self, "count", _check_many("count", self.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class FullBatchDescent(_Leaf):
    """θ_t = θ_{t−1} − η_t·(1/n)·Σ clip_C(g_i) + s_t·N(0, I), t = 1…T; all T iterates may be released.

    `learning_rates` and `noise_stds` have one entry for each step. `rounding_inflation` ≥ 1 enlarges the
    sensitivity by the proved bound on floating-point error (docs/proofs/rounding.md).
    """

    kind: ClassVar[str] = "full-batch-descent"
    learning_rates: Runs
    noise_stds: Runs
    clip_norm: float
    n_records: int
    rounding_inflation: float = 1.0

    def __post_init__(self) -> None:
        self._check_common()
        if len(self.learning_rates) != len(self.noise_stds):
            raise GratisError("learning_rates and noise_stds must have one entry for each step")
        object.__setattr__(self, "clip_norm", check_positive("clip_norm", self.clip_norm))
        object.__setattr__(self, "n_records", _check_many("n_records", self.n_records))
        _check_magnitudes(learning_rates=self.learning_rates, noise_stds=self.noise_stds, clip_norm=self.clip_norm)
        object.__setattr__(self, "rounding_inflation", _check_inflation(self.rounding_inflation))

    @property
    def steps(self) -> int:
        """T."""
        return len(self.learning_rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassIteration(_Leaf):
    """θ_k = θ_{k−1} − η_k·mean_batch clip_{C_k}(g) + s_k·N(0, I): each record used once, only the last θ released.

    The guarantee also needs every step map to be non-expansive (step cap 2/(L‖x‖²)) and the three sequences to be
    fixed before data is read; the certificate lists both as assumptions.
    """

    kind: ClassVar[str] = "one-pass-iteration"
    step_sizes: Runs
    clip_norms: Runs
    noise_stds: Runs
    batch_size: int = 1
    rounding_inflation: float = 1.0

    def __post_init__(self) -> None:
        self._check_common()
        if not len(self.step_sizes) == len(self.clip_norms) == len(self.noise_stds):
            raise GratisError("step_sizes, clip_norms and noise_stds must have one entry for each step")
        object.__setattr__(self, "batch_size", _check_many("batch_size", self.batch_size))
        _check_magnitudes(step_sizes=self.step_sizes, clip_norms=self.clip_norms, noise_stds=self.noise_stds)
        object.__setattr__(self, "rounding_inflation", _check_inflation(self.rounding_inflation))

    @property
    def steps(self) -> int:
        """Number of steps; the pass uses steps × batch_size records."""
        return len(self.step_sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonSubsampledGaussian(_Leaf):
    """DP-SGD: every step includes each record independently with probability `sampling_rate`, sums the clipped
    gradients, and adds N(0, (noise_multiplier·C)²); the sum is divided by the expected batch size.
    """

    kind: ClassVar[str] = "poisson-subsampled-gaussian"
    sampling_rate: float
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        self._check_common()
        rate = check_positive("sampling_rate", self.sampling_rate)
        if rate > 1:
            raise GratisError(f"sampling_rate must be at most 1, got {rate}")
        object.__setattr__(self, "sampling_rate", rate)
        object.__setattr__(self, "noise_multiplier", check_non_negative("noise_multiplier", self.noise_multiplier))
        object.__setattr__(self, "steps", _check_many("steps", self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdedCounts(_Leaf):
    """Counts of values that nobody listed: N(0, noise_std²) on each value that occurs, published from `threshold` on.

    One record moves at most `counts_moved` counts, each by at most 1. A value that occurs in it alone is published
    with a small probability, which no noise hides: docs/proofs/private-levels.md.
    """

    kind: ClassVar[str] = "thresholded-counts"
    counts_moved: int
    noise_std: float
    threshold: float

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "counts_moved", _check_many("counts_moved", self.counts_moved))
        object.__setattr__(self, "noise_std", check_positive("noise_std", self.noise_std))
        object.__setattr__(self, "threshold", check_positive("threshold", self.threshold))
        _check_magnitudes(noise_std=self.noise_std, threshold=self.threshold)


@dataclass(frozen=True, slots=True)
class _Several(Record):
    """What events that hold others share: one relation for all inside."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, (_Leaf, _Several)):
                raise GratisError(f"a {type(self).__name__.lower()} event holds events only")
        relations = {leaf.neighbouring for leaf in self.leaves()}
        if len(relations) > 1:
            raise GratisError("events under different neighbouring relations cannot be composed")

    def leaves(self) -> tuple[LeafEvent, ...]:
        """Return the single events in order."""
        return tuple(leaf for event in self.events for leaf in event.leaves())

    @property
    def neighbouring(self) -> Neighbouring | None:
        """The common relation, or None when nothing was released."""
        leaves = self.leaves()
        return leaves[0].neighbouring if leaves else None


@dataclass(frozen=True, slots=True)
class Composition(_Several):
    """Several events on the same data set; a later one may be chosen from what earlier ones released."""

    kind: ClassVar[str] = "composition"


@dataclass(frozen=True, slots=True)
class Parallel(_Several):
    """Events on parts of the data set that share no record; a later one may use what earlier ones released.

    The parts are cut by what is public (the place of a row, the id of a person), so that a record is in the same part
    in neighbouring data sets: it pays for that part alone, docs/proofs/parallel.md. Subsampled events are refused: the
    larger of two privacy curves that cross is none that composes.
    """

    kind: ClassVar[str] = "parallel"

    def __post_init__(self) -> None:
        _Several.__post_init__(self)  # not `super()`: a slotted dataclass is made twice, and it would see the first
        if any(isinstance(leaf, PoissonSubsampledGaussian) for leaf in self.leaves()):
            raise GratisError("subsampled events cannot be accounted on parts of a data set: compose them")


LeafEvent = GaussianRelease | FullBatchDescent | OnePassIteration | PoissonSubsampledGaussian | ThresholdedCounts
Event = LeafEvent | Composition | Parallel


def event_from_json(data: object) -> Event:
    """Read an event; an unknown kind, a missing or an extra field is an error, never skipped."""
    try:
        event: Event = read_as(Event, data, "an event")
    except RecursionError:
        raise GratisError("events are nested too deeply") from None
    return event
