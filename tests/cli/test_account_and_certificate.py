"""The command line as a user meets it: through the installed program's entry point, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gratis.accounting import gdp_mu_lower_bound
from gratis.cli.program import run


def gratis(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from gratis.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_epsilon_as_json() -> None:
    done = gratis("account", "epsilon", "--mu", "1", "--delta", "1e-5", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["epsilon"] == pytest.approx(4.3772, abs=5e-5)
    assert done.stderr == ""


def test_mu_and_delta_are_inverse(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["account", "mu", "--epsilon", "4", "--delta", "5e-4", "--json"]) == 0
    mu = json.loads(capsys.readouterr().out)["mu"]
    assert mu == pytest.approx(1.15534, abs=5e-6)
    assert run(["account", "delta", "--epsilon", "4", "--mu", str(mu), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["delta"] == pytest.approx(5e-4)


def test_ladder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["account", "ladder", "--steps", "1,100", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 10
    assert run(["account", "ladder"]) == 0
    assert "exact" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["account", "epsilon", "--mu", "-1", "--delta", "1e-5"],
        ["account", "epsilon", "--mu", "nan", "--delta", "1e-5"],
        ["account", "epsilon", "--mu", "1", "--delta", "1"],
        ["account", "epsilon", "--mu", "1", "--delta", "0"],
        ["account", "epsilon", "--mu", "one", "--delta", "1e-5"],
        ["account", "epsilon", "--mu", "1"],
        ["account", "epsilon", "--mu", "1", "--delta", "1e-5", "--neighbouring", "add-remove"],
        ["account", "mu", "--epsilon", "-2", "--delta", "1e-5"],
        ["account", "mu", "--epsilon", "inf", "--delta", "1e-5"],
        ["account", "ladder", "--steps", "1,x"],
        ["account", "ladder", "--steps", "0"],
        ["account", "ladder", "--epsilon", "0"],
        ["certificate", "verify", "no-such-file.json"],
        ["no-such-command"],
    ],
)
def test_bad_input_is_one_sentence_and_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gratis: ")
    assert len(captured.err.strip().splitlines()) == 1


def test_certificate_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gratis.accounting import issue_certificate
    from gratis.records.budget import Budget
    from gratis.records.certificates import Selection
    from gratis.records.events import GaussianRelease
    from gratis.records.neighbouring import Neighbouring

    budget = Budget(mu=0.5, neighbouring=Neighbouring.ZERO_OUT)
    event = GaussianRelease(sensitivity=1.0, noise_std=2.1, neighbouring=Neighbouring.ZERO_OUT)
    certificate = issue_certificate(event=event, budget=budget, selection=Selection.NONE, randomness={"secure": False})
    path = tmp_path / "certificate.json"
    certificate.write(path)
    assert run(["certificate", "verify", str(path)]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "NO protection" in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert run(["certificate", "verify", str(path), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["valid"] is False
    assert run(["certificate", "verify", str(path), "--allow-insecure"]) == 0
    words = capsys.readouterr().out
    assert "zero-out" in words
    assert "NO protection" in words
    assert "not bound to a model" in words
    data = json.loads(path.read_text())
    data["guarantee"]["mu"] = 0.1
    path.write_text(json.dumps(data))
    assert run(["certificate", "verify", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["valid"] is False
    assert "does not follow" in captured.err
    path.write_bytes(b"\xff\x00")
    assert run(["certificate", "verify", str(path)]) == 2


def test_certificate_and_model_belong_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    from gratis import DPLinearRegression, save_model

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 2)), rng.normal(size=100)
    for name in ("a", "b"):
        model = DPLinearRegression(1.0, 1e-5, preprocessing="none").fit(X, y)
        save_model(tmp_path / f"{name}.gratis", model)
        model.certificate_.write(tmp_path / f"{name}.json")
    a, b, model_a, model_b = (str(tmp_path / name) for name in ("a.json", "b.json", "a.gratis", "b.gratis"))
    for arguments, words in (
        ([a], "bound to a model"),
        ([a, "--model", model_a], "bound to this model"),
        ([model_a], "bound to this model"),
        ([model_a, "--model", model_a], "bound to this model"),
    ):
        assert run(["certificate", "verify", *arguments]) == 0
        assert words in capsys.readouterr().out
    for arguments in ([a, "--model", model_b], [b, "--model", model_a], [model_a, "--model", model_b]):
        assert run(["certificate", "verify", *arguments]) == 2
        captured = capsys.readouterr()
        assert "not that of the model" in captured.err
        assert captured.out == ""
    old = Path(__file__).parents[1] / "estimators" / "files_0_1_0"
    pair = [str(old / "linear.json"), "--model", str(old / "linear.gratis"), "--allow-insecure"]
    assert run(["certificate", "verify", *pair]) == 0
    assert "not bound to a model" in capsys.readouterr().out
    assert run(["certificate", "verify", pair[0], "--model", str(old / "logistic.gratis"), "--allow-insecure"]) == 2


def test_hostile_certificates_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (Path(__file__).parents[1] / "estimators" / "files_0_1_0" / "linear.json").read_text()
    path = tmp_path / "certificate.json"
    for text in (
        good.replace('"budget": {', '"budget": {"epsilon": 0.1, '),
        good.replace('"n_records": 500', '"n_records": 5' + "0" * 400),
        good.replace('"epsilon": 8.0', '"epsilon": NaN'),
        "[" * 100_000,
    ):
        assert text != good
        path.write_text(text)
        assert run(["certificate", "verify", str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.slow
def test_help_and_version() -> None:
    assert "plan" in gratis("--help").stdout
    assert gratis("--version").stdout.strip().count(".") == 2
    assert "Commands" in gratis().stdout


EXTREME = {
    "mu": ["account", "epsilon", "--mu", "1e308", "--delta", "1e-5"],
    "epsilon": ["account", "mu", "--epsilon", "1e308", "--delta", "1e-5"],
}


@pytest.mark.parametrize("arguments", EXTREME.values(), ids=EXTREME)
def test_numbers_near_the_largest_get_an_answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    assert "nan" not in capsys.readouterr().out


@pytest.mark.slow(but=["workers", "ladder", "audit"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["account", "ladder", "--epsilon", "1e308"], "up to epsilon 500"),
        (["audit", "one-pass", "--runs", "50", "--workers", "1" + 26 * "0"], "workers must be 1 to 1000"),
        (["audit", "one-pass", "--runs", "50", "--mu", "1e308"], "noise_stds"),
        (["plan", "one-pass", "--n", "1000", "--d", "10", "--mu", "1e308"], "noise_stds"),
    ],
    ids=["ladder", "workers", "audit", "plan"],
)
def test_numbers_near_the_largest_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("gratis: ")
    assert words in said


def test_a_larger_epsilon_never_allows_less() -> None:
    found = [gdp_mu_lower_bound(epsilon=epsilon, delta=1e-5) for epsilon in (1e299, 1e300, 1e307, 1.7e308)]
    assert found == sorted(found)
    assert found[0] > 1e149
