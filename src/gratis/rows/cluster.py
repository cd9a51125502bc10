"""Rows on the workers of a Dask cluster: only sums of their contributions travel.

Rows are cut into blocks of 2ᵏ chunks by a public rule, a worker adds up the chunks of a block in the tree of one
machine, and the coordinator adds the blocks: the same bits, wherever a block was computed and however often. Workers
see rows and the coordinator sees exact sums: both are trusted (docs/howto/cluster.md).
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.chunks import in_chunks
from gratis.numerics.rounding import ROWS_PER_CHUNK
from gratis.numerics.tree_sum import TreeSum
from gratis.records.errors import GratisError
from gratis.records.progress import tracked
from gratis.rows.undecided import Problems

if TYPE_CHECKING:
    from gratis.rows.encoding import EncodedRows

__all__ = ["ClusterRows", "ClusterTable", "cluster_rows", "connected", "is_dask", "rows_per_block"]

Array = NDArray[Any]
Change = Callable[..., tuple[Array, ...]]
Parts = list[tuple[int, Array]]

_BLOCK_NUMBERS = 2**22  # 32 MB: many blocks for every worker, few tasks for the scheduler
_KEPT_SHARE = 0.4  # of the workers' memory, up to which blocks stay there between releases
_MOST_LOCAL, _PATIENCE = 256, 20  # workers, and seconds for a scheduler to answer
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
        self, client: Any, blocks: Sequence[Any], n_rows: int, n_features: int, *, changes: tuple[Change, ...] = ()
    ) -> None:
        """`blocks` are futures or delayed values of (X, y), each of `rows_per_block` rows but the last."""
        self._client, self._blocks, self._changes = client, list(blocks), changes
        self.n_rows, self.n_features = n_rows, n_features

    def mapped(self, change: Change, *, n_features: int | None = None) -> ClusterRows:
        """The rows under a map that must treat every record by itself; workers apply it at every reading."""
        width = self.n_features if n_features is None else n_features
        return ClusterRows(self._client, self._blocks, self.n_rows, width, changes=(*self._changes, change))

    def targets(self) -> ClusterRows:
        """The targets of (X, y), as a table of one column."""
        return self.mapped(lambda _, y: (y[:, None],), n_features=1)

    def total(self, contribution: Callable[..., Array]) -> Array:
        """Σ over chunks of what `contribution` makes of each; refused if a worker's answer is no finite sum."""
        from dask import delayed

        # Part of the graph, which the scheduler keeps: what is scattered would be lost with its workers.
        work = delayed((self._changes, contribution), traverse=False, pure=False)
        tasks = [delayed(block_sum, pure=False)(block, work) for block in self._blocks]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            answers = self._client.compute(tasks)
        tree, expected = TreeSum(), None
        for answer in tracked(answers, "reading", len(tasks)):
            parts = self._answer(answer)
            for level, part in parts:
                expected = part.shape if expected is None else expected
                if part.shape != expected or part.dtype != np.float64 or not np.isfinite(part).all():
                    raise GratisError(_GARBAGE)
                tree.add(part, level)
        return tree.total()

    def clipped_total(self, contribution: Callable[..., Array]) -> Array:
        """As `total`: a unit of privacy is a row."""
        return self.total(contribution)

    def _answer(self, answer: Any) -> Parts:
        parts = _result(answer)
        if parts is None:
            raise GratisError(
                "a block of rows could not be added up on the cluster: its workers were lost, or lack packages; what "
                "was reserved stays spent"
            )
        if not isinstance(parts, list) or not all(isinstance(part, np.ndarray) for _, part in parts):
            raise GratisError(_GARBAGE)
        return [(int(level), np.array(part)) for level, part in parts]

    def batches(self) -> Iterator[tuple[Array, ...]]:
        """Refused: rows stay where they are."""
        raise GratisError("rows on a cluster are only ever added up: a pass in their order needs one machine")

    chunks = batches

    def arrays(self) -> tuple[Array, ...]:
        """Refused: rows stay where they are."""
        raise GratisError("this model needs all rows in memory: it cannot be trained on a cluster")


def _result(answer: Any) -> Any:
    """What a worker returned; None where the cluster failed (workers lost too often, or code that they cannot load)."""
    try:
        return answer.result()
    except Exception:
        return None


_GARBAGE = "a worker returned something that is no finite sum: nothing was released from it; what was reserved is spent"


