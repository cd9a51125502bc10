"""How much memory a process may still take: what the machine, a container and the shell's limits leave."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available_memory"]


def available_memory() -> int | None:
    """Return the bytes that can still be taken, or None where the system does not say (only Linux does)."""
    found = [_field(_read("/proc/meminfo"), "MemAvailable:", 1024), _of_container(), *_of_shell()]
    known = [max(0, size) for size in found if size is not None]
    return min(known) if known else None


def _of_container() -> int | None:
    """What the control group leaves; cached files do not count, for they give way."""
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if not (limit.isdigit() and used.isdigit()):
        return None
    return int(limit) - int(used) + (_field(_read("/sys/fs/cgroup/memory.stat"), "inactive_file ", 1) or 0)


def _of_shell() -> list[int]:
    """What `ulimit -v` and `ulimit -d` leave."""
    pages = _read("/proc/self/statm").split()
    if not pages:
        return []
    import resource

    size = os.sysconf("SC_PAGE_SIZE")
    limits = ((resource.RLIMIT_AS, int(pages[0])), (resource.RLIMIT_DATA, int(pages[5])))
    return [
        resource.getrlimit(kind)[0] - used * size
        for kind, used in limits
        if resource.getrlimit(kind)[0] != resource.RLIM_INFINITY
    ]


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _field(text: str, name: str, unit: int) -> int | None:
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.removeprefix(name).split()[0]) * unit
    return None
