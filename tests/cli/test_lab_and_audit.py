"""`gratis lab` and `gratis audit`: words, JSON, pictures, and the exit code of an alarm."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from gratis import DPLinearRegression, DPRandomFeaturesClassifier, DPRandomFeaturesRegressor, save_model
from gratis.cli.audit import app as audit_app
from gratis.cli.lab import app as lab_app
from gratis.mechanisms.noise import NoiseSource
from gratis.records.errors import GratisError

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


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow(but=["arguments1"])
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


@pytest.mark.statistical(failure=1e-3)
@pytest.mark.parametrize("command", ["one-pass", "full-batch"])
def test_an_alarm_is_exit_code_three(command, seeded, monkeypatch):
    monkeypatch.setattr(Seeded, "share", 0.3)
    result = run(audit_app, command, "--runs", "150", "--n", "10")
    assert result.exit_code == 3
    assert "ALARM" in result.stdout


ESTIMATORS = [
    ["linear", "--n", "40"],
    ["linear", "--algorithm", "one-pass", "--n", "40"],
    ["logistic", "--algorithm", "one-pass", "--preprocessing", "none", "--n", "60"],
    ["random-features-regressor", "--preprocessing", "none", "--n", "40", "--n-features", "30"],
    ["random-features-classifier", "--n", "40", "--n-features", "30"],
    ["random-features-classifier", "--neighbouring", "zero-out", "--preprocessing", "none", "--n-features", "30"],
]


@pytest.fixture
def seeded_fits(monkeypatch):
    """Noise of estimators from counted seeds, so that their audits can be repeated."""
    monkeypatch.setattr(Seeded, "counter", 0)
    monkeypatch.setattr("gratis.estimators.private_fit.noise_source", lambda *_, **__: Seeded.secure())
    return Seeded


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
@pytest.mark.parametrize("arguments", ESTIMATORS, ids=lambda v: "-".join(v[:3]))
def test_whole_estimators_are_audited(arguments, seeded_fits):
    data = json.loads(run(audit_app, *arguments, "--epsilon", "8", "--runs", "60", "--json").stdout)
    assert not data["alarm"]
    exchanged = data["neighbouring"] == "zero-out"  # two zero-outs: more than the certificate's epsilon
    assert data["proved_epsilon"] > 10 if exchanged else data["proved_epsilon"] == pytest.approx(8, rel=1e-3)


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
def test_a_network_is_audited(seeded_fits):
    pytest.importorskip("torch")
    arguments = ["mlp", "--width", "5", "--n", "20", "--epsilon", "8", "--preprocessing", "none", "--runs", "50"]
    data = json.loads(run(audit_app, *arguments, "--json").stdout)
    assert not data["alarm"]
    assert data["mu_if_normal"]["value"] > 0.5


def test_estimators_that_do_not_exist_are_refused():
    with pytest.raises(GratisError, match="unknown estimator"):
        run(audit_app, "estimator", "tree")
    with pytest.raises(GratisError, match="no option 'width'"):
        run(audit_app, "linear", "--width", "5")


@pytest.fixture
def saved(tmp_path):
    """A classifier of six 4x4 images, fitted with epsilon 4, and its rows."""
    rows = np.random.default_rng(0).normal(size=(12, 16))
    model = DPRandomFeaturesClassifier(4.0, 1e-3, n_features=400, preprocessing="none", classes=[0, 1])
    save_model(tmp_path / "model.gratis", model.fit(rows, np.arange(12) % 2))
    np.save(tmp_path / "rows.npy", rows)
    return tmp_path


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
def test_a_model_file_is_audited(saved, seeded_fits, monkeypatch):
    file, picture = str(saved / "model.gratis"), saved / "roc.png"
    honest = run(audit_app, file, "--runs", "60", "--picture", str(picture), "--json")
    data = json.loads(honest.stdout)
    assert honest.exit_code == 0
    assert data["certificate_valid"]
    assert data["secure_randomness"]
    assert data["records"] == data["audited_records"] == 12
    assert data["proved_epsilon"] == pytest.approx(4, rel=1e-3)
    assert picture.stat().st_size > 5000
    monkeypatch.setattr(Seeded, "share", 0.2)
    result = run(audit_app, file, "--runs", "100")
    assert result.exit_code == 3
    assert "ALARM" in result.stdout


def test_model_files_that_are_none_or_do_not_add_up_are_refused(saved, monkeypatch):
    with pytest.raises(GratisError, match="no model file, and no estimator"):
        run(audit_app, "tree")
    with pytest.raises(GratisError, match="not a model file"):
        run(audit_app, str(saved / "rows.npy"))
    monkeypatch.setattr("gratis.audits.estimators.verify_certificate", lambda _: ["epsilon is too small"])
    with pytest.raises(GratisError, match="does not follow"):
        run(audit_app, str(saved / "model.gratis"))


def test_lab_reconstructs_from_a_model_file(saved):
    arguments = ["reconstruct", "--model", str(saved / "model.gratis"), "--steps", "60", "--hops", "1"]
    picture = saved / "points.png"
    data = json.loads(run(lab_app, *arguments, "--rows", str(saved / "rows.npy"), "--json").stdout)
    assert data["error"] > 0.7 * data["chance"]
    assert data["n"] == 12
    alone = run(lab_app, *arguments, "--n", "3", "--picture", str(picture))
    assert "no reconstruction" in alone.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_lab_reconstructs_what_almost_no_noise_hides(tmp_path):
    """With epsilon 10⁸ the file leaks; the control shows the same without noise."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3, 9))
    model = DPRandomFeaturesRegressor(1e8, 1e-3, n_features=600, features="relu", preprocessing="none")
    save_model(tmp_path / "model.gratis", model.fit(rows, [1.0, -1.0, 1.0]))
    np.save(tmp_path / "rows.npy", rows)
    arguments = ["reconstruct", "--model", str(tmp_path / "model.gratis"), "--rows", str(tmp_path / "rows.npy")]
    data = json.loads(run(lab_app, *arguments, "--control", "--json").stdout)
    assert data["error"] < 0.1
    assert data["control_error"] < 0.05
    assert "span them" in run(lab_app, *arguments[:3]).stdout


