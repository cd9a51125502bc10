"""`gratis audit membership`, `one-run`, `tracing`: what leaks is found, what is proved holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gratis
from gratis.audits.canaries import canaries, law
from gratis.audits.one_run import audit_one_run
from gratis.cli.program import run
from gratis.mechanisms.noise import NoiseSource
from gratis.records.neighbouring import Neighbouring

FILES = Path(__file__).parent.parent / "estimators" / "files_0_1_0"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert run(["audit", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.statistical(failure=0.05)
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_one_run_sees_a_large_budget(relation: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("one-run", "linear", "--epsilon", "50", "--n", "200", "--neighbouring", relation)
    found = answer(capsys, *words)
    assert found["method"] == "one run"
    assert not found["alarm"]
    assert 0.5 < found["epsilon"]["low"] < found["proved_epsilon"]


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
def test_membership(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--n", "40", "--d", "20", "--shadows", "8", "--targets", "8", "--epsilon", "50")
    found = answer(capsys, "membership", "logistic", *small)
    assert found["area"]["low"] > 0.5
    assert found["epsilon"]["low"] <= found["proved_epsilon"]


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
def test_tracing(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "tracing", "--n", "40", "--runs", "40", "--epsilon", "50")
    assert found["members"]["low"] > found["fresh"]["high"]
    assert not found["alarm"]


def test_a_model_file_is_trained_again_with_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "one-run", str(FILES / "logistic.gratis"), "--n", "30")
    assert found["proved_epsilon"] == pytest.approx(
        gratis.load_model(FILES / "logistic.gratis").estimator.epsilon, rel=1e-6
    )


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_without_noise_the_attack_raises_an_alarm(relation: Neighbouring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the same canaries, the same claim, and a noise source that adds nothing."""
    monkeypatch.setattr(NoiseSource, "normal", lambda self, std, shape: np.zeros(shape))
    model = gratis.DPLinearRegression(epsilon=0.1, delta=1e-5, preprocessing="none", neighbouring=str(relation))
    rng = np.random.default_rng(0)
    made = canaries(lambda: gratis.DPLinearRegression(**model.get_params()), 200, 200, rng)
    assert made.event.neighbouring is relation
    assert audit_one_run(made.train, made.score, 200, made.event, rng=rng).alarm


def test_canaries_differ_by_one_step_a_coin() -> None:
    def targets(relation: str, coins: list[bool]) -> list[float]:
        seen: list[float] = []

        class Recorder(gratis.DPLinearRegression):
            def fit(self, X, y):  # type: ignore[no-untyped-def]
                seen.extend(np.nan_to_num(y, nan=9.0).tolist())
                return self

        made = canaries(
            lambda: Recorder(epsilon=1.0, delta=1e-5, preprocessing="none", neighbouring=relation),
            8,
            2,
            np.random.default_rng(1),
        )
        made.train(np.array(coins))
        return (np.array(seen) * made.goals).tolist()

    coins = [True, False] * 4
    assert targets("replace-one", coins) == [1.0, -1.0] * 4
    assert np.abs(targets("zero-out", coins)).tolist() == [1.0, 9.0] * 4


def test_the_law_has_the_stated_truth() -> None:
    rng = np.random.default_rng(0)
    made = law(lambda: gratis.DPLinearRegression(epsilon=1.0, delta=1e-5, preprocessing="none"), 100, 4, rng)
    X, y = made.draw(rng, 20_000)
    assert np.allclose(np.linalg.lstsq(X, y, rcond=None)[0], made.truth, atol=0.03)
    assert np.var(y) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    "words",
    [
        ["one-run", "nothing"],
        ["one-run", "linear", "--n", "3"],
        ["one-run", "linear", "--algorithm", "adam"],
        ["one-run", str(FILES / "linear.gratis"), "--epsilon", "1"],
        ["tracing", "logistic"],
        ["tracing", "--runs", "8"],
        ["membership", "linear", "--shadows", "2"],
        ["membership", "random-features-regressor", "--algorithm", "one-pass"],
    ],
)
def test_refusals_are_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
