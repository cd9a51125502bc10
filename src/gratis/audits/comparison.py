"""A recording against its replay on a neighbour: how far values moved in units of noise, and what is published."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import compose_mu, leaf_mu, sequential_parts
from gratis.audits.tape import Call, Recording
from gratis.records.events import (
    Event,
    FullBatchDescent,
    GaussianRelease,
    LeafEvent,
    OnePassIteration,
    PoissonSubsampledGaussian,
    ThresholdedCounts,
)

__all__ = ["TOLERANCE", "Comparison", "compare", "differences", "finest_bit", "flattened"]

Array = NDArray[Any]

TOLERANCE = 1e-6
_VALUED = ("release", "perturb")


# Differ between any two runs; and the hash of what is compared anyway, which says nothing more.
_CLOCKS = {"id", "uuid", "time", "date", "created", "issued", "released"}
_DEEPEST = 12


def flattened(value: object, path: str = "", *, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield (path, plain value or array) for all that is reachable from a fitted object.

    >>> dict(flattened({"a": (1, 2.0)}))
    {"['a'][0]": 1, "['a'][1]": 2.0}
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, Enum, np.generic, np.ndarray, type)):
        yield path, value
    elif depth > _DEEPEST:
        yield path, f"<{type(value).__qualname__}>"
    elif hasattr(value, "state_dict"):  # a torch module: parameters and buffers
        yield from flattened(dict(value.state_dict()), path, depth=depth + 1)
    elif hasattr(value, "detach"):
        yield path, value.detach().cpu().numpy()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _CLOCKS:
                yield from flattened(item, f"{path}[{key!r}]", depth=depth + 1)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from flattened(item, f"{path}[{place}]", depth=depth + 1)
    elif isinstance(value, (set, frozenset)):
        yield path, repr(sorted(map(repr, value)))
    elif callable(value) and hasattr(value, "__qualname__"):
        yield path, value.__qualname__
    else:
        yield path, f"<{type(value).__qualname__}>"
        for name in _names(value):
            if name not in _CLOCKS and hasattr(value, name):
                yield from flattened(getattr(value, name), f"{path}.{name}", depth=depth + 1)


def _names(value: object) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*getattr(value, "__dict__", {}), *slots]


def differences(first: object, second: object, *, values_may_differ: bool = False) -> list[str]:
    """Name what differs in type, shape, dtype or any bit.

    With `values_may_differ` real arrays may hold other numbers on the same lattice: for trainings whose noise was drawn
    apart from the value, where equal noise does not make equal outputs.

    >>> differences({"a": np.zeros(2)}, {"a": np.array([0.0, -0.0])}), differences([1], [1.0])
    (["['a']: values"], ['[0]: type'])
    """
    left, right = dict(flattened(first)), dict(flattened(second))
    found = [f"{path or 'value'}: only on one side" for path in left.keys() ^ right.keys()]
    for path in left.keys() & right.keys():
        what = _difference(left[path], right[path], values_may_differ)
        if what:
            found.append(f"{path or 'value'}: {what}")
    return sorted(found)


def _difference(a: Any, b: Any, values_may_differ: bool) -> str:
    if type(a) is not type(b):
        return "type"
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype} {a.shape} against {b.dtype} {b.shape}"
        if a.dtype == object:
            return "" if repr(a.tolist()) == repr(b.tolist()) else "values"
        if a.tobytes() == b.tobytes():
            return ""
        if not values_may_differ or a.dtype.kind != "f":
            return "values"
        return "" if finest_bit(a) == finest_bit(b) else "lattice"
    if isinstance(a, (float, np.floating)):
        return "" if np.asarray(a).tobytes() == np.asarray(b).tobytes() else "value"
    return "" if a == b else "value"


def finest_bit(values: object) -> int | None:
    """The largest k such that all entries are multiples of 2^k; None if all are zero or one is not finite.

    >>> finest_bit(np.array([0.75, 8.0, 0.0])), finest_bit(np.zeros(3))
    (-2, None)
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if not np.isfinite(numbers).all() or not numbers.any():
        return None
    mantissas, exponents = np.frexp(numbers[numbers != 0])
    whole = np.abs(mantissas * 2.0**53).astype(np.int64)
    low = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    return int((exponents - 53 + low).min())


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
        parts = sequential_parts(event)
        sums.mus = [leaf_mu(part) for part in parts if not isinstance(part, PoissonSubsampledGaussian)]
        for leaf in event.leaves():
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
            if self.hidden:
                # What a hidden descent released cannot be told to the neighbour, so this is of another model there.
                self.hidden += 1
            else:
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
