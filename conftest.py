"""What every run of the tests has: randomness that follows from a test's own name, one thread a process, no deadlines.

A verdict must not depend on fresh coins, on the order of the tests or on who else uses the machine. So the secure noise
source, NumPy, PyTorch and Hypothesis are seeded with the name of the test, or of the fixture that several tests share,
and programs that a test starts find that name in their environment. `pytest --fresh` brings real coins back;
`pytest --fresh=30 -m statistical` repeats every statistical test thirty times and prints how often each one failed,
beside how often it may.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import random
import re
import secrets
import sys
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from gratis.mechanisms.noise import NoiseSource

# Two test processes that each start a thread a core wait for one another most of the time.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# A busy machine draws its examples slowly, and that is no failure.
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("seeded", **PATIENT, derandomize=True, database=None)
settings.register_profile("fresh", **PATIENT)


def digest(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")


class Coins:
    """Whose turn it is: the test, or the shared fixture, after which randomness is seeded, and how often it drew."""

    def __init__(self) -> None:
        self.name, self.sources = "", 0

    def begin(self, name: str) -> None:
        self.name, self.sources = name, 0
        os.environ["GRATIS_TEST_NOISE"] = name or "no test"
        seed = digest(name) % 2**32
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)

    @contextlib.contextmanager
    def turn_of(self, name: str) -> Iterator[None]:
        """A fixture that several tests share is the same whichever of them asks first."""
        before, states = (self.name, self.sources), (random.getstate(), np.random.get_state())  # noqa: NPY002
        self.begin(name)
        try:
            yield
        finally:
            self.begin(before[0])
            self.sources = before[1]
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002

    def source(self, kind: type[NoiseSource]) -> NoiseSource:
        """What stands for `NoiseSource.secure` inside a test: another key at each call, the same ones in each run."""
        assert self.name, "noise was drawn outside of a test: while modules were imported, or parameters made"
        self.sources += 1
        return kind(digest(f"{self.name} {self.sources}"), secure=True)


class Seeded:
    """The plugin of ordinary runs. Tests marked `secure_noise` are of the secure source itself."""

    def __init__(self) -> None:
        self.coins = Coins()
        self.secure = NoiseSource.__dict__["secure"]
        self.seeded = classmethod(lambda kind: self.coins.source(kind))
        NoiseSource.secure = self.seeded  # type: ignore[method-assign, assignment]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.coins.begin(item.nodeid)
        if item.get_closest_marker("secure_noise"):
            os.environ.pop("GRATIS_TEST_NOISE")
            NoiseSource.secure = self.secure  # type: ignore[method-assign]

    def pytest_runtest_teardown(self) -> None:
        NoiseSource.secure = self.seeded  # type: ignore[method-assign, assignment]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        with self.coins.turn_of(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
            return (yield)


class Fresh:
    """The plugin of `--fresh`: real coins, statistical tests repeated, their failures counted.

    A statistical test that seeds its noise gets, in each run, other noise for each of its seeds.
    """

    def __init__(self, runs: int) -> None:
        self.runs, self.salt = runs, ""
        seeded = NoiseSource.__dict__["insecure"].__func__
        NoiseSource.insecure = classmethod(  # type: ignore[method-assign, assignment]
            lambda kind, seed: seeded(kind, digest(f"{self.salt} {seed}") if self.salt else seed)
        )
        self.failures: dict[str, list[bool]] = {}
        self.allowed: dict[str, float] = {}

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.salt = secrets.token_hex() if item.get_closest_marker("statistical") else ""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if self.runs > 1 and next(metafunc.definition.iter_markers("statistical"), None):
            metafunc.fixturenames.append("run_of_fresh")
            metafunc.parametrize("run_of_fresh", range(self.runs), ids=lambda run: f"run{run}")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for marker in item.iter_markers("statistical"):
                item.user_properties.append(("statistical", marker.kwargs["failure"]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and (allowed := dict(report.user_properties).get("statistical")) is not None:
            name = re.sub(r"run\d+-?", "", report.nodeid).removesuffix("[]")
            self.failures.setdefault(name, []).append(report.failed)
            self.allowed[name] = float(str(allowed))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from scipy.stats import binom

        terminalreporter.section("statistical tests under fresh coins")
        for name, failed in sorted(self.failures.items()):
            allowed = self.allowed[name]
            surprise = float(binom.sf(sum(failed) - 1, len(failed), allowed)) if any(failed) else 1.0
            verdict = "  MORE OFTEN THAN STATED" if surprise < 1e-3 else ""
            terminalreporter.line(f"{sum(failed)} of {len(failed)} failed, may in {allowed:.0e}  {name}{verdict}")
        total, expected = (
            sum(map(sum, self.failures.values())),
            sum(len(failed) * self.allowed[name] for name, failed in self.failures.items()),
        )
        spread = math.sqrt(expected)
        terminalreporter.line(f"{total} failures in all; stated rates allow {expected:.2g} ± {spread:.2g}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`slow(but=["a-b"])`: of a parametrised test, the cases that the README's command runs all the same."""
    for item in items:
        for marker in item.iter_markers("slow"):
            if getattr(item, "callspec", None) and item.callspec.id in marker.kwargs.get("but", ()):
                item.own_markers = [own for own in item.own_markers if own.name != "slow"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh", type=int, nargs="?", const=1, default=0, metavar="RUNS",
        help="noise from the operating system; with RUNS, so many runs of each statistical test",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    runs = config.getoption("--fresh")
    settings.load_profile("fresh" if runs else "seeded")
    config.pluginmanager.register(Fresh(runs) if runs else Seeded(), "coins")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A test's own generator of public randomness."""
    return np.random.default_rng(None if request.config.getoption("--fresh") else digest(request.node.nodeid))
