"""The classes' shares among the records, as a paid release: where a classifier starts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.checks import check_positive
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring

__all__ = ["class_counts_event", "release_class_prior"]


def class_counts_event(*, mu: float, neighbouring: Neighbouring, n_records: int | None = None) -> GaussianRelease:
    """Return the event of counting the records of every class at `mu`-GDP.

    A record is in one class or, without a label, in none. Zero-out: one count changes by 1. Replace-one: at most two
    do, one up and one down, so √2. Counts are whole numbers far below 2⁵³: their sums have no rounding. Where a record
    is a person whose rows count in part (`mechanisms.person_rows`) they round: `n_records` covers that.

    >>> event = class_counts_event(mu=0.5, neighbouring=Neighbouring.ZERO_OUT)
    >>> event.sensitivity, event.noise_std
    (1.0, 2.0)
    """
    sensitivity = 1.0 if neighbouring is Neighbouring.ZERO_OUT else math.sqrt(2.0)
    if n_records is not None:
        sensitivity *= rounding_inflation(n_records, 1, sensitivity=sensitivity)
    return GaussianRelease(
        sensitivity=sensitivity,
        noise_std=sensitivity / check_positive("mu", mu),
        neighbouring=neighbouring,
        label="class counts",
    )


def release_class_prior(
    rows: Rows, n_classes: int, event: GaussianRelease, *, noise: NoiseSource
) -> NDArray[np.float64]:
    """Release the counts of the classes 0 … K−1 and return their shares, all positive.

    **Guarantee**: that of `event`, from `class_counts_event`; a label outside the classes (or NaN) counts nowhere.
    Shares are post-processing: counts are drawn to their mean as far as noise alone explains that they differ (James
    and Stein), and none is taken to be below one record or half the noise, so that the log of a rare class's share
    stays finite and no rarer than can be known.

    >>> rows = Rows.held(np.zeros((4, 1)), np.array([0.0, 1.0, 1.0, np.nan]))
    >>> event = class_counts_event(mu=1e6, neighbouring=Neighbouring.ZERO_OUT)
    >>> release_class_prior(rows, 2, event, noise=NoiseSource.insecure(0)).round(3)
    array([0.333, 0.667])
    """
    counts = rows.total(lambda _, y: (y[:, None] == np.arange(n_classes)).sum(axis=0).astype(np.float64))
    released = noise.release(counts, event.noise_std)
    kept = 1 - event.noise_std**2 / max(float(released.var(ddof=1)), 1e-300)
    drawn = released.mean() + max(kept, 0.0) * (released - released.mean())
    shares = np.maximum(drawn, max(1.0, 0.5 * event.noise_std))
    return np.asarray(shares / shares.sum())
