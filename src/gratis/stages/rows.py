"""Rows that are read again for every release, and added up in chunks that a public rule cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.rounding import ROWS_PER_CHUNK

__all__ = ["Chunk", "Rows", "in_chunks"]

Chunk = tuple[NDArray[np.float64], NDArray[np.float64]]
Rows = Callable[[], Iterator[Chunk]]
"""Starts reading anew: batches (X, y) of any size. A record whose y is not finite contributes to nothing."""


def in_chunks(rows: Rows) -> Iterator[Chunk]:
    """Yield full chunks of `ROWS_PER_CHUNK` records (the last one may be shorter), whatever the batches are.

    So sums have the same bits from an array and from a file, and the bound on rounding errors can count on the size.

    >>> X, y = np.arange(10.0).reshape(5, 2), np.arange(5.0)
    >>> batches = lambda: iter([(X[:2], y[:2]), (X[2:], y[2:])])
    >>> [(a.shape, b.tolist()) for a, b in in_chunks(batches)]
    [((5, 2), [0.0, 1.0, 2.0, 3.0, 4.0])]
    """
    kept: list[Chunk] = []
    size = 0
    for X, y in rows():
        for start in range(0, len(X), ROWS_PER_CHUNK):
            part = slice(start, start + ROWS_PER_CHUNK)
            kept.append((np.asarray(X[part], dtype=np.float64), np.asarray(y[part], dtype=np.float64)))
            size += len(kept[-1][1])
            if size >= ROWS_PER_CHUNK:
                whole = _joined(kept)
                yield whole[0][:ROWS_PER_CHUNK], whole[1][:ROWS_PER_CHUNK]
                kept, size = [(whole[0][ROWS_PER_CHUNK:], whole[1][ROWS_PER_CHUNK:])], size - ROWS_PER_CHUNK
    if size:
        yield _joined(kept)


def _joined(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])
