import resource
import subprocess
import sys

import pytest

from gratis.numerics import available_memory as module
from gratis.numerics.available_memory import available_memory


def files(monkeypatch, texts):
    monkeypatch.setattr(module, "_read", lambda path: texts.get(path, ""))


def test_the_least_of_machine_and_container_counts(monkeypatch):
    texts = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    8000000 kB\n"}
    files(monkeypatch, texts)
    assert available_memory() == 8_000_000 * 1024
    texts |= {"/sys/fs/cgroup/memory.max": "3000\n", "/sys/fs/cgroup/memory.current": "2500\n"}
    assert available_memory() == 500
    texts["/sys/fs/cgroup/memory.stat"] = "anon 7\ninactive_file 400\n"
    assert available_memory() == 900, "cached files give way"
    texts["/sys/fs/cgroup/memory.max"] = "max\n"
    assert available_memory() == 8_000_000 * 1024


def test_a_system_that_does_not_say_is_believed(monkeypatch):
    files(monkeypatch, {})
    assert available_memory() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells how much memory is left")
def test_the_limit_of_the_shell_counts():
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30));"
        "from gratis.numerics.available_memory import available_memory; print(available_memory())"
    )
    found = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert 0 < found < 2**30
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY or found < available_memory() + 2**30
