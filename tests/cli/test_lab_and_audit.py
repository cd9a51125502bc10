"""`gratis lab` and `gratis audit`: words, JSON, pictures, and the exit code of an alarm."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from gratis.cli.audit import app as audit_app
from gratis.cli.lab import app as lab_app
from gratis.mechanisms.noise import NoiseSource
from gratis.specs.errors import GratisError

RUNNER = CliRunner()


def run(app, *arguments):
    result = RUNNER.invoke(app, list(arguments))
    if isinstance(result.exception, GratisError):
        raise result.exception
    return result


class Seeded(NoiseSource):
    """A source that `secure()` makes reproducible, so that the tests of an audit are."""

    counter = 0
    share = 1.0

    @classmethod
    def secure(cls):
        Seeded.counter += 1
        return cls.insecure(Seeded.counter)

    def normal(self, std, shape):
        return super().normal(std * Seeded.share, shape)


@pytest.fixture
def seeded(monkeypatch):
    monkeypatch.setattr(Seeded, "counter", 0)
    monkeypatch.setattr("gratis.mechanisms.noise.NoiseSource", Seeded)
    return Seeded


@pytest.mark.parametrize(
    "arguments",
    [["one-pass"], ["one-pass", "--tempting", "--n", "20"], ["full-batch", "--n", "20"],
     ["full-batch", "--n", "20", "--neighbouring", "zero-out"]],
)  # fmt: skip
def test_honest_trainers_pass(arguments, seeded, tmp_path):
    picture = tmp_path / "roc.png"
    result = run(audit_app, *arguments, "--runs", "150", "--mu", "3", "--json", "--picture", str(picture))
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert not data["alarm"]
    assert data["tightness"] > 0.5
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize("command", ["one-pass", "full-batch"])
def test_an_alarm_is_exit_code_three(command, seeded, monkeypatch):
    monkeypatch.setattr(Seeded, "share", 0.3)
    result = run(audit_app, command, "--runs", "150", "--n", "10")
    assert result.exit_code == 3
    assert "ALARM" in result.stdout


def test_a_whole_estimator_is_audited():
    arguments = ["estimator", "logistic", "--algorithm", "one-pass", "--preprocessing", "none", "--epsilon", "8"]
    data = json.loads(
        run(audit_app, *arguments, "--n", "60", "--runs", "120", "--confidence", "0.999", "--json").stdout
    )
    assert not data["alarm"]
    assert data["proved_epsilon"] == pytest.approx(8, rel=1e-3)
    with pytest.raises(GratisError, match="unknown estimator"):
        run(audit_app, "estimator", "tree")


def test_too_few_runs_for_the_confidence():
    with pytest.raises(GratisError, match="too few"):
        run(audit_app, "one-pass", "--runs", "20")


def test_lab_interpolate():
    arguments = ["interpolate", "--n", "30", "--d", "8", "--ratios", "0.5,6"]
    data = json.loads(run(lab_app, *arguments, "--json").stdout)
    assert [row["least"] > 1e-8 for row in data["rows"]] == [False, True]
    assert data["measured_loss"] == pytest.approx(data["predicted_loss"], rel=0.2)
    assert "invertible" in run(lab_app, *arguments).stdout
    with pytest.raises(GratisError, match="numbers separated"):
        run(lab_app, "interpolate", "--ratios", "a")


def test_lab_robustness():
    arguments = ["robustness", "--n", "30", "--d", "60", "--features", "200,800", "--neurons", "6,12", "--json"]
    rows = json.loads(run(lab_app, *arguments).stdout)["rows"]
    even = [row["sensitivity"] for row in rows if row["activation"] == "cosine"]
    assert len(rows) == 8
    assert even[1] < even[0]
    with pytest.raises(GratisError, match="p ≥ n"):
        run(lab_app, "robustness", "--n", "30", "--features", "20")


def test_lab_reconstruct(tmp_path, monkeypatch):
    monkeypatch.delenv("GRATIS_DATA", raising=False)
    small = ["reconstruct", "--n", "4", "--d", "12"]
    assert json.loads(run(lab_app, *small, "--json").stdout)["error"] < 0.05
    private = json.loads(run(lab_app, *small, "--epsilon", "8", "--hops", "0", "--json").stdout)
    assert private["error"] > 0.7 * private["chance"]
    picture = tmp_path / "points.png"
    images = run(lab_app, "reconstruct", "--n", "3", "--images", "--picture", str(picture))
    assert "reconstructed" in images.stdout
    assert picture.stat().st_size > 2000
    with pytest.raises(GratisError, match="cannot hold"):
        run(lab_app, *small, "--p", "3")
    with pytest.raises(GratisError, match="--images"):
        run(lab_app, *small, "--picture", str(picture))
    assert np.isfinite(private["residual"])
