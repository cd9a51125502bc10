"""Records cut into chunks by a public rule, whatever the batches are in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.rounding import ROWS_PER_CHUNK

__all__ = ["in_chunks", "whole_chunks"]

Array = NDArray[Any]


def in_chunks(batches: Iterator[tuple[Array, ...]]) -> Iterator[tuple[Array, ...]]:
    """Yield full chunks of `ROWS_PER_CHUNK` records as float64 (the last may be shorter), whatever the batches are.

    So sums have the same bits from every source, and the bound on rounding errors can count on the size.

    >>> X, y = np.arange(10.0).reshape(5, 2), np.arange(5.0)
    >>> [(a.shape, b.tolist()) for a, b in in_chunks(iter([(X[:2], y[:2]), (X[2:], y[2:])]))]
    [((5, 2), [0.0, 1.0, 2.0, 3.0, 4.0])]
    """
    kept: list[tuple[Array, ...]] = []
    size = 0
    for batch in batches:
        start, rows = 0, len(batch[0])
        while start < rows:
            stop = min(start + ROWS_PER_CHUNK - size, rows)  # a chunk inside a batch is a view of it
            kept.append(tuple(np.asarray(array[start:stop], dtype=np.float64) for array in batch))
            size += stop - start
            start = stop
            if size == ROWS_PER_CHUNK:
                yield _joined(kept)
                kept, size = [], 0
    if size:
        yield _joined(kept)


def whole_chunks(rows: int) -> int:
    """Round the length of a batch down to whole chunks, which are then views of it; one below a chunk stays.

    >>> whole_chunks(10_485), whole_chunks(100)
    (8192, 100)
    """
    return rows // ROWS_PER_CHUNK * ROWS_PER_CHUNK or rows


def _joined(parts: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    return parts[0] if len(parts) == 1 else tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
