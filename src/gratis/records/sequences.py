"""Long sequences of step sizes, clips and noise levels, stored as runs so that events stay small."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError

__all__ = ["MOST", "Runs", "common_runs"]

MOST = 10**15
"""No count of steps or records is larger: counts stay exact as floats, and so do their sums."""


@dataclass(frozen=True, slots=True)
class Runs:
    """A sequence of non-negative numbers as (value, how often) pairs. Equal sequences compare equal.

    >>> Runs.of([2.0, 2.0, 1.0]).to_json()
    [[2.0, 2], [1.0, 1]]
    >>> len(Runs.constant(0.5, 1000))
    1000
    """

    values: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.counts) or not self.values:
            raise GratisError("a sequence needs at least one run, with one count for each value")
        values = [check_non_negative("a sequence entry", v) for v in self.values]
        counts = [check_count("a run length", c) for c in self.counts]
        if sum(counts) > MOST:
            raise GratisError(f"a sequence must have at most {MOST} entries")
        # One canonical form: neighbouring runs of one value are one run.
        merged: list[tuple[float, int]] = []
        for value, count in zip(values, counts, strict=True):
            if merged and merged[-1][0] == value:
                merged[-1] = value, merged[-1][1] + count
            else:
                merged.append((value, count))
        object.__setattr__(self, "values", tuple(v for v, _ in merged))
        object.__setattr__(self, "counts", tuple(c for _, c in merged))

    @classmethod
    def constant(cls, value: float, count: int) -> Runs:
        """Return the sequence that holds value count times."""
        return cls((value,), (count,))

    @classmethod
    def of(cls, numbers: Iterable[float] | NDArray[np.float64]) -> Runs:
        """Compress an explicit sequence."""
        array = np.asarray(list(numbers) if not isinstance(numbers, np.ndarray) else numbers, dtype=np.float64)
        if array.ndim != 1 or array.size == 0:
            raise GratisError("a sequence needs at least one entry")
        starts = np.flatnonzero(np.concatenate(([True], array[1:] != array[:-1])))
        counts = np.diff(np.append(starts, array.size))
        return cls(tuple(array[starts].tolist()), tuple(counts.tolist()))

    def __len__(self) -> int:
        return sum(self.counts)

    def array(self) -> NDArray[np.float64]:
        """Return the sequence written out."""
        return np.repeat(np.array(self.values, dtype=np.float64), self.counts)

    def ends(self) -> NDArray[np.int64]:
        """Return the (exclusive) end position of every run."""
        return np.cumsum(np.array(self.counts, dtype=np.int64))

    def to_json(self) -> list[list[float]]:
        """Return plain data for JSON."""
        return [[value, count] for value, count in zip(self.values, self.counts, strict=True)]

    @classmethod
    def from_json(cls, data: object) -> Runs:
        """Read what `to_json` wrote."""
        try:
            pairs = [(value, count) for value, count in data]  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            raise GratisError("a sequence is stored as a list of [value, count] pairs") from None
        return cls(tuple(v for v, _ in pairs), tuple(c for _, c in pairs))


def common_runs(*sequences: Runs) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Return the stretches on which all sequences are constant: their exclusive ends, and each sequence's values there.

    The sequences must have one length; it may be far larger than memory.

    >>> ends, (first, second) = common_runs(Runs.of([1, 1, 2]), Runs.constant(5.0, 3))
    >>> ends.tolist(), first.tolist(), second.tolist()
    ([2, 3], [1.0, 2.0], [5.0, 5.0])
    """
    ends = np.unique(np.concatenate([sequence.ends() for sequence in sequences]))
    places = [np.searchsorted(sequence.ends(), ends - 1, side="right") for sequence in sequences]
    return ends, [np.array(sequence.values)[place] for sequence, place in zip(sequences, places, strict=True)]
