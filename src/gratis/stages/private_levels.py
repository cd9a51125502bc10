"""The common values of text columns that nobody listed, as a paid release: partition selection by a threshold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.special import ndtri

from gratis.mechanisms.noise import NoiseSource
from gratis.numerics.outward import round_up
from gratis.records.checks import check_count, check_delta, check_positive
from gratis.records.events import ThresholdedCounts
from gratis.records.neighbouring import Neighbouring

__all__ = ["count_levels", "levels_event", "release_levels"]

Values = Sequence[str | None]


def levels_event(n_columns: int, *, mu: float, failure: float, neighbouring: Neighbouring) -> ThresholdedCounts:
    """Return the event of finding the common values of `n_columns` columns, at `mu`-GDP but for `failure`.

    A record has at most one value a column. Zero-out: as many counts move by 1; replace-one: twice as many, one up and
    one down in each column. The threshold is where a value that one record alone has is published with probability
    failure/counts (docs/proofs/private-levels.md).

    >>> event = levels_event(1, mu=0.5, failure=1e-6, neighbouring=Neighbouring.ZERO_OUT)
    >>> event.noise_std, round(event.threshold, 2)
    (2.0, 10.51)
    """
    counts = check_count("n_columns", n_columns) * (1 if neighbouring is Neighbouring.ZERO_OUT else 2)
    noise_std = math.sqrt(counts) / check_positive("mu", mu)
    # A hair beyond: the accountant counts the rounding of releases, and rounds up.
    distance = -float(ndtri(check_delta(failure) / counts * (1 - 2.0**-16))) + 2.0**-18
    return ThresholdedCounts(
        counts_moved=counts,
        noise_std=noise_std,
        threshold=round_up(1 + noise_std * distance),
        neighbouring=neighbouring,
        label=f"levels of {n_columns} columns",
    )


def count_levels(batches: Iterable[Sequence[Values]]) -> list[Counter[str]]:
    """Count the values of each column exactly. Private: for `release_levels` alone.

    `batches` hold, for each column, one value or None for each record that contributes; a record whose target is
    missing must not be among them.
    """
    counters: list[Counter[str]] = []
    for batch in batches:
        counters = counters or [Counter() for _ in batch]
        for counter, values in zip(counters, batch, strict=True):
            counter.update(value for value in values if value is not None)
    return counters


def release_levels(
    counters: Sequence[Mapping[str, int]],
    event: ThresholdedCounts,
    *,
    most: int,
    noise: NoiseSource,
) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Return for each column the values whose noisy counts reach the threshold, with them, the most frequent first.

    `counters` are those of `count_levels`, one for each column, or sums of such. At most `most` values a column are
    returned, by their noisy counts.

    **Guarantee**: that of `event`, from `levels_event` for as many columns as are counted, under its own relation.
    Only values that occur get noise: that a value occurs in one record alone is told with the probability that the
    event states, and what is told of the others is Gaussian.
    """
    occurring = [(column, value) for column, counter in enumerate(counters) for value in sorted(counter)]
    exact = np.array([counters[column][value] for column, value in occurring], dtype=np.float64)
    counts = noise.release(exact, event.noise_std)
    found: list[list[tuple[str, float]]] = [[] for _ in counters]
    for place in np.argsort(-counts, kind="stable"):
        column, value = occurring[place]
        if counts[place] >= event.threshold and len(found[column]) < most:
            found[column].append((value, float(counts[place])))
    return tuple(map(tuple, found))