def test_lab_refuses_what_cannot_be_attacked(saved):
    file = str(saved / "model.gratis")
    other = DPLinearRegression(1.0, 1e-5).fit(np.load(saved / "rows.npy")[:, :2], np.arange(12.0))
    save_model(saved / "linear.gratis", other)
    for arguments, words in (
        (["--model", file, "--n", "500"], "cannot hold"),
        (["--model", file, "--images"], "brings its own"),
        (["--model", file, "--control"], "--rows"),
        (["--model", file, "--n", "3", "--rows", str(saved / "rows.npy")], "3 points"),
        (["--model", file, "--rows", str(saved / "missing.npy")], "cannot read"),
        (["--model", str(saved / "rows.npy")], "not a model file"),
        (["--model", str(saved / "linear.gratis")], "without random features"),
        (["--rows", str(saved / "rows.npy")], "give --model"),
    ):
        with pytest.raises(GratisError, match=words):
            run(lab_app, "reconstruct", *arguments)


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


def test_the_lab_looks_at_own_rows_only_if_they_are_public(tmp_path):
    rng = np.random.default_rng(3)
    rows, labels = tmp_path / "rows.npy", tmp_path / "labels.npy"
    np.save(rows, rng.standard_normal((40, 6)))
    np.save(labels, rng.standard_normal(40))
    for words in (["interpolate"], ["robustness", "--labels", str(labels)]):
        with pytest.raises(GratisError, match="--public"):
            run(lab_app, *words, "--rows", str(rows))
    found = json.loads(run(lab_app, "interpolate", "--rows", str(rows), "--public", "--json").stdout)
    assert found["rows"][0]["smallest"] < 1e-10 < found["rows"][-1]["smallest"]
    words = ["robustness", "--rows", str(rows), "--labels", str(labels), "--public", "--features", "100,200"]
    found = json.loads(run(lab_app, *words, "--neurons", "4,8", "--json").stdout)
    assert (found["n"], found["d"]) == (32, 6)  # a fifth is held out
    assert {row["data"] for row in found["rows"]} == {"own rows"}
    with pytest.raises(GratisError, match="belong together"):
        run(lab_app, "robustness", "--rows", str(rows), "--public")
    np.save(rows, np.full((40, 6), np.nan))
    with pytest.raises(GratisError, match="finite"):
        run(lab_app, "interpolate", "--rows", str(rows), "--public")


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


