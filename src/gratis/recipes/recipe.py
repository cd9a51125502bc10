"""What a recipe is, and how raw rows are read: scales found privately or told, and what a missing feature counts as."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.private.reading import Reading
from gratis.records.plans import Plan

__all__ = ["Reading", "Recipe", "left_out", "lone_targets", "zero_rows"]

Array = NDArray[np.float64]


class Recipe(Protocol):
    """A model's private steps, fixed by public facts: it has a plan, and it can be run."""

    @property
    def plan(self) -> Plan:
        """What will be released, predicted and explained, before data is touched."""

    @property
    def chosen_from_releases(self) -> bool:
        """Whether later settings are chosen from earlier releases of the same event."""

    @property
    def needs_arrays(self) -> bool:
        """Whether it needs more than sums over the rows, hence all of them in memory."""

    def run(self, rows: Rows, *, noise: NoiseSource) -> Any:
        """Release; from here on nothing may raise or warn because of a value. Left-out records have a NaN target."""


def left_out(X: NDArray[Any], y: Array, *, impute: bool) -> tuple[NDArray[Any], Array]:
    """Mark the records that contribute nothing: NaN for the target and all features, hence nothing to any release.

    They are those without a target and, unless missing features are filled (`impute`), those with an invalid feature.

    >>> left_out(np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([0.0, 1.0]), impute=False)[1].tolist()
    [nan, 1.0]
    """
    out = ~np.isfinite(y)
    if not impute:
        out |= ~np.isfinite(X).all(axis=1)
    if not out.any():
        return X, y
    return np.where(out[:, None], np.nan, X), np.where(out, np.nan, y)


def lone_targets(y: Array) -> tuple[Array]:
    """The targets of `left_out(X, y, impute=True)` as a column: they do not depend on X."""
    return (np.where(np.isfinite(y), y, np.nan)[:, None],)


def zero_rows(X: Array, y: Array) -> Array:
    """Rows of zeros in the place of records that are left out, for trainers that leave out by the target alone."""
    return np.where(np.isfinite(y)[:, None], X, 0.0)
