"""Features of an additive model, as tables over places: one table a column, one a side of every pair.

Post-processing of released shares: centring and second moments within a column are exact functions of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gratis.stages.column_histograms import Shares
from gratis.stages.columns import MIDDLES, Columns

__all__ = ["CurveBasis", "Kind", "Pairs"]

Array = NDArray[np.float64]
Places = NDArray[np.int64]

_WINSORISED = 3.0  # recipe D: the linear part is flat beyond three scales


class Kind(IntEnum):
    """Kinds of coefficients; variances of the same kind are alike a priori."""

    INTERCEPT = 0
    SLOPE = 1
    BEND = 2
    LEVEL = 3
    PAIR = 4


@dataclass(frozen=True, slots=True)
class Pairs:
    """Chosen pairs of columns and the number of coordinates on each side; none by default."""

    chosen: tuple[tuple[int, int], ...] = ()
    coordinates: int = 1


@dataclass(frozen=True)
class CurveBasis:
    """1, then for every column its centred features, then for every pair the products of its coordinates.

    Numbers: the winsorised value, weighted so that it counts as much as a uniform rank, and √2·cos(πku)/k of the rank
    u, k = 1 … `n_cosines`. Levels: one indicator each.
    """

    columns: Columns
    shares: Shares
    n_cosines: int
    pairs: Pairs = field(default_factory=Pairs)

    def __post_init__(self) -> None:
        tables = [self._table(j) for j in range(self.columns.n_columns)]
        sides = {j: self.coordinates(j, self.pairs.coordinates) for pair in self.pairs.chosen for j in pair}
        widths = [1, *(table.shape[1] for table in tables)]
        widths += [sides[i].shape[1] * sides[j].shape[1] for i, j in self.pairs.chosen]
        object.__setattr__(self, "tables", tables)
        object.__setattr__(self, "sides", sides)
        object.__setattr__(self, "edges", np.concatenate([[0], np.cumsum(widths)]))

    tables: list[Array] = field(init=False, repr=False)
    sides: dict[int, Array] = field(init=False, repr=False)
    edges: Places = field(init=False, repr=False)

    @property
    def width(self) -> int:
        """p: number of features."""
        return int(self.edges[-1])

    @property
    def n_main(self) -> int:
        """Features without those of pairs."""
        return int(self.edges[1 + self.columns.n_columns])

    def term(self, index: int) -> slice:
        """Where the features of a term are: 0 is the intercept, 1 … d the columns, then the pairs."""
        return slice(int(self.edges[index]), int(self.edges[index + 1]))

    def features(self, places: Places) -> Array:
        """Return the rows (m, p) of features."""
        found = np.empty((len(places), self.width))
        found[:, 0] = 1.0
        for j, table in enumerate(self.tables):
            found[:, self.term(1 + j)] = table[places[:, j]]
        for q, (i, j) in enumerate(self.pairs.chosen):
            left, right = self.sides[i][places[:, i]], self.sides[j][places[:, j]]
            at = self.term(1 + self.columns.n_columns + q)
            np.multiply(left[:, :, None], right[:, None, :], out=found[:, at].reshape(len(places), *self._sides(i, j)))
        return found

    def _sides(self, i: int, j: int) -> tuple[int, int]:
        return self.sides[i].shape[1], self.sides[j].shape[1]

    def pair_table(self, index: int) -> Array:
        """Products of coordinates over all places of both columns: (places of i, places of j, features)."""
        i, j = self.pairs.chosen[index]
        left, right = self.sides[i], self.sides[j]
        return np.einsum("sa,tb->stab", left, right).reshape(len(left), len(right), -1)

    def groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the group of every feature, and the kind of every group: slope and bend of a column are two."""
        group, kinds = [0], [int(Kind.INTERCEPT)]
        for j, table in enumerate(self.tables):
            if j in self.columns.levels:
                group += [len(kinds)] * table.shape[1]
                kinds.append(Kind.LEVEL)
            else:
                group += [len(kinds)] + [len(kinds) + 1] * self.n_cosines
                kinds += [Kind.SLOPE, Kind.BEND]
        for q in range(len(self.pairs.chosen)):
            at = self.term(1 + self.columns.n_columns + q)
            group += [len(kinds)] * (at.stop - at.start)
            kinds.append(Kind.PAIR)
        return np.array(group), np.array(kinds)

    def within(self) -> list[Array]:
        """Second moments inside every term: of columns by their shares, of pairs as if the two were independent."""
        found: list[Array] = [np.ones((1, 1))]
        found += [_moments(table, share) for table, share in zip(self.tables, self.shares.columns, strict=True)]
        sides = {j: _moments(side, self.shares.columns[j]) for j, side in self.sides.items()}
        return found + [np.kron(sides[i], sides[j]) for i, j in self.pairs.chosen]

    def mean_square(self) -> float:
        """E‖features‖², by the shares."""
        return float(sum(np.trace(block) for block in self.within()))

    def coordinates(self, column: int, count: int) -> Array:
        """Centred coordinates of a column over its places, for products: cosines, or the most frequent levels."""
        share = self.shares.columns[column]
        if column not in self.columns.levels:
            return _centred(_cosines(_ranks(share), count), share)
        top = np.argsort(-share, kind="stable")[: max(1, min(count, len(share) - 1))]
        return _with_missing(_centred(np.eye(len(share))[:, top], share))

    def coordinate_moments(self, column: int, count: int) -> Array:
        """Second moments of the coordinates."""
        return _moments(self.coordinates(column, count), self.shares.columns[column])

    def _table(self, column: int) -> Array:
        share = self.shares.columns[column]
        if column in self.columns.levels:
            return _with_missing(_centred(np.eye(len(share)), share))
        ranks = _ranks(share)
        spread = float(share @ np.square(ranks - 0.5))
        linear = math.sqrt(min(12 * spread, 1.0)) * np.clip(MIDDLES, -_WINSORISED, _WINSORISED)
        return _centred(np.column_stack([linear, _cosines(ranks, self.n_cosines)]), share)


def _ranks(share: Array) -> Array:
    return np.asarray(np.cumsum(share) - share / 2)


def _cosines(ranks: Array, count: int) -> Array:
    k = np.arange(1, count + 1)
    return math.sqrt(2) * np.cos(math.pi * k * ranks[:, None]) / k


def _centred(table: Array, share: Array) -> Array:
    return np.asarray(table - share @ table)


def _with_missing(table: Array) -> Array:
    return np.vstack([table, np.zeros(table.shape[1])])


def _moments(table: Array, share: Array) -> Array:
    rows = table[: len(share)]
    return np.asarray(rows.T @ (rows * share[:, None]))
