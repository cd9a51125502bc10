"""`gratis plan random-features` as a user types it."""

from __future__ import annotations

import json

import pytest

from gratis.accounting import calibrate_mu
from gratis.cli.program import run
from gratis.records.budget import Budget

FACTS = {"--n": "200", "--d": "10", "--p": "30000", "--epsilon": "4", "--delta": "0.005"}


def plan(changes: dict[str, str] | None = None, *options: str) -> int:
    facts = FACTS | (changes or {})
    words = [word for fact in facts.items() for word in fact]
    return run(["plan", "random-features", "--preprocessing", "none", *words, *options])


def test_json_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(None, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    settings = data["settings"]
    assert {"clip_norm", "steps", "learning_rate", "noise_std", "engine"} <= set(settings)
    # Full batch: √T·s over the sensitivity 2ηTC/n is 1/μ (a hair more: rounding is paid for).
    moved = 2 * settings["learning_rate"] * settings["steps"] * settings["clip_norm"] / 200
    mu = calibrate_mu(Budget(epsilon=4.0, delta=0.005))
    assert 1 / mu <= settings["noise_std"] * settings["steps"] ** 0.5 / moved < 1.02 / mu
    assert data["guarantee"]["epsilon"] <= 4
    assert data["guarantee"]["neighbouring"] == "replace-one"
    assert 0.2 < data["prediction"]["value"] < 0.8
    assert 0.2 < data["prediction"]["predicted_nonprivate_loss"] < 0.8
    assert data["prediction"]["regime"]["inside"] is False  # n > d^{3/2}


def test_a_small_budget_is_not_worse_than_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan({"--p": "1000", "--epsilon": "0", "--delta": "0.01"}, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert 0.9 < data["prediction"]["value"] <= 1.01  # predicting 0 has loss 1
    assert data["prediction"]["theorem_2"]["noise"] == "inf"


def test_words_name_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan({"--d": "60"}, "--features", "erf") == 0
    words = capsys.readouterr().out
    for name in ("clip norm", "steps", "learning rate", "noise std", "interpolant", "early stopping", "cost"):
        assert name in words
    assert "miss" not in words  # 60 < 200 < 60^{3/2}


@pytest.mark.parametrize(
    "changes",
    [
        {"--p": "0"},
        {"--n": "0"},
        {"--d": "-3"},
        {"--epsilon": "-1"},
        {"--epsilon": "nan"},
        {"--delta": "1"},
        {"--features": "swish"},
        {"--neighbouring": "x"},
    ],
)
def test_bad_input(changes: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(changes) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


def test_algorithm_1_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    """With T, C and η given nothing is planned, and the paper's noise proves less than was asked for."""
    given = ("--steps", "100", "--clip-norm", "80", "--learning-rate", "1e-4", "--noise", "paper", "--engine", "primal")
    assert plan(None, *given, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schedule"] == "given"
    assert {"steps": 100, "clip_norm": 80.0, "learning_rate": 1e-4, "noise": "paper"}.items() <= data[
        "settings"
    ].items()
    assert data["guarantee"]["epsilon"] < 2  # asked: 4
    assert plan(None, *given[:6], "--json") == 0
    assert 3.99 < json.loads(capsys.readouterr().out)["guarantee"]["epsilon"] <= 4
