"""Private distribution functions of all columns from one release of their counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.columns import BINS, MIDDLES, Columns

__all__ = ["HistogramPlan", "Shares", "normal_shares", "plan_column_histograms", "release_column_histograms"]

Array = NDArray[np.float64]

_NORMAL: Array = np.exp(-np.square(MIDDLES) / 2) / np.exp(-np.square(MIDDLES) / 2).sum()
# Recipe D: bins that stand out by six deviations and three times the mode of a normal shape are atoms (a value that
# many records share); detail coefficients beyond 2.5 deviations are kept as they are.
_ATOM_DEVIATIONS, _ATOM_MODES, _KEEP = 6.0, 3.0, 2.5


@dataclass(frozen=True, slots=True)
class Shares:
    """Released (or assumed) share of every place of every column, each summing to 1."""

    columns: tuple[Array, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramPlan:
    """One release of all counts; fixed by public facts."""

    n_records: int
    event: GaussianRelease = field(repr=False)


def plan_column_histograms(n_records: int, n_columns: int, *, mu: float, neighbouring: Neighbouring) -> HistogramPlan:
    """Fix the release at `mu`-GDP: a record adds 1 to one place of every column.

    Sensitivity with D histograms: zero-out √D; an exchange takes 1 from one place and adds it to another in each,
    √(2D). Counts are exact in float64; the inflation covers the root.
    """
    inflation = rounding_inflation(n_records, n_columns, sensitivity=1.0)
    sensitivity = math.sqrt(neighbouring.sensitivity_factor * n_columns) * inflation
    event = GaussianRelease(
        sensitivity=sensitivity, noise_std=sensitivity / mu, neighbouring=neighbouring, label="column histograms"
    )
    return HistogramPlan(n_records=n_records, event=event)


def release_column_histograms(rows: Rows, columns: Columns, plan: HistogramPlan, *, noise: NoiseSource) -> Shares:
    """Count, add noise, clean.

    **Guarantee**: the release is that of `plan.event`, if `columns` is public or was released before. Records that are
    not usable add to no bin.
    """
    sizes = columns.sizes
    # One more place in every column for missing levels: counted nowhere, and cut off before the release.
    offsets = np.concatenate([[0], np.cumsum([size + 1 for size in sizes])])

    def counted(X: Array, y: Array) -> Array:
        places = columns.places(X)[columns.usable(X, y)]
        return np.bincount((places + offsets[:-1]).ravel(), minlength=offsets[-1]).astype(np.float64)

    total = rows.total(counted)
    counts = np.concatenate([total[start : start + size] for start, size in zip(offsets, sizes, strict=False)])
    std = plan.event.noise_std
    released = np.split(noise.release(counts, std), np.cumsum(sizes)[:-1])
    found = tuple(
        _levels(part, plan.n_records) if j in columns.levels else _density(part, plan.n_records, std)
        for j, part in enumerate(released)
    )
    return Shares(found)


def normal_shares(columns: Columns) -> Shares:
    """What is assumed where nothing was asked: normal columns, levels equally frequent."""
    return Shares(tuple(np.full(columns.levels[j], 1 / columns.levels[j]) if j in columns.levels else _NORMAL
                        for j in range(columns.n_columns)))  # fmt: skip


def _levels(counts: Array, n: int) -> Array:
    kept = np.maximum(counts, 0.0) + 1e-3 * n / len(counts)
    return np.asarray(kept / kept.sum())


def _density(counts: Array, n: int, std: float) -> Array:
    """Shares of the bins: atoms as released, the rest shrunk towards a normal shape level by level of a Haar basis."""
    atom = counts > _ATOM_DEVIATIONS * std + _ATOM_MODES * n * _NORMAL.max()
    base = max(n - float(counts[atom].sum()), 0.02 * n) * _NORMAL
    details = np.where(atom, 0.0, counts) - base
    kept = []
    while len(details) > 1:
        kept.append(_shrunk((details[0::2] - details[1::2]) / math.sqrt(2), std))
        details = (details[0::2] + details[1::2]) / math.sqrt(2)
    smooth = details * max(0.0, 1 - std**2 / max(float(np.square(details).mean()), 1e-12))
    for detail in reversed(kept):
        finer = np.empty(2 * len(smooth))
        finer[0::2], finer[1::2] = (smooth + detail) / math.sqrt(2), (smooth - detail) / math.sqrt(2)
        smooth = finer
    cleaned = np.maximum(np.where(atom, counts, base + smooth), 0.0) + 1e-4 * n * _NORMAL
    return np.asarray(cleaned / cleaned.sum())


def _shrunk(details: Array, std: float) -> Array:
    factor = max(0.0, 1 - std**2 / max(float(np.square(details).mean()), 1e-12))
    return np.where(np.abs(details) > _KEEP * std, details, factor * details)


assert BINS & (BINS - 1) == 0, "the Haar basis needs a power of two"
