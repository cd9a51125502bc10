"""The four sets that one record's contribution may lie in, and how far one record then moves a sum.

| bound | contribution of a record | longest | zero-out | replace-one |
|---|---|---|---|---|
| `Ball` | a vector v with ‖v‖ ≤ 1 | 1 | 1 | 2 |
| `Outer` | vvᵀ with ‖v‖ ≤ 1 | 1 | 1 | √2 |
| `OneHot` | one cell of a histogram in each of B blocks | √B | √B | √(2B) |
| `Cube` | a vector of [0, 1]ᵏ | √k | √k | √k |

Models return vectors (for `OneHot`, cells), one row a record; the bound makes them small enough and adds them up. So a
sensitivity does not rest on what a model computes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.clipped_gradient import row_norms, sanitised, usable_rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

__all__ = ["Ball", "Bound", "Cube", "OneHot", "Outer"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bound(ABC):
    """A set of contributions, with 0 in it: what a record adds that cannot be bounded, or is not there.

    `size` is the number of entries that a record's row has. Public: events depend on it.
    """

    size: int

    def sensitivity(self, n_records: int, relation: Neighbouring) -> float:
        """How far the mean over n records moves with one of them, roundings included (docs/proofs/rounding.md)."""
        moved = self._diameter if relation is Neighbouring.REPLACE_ONE else self._longest
        inflation = rounding_inflation(n_records, self._squares + 16, sensitivity=moved / self._longest)
        return moved * inflation / n_records

    def total(self, rows: Array, present: NDArray[np.bool_]) -> Array:
        """Σ over the records of a chunk that are `present`, each inside the bound; (m, size) to `shape`."""
        if rows.shape != (len(present), self.size):
            raise GratisError(f"a contribution must have {self.size} entries for each record of a chunk")
        return self._sum(rows, present)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sum."""
        return (self.size,)

    @property
    def _longest(self) -> float:
        """The norm of the longest contribution: the zero-out sensitivity."""
        return 1.0

    @property
    @abstractmethod
    def _diameter(self) -> float:
        """The distance of the two contributions that are farthest apart: the replace-one sensitivity."""

    @property
    def _squares(self) -> int:
        """How many squares the norm is computed from that a record is clipped by."""
        return self.size

    @abstractmethod
    def _sum(self, rows: Array, present: NDArray[np.bool_]) -> Array:
        """Bound every record and add up."""


def _in_ball(rows: Array, present: NDArray[np.bool_]) -> Array:
    """Rows of norm at most 1: longer ones are scaled, those that are not finite or overflow are 0."""
    clean = sanitised(rows, present & usable_rows(rows))
    return np.asarray(clean * np.minimum(1.0, 1 / row_norms(clean))[:, None])  # an infinite norm gives 0


class Ball(Bound):
    """‖v‖ ≤ 1, longer vectors scaled to norm 1.

    >>> Ball(2).total(np.array([[3.0, 4.0], [0.0, np.inf], [0.1, 0.0]]), np.ones(3, bool)).round(3).tolist()
    [0.7, 0.8]
    """

    @property
    def _diameter(self) -> float:
        return 2.0

    def _sum(self, rows: Array, present: NDArray[np.bool_]) -> Array:
        return np.asarray(_in_ball(rows, present).sum(axis=0))


class Outer(Bound):
    """vvᵀ with ‖v‖ ≤ 1, longer v scaled to norm 1; ‖vvᵀ − wwᵀ‖² = ‖v‖⁴ + ‖w‖⁴ − 2(vᵀw)² ≤ 2.

    >>> Outer(2).total(np.array([[2.0, 0.0], [0.0, 0.5]]), np.ones(2, bool)).tolist()
    [[1.0, 0.0], [0.0, 0.25]]
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix."""
        return (self.size, self.size)

    @property
    def _diameter(self) -> float:
        return math.sqrt(2)

    @property
    def _squares(self) -> int:
        return 2 * self.size  # a vector of norm 1 + s has an outer product of norm (1 + s)²

    def _sum(self, rows: Array, present: NDArray[np.bool_]) -> Array:
        clipped = _in_ball(rows, present)
        return np.asarray(clipped.T @ clipped)


@dataclass(frozen=True, slots=True)
class OneHot(Bound):
    """One of `cells` cells in each of `size` blocks; a cell that does not exist, or NaN, counts nowhere.

    >>> OneHot(1, 3).total(np.array([[0.0], [2.0], [2.0], [7.0], [np.nan]]), np.ones(5, bool)).tolist()
    [[1.0, 0.0, 2.0]]
    """

    cells: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Blocks and cells."""
        return (self.size, self.cells)

    @property
    def _longest(self) -> float:
        return math.sqrt(self.size)

    @property
    def _diameter(self) -> float:
        return math.sqrt(2 * self.size)

    def _sum(self, rows: Array, present: NDArray[np.bool_]) -> Array:
        with np.errstate(invalid="ignore"):
            counted = present[:, None] & (rows >= 0) & (rows < self.cells)
        cells = np.where(counted, rows, 0.0).astype(np.int64) + self.cells * np.arange(self.size)
        counts = np.bincount(cells[counted], minlength=self.size * self.cells)
        return counts.reshape(self.shape).astype(np.float64)


class Cube(Bound):
    """A vector of [0, 1]ᵏ, cut off outside; NaN is 0. Two of them are at most the diagonal √k apart.

    >>> Cube(2).total(np.array([[0.5, 3.0], [-1.0, np.nan]]), np.ones(2, bool)).tolist()
    [0.5, 1.0]
    """

    @property
    def _longest(self) -> float:
        return math.sqrt(self.size)

    @property
    def _diameter(self) -> float:
        return math.sqrt(self.size)

    def _sum(self, rows: Array, present: NDArray[np.bool_]) -> Array:
        inside = np.clip(np.where(np.isnan(rows), 0.0, rows), 0.0, 1.0)
        return np.asarray(np.where(present[:, None], inside, 0.0).sum(axis=0))
