"""Keep freed memory in the process: page faults of large temporaries cost a tenth of a network's training step."""

from __future__ import annotations

import numpy as np

__all__ = ["keep_freed_memory"]


def keep_freed_memory() -> None:
    """Make glibc's allocator reuse freed blocks of up to 31 MB; elsewhere nothing happens.

    It returns memory to the system beyond twice the largest block (of at most 32 MB) freed so far, and asking for it
    again faults every page anew. So one such block is taken and freed: from then on up to 62 MB stay.
    """
    np.empty(31 * 2**20, dtype=np.uint8)
