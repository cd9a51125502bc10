"""Dask clusters: connected to, checked, asked what their workers can hold, and given tasks."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import Any

from gratis.records.errors import GratisError
from gratis.records.extras import install_command, missing_extra
from gratis.records.progress import tracked

__all__ = ["answers", "connected", "current_client", "fits", "kept_blocks", "quiet_graphs", "workers"]

_KEPT_SHARE = 0.4  # of the workers' memory, up to which blocks stay there between releases
_MOST_LOCAL, _PATIENCE = 256, 20  # workers, and seconds for a scheduler to answer
_ANSWERS = 4  # that are asked for at most, where they are lost on the way
# No row on a disk, and no page about the tasks for whoever else is on this machine. Nobody looks at Dask's own profile,
# which takes a tenth of a core a worker; and its default that freed memory goes back at once makes every chunk fault.
_LOCAL: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.tick.interval": "1s",
    "distributed.nanny.pre-spawn-environ": {f"{name}_NUM_THREADS": 1 for name in ("OMP", "MKL", "OPENBLAS")},
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
}


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Yield a checked client of the cluster at an address, of `local:N` processes made for it, or None for None.

    Processes made here talk in TLS with keys that nobody else has: another user of the machine cannot connect to them.
    `threads:N` are workers in this process: for audits and tests, and nothing faster than one machine.
    """
    if address is None:
        yield None
        return
    try:
        import dask
        from distributed import Client, LocalCluster

        if address.startswith("local:"):
            import cryptography  # noqa: F401 - makes the keys
    except ImportError:
        raise missing_extra("a cluster needs more packages", "dask") from None
    with ExitStack() as stack:
        kind, _, count = address.partition(":")
        try:
            if kind in ("local", "threads") and count.isdecimal() and 0 < int(count) <= _MOST_LOCAL:
                stack.enter_context(dask.config.set(_LOCAL))  # as long as workers may be started again
                local = LocalCluster(
                    n_workers=int(count),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                    **({"security": True} if kind == "local" else {"processes": False, "protocol": "inproc://"}),
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
    return _submitted(client, blocks) if fits(client, n_rows, n_features) else blocks


def fits(client: Any, n_rows: int, n_features: int) -> bool:
    """Say whether the workers' memory has room for rows of these public sizes."""
    memory = sum(worker["memory_limit"] for worker in workers(client))
    return 8.0 * n_rows * (n_features + 1) <= _KEPT_SHARE * memory


def answers(client: Any, function: Callable[..., Any], blocks: Sequence[Any], *more: Any) -> Iterator[Any]:
    """Yield what workers return for every block, in order; None where the cluster failed again and again.

    An answer that was lost is asked for again: what is exact is no release, and every block's answer is yielded once.
    `more` is part of the graph, which the scheduler keeps: what is scattered would be lost with its workers.
    """
    from dask import delayed
    from distributed import Future

    def asked(blocks: Sequence[Any]) -> list[Any]:
        sent = [delayed(one, traverse=False, pure=False) for one in more]
        return _submitted(client, [delayed(function, pure=False)(block, *sent) for block in blocks])

    for block, answer in zip(blocks, tracked(asked(blocks), "reading", len(blocks)), strict=True):
        found = _result(answer)
        for _ in range(_ANSWERS - 1):
            if found is not None:
                break
            answer.release()  # with whatever else the scheduler has given up for it
            if isinstance(block, Future) and block.status == "error":  # kept, and lost with its workers
                with suppress(Exception):
                    client.retry([block])
            (answer,) = asked([block])
            found = _result(answer)
        yield found


def _result(answer: Any) -> Any:
    """What a worker returned; None where the cluster failed (workers lost too often, or code that they cannot load)."""
    try:
        return answer.result()
    except Exception:
        return None


def _submitted(client: Any, tasks: list[Any]) -> list[Any]:
    with quiet_graphs():
        return list(client.compute(tasks))


@contextmanager
def quiet_graphs() -> Iterator[None]:
    """Without Dask's warnings about large graphs, whose size may follow from private values, and about texts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        warnings.filterwarnings("ignore", "Dask currently has limited support")
        yield


def workers(client: Any) -> list[Any]:
    """What the scheduler knows of every worker."""
    return list(client.scheduler_info(n_workers=-1)["workers"].values())


def current_client() -> Any:
    """Return the client in use, whose workers must have this very version of Gratis."""
    try:
        from distributed import default_client

        client = default_client()
    except (ImportError, ValueError):
        client = None
    if client is None:
        raise GratisError(
            f"there is no Dask cluster: make a dask.distributed.Client first ({install_command('dask')} if need be)"
        )
    return checked_client(client)


def checked_client(client: Any) -> Any:
    """Refuse a cluster without workers, or whose workers lack this version of Gratis, or have another Python."""

    def has() -> tuple[str, str] | None:  # sent as it stands: a worker without Gratis could not look a name up
        import sys
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("gratis"), f"{sys.version_info.major}.{sys.version_info.minor}"
        except PackageNotFoundError:
            return None

    try:
        answers = client.run(has, on_error="return")
    except Exception:
        answers = {}
    # A worker that was lost while it was asked is none: another takes its blocks.
    found = [theirs for theirs in answers.values() if not isinstance(theirs, OSError)]
    if not found:
        raise GratisError("the cluster has no workers that answer; nothing was spent")
    ours = _ours()
    others = sum(theirs != ours for theirs in found)
    if others:
        raise GratisError(
            f"{others} of {len(found)} workers lack gratis {ours[0]} on Python {ours[1]}: install the same on all of "
            "them; nothing was spent"
        )
    return client


def _ours() -> tuple[str, str]:
    return version("gratis"), f"{sys.version_info.major}.{sys.version_info.minor}"
