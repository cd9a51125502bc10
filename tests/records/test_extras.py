"""What to type where a package is missing: it must work for how this copy was installed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from gratis.accounting import issue_certificate
from gratis.records import extras
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.events import PoissonSubsampledGaussian

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("extra", ["nn", "poisson", "excel", "dask", "studio"])
def test_the_command_names_packages_that_exist_elsewhere(extra: str) -> None:
    command = shlex.split(extras.install_command(extra))
    packages = PROJECT["optional-dependencies"][extra]
    assert sorted(command[-len(packages) :]) == sorted(packages)  # a wheel's metadata are in an order of their own
    assert not [word for word in command if word.startswith("gratis")]


class Installed:
    """A copy that an installer put in its place, without the project file beside it."""

    def __init__(self, by: str) -> None:
        self._by = by

    def read_text(self, name: str) -> str | None:
        return f"{self._by}\n" if name == "INSTALLER" else None


def test_an_installed_copy_reads_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_of_checkout", lambda extra: [])
    lines = [
        "numpy>=2.0",
        "openpyxl>=3.1; extra == 'excel'",
        'uvicorn>=0.30; python_version > "3" and extra == "studio"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed("uv"))
    assert extras.install_command("excel") == "uv pip install 'openpyxl>=3.1'"
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed("pip"))
    assert extras.install_command("studio") == "pip install 'uvicorn>=0.30'"

    def gone(name: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", gone)
    monkeypatch.setattr(metadata, "distribution", gone)
    assert extras.install_command("excel") == "pip install 'excel'"


def test_no_sentence_names_a_package_that_is_not_published() -> None:
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"install[^\n]*gratis\[", line)
    ]
    assert found == []


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from gratis.cli.program import run

sys.exit(run(sys.argv[1:]))
"""


def test_a_poisson_certificate_is_verified_without_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    event = PoissonSubsampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=10, neighbouring="zero-out")
    made = issue_certificate(
        event=event, budget=Budget(epsilon=2.0, delta=1e-5, neighbouring="zero-out"), selection=Selection.NONE,
        randomness={"secure": True},
    )  # fmt: skip
    made.write(tmp_path / "c.json")

    def verified(*missing: str) -> subprocess.CompletedProcess[str]:
        program = WITHOUT.replace("{missing!r}", repr(missing))
        words = ["certificate", "verify", str(tmp_path / "c.json")]
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, *words], capture_output=True, text=True, check=False
        )

    done = verified("torch")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("valid: ")
    # Without dp-accounting it says what to type, and that is dp-accounting alone.
    refused = verified("torch", "dp_accounting")
    assert refused.returncode == 2
    assert "install 'dp-accounting>=0.6'" in refused.stderr
    assert "torch" not in refused.stderr
