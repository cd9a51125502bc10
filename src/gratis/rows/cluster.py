"""Rows on the workers of a Dask cluster: only sums of their contributions travel.

Rows are cut into blocks of 2ᵏ chunks by a public rule, a worker adds up the chunks of a block in the tree of one
machine, and the coordinator adds the blocks: the same bits, wherever a block was computed and however often. Workers
see rows and the coordinator sees exact sums: both are trusted (docs/howto/cluster.md).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.chunks import in_chunks
from gratis.numerics.rounding import ROWS_PER_CHUNK
from gratis.numerics.tree_sum import TreeSum
from gratis.records.errors import ChangedTableError, GratisError
from gratis.rows.cluster_client import answers, current_client, kept_blocks, quiet_graphs

__all__ = [
    "CHANGED",
    "UNREADABLE",
    "ClusterRows",
    "cluster_rows",
    "is_dask",
    "loaded_blocks",
    "refuse_unless",
    "rows_per_block",
    "silent",
]

Array = NDArray[Any]
Change = Callable[..., tuple[Array, ...]]
Parts = list[tuple[int, Array]]

_BLOCK_NUMBERS = 2**22  # 32 MB: many blocks for every worker, few tasks for the scheduler
_TRIES = 3  # at a block: a file may be out of reach for a moment


def is_dask(values: Any) -> bool:
    """Say whether this is a Dask array, data frame or series, without importing Dask."""
    return type(values).__module__.partition(".")[0] in ("dask", "dask_expr")


def rows_per_block(n_features: int) -> int:
    """Return the public length of a block: a power of two of chunks.

    >>> rows_per_block(20), rows_per_block(10_000)
    (131072, 4096)
    """
    chunks = max(1, _BLOCK_NUMBERS // (ROWS_PER_CHUNK * max(n_features, 1)))
    return ROWS_PER_CHUNK * 2 ** (chunks.bit_length() - 1)


class ClusterRows:
    """Records behind the interface of `mechanisms.rows.Rows`, as far as sums need it."""

    in_memory = False
    only_sums = True

    def __init__(
        self,
        client: Any,
        blocks: Sequence[Any],
        n_rows: int,
        n_features: int,
        *,
        changes: tuple[Change, ...] = (),
        targets: Sequence[Any] | None = None,
    ) -> None:
        """`blocks` are (X, y), or what has them as `batches`: futures, delayed, or as they are.

        Each has the same number of rows, a power of two of chunks, but the last, which may have fewer. `targets` are
        the same blocks with the target alone, as a column, where it can be read without the features.
        """
        self._client, self._blocks, self._changes, self._targets = client, list(blocks), changes, targets
        self.n_rows, self.n_features = n_rows, n_features

    def mapped(self, change: Change, *, n_features: int | None = None) -> ClusterRows:
        """The rows under a map that must treat every record by itself; workers apply it at every reading."""
        width = self.n_features if n_features is None else n_features
        return ClusterRows(self._client, self._blocks, self.n_rows, width, changes=(*self._changes, change))

    def targets(self) -> ClusterRows:
        """The targets of (X, y), as a table of one column."""
        if self._targets is not None:
            return ClusterRows(self._client, self._targets, self.n_rows, 1)
        return self.mapped(lambda _, y: (y[:, None],), n_features=1)

    def total(self, contribution: Callable[..., Array]) -> Array:
        """Σ over chunks of what `contribution` makes of each; refused if a worker's answer is no finite sum."""
        tree, expected = TreeSum(), None
        for parts in answers(self._client, block_sum, self._blocks, (self._changes, contribution)):
            refuse_unless(parts, isinstance(parts, list) and all(isinstance(part, np.ndarray) for _, part in parts))
            for level, part in parts:
                expected = part.shape if expected is None else expected
                right = part.shape == expected and part.dtype == np.float64 and bool(np.isfinite(part).all())
                refuse_unless(parts, right)
                tree.add(np.array(part), int(level))
        return tree.total()

    def clipped_total(self, contribution: Callable[..., Array]) -> Array:
        """As `total`: a unit of privacy is a row."""
        return self.total(contribution)

    def batches(self) -> Iterator[tuple[Array, ...]]:
        """Refused: rows stay where they are."""
        raise GratisError("rows on a cluster are only ever added up: a pass in their order needs one machine")

    chunks = batches

    def arrays(self) -> tuple[Array, ...]:
        """Refused: rows stay where they are."""
        raise GratisError("this model needs all rows in memory: it cannot be trained on a cluster")


