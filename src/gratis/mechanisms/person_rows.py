"""Rows of which one person may have many: every person counts once, in every sum, however many rows there are."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.rows import Chunks, Rows
from gratis.numerics.rounding import ROWS_PER_CHUNK
from gratis.numerics.tree_sum import TreeSum
from gratis.records.errors import GratisError

__all__ = ["MOST_ROWS", "PersonRows", "person_weight"]

Array = NDArray[Any]

MOST_ROWS = ROWS_PER_CHUNK  # of one person; of more, so many are taken at even distances
# Products of matrices compute their last few rows by other instructions, which round otherwise: chunks end with rows
# that contribute nothing, so that no row's score depends on how many rows other persons have.
_TILE = 64


def person_weight(rows: int) -> float:
    """Return 1/rows, rounded so that `rows` times it is at most 1: the weight of one of a person's rows.

    >>> person_weight(4), Fraction(person_weight(49)) * 49 <= 1
    (0.25, True)
    """
    weight = 1 / rows
    return weight if Fraction(weight) * rows <= 1 else float(np.nextafter(weight, 0.0))


class PersonRows(Rows):
    """The rows of N persons, as N units of privacy: `n_rows` is N, and a sum over records is one over persons.

    A person enters every `total` with the mean of what the own rows contribute, and every `clipped_total` with what
    the stage makes of all of them together. Rows that contribute nothing (no target, or no person) are not among them.

    **Guarantee** (docs/proofs/persons.md): let a stage add vectors v(row) of a set S with 0 ∈ S, which bounds its
    sensitivity by sup ‖v − v′‖ under replace-one and by sup ‖v‖ under zero-out. The mean over a person's rows lies in
    the convex hull of S, where both suprema are the same. So the stage's event holds for N persons as it holds for N
    rows, when all rows of one person, however many, are exchanged for any others, or contribute nothing. Which rows
    count, and their weight, depends on the person's own rows alone; where a row stands among those of others changes
    roundings of sums only, which `numerics.rounding.rounding_inflation` bounds for any order.

    A chunk holds whole persons with equally many rows, one after the other: a person is `each` consecutive rows. It
    ends with null records (no value, no target), which contribute nothing.

    >>> rows = PersonRows.of(np.array([[1.0], [3.0], [5.0]]), np.zeros(3), np.array([0, 0, 1]), 2)
    >>> rows.n_rows, rows.total(lambda X, y: np.nansum(X, axis=0)).tolist()
    (2, [7.0])
    """

    def __init__(self, parts: list[tuple[Array, ...]], each: tuple[int, ...], n_persons: int, n_features: int) -> None:
        chunks: Chunks = lambda: iter(parts)  # noqa: E731
        super().__init__(chunks, n_persons, n_features, chunks=chunks, in_memory=True)
        self._parts, self._each = parts, each

    @classmethod
    def of(cls, X: Array, y: Array, persons: NDArray[np.int64], n_persons: int) -> PersonRows:
        """Sort rows by person. `persons` are numbers 0 … N − 1, or −1 for a row that belongs to nobody known."""
        kept, each = _sorted_rows(np.isfinite(y), persons, n_persons)
        parts: list[tuple[Array, ...]] = []
        sizes: list[int] = []
        start = 0
        for size in np.unique(each):
            end = start + int((each == size).sum())
            step = int(size) * max(1, ROWS_PER_CHUNK // int(size))
            for first in range(start, end, step):
                parts.append(_padded(X, y, kept[first : min(first + step, end)]))
                sizes.append(int(size))
            start = end
        if not parts:  # nobody contributes: a null record has the shape of the sums
            parts, sizes = [_padded(X, y, kept[:0])], [1]
        return cls(parts, tuple(sizes), n_persons, X.shape[1])

    def mapped(self, change: Callable[..., tuple[Array, ...]], *, n_features: int | None = None) -> PersonRows:
        """The rows under a map that sees a chunk at a time and must treat every row by itself."""
        width = self.n_features if n_features is None else n_features
        return PersonRows([change(*part) for part in self._parts], self._each, self.n_rows, width)

    def total(self, contribution: Callable[..., Array]) -> Array:
        """Σ over persons of the mean of what the own rows contribute."""
        tree = TreeSum()
        for part, each in zip(self._parts, self._each, strict=True):
            tree.add(contribution(*part) * person_weight(each))
        return tree.total()

    def clipped_total(self, contribution: Callable[..., Array]) -> Array:
        """Σ over chunks of what `contribution` makes of persons of `each` rows: it bounds persons itself."""
        tree = TreeSum()
        for part, each in zip(self._parts, self._each, strict=True):
            tree.add(contribution(*part, each=each))
        return tree.total()

    def arrays(self) -> tuple[Array, ...]:
        """Refuse: what does more than add up would not know a person's rows from those of another."""
        raise GratisError("this model does more than add up rows, so it cannot tell whose they are")


def _padded(X: Array, y: Array, rows: NDArray[np.int64]) -> tuple[Array, Array]:
    """Rows of a chunk and one to `_TILE` null records after them, to a multiple of `_TILE`."""
    size = len(rows) + _TILE - len(rows) % _TILE
    records, targets = np.full((size, X.shape[1]), np.nan), np.full(size, np.nan)
    records[: len(rows)], targets[: len(rows)] = X[rows], y[rows]
    return records, targets


def _sorted_rows(
    usable: NDArray[np.bool_], persons: NDArray[np.int64], n_persons: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the rows that count, by the number of rows of their person, then by person; and that number."""
    rows = np.flatnonzero(usable & (persons >= 0))
    rows = rows[np.argsort(persons[rows], kind="stable")]
    counts = np.bincount(persons[rows], minlength=n_persons)
    own = counts[persons[rows]]
    rank = np.arange(len(rows)) - (np.cumsum(counts) - counts)[persons[rows]]
    spaced = (rank + 1) * MOST_ROWS // np.maximum(own, 1) > rank * MOST_ROWS // np.maximum(own, 1)
    kept = (own <= MOST_ROWS) | spaced
    rows, own = rows[kept], np.minimum(own[kept], MOST_ROWS)
    order = np.argsort(own, kind="stable")
    return rows[order], own[order]
