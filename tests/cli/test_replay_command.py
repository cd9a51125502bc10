"""`gratis audit replay`: words, JSON, and the exit code of an alarm."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from gratis import DPLinearRegression, save_model
from gratis.audits.estimators import ESTIMATORS, estimator_audit
from gratis.cli.audit import ALARM, app
from gratis.mechanisms.noise import NoiseSource
from gratis.records.errors import GratisError

FAST = ["--preprocessing", "none", "--n", "20", "--d", "2", "--pairs", "6"]


def run(*arguments):
    result = CliRunner().invoke(app, ["replay", *arguments])
    if isinstance(result.exception, GratisError):
        raise result.exception
    return result


@pytest.mark.slow
def test_an_honest_estimator_passes():
    result = run("linear", *FAST)
    assert result.exit_code == 0, result.output
    assert "consistent with the proof; 6 hostile pairs" in result.stdout
    data = json.loads(run("linear", *FAST, "--json").stdout)
    assert data["method"] == "replay"
    assert 0 < data["largest_ratio"] <= 1 + 1e-6
    assert data["differences"] == []


@pytest.mark.slow
def test_a_pass_says_what_was_not_seen():
    result = run("linear", *FAST, "--algorithm", "one-pass")
    assert result.exit_code == 0
    assert "not seen: one pass" in result.stdout


def test_an_alarm_is_the_exit_code(monkeypatch):
    class Half(NoiseSource):
        def normal(self, std, shape):
            return super().normal(std / 2, shape)

    monkeypatch.setattr(DPLinearRegression, "_noise_source", lambda self: Half.secure())
    result = run("linear", *FAST)
    assert result.exit_code == ALARM
    assert "smaller than its stated deviation" in result.stdout


@pytest.mark.slow
def test_a_model_file(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 2))
    save_model(tmp_path / "m.gratis", DPLinearRegression(2.0, 1e-3, preprocessing="none").fit(X, X[:, 0]))
    result = run(str(tmp_path / "m.gratis"), "--pairs", "4")
    assert result.exit_code == 0, result.output
    assert "m.gratis (DPLinearRegression): certificate valid" in result.stdout
    with pytest.raises(GratisError, match="leave out --width"):
        run(str(tmp_path / "m.gratis"), "--width", "4")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no model file"),
        (["linear", "--width", "4"], "no option 'width'"),
        (["linear", "--pairs", "0"], "pairs"),
        (["linear", "--on-invalid", "skip"], "on_invalid must be one of"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments, words):
    with pytest.raises(GratisError, match=words):
        run(*arguments)


@pytest.mark.slow(but=["additive"])
@pytest.mark.parametrize("name", ["additive", "random-features"])
def test_models_of_fit_are_known_by_their_names_there(name):
    result = run(name, "--n", "20", "--d", "2", "--pairs", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{name}-regressor: consistent")


@pytest.mark.slow(but=["logistic"])
@pytest.mark.parametrize("name", ["additive", *ESTIMATORS])
def test_every_name_can_be_attacked(name):
    """The additive regressor has no scores of features, and ended in an AttributeError."""
    if name == "mlp":
        pytest.importorskip("torch")
    prepared = estimator_audit(name, n=60, d=2, options={})
    assert np.isfinite(prepared.trainer(prepared.y)(0)).all()
