"""Private standardisation: where each column lies and how wide it is, with no bounds asked from the user.

Four Gaussian releases a block of columns, each on a public grid that the earlier ones narrow down: octaves of
|x|, positions inside that range, half octaves of the distance from there, and the mean inside that window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.clipped_gradient import usable_rows
from gratis.mechanisms.column_posterior import (
    Hypotheses,
    believed_half_range,
    coarse_distances,
    coarse_octaves,
    farthest_clump,
)
from gratis.mechanisms.column_shapes import HIGHEST, LOWEST, ZOOM_BINS, magnitudes, middle, spread, upper_edges
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import ROWS_PER_CHUNK, rounding_inflation
from gratis.records.checks import check_count, check_positive
from gratis.records.events import Composition, Event, GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.records.plans import TOO_FEW

__all__ = [
    "StandardisationPlan",
    "Standardiser",
    "hidden_share",
    "plan_standardisation",
    "release_location_scale",
    "target_doubts",
]

_SHARES = (0.33, 0.17, 0.33, 0.17)
_NARROWEST, _WORTH = 2.0, 0.05  # of the scale: least window of a mean, and its noise below which more is no gain
_CHUNK_ENTRIES = 2**22
_CACHED_ENTRIES = 2**15  # numbers that a histogram looks at together
# Deviations of a count's noise in all records: with normal targets 2 of 12 scales were off by far at 10, none at 16.
_SURELY_PLACED = 12.0
# Deviations of a count from which a level was always kept by its window: 0/1 columns of 30 tables each at 5000 × 10,
# epsilon .5 and 1, kept .27 at 2.9, .57 at 4.6, .9 at 5.4 and 1 from 6.2 on (benchmarks/intervals.py, "binary").
_SEEN = 6.0
# A single column with fewer records than this many deviations of a count's noise is read from coarse histograms
# together: with 16, linear fits to targets 100 to 300 deviations from zero were lost in between; additive ones do
# better with 32 there (docs/results/small.md). How many positions are told apart (odd: whole numbers lie on the edges
# of 16), and the window in units of the scale.
_FEW, _FEW_BINS, _FEW_WINDOW = 64.0, 15, 6.0
_MAGNITUDES, _SPREAD, _MEAN = "magnitudes", "spread around the mean", "mean"


@dataclass(frozen=True, slots=True)
class Standardiser:
    """x ↦ clip(x − centre, ±window)/scale, column by column; all fields are released or public.

    The clip is part of the map (it bounds outliers at fit and at prediction alike). Inside the window the map is
    affine, so coefficients return to the original units exactly: see `original_units`. Columns with a finite `knee` are
    asinh(x/knee) before anything else, a logarithm on both sides of zero: models that are no lines in x ask for it.

    >>> Standardiser(np.array([1.0]), np.array([2.0]), np.array([4.0])).transform(np.array([[3.0], [99.0]]))
    array([[1.],
           [2.]])
    """

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    window: NDArray[np.float64]
    impute: bool = False
    knee: NDArray[np.float64] | None = None

    @classmethod
    def identity(cls, n_columns: int) -> Standardiser:
        """Return the map that changes nothing, for columns already on a public scale."""
        return cls(np.zeros(n_columns), np.ones(n_columns), np.full(n_columns, np.inf))

    def transform(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardise rows; a non-finite entry becomes 0, the centre, with `impute`.

        Otherwise it becomes NaN, so that later stages see the row as unusable.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            moved = np.asarray(_logarithmic(X, self.knee) - self.centre, dtype=np.float64)
            # In place: wide tables are large, and one copy of them is enough. `np.clip` is slower with other bounds for
            # every column.
            np.maximum(moved, -self.window, out=moved)
            np.minimum(moved, self.window, out=moved)
            moved /= self.scale
        np.copyto(moved, 0.0 if self.impute else np.nan, where=~np.isfinite(X))
        return moved

    def inverse(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map standardised values back, without the clip."""
        found = X * self.scale + self.centre
        if self.knee is None:
            return found
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(np.isfinite(self.knee), self.knee * np.sinh(found), found)

    def original_units(self, coefficients: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (slopes, intercept) for x such that slopes·x + intercept = coefficients·(x − centre)/scale.

        `coefficients` is (d, k). Equality holds for rows inside the window, and no column may have a knee.
        """
        slopes = coefficients / self.scale[:, None]
        return slopes, -(self.centre @ slopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardisationPlan:
    """The four releases of one block of columns, fixed by public facts.

    `tail`: share of the magnitudes that may lie outside; `headroom` widens what was found.
    """

    n_records: int
    n_columns: int
    tail: float
    headroom: float
    events: tuple[GaussianRelease, ...] = field(repr=False)

    @property
    def event(self) -> Composition:
        """All releases as one event."""
        return Composition(self.events)

    @property
    def centre_error(self) -> float:
        """Deviation of the released centre, in units of the scale (where the window allows that much)."""
        return max(_NARROWEST * self.events[-1].noise_std, _WORTH)

    @property
    def scarce(self) -> bool:
        """Whether records are so few that the histograms of a single column must be read together. Public."""
        return self.n_records < _FEW * self.events[0].noise_std


def target_doubts(event: Event, n_records: int) -> tuple[str, ...]:
    """A sentence for a plan where so few records may not show the order of magnitude of a target; mostly none."""
    leaves = event.leaves() if isinstance(event, Composition) else (event,)
    first = [leaf for leaf in leaves if isinstance(leaf, GaussianRelease) and leaf.label == f"target: {_MAGNITUDES}"]
    if all(n_records >= _SURELY_PLACED * leaf.noise_std for leaf in first):
        return ()
    return (TOO_FEW,)


def plan_standardisation(
    n_records: int,
    n_columns: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    tail: float = 0.02,
    headroom: float = 1.0,
    label: str = "features",
) -> StandardisationPlan:
    """Fix the releases for one block of D columns at `mu`-GDP together.

    Sensitivities, with every record contributing a bounded vector whatever its values are:

    * histograms: a record adds 1 to one bin of every column, so zero-out moves √D; an exchange takes 1 from one
      bin and adds 1 to another in each column, √(2D). Counts are exact in float64.
    * means of values clipped to [−1, 1]: a record adds a vector of norm ≤ √D/n, so κ√D/n.
    """
    n = check_count("n_records", n_records)
    columns = check_count("n_columns", n_columns)
    check_positive("mu", mu)
    kappa = neighbouring.sensitivity_factor
    inflation = rounding_inflation(n, columns, sensitivity=1.0, rows_per_chunk=_chunk_rows(columns))

    count = math.sqrt(kappa * columns)
    stages = (
        (_MAGNITUDES, count),
        ("position", count),
        (_SPREAD, count),
        (_MEAN, kappa * math.sqrt(columns) / n),
    )
    events = tuple(
        GaussianRelease(
            sensitivity=sensitivity * inflation,
            noise_std=sensitivity * inflation / (mu * math.sqrt(share)),
            neighbouring=neighbouring,
            label=f"{label}: {name}",
        )
        for (name, sensitivity), share in zip(stages, _SHARES, strict=True)
    )
    return StandardisationPlan(n_records=n, n_columns=columns, tail=tail, headroom=headroom, events=events)


def hidden_share(event: Event, *, label: str = "features") -> float:
    """Return the share of the rows below which a level of a column may lie beyond its released window.

    Of the releases in `event`; 0 where no scales were released. A public number: sensitivities are √(κD) and κ√D/n.

    >>> plan = plan_standardisation(5000, 10, mu=0.1, neighbouring=Neighbouring.REPLACE_ONE)
    >>> round(hidden_share(plan.event), 3), hidden_share(plan.event, label="target")
    (0.093, 0.0)
    """
    leaves = event.leaves()
    found = {leaf.label: leaf for leaf in leaves if isinstance(leaf, GaussianRelease)}
    counts, mean = (found.get(f"{label}: {name}") for name in (_SPREAD, _MEAN))
    if counts is None or mean is None:
        return 0.0
    rows = counts.sensitivity * math.sqrt(counts.neighbouring.sensitivity_factor) / mean.sensitivity
    return _SEEN * counts.noise_std / rows


def release_location_scale(
    rows: Rows, plan: StandardisationPlan, *, noise: NoiseSource, impute: bool = False, logarithms: bool = False
) -> Standardiser:
    """Find centre, scale and window of every column as planned.

    **Guarantee**: the four releases are those of `plan.events` (sensitivities: `plan_standardisation`); each is
    computed from the rows and from earlier releases only. Rows with a non-finite entry contribute nothing; with
    `impute`, a non-finite entry contributes nothing to its own column, and the released map puts the centre there.

    The columns are the first array of every chunk of `rows`, which are read anew for each of the four releases. With
    `logarithms` a column whose octaves, the first release, show most of its values far below its range is mapped by
    asinh(x/knee), value by value, before it is counted and averaged in the other three: their sensitivities hold for
    any values.
    """
    stds = [event.noise_std for event in plan.events]
    n, columns = plan.n_records, plan.n_columns
    block = _Block(rows, columns, impute=impute)
    if columns == 1 and plan.scarce:
        return _from_few(block, plan, noise=noise, impute=impute)

    counts = noise.release(block.octaves(), stds[0])
    half, knee = magnitudes(counts, stds[0], n, tail=plan.tail / 2)
    knees = knee if logarithms and np.isfinite(knee).any() else None
    if knees is not None:
        block.knee, half = knees, np.where(np.isfinite(knees), np.arcsinh(half / knees), half)
    bins = _position_bins(stds[1] / n)
    placed = noise.release(block.positions(half, bins), stds[1])
    centre = half * middle(placed, stds[1], n)
    fine = noise.release(block.half_octaves(centre, half), stds[2])
    window, scale = (half * found for found in spread(fine, stds[2], n, tail=plan.tail))
    window = np.minimum(window * plan.headroom, 2 * half)
    # The mean may be taken closer to the centre than values are kept: less noise for some bias, where it pays.
    width = np.clip(_WORTH * scale / stds[3], np.minimum(_NARROWEST * scale, window), window)
    offset = noise.release(block.sum(centre, width) / n, stds[3])
    # The spread was measured around the old centre: take off what the move surely explains. Too small a scale clips.
    moved = np.square(width * np.maximum(np.abs(offset) - stds[3], 0.0))
    scale = np.sqrt(np.maximum(np.square(scale) - moved, np.square(scale) / 4))
    if columns > 2:
        # Many columns, little known of each: shrink their moves to none (James–Stein).
        energy = float(np.square(offset).sum())
        offset = offset * max(0.0, 1.0 - (columns - 2) * stds[3] ** 2 / max(energy, 1e-300))
    return Standardiser(centre + width * offset, scale, window, impute=impute, knee=knees)


def _from_few(block: _Block, plan: StandardisationPlan, *, noise: NoiseSource, impute: bool) -> Standardiser:
    """The same four releases of a single column on coarser grids, read together (`column_posterior`)."""
    stds, n = [event.noise_std for event in plan.events], plan.n_records
    octaves = noise.release(coarse_octaves(block.octaves())[0], stds[0])
    half = believed_half_range(octaves, stds[0], n)
    placed = noise.release(block.positions(np.array([half]), _FEW_BINS)[0], stds[1])

    def known(centre: float) -> Hypotheses:
        start = Hypotheses.around(centre)
        start = start.given(octaves, stds[0], n, start.octaves(len(octaves), half))
        return start.given(placed, stds[1], n, start.positions(_FEW_BINS))

    centre = known(0.0).summary()[0]
    apart = noise.release(coarse_distances(block.half_octaves(np.array([half * centre]), np.array([half])))[0], stds[2])
    before = known(centre)
    expected = before.distances(centre, upper_edges(ZOOM_BINS)[1::2])
    after = before.given(apart, stds[2], n, expected)
    mean, deviation, doubt = after.summary()
    clump, deviation_of_it = farthest_clump(apart - n * after.mean(expected), stds[2], n)
    if clump > _FEW_WINDOW * deviation:  # of no law, and the window must hold it all the same
        deviation = doubt = deviation_of_it
    # The mean of values near that place, as far as it is better known than what the histograms say of it.
    width = half * _NARROWEST * math.hypot(deviation, doubt)
    offset = noise.release(block.sum(np.array([half * mean]), np.array([width])) / n, stds[3])
    kept = (half * doubt) ** 2 / ((half * doubt) ** 2 + (width * stds[3]) ** 2)
    scale = np.array([half * deviation])
    return Standardiser(half * mean + width * kept * offset, scale, _FEW_WINDOW * scale, impute=impute)


def _logarithmic(X: NDArray[Any], knee: NDArray[np.float64] | None) -> NDArray[Any]:
    """The same with asinh(x/knee) in columns whose knee is finite."""
    if knee is None:
        return X
    found, heavy = np.array(X, dtype=np.float64), np.flatnonzero(np.isfinite(knee))
    found[:, heavy] = np.arcsinh(found[:, heavy] / knee[heavy])
    return found


def _chunk_rows(columns: int) -> int:
    """Return how many rows are looked at together: fewer of wide tables, so that a chunk takes 32 MB at most.

    >>> _chunk_rows(1024), _chunk_rows(20_000), _chunk_rows(10**9)
    (4096, 209, 1)
    """
    return max(1, min(ROWS_PER_CHUNK, _CHUNK_ENTRIES // columns))


class _Block:
    """The un-noised statistics of the columns that every chunk begins with, summed over the rows."""

    def __init__(self, rows: Rows, columns: int, *, impute: bool = False) -> None:
        self._rows, self._columns, self._impute = rows, columns, impute
        self.knee: NDArray[np.float64] | None = None

    def _total(self, contribution: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
        impute, at_once, knee = self._impute, _chunk_rows(self._columns), self.knee

        def counted(part: NDArray[np.float64]) -> NDArray[np.float64]:
            if impute or (usable := usable_rows(part)).all():
                return part
            return part[usable]

        def summed(X: NDArray[np.float64], *_: NDArray[np.float64]) -> NDArray[np.float64]:
            parts = (X[start : start + at_once] for start in range(0, len(X), at_once))
            return np.asarray(sum(contribution(_logarithmic(counted(part), knee)) for part in parts))

        with np.errstate(all="ignore"):
            return self._rows.total(summed)

    def _histogram(self, bins: Callable[[NDArray[np.float64]], NDArray[Any]], size: int) -> NDArray[np.float64]:
        """Counts of entries by `bins`, which get finite numbers and may change them."""
        columns, at_once = self._columns, max(1, _CACHED_ENTRIES // self._columns)
        offsets, nowhere = np.arange(columns) * size, columns * size

        def count(rows: NDArray[np.float64]) -> NDArray[np.float64]:
            places = np.empty(rows.shape, dtype=np.int64)
            for start in range(0, len(rows), at_once):
                part, found = rows[start : start + at_once], places[start : start + at_once]
                absent = ~np.isfinite(part)
                numbers = np.array(part, dtype=np.float64)
                np.copyto(numbers, 0.0, where=absent)
                np.clip(bins(numbers), 0, size - 1, out=found, casting="unsafe")
                found += offsets
                np.copyto(found, nowhere, where=absent)
            counts = np.bincount(places.ravel(), minlength=nowhere + 1)[:nowhere]
            return counts.reshape(columns, size).astype(np.float64)

        return self._total(count)

    def octaves(self) -> NDArray[np.float64]:
        """Counts of |x| below 2^lowest (bin 0) and in each octave from there on."""

        def bins(rows: NDArray[np.float64]) -> NDArray[Any]:
            bits = rows.view(np.int64)  # sign, 11 of the exponent above −1023 (0 of zero, and of what is tiny), 52
            bits >>= 52
            bits &= 0x7FF
            bits -= 1023 + LOWEST - 1
            return bits

        return self._histogram(bins, HIGHEST - LOWEST + 2)

    def positions(self, half: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Counts of x in `size` equal bins of [−half, half]; what lies outside counts at the ends."""

        def bins(rows: NDArray[np.float64]) -> NDArray[Any]:
            rows /= half
            np.clip(rows, -1, 1, out=rows)
            rows += 1
            rows *= size / 2
            return rows

        return self._histogram(bins, size)

    def half_octaves(self, centre: NDArray[np.float64], half: NDArray[np.float64]) -> NDArray[np.float64]:
        """Counts of |x − centre|/half in half octaves below 2; the first bin holds all that is smaller."""

        def bins(rows: NDArray[np.float64]) -> NDArray[Any]:
            rows -= centre
            np.abs(rows, out=rows)
            rows /= half
            np.clip(rows, 2.0**-20, 1.999, out=rows)
            np.log2(rows, out=rows)
            rows *= 2
            np.floor(rows, out=rows)
            rows += ZOOM_BINS - 2
            return rows

        return self._histogram(bins, ZOOM_BINS)

    def sum(self, centre: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ clip((x − centre)/width, ±1) over the entries that are there."""

        def contribution(rows: NDArray[np.float64]) -> NDArray[np.float64]:
            parts = rows - centre
            parts /= width
            np.clip(parts, -1, 1, out=parts)
            np.copyto(parts, 0.0, where=~np.isfinite(rows))
            return np.asarray(parts.sum(axis=0))

        return self._total(contribution)


def _position_bins(relative_noise: float) -> int:
    """Return how many bins the noise affords: a bin's noise times their number stays near n."""
    return 2 ** round(math.log2(min(max(1 / relative_noise, 8.0), 256.0)))
