"""A table in files that the workers of a Dask cluster read: what is refused, counted and added up there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gratis.records.errors import GratisError
from gratis.rows.cluster import (
    CHANGED,
    UNREADABLE,
    Array,
    Change,
    ClusterRows,
    loaded_blocks,
    refuse_unless,
    rows_per_block,
    silent,
)
from gratis.rows.cluster_client import answers, fits, workers
from gratis.rows.undecided import Problems

if TYPE_CHECKING:
    from gratis.rows.encoding import EncodedRows

__all__ = ["ClusterTable"]

_LONGEST = 2**20  # rows of a row group, as Arrow writes them: of a shorter block some would be read for nothing
_BLOCKS_PER_WORKER = 3  # so that all of them end at about the same time; a row group that is cut is read twice


class ClusterTable:
    """The rows of a table in files that every worker can read under the same path."""

    def __init__(self, client: Any, stream: EncodedRows) -> None:
        if stream.table.held:
            raise GratisError(
                "a table of this format is held in memory, and all its rows would be sent to every worker: convert it "
                "to Parquet first; nothing was spent"
            )
        self._client, self._stream = client, stream
        self.n_rows, self.n_features = stream.n_rows, stream.n_features

    def validate(self, *, missing_targets: bool = False) -> None:
        """Let the workers read everything once, and refuse as one machine would. Only before a budget is reserved."""
        found = Problems()
        for said in answers(self._client, _problems, self._blocks(), missing_targets):
            if not isinstance(said, Problems):
                raise GratisError(said if isinstance(said, str) else UNREADABLE)
            found |= said
        self._stream.refuse(found)

    def refuse_unless_kept(self, n_features: int) -> None:
        """Refuse rows that would be read at every release from a format that is read from its beginning each time."""
        if not self._stream.table.skips and not fits(self._client, self.n_rows, n_features):
            raise GratisError(
                "the workers' memory does not hold the rows, and this format is read from its beginning for every "
                "block of them: convert it to Parquet first"
            )

    def rows(self, read: Change, *, once: bool = False, read_targets: Change | None = None) -> ClusterRows:
        """Return the rows on the cluster, as `read` makes them; those that are read `once` need not be kept.

        `read_targets` makes the column of targets, where it needs no features: blocks that are not kept are read for
        the targets' sake alone, too.
        If they are kept, all are loaded when this returns, from the table that was opened: asked of the workers, and of
        the table here. Refused otherwise, before anything is reserved for them.
        """
        from dask import delayed

        if not once:
            self.refuse_unless_kept(self.n_features)
            small = self._stream.blocks(rows_per_block(self.n_features))
            blocks = [delayed(_loaded, pure=False)(block, delayed(read, traverse=False)) for block in small]
            if fits(self._client, self.n_rows, self.n_features):
                kept = loaded_blocks(self._client, blocks, self.n_rows, self.n_features)
                self._stream.table.refuse_changed()
                return ClusterRows(self._client, kept, self.n_rows, self.n_features)
        blocks = self._blocks()
        streamed = [_Streamed(block.batches, read) for block in blocks]
        lone = None if read_targets is None else [_Streamed(block.targets, read_targets) for block in blocks]
        return ClusterRows(self._client, streamed, self.n_rows, self.n_features, targets=lone)

    def counts(self, count: Callable[[EncodedRows], list[Counter[str]]], columns: int) -> list[Counter[str]]:
        """Counts of values, a counter for each column, that workers made of their blocks; garbage is refused."""
        blocks = self._blocks()
        whole: list[Counter[str]] = [Counter() for _ in range(columns)]
        for block, found in zip(blocks, answers(self._client, _applied, blocks, silent(count)), strict=True):
            refuse_unless(found, _plausible(found, columns, block.n_rows))
            for total, counter in zip(whole, found, strict=False):
                total.update(counter)
        refuse_unless(CHANGED, not self._stream.table.changed())
        return whole

    def _blocks(self) -> list[EncodedRows]:
        """Blocks that are read in batches: as long as a row group mostly is, if every worker gets several of them."""
        size = rows_per_block(self.n_features)
        several = self.n_rows // (_BLOCKS_PER_WORKER * max(1, len(workers(self._client))))
        while 2 * size <= min(_LONGEST, several):
            size *= 2
        return self._stream.blocks(size)


class _Streamed:
    """A block that a worker reads in batches, at every release."""

    def __init__(self, batches: Callable[[], Iterator[tuple[Array, ...]]], read: Change) -> None:
        self._batches, self._read = batches, read

    def batches(self) -> Iterator[tuple[Array, ...]]:
        """Yield (X, y) as `read` makes them."""
        return (self._read(*batch) for batch in self._batches())


@silent
def _problems(block: EncodedRows, missing_targets: bool) -> Problems | str:
    """What is wrong with a block, in names; a sentence if it cannot be read at all."""
    try:
        return block.problems(missing_targets=missing_targets)
    except GratisError as error:
        return str(error)


def _plausible(found: Any, columns: int, n_rows: int) -> bool:
    """Whether these are counts of `n_rows` records, each of which has at most one value a column."""
    return (
        isinstance(found, list)
        and len(found) in (0, columns)
        and all(
            isinstance(counter, Counter)
            and all(type(value) is str and type(times) is int and times > 0 for value, times in counter.items())
            and counter.total() <= n_rows
            for counter in found
        )
    )


def _applied(block: Any, function: Callable[[Any], Any]) -> Any:
    return function(block)


@silent
def _loaded(block: EncodedRows, read: Change) -> tuple[Array, ...]:
    X, y = block.arrays()
    return read(X, y)
