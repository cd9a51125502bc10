"""The four sets that one record's contribution may lie in, and how far one record then moves a sum.

| bound | contribution of a record | longest | zero-out | replace-one |
|---|---|---|---|---|
| `ball` | a vector v with ‖v‖ ≤ 1 | 1 | 1 | 2 |
| `outer` | vvᵀ with ‖v‖ ≤ 1 | 1 | 1 | √2 |
| `one_hot` | one cell of a histogram in each of B blocks | √B | √B | √(2B) |
| `cube` | a vector of [0, 1]ᵏ | √k | √k | √k |

Models return vectors (for `one_hot`, cells), one row a record; the bound makes them small enough and adds them up. So a
sensitivity does not rest on what a model computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.clipped_gradient import row_norms, sanitised, usable_rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

__all__ = ["Bound", "ball", "cube", "one_hot", "outer"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Bound:
    """A set of contributions, with 0 in it: what a record adds that cannot be bounded, or is not there.

    Made by `ball`, `outer`, `one_hot` and `cube`. All of it is public: events and shapes depend on it.
    """

    size: int  # entries of the row that a record has
    shape: tuple[int, ...]  # of the sum
    longest: float  # norm of the longest contribution: the zero-out sensitivity
    diameter: float  # distance of the two that are farthest apart: the replace-one sensitivity
    squares: int  # from which the norm is computed that a record is clipped by
    add: Callable[[Array, Mask, tuple[int, ...]], Array]  # bounds every record and adds them up

    def sensitivity(self, n_records: int, relation: Neighbouring) -> float:
        """How far the mean over n records moves with one of them, roundings included (docs/proofs/rounding.md)."""
        return self._moved(relation) * self.inflation(n_records, relation) / n_records

    def inflation(self, n_records: int, relation: Neighbouring) -> float:
        """The factor by which roundings enlarge the sensitivity."""
        return rounding_inflation(n_records, self.squares + 16, sensitivity=self._moved(relation) / self.longest)

    def _moved(self, relation: Neighbouring) -> float:
        return self.diameter if relation is Neighbouring.REPLACE_ONE else self.longest

    def total(self, rows: Array, present: Mask) -> Array:
        """Σ over the records of a chunk that are `present`, each inside the bound; (m, size) to `shape`."""
        if rows.shape != (len(present), self.size):
            raise GratisError(f"a contribution must have {self.size} entries for each record of a chunk")
        return self.add(rows, present, self.shape)


def ball(size: int) -> Bound:
    """‖v‖ ≤ 1, longer vectors scaled to norm 1.

    >>> ball(2).total(np.array([[3.0, 4.0], [0.0, np.inf], [0.1, 0.0]]), np.ones(3, bool)).round(3).tolist()
    [0.7, 0.8]
    """
    return Bound(size, (size,), 1.0, 2.0, size, _add_in_ball)


def outer(size: int) -> Bound:
    """vvᵀ with ‖v‖ ≤ 1, longer v scaled to norm 1; ‖vvᵀ − wwᵀ‖² = ‖v‖⁴ + ‖w‖⁴ − 2(vᵀw)² ≤ 2.

    >>> outer(2).total(np.array([[2.0, 0.0], [0.0, 0.5]]), np.ones(2, bool)).tolist()
    [[1.0, 0.0], [0.0, 0.25]]
    """
    # A vector of norm 1 + s has an outer product of norm (1 + s)²: twice the squares.
    return Bound(size, (size, size), 1.0, math.sqrt(2), 2 * size, _add_outer_products)


def one_hot(blocks: int, cells: int) -> Bound:
    """One of the `cells` in each of the `blocks`; a cell that does not exist, or NaN, counts nowhere.

    >>> one_hot(1, 3).total(np.array([[0.0], [2.0], [2.0], [7.0], [np.nan]]), np.ones(5, bool)).tolist()
    [[1.0, 0.0, 2.0]]
    """
    return Bound(blocks, (blocks, cells), math.sqrt(blocks), math.sqrt(2 * blocks), blocks, _add_cells)


def cube(size: int) -> Bound:
    """A vector of [0, 1]ᵏ, cut off outside; NaN is 0. Two of them are at most the diagonal √k apart.

    >>> cube(2).total(np.array([[0.5, 3.0], [-1.0, np.nan]]), np.ones(2, bool)).tolist()
    [0.5, 1.0]
    """
    return Bound(size, (size,), math.sqrt(size), math.sqrt(size), size, _add_in_cube)


def _in_ball(rows: Array, present: Mask) -> Array:
    """Rows of norm at most 1: longer ones are scaled, those that are not finite or overflow are 0."""
    clean = sanitised(rows, present & usable_rows(rows))
    return np.asarray(clean * np.minimum(1.0, 1 / row_norms(clean))[:, None])  # an infinite norm gives 0


def _add_in_ball(rows: Array, present: Mask, shape: tuple[int, ...]) -> Array:
    return np.asarray(_in_ball(rows, present).sum(axis=0))


def _add_outer_products(rows: Array, present: Mask, shape: tuple[int, ...]) -> Array:
    clipped = _in_ball(rows, present)
    return np.asarray(clipped.T @ clipped)


def _add_cells(rows: Array, present: Mask, shape: tuple[int, ...]) -> Array:
    blocks, cells = shape
    with np.errstate(invalid="ignore"):
        counted = present[:, None] & (rows >= 0) & (rows < cells)
    places = np.where(counted, rows, 0.0).astype(np.int64) + cells * np.arange(blocks)
    return np.bincount(places[counted], minlength=blocks * cells).reshape(shape).astype(np.float64)


def _add_in_cube(rows: Array, present: Mask, shape: tuple[int, ...]) -> Array:
    inside = np.clip(np.where(np.isnan(rows), 0.0, rows), 0.0, 1.0)
    return np.asarray(np.where(present[:, None], inside, 0.0).sum(axis=0))
