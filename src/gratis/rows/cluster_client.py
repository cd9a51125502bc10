"""Dask clusters: connected to, checked, and asked what their workers can hold."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Any

from gratis.records.errors import GratisError

__all__ = ["connected", "current_client", "kept_blocks", "workers"]

_KEPT_SHARE = 0.4  # of the workers' memory, up to which blocks stay there between releases
_MOST_LOCAL, _PATIENCE = 256, 20  # workers, and seconds for a scheduler to answer


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Yield a checked client of the cluster at an address, of `local:N` processes made for it, or None for None.

    `threads:N` are workers in this process: for audits and tests, and nothing faster than one machine.
    """
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
            if kind in ("local", "threads") and count.isdecimal() and 0 < int(count) <= _MOST_LOCAL:
                local = LocalCluster(
                    n_workers=int(count),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    **({} if kind == "local" else {"processes": False, "protocol": "inproc://"}),
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
    memory = sum(worker["memory_limit"] for worker in workers(client))
    if 8.0 * n_rows * (n_features + 1) > _KEPT_SHARE * memory:
        return blocks
    return list(client.compute(blocks))


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
        raise GratisError("there is no Dask cluster: install gratis[dask] and make a dask.distributed.Client first")
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
