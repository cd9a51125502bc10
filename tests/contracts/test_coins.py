"""The same verdict twice: what is random in a test follows from its name, and from nothing that ran before it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from gratis import DPLinearRegression
from gratis.mechanisms.noise import NoiseSource
from gratis.records.errors import GratisError

TESTS = Path(__file__).parents[1]
DRAW = (
    "from gratis.mechanisms.noise import NoiseSource; s = NoiseSource.secure(); "
    "print(s.is_secure, float(s.normal(1.0, 1)[0]), float(NoiseSource.secure().normal(1.0, 1)[0]))"
)


def drawn_in_functions(source: str) -> Iterator[str]:
    """Names of module-level generators that some function of the module draws from."""
    tree = ast.parse(source)
    generators = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
        and ast.unparse(node.value.func).endswith(("default_rng", "RandomState", "Generator", "Random", "insecure"))
    }
    for function in tree.body:
        if isinstance(function, ast.FunctionDef | ast.ClassDef):
            own = {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
            names = {node.id: node.ctx for node in ast.walk(function) if isinstance(node, ast.Name)}
            own |= {name for name, context in names.items() if isinstance(context, ast.Store)}
            yield from (f"{function.name} draws from {name}" for name in (generators & set(names)) - own)


def test_no_test_draws_from_a_generator_of_its_module() -> None:
    """Its data would depend on which tests of the module ran before it, in this worker."""
    for path in TESTS.rglob("*.py"):
        assert not list(drawn_in_functions(path.read_text(encoding="utf-8"))), path.relative_to(TESTS)


def test_the_reader_of_generators_would_notice() -> None:
    seeded = "RNG = np.random.default_rng(0)\nX = RNG.normal(size=3)\n"
    assert not list(drawn_in_functions(seeded + "def test_a():\n    assert X.any()\n"))
    assert list(drawn_in_functions(seeded + "def test_a():\n    assert RNG.normal() < 9\n"))


@pytest.fixture(autouse=True)
def _of_ordinary_runs(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--fresh"):
        pytest.skip("this run has real coins")


@pytest.fixture(scope="module")
def shared() -> float:
    return float(NoiseSource.secure().normal(1.0, 1)[0])


@pytest.mark.parametrize("run", ["once", "twice"])
def test_noise_follows_from_the_name(run: str, shared: float) -> None:
    """Digits of this test's two runs and of the fixture that they share, as this file was written."""
    first, second = (float(NoiseSource.secure().normal(1.0, 1)[0]) for _ in range(2))
    assert first != second
    assert first == pytest.approx({"once": -1.0681549, "twice": -1.5804677}[run], abs=1e-6)
    assert shared == pytest.approx(0.2227873, abs=1e-6)
    assert NoiseSource.secure().is_secure


def test_fits_of_one_test_differ_and_examples_are_drawn_in_the_same_order() -> None:
    X = np.random.default_rng(0).normal(size=(500, 2))
    fits = [DPLinearRegression(8.0, 1e-5).fit(X, X[:, 0]).coef_ for _ in range(2)]
    assert not np.array_equal(*fits), "two fits of one test have noise of their own"
    assert settings.default is not None
    assert settings.default.derandomize


def child(**environment: str | None) -> subprocess.CompletedProcess[str]:
    chosen = {**os.environ, **{name: value for name, value in environment.items() if value is not None}}
    for name in (name for name, value in environment.items() if value is None):
        chosen.pop(name, None)
    return subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, check=False, env=chosen)


def test_programs_that_a_test_starts_are_seeded_and_say_so() -> None:
    first, again = child().stdout.split(), child().stdout.split()
    assert first == again
    assert first[0] == "False", "seeded noise must never look secure"
    assert first[1] != first[2]
    assert child(GRATIS_TEST_NOISE="another test").stdout.split()[1] != first[1]


def test_the_seed_of_tests_is_refused_outside_of_tests() -> None:
    done = child(PYTEST_CURRENT_TEST=None)
    assert done.returncode != 0
    assert "unset it" in done.stderr


@pytest.mark.secure_noise
def test_without_it_the_coins_are_real() -> None:
    assert "GRATIS_TEST_NOISE" not in os.environ
    assert NoiseSource.secure().normal(1.0, 1) != NoiseSource.secure().normal(1.0, 1)
    assert child().stdout != child().stdout
    assert child().stdout.split()[0] == "True"


def test_a_forked_seed_is_refused_in_this_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from gratis.mechanisms.noise import _key_of_a_test

    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(GratisError, match="unset it"):
        _key_of_a_test("any")
