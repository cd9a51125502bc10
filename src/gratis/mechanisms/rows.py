"""Records behind one interface, wherever they live: read in chunks that a public rule cuts, added in a fixed tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.chunks import in_chunks
from gratis.numerics.rounding import ROWS_PER_CHUNK
from gratis.numerics.tree_sum import TreeSum
from gratis.records.errors import GratisError
from gratis.records.progress import tracked

__all__ = ["Rows"]

Array = NDArray[Any]
Chunks = Callable[[], Iterator[tuple[Array, ...]]]


class Rows:
    """Records with public sizes, read anew for every release.

    A chunk is a tuple of arrays with one entry for each of its records: (X, y) as they come, or what a row-wise map
    made of them. A record whose y is not finite contributes nothing to any release.

    >>> rows = Rows.held(np.arange(10.0).reshape(5, 2), np.arange(5.0))
    >>> rows.n_rows, rows.n_features, float(rows.mapped(lambda X, y: (X * y[:, None],)).total(np.sum))
    (5, 2, 130.0)
    """

    only_sums = False  # as on a cluster, where rows cannot be read in their order

    def __init__(
        self,
        batches: Chunks,
        n_rows: int,
        n_features: int,
        *,
        chunks: Chunks | None = None,
        in_memory: bool = False,
        targets: Chunks | None = None,
    ) -> None:
        """`targets` are batches of the targets as a column, where they can be read without the features."""
        self.batches, self.n_rows, self.n_features, self.in_memory = batches, n_rows, n_features, in_memory
        self._targets = targets
        # Not of self.batches: in a cycle, rows in a scratch file would stay open after the fit.
        self.chunks = chunks or (lambda: tracked(in_chunks(batches()), "reading", -(-n_rows // ROWS_PER_CHUNK)))

    @classmethod
    def held(cls, X: Array, *others: Array) -> Rows:
        """Rows of arrays: X (n, D), and what else there is of each record, mostly y (n,)."""
        if X.ndim != 2 or any(other.shape[:1] != X.shape[:1] for other in others):
            raise GratisError("X must be a matrix of records by columns, and y have one entry for each record")
        return cls(lambda: iter(((X, *others),)), *X.shape, in_memory=True)

    @classmethod
    def one_chunk(cls, X: Array, *others: Array) -> Rows:
        """Few rows of any type, as one chunk: for synthetic data, whose rounding errors protect nobody."""

        def chunks() -> Iterator[tuple[Array, ...]]:
            return iter(((X, *others),))

        return cls(chunks, *X.shape, chunks=chunks, in_memory=True)

    def mapped(self, change: Callable[..., tuple[Array, ...]], *, n_features: int | None = None) -> Rows:
        """The rows under a map that sees a chunk at a time and must treat every record by itself.

        Rows in memory are mapped once and kept, others at every reading.
        """
        chunks: Chunks = self.chunks
        if self.in_memory:
            kept = [change(*chunk) for chunk in chunks()]
            mapped: Chunks = lambda: iter(kept)  # noqa: E731
        else:
            mapped = lambda: (change(*chunk) for chunk in chunks())  # noqa: E731
        width = self.n_features if n_features is None else n_features
        return Rows(mapped, self.n_rows, width, chunks=mapped, in_memory=self.in_memory)

    def targets(self) -> Rows:
        """The targets of (X, y), as a table of one column."""
        if self._targets is not None:
            return Rows(self._targets, self.n_rows, 1)
        return self.mapped(lambda _, y: (y[:, None],), n_features=1)

    def total(self, contribution: Callable[..., Array]) -> Array:
        """Σ over chunks of what `contribution` makes of each: the same bits from an array and from a file."""
        tree = TreeSum()
        for chunk in self.chunks():
            tree.add(contribution(*chunk))
        return tree.total()

    def clipped_total(self, contribution: Callable[..., Array]) -> Array:
        """As `total`, for a `contribution` that bounds units of privacy of `each` consecutive rows, here of one."""
        return self.total(contribution)

    def arrays(self) -> tuple[Array, ...]:
        """All records at once, for models that need more than sums."""
        if not self.in_memory:
            raise GratisError("this model needs all rows in memory: it cannot be trained on a stream")
        batches = list(self.batches())
        return batches[0] if len(batches) == 1 else tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))