def silent(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as workers run it: None instead of an exception, and no warning.

    Dask writes exceptions to the worker's log, with the arguments, which are rows.
    """

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for _ in range(_TRIES):
                try:
                    return function(*arguments)
                except Exception:
                    continue
        return None

    return run


@silent
def block_sum(block: tuple[Array, ...], work: tuple[tuple[Change, ...], Callable[..., Array]]) -> Parts:
    """Add up one block on a worker: the nodes of the fixed tree that its chunks fill."""
    changes, contribution = work
    tree = TreeSum()
    for whole in in_chunks(iter((block,))):
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
    X, y = (part.to_dask_array(lengths=True) if hasattr(part, "to_dask_array") else part for part in (X, y))
    if not is_dask(y):
        y = da.from_array(np.asarray(y))
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
    return ClusterRows(client, kept_blocks(client, blocks, n_rows, n_features), n_rows, n_features)


class ClusterTable:
    """The rows of a table in files that every worker can read under the same path."""

    def __init__(self, client: Any, stream: EncodedRows) -> None:
        self._client, self._stream = client, stream
        self.n_rows, self.n_features = stream.n_rows, stream.n_features

    def validate(self, *, missing_targets: bool = False) -> None:
        """Let the workers read everything once, and refuse as one machine would. Only before a budget is reserved."""
        from dask import delayed

        blocks = self._blocks()
        tasks, found = [delayed(_problems, pure=False)(block, missing_targets) for block in blocks], Problems()
        for answer in tracked(self._client.compute(tasks), "reading", len(tasks)):
            said = _result(answer)
            if said is None:
                raise GratisError("a worker cannot read the table: all need it under the same path; nothing was spent")
            if isinstance(said, str):
                raise GratisError(said)
            found |= said
        self._stream.refuse(found)

    def rows(self, read: Change) -> ClusterRows:
        """Return the rows on the cluster, as `read` makes them."""
        from dask import delayed

        blocks = [delayed(_loaded, pure=False)(block, delayed(read, traverse=False)) for block in self._blocks()]
        kept = kept_blocks(self._client, blocks, self.n_rows, self.n_features)
        return ClusterRows(self._client, kept, self.n_rows, self.n_features)

    def _blocks(self) -> list[EncodedRows]:
        return self._stream.blocks(rows_per_block(self.n_features))


def _problems(block: EncodedRows, missing_targets: bool) -> Problems | str:
    """What is wrong with a block, in names; a sentence if it cannot be read at all."""
    try:
        return block.problems(missing_targets=missing_targets)
    except GratisError as error:
        return str(error)


@silent
def _loaded(block: EncodedRows, read: Change) -> tuple[Array, ...]:
    X, y = block.arrays()
    return read(X, y)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Yield a checked client of the cluster at an address, of `local:N` processes made for it, or None for None."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise GratisError("a cluster needs the extra: pip install 'gratis[dask]'") from None
    with ExitStack() as stack:
        kind, _, count = address.partition(":")
        try:
            if kind == "local" and count.isdecimal() and 0 < int(count) <= _MOST_LOCAL:
                local = LocalCluster(
                    n_workers=int(count),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
                client = stack.enter_context(Client(stack.enter_context(local)))
            else:
                client = stack.enter_context(Client(address, timeout=_PATIENCE))
        except (OSError, ValueError, TypeError, RuntimeError):
            client = None  # the exception names hosts and ports, no rows; one sentence is enough
        if client is None:
            raise GratisError(
                f"no Dask scheduler answers at {address!r} (an address like tcp://host:8786, or local:4); "
                "nothing was spent"
            )
        yield checked_client(client)


def kept_blocks(client: Any, blocks: list[Any], n_rows: int, n_features: int) -> list[Any]:
    """Read blocks once and keep them in the workers' memory, if they fit there; else they are read at every release."""
    memory = sum(worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
    if 8.0 * n_rows * (n_features + 1) > _KEPT_SHARE * memory:
        return blocks
    return list(client.compute(blocks))


def current_client() -> Any:
    """Return the client in use, whose workers must have this very version of Gratis."""
    try:
        from distributed import default_client

        client = default_client()
    except (ImportError, ValueError):
        client = None
    if client is None:
        raise GratisError("there is no Dask cluster: install gratis[dask] and make a dask.distributed.Client first")
    return checked_client(client)


def checked_client(client: Any) -> Any:
    """Refuse a cluster without workers, or whose workers lack this version of Gratis."""
    from importlib.metadata import version

    ours = version("gratis")
    try:
        found = client.run(_version)
    except Exception:
        found = None
    if not found:
        raise GratisError("the cluster has no workers that answer; nothing was spent")
    if any(theirs != ours for theirs in found.values()):
        raise GratisError(f"all workers must have gratis {ours} installed; nothing was spent")
    return client


def _version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gratis")
    except PackageNotFoundError:
        return None
