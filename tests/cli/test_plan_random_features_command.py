"""`gratis plan random-features` as a user types it."""

from __future__ import annotations

import json

import pytest

from gratis.accounting import calibrate_mu
from gratis.cli.program import run
from gratis.specs.budget import Budget

FACTS = {"--n": "200", "--d": "10", "--p": "30000", "--epsilon": "4", "--delta": "0.005"}


def plan(changes: dict[str, str] | None = None, *options: str) -> int:
    facts = FACTS | (changes or {})
    return run(["plan", "random-features", *(word for fact in facts.items() for word in fact), *options])


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
    assert 0.2 < data["predicted_test_loss"] < 0.8
    assert 0.2 < data["predicted_nonprivate_loss"] < 0.8
    assert data["prediction"]["regime"]["inside"] is False  # n > d^{3/2}


def test_a_small_budget_is_not_worse_than_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan({"--p": "1000", "--epsilon": "0", "--delta": "0.01"}, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert 0.9 < data["predicted_test_loss"] <= 1.01  # predicting 0 has loss 1
    assert data["prediction"]["theorem_2"]["noise"] == "inf"


def test_words_name_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan({"--d": "60"}, "--activation", "erf") == 0
    words = capsys.readouterr().out
    for name in ("clip norm", "steps", "learning rate", "noise of a step", "interpolant", "stopped early", "plateau"):
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
        {"--activation": "swish"},
        {"--neighbouring": "x"},
    ],
)
def test_bad_input(changes: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(changes) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
