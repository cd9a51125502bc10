"""Counted page faults, in processes of their own: the allocator's state is that of the whole process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from gratis.numerics.freed_memory import keep_freed_memory
{call}
def temporaries():
    parts = [np.ones(2**20) for _ in range(3)]
for _ in range(3):
    temporaries()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    temporaries()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    command = [sys.executable, "-c", PROGRAM.format(call=call)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep freed memory by other rules")
def test_large_temporaries_stop_faulting() -> None:
    without, with_it = faults(""), faults("keep_freed_memory()")
    assert with_it < 1000 < without
