"""Records cut into chunks by a public rule, whatever the batches are in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.rounding import ROWS_PER_CHUNK

__all__ = ["in_chunks"]

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
        for start in range(0, len(batch[0]), ROWS_PER_CHUNK):
            part = tuple(np.asarray(array[start : start + ROWS_PER_CHUNK], dtype=np.float64) for array in batch)
            kept.append(part)
            size += len(part[0])
            if size >= ROWS_PER_CHUNK:
                whole = _joined(kept)
                yield tuple(array[:ROWS_PER_CHUNK] for array in whole)
                size -= ROWS_PER_CHUNK
                kept = [tuple(array[ROWS_PER_CHUNK:] for array in whole)] if size else []
    if size:
        yield _joined(kept)


def _joined(parts: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    return parts[0] if len(parts) == 1 else tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