CHANGED = str(ChangedTableError())  # what a worker answers then
UNREADABLE = "a worker cannot read the table: all need it under the same path; nothing was spent"
_LOST = (
    "a block of rows could not be added up on the cluster: its workers were lost, or lack packages; nothing was "
    "released from it, and what was reserved before, if anything, stays spent"
)
_GARBAGE = (
    "a worker returned something that is no finite sum: nothing was released from it, and what was reserved before, if "
    "anything, stays spent"
)


def refuse_unless(answer: Any, right: bool) -> None:
    """Refuse an answer that is not right, in the sentence that fits it."""
    if not right:
        raise GratisError(
            _LOST if answer is None else CHANGED if isinstance(answer, str) and answer == CHANGED else _GARBAGE
        )


def silent(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as workers run it: None instead of an exception, or `CHANGED`, and no warning.

    Dask writes exceptions to the worker's log, with the arguments, which are rows.
    """

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for _ in range(_TRIES):
                try:
                    return function(*arguments)
                except ChangedTableError:
                    return CHANGED
                except Exception:
                    continue
        return None

    return run


@silent
def block_sum(block: Any, work: tuple[tuple[Change, ...], Callable[..., Array]]) -> Parts | str:
    """Add up one block, held or read in batches, on a worker: the nodes of the fixed tree that its chunks fill."""
    if isinstance(block, str):
        return CHANGED  # found when it was loaded
    changes, contribution = work
    tree = TreeSum()
    for whole in in_chunks(block.batches() if hasattr(block, "batches") else iter((block,))):
        chunk: tuple[Array, ...] = whole
        for change in changes:
            chunk = change(*chunk)
        tree.add(np.array(contribution(*chunk), dtype=np.float64))
    return tree.kept


def cluster_rows(X: Any, y: Any, read: Change) -> ClusterRows:
    """Return the rows of Dask arrays, or of a Dask data frame and series, on the cluster of the current client.

    `read` makes numbers of raw rows and targets, record by record, when a block is loaded.
    """
    import dask.array as da
    from dask import delayed

    client = current_client()
    X, y = (_as_array(part) for part in (X, y))
    if not is_dask(y):
        y = da.from_array(np.asarray(y), chunks=-1)  # of objects Dask knows no size
    if X.ndim != 2 or y.shape not in (X.shape[:1], (X.shape[0], 1)) or np.isnan(X.shape[0]):
        raise GratisError("X must be a table with a known number of rows, and y have one entry for each of them")
    if X.dtype.kind not in "biuf" or y.dtype.kind not in "biufOUST":
        raise GratisError(f"X must hold real numbers, got the type {X.dtype}")
    n_rows, n_features = (int(size) for size in X.shape)
    rows = rows_per_block(n_features)
    X, y = X.rechunk((rows, n_features)), y.reshape(-1).rechunk(rows)
    blocks = [
        delayed(silent(read), pure=False)(part[0], target)
        for part, target in zip(X.to_delayed(), y.to_delayed(), strict=True)
    ]
    return ClusterRows(client, loaded_blocks(client, blocks, n_rows, n_features), n_rows, n_features)


def _as_array(part: Any) -> Any:
    """A data frame or series as an array, whose lengths are counted on the workers; other things as they are."""
    if not hasattr(part, "to_dask_array"):
        return part
    try:
        with quiet_graphs():
            return part.to_dask_array(lengths=True)
    except Exception:  # of whatever loads the rows, and may quote them
        pass
    raise GratisError(UNREADABLE)


def loaded_blocks(client: Any, blocks: list[Any], n_rows: int, n_features: int) -> list[Any]:
    """The blocks, in the workers' memory if they fit there; refused unless all can be loaded, and nothing is spent."""
    kept = kept_blocks(client, blocks, n_rows, n_features)
    for said in answers(client, _is_loaded, kept):
        if said is not True:
            raise GratisError(CHANGED if said == CHANGED else UNREADABLE)
    return kept


def _is_loaded(block: Any) -> bool | str:
    return block if isinstance(block, str) else block is not None