def test_noisy_descent_states_kl_and_nothing_else(tmp_path):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "labels.npy", (X[:, 0] > 0).astype(np.int64))
    files = ["--rows", str(tmp_path / "rows.npy"), "--labels", str(tmp_path / "labels.npy")]
    common = ["noisy-gd", "--kl-budget", "2", "--width", "8", "--steps", "3"]
    answer = json.loads(run(lab_app, *common, *files, "--output", str(tmp_path / "w.npz"), "--json").stdout)
    assert answer["plan"]["kl"] == pytest.approx(2)
    assert answer["plan"]["widths"] == [4, 8, 2]
    assert answer["certified"] is False
    assert "epsilon" not in answer
    assert "accuracy" not in json.dumps(answer)  # of the user's rows, without noise
    assert "accuracy" not in run(lab_app, *common, *files).stdout
    with np.load(tmp_path / "w.npz") as weights:
        assert weights["trained_1"].shape == (8, 4)
        assert not np.array_equal(weights["trained_1"], weights["start_1"])
    text = run(lab_app, *common, "--n", "30", "--d", "3", "--neighbouring", "zero-out").stdout
    assert "not (ε, δ)-DP" in text
    assert "no ledger entry" in text
    assert "zero-out" in text
    assert "accuracy on the synthetic points" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--rows", "x.npy"], "belong together"), (["--rows", "x.npy", "--labels", "y.npy"], "not an array"),
     (["--initialization", "best"], "unknown initialization"), (["--width", "0"], "width")],
)  # fmt: skip
def test_noisy_descent_refuses_what_it_cannot_read(arguments, words):
    pytest.importorskip("torch")
    with pytest.raises(GratisError, match=words):
        run(lab_app, "noisy-gd", "--kl-budget", "1", "--steps", "1", *arguments)


def test_noisy_descent_quotes_no_record_of_what_it_refuses(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    rows, labels = tmp_path / "rows.npy", tmp_path / "labels.npy"
    good, classes = np.ones((6, 2)), np.arange(6) % 2

    def refused(words, *more):
        with pytest.raises(GratisError, match=words) as caught:
            run(lab_app, "noisy-gd", "--kl-budget", "1", "--steps", "1", "--rows", str(rows), "--labels", str(labels),
                *more)  # fmt: skip
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None

    np.save(labels, classes)
    np.save(rows, np.array([["secret", "1"]] * 6))
    refused("--rows must hold real numbers")
    np.save(rows, good)
    np.save(labels, np.array(["secret"] * 6))
    refused("--labels must hold real numbers")
    np.save(labels, classes[:5])
    refused("one class for each row")
    np.save(labels, classes)
    with rows.open("wb") as file:
        np.savez(file, secret=good)
    refused("not an array file")
    for content in (b"", b"secret", b"PK\x03\x04secret"):
        rows.write_bytes(content)
        refused("not an array file")
    for empty in (np.ones((0, 2)), np.ones((6, 0)), np.ones(6)):
        np.save(rows, empty)
        refused("one row a record")
    np.save(rows, good)
    monkeypatch.setattr("gratis_papers.kl_training.train_under_kl", lambda *_, **__: pytest.fail("trained"))
    refused("cannot be written", "--output", str(tmp_path))
    refused("cannot be written", "--output", str(tmp_path / "nowhere" / "w.npz"))
    refused("file that is read", "--output", str(rows))
