"""`gratis fit`, `predict`, `report`, `compare` and `schema` as a new user types them, and as a careless one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gratis import Budget, Ledger, load_model
from gratis.accounting import verify_certificate
from gratis.cli.program import run
from gratis.specs.certificates import Certificate
from gratis.specs.errors import LedgerError

BUDGET = ["--epsilon", "4", "--delta", "1e-3"]
QUICK = ["--no-audit", "--model", "linear"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of 600 rows in a folder that no test changes."""
    path = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=600) * 10 + 50, rng.normal(size=600)
    sex = rng.choice(["f", "m"], 600)
    y = 0.1 * a + b + (sex == "f") + 0.2 * rng.normal(size=600)
    # Not in alphabetical order: the order of columns must survive the model file.
    columns = {"z": a, "b": b, "sex": sex, "y": y, "label": np.where(y > np.median(y), "high", "low")}
    table = pa.table(columns)
    pa.parquet.write_table(table, path / "t.parquet")
    pa.csv.write_csv(table, path / "t.csv")
    pa.csv.write_csv(table.set_column(4, "label", pa.array(["same"] * 600)), path / "one.csv")
    text = (path / "t.csv").read_text().split("\n")
    cells = text[300].split(",")
    text[300] = ",".join(["fifty", *cells[1:]])
    (path / "words.csv").write_text("\n".join(text))
    whole = (path / "t.parquet").read_bytes()
    (path / "cut.parquet").write_bytes(whole[: len(whole) - 50])
    schema = {"columns": {"sex": {"kind": "categorical", "levels": ["f", "m"]}, "label": "ignored"}}
    (path / "schema.json").write_text(json.dumps(schema))
    declared = {"columns": {"z": "numeric", "sex": {"kind": "categorical", "buckets": 4}, "label": "ignored"}}
    (path / "numbers.json").write_text(json.dumps(declared))
    kind = rng.integers(2, size=600)
    pixels = rng.normal(size=(600, 64)) + np.outer(2 * kind - 1, np.sin(np.arange(64)))  # 8 × 8
    images = {f"p{i}": pixels[:, i] for i in range(64)} | {"kind": np.where(kind, "wave", "trough")}
    pa.parquet.write_table(pa.table(images), path / "images.parquet")
    return path


def test_from_file_to_report_and_back(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger.create(tmp_path / "l", {"people": Budget(epsilon=9.0, delta=1e-3)})
    out = tmp_path / "out"
    command = ["fit", str(folder / "t.parquet"), "--target", "y", *BUDGET, *QUICK, "--hold-out", "0.25"]
    files = ["--schema", str(folder / "schema.json"), "--output", str(out)]
    assert run([*command, *files, "--ledger", str(tmp_path / "l"), "--budget", "people", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["certificate_verifies"]
    assert shown["guarantee"]["epsilon"] <= 4.0
    assert shown["plan"]["rows"] == 450
    assert shown["held_out_score"]["samples"] == 150
    assert {path.name for path in out.iterdir()} == {
        "model.gratis", "certificate.json", "evaluation-certificate.json", "report.html",
        "report-figure-1.png", "report-figure-2.png",
    }  # fmt: skip
    for name in ("certificate.json", "evaluation-certificate.json"):
        assert verify_certificate(Certificate.read(out / name)) == []
    assert ledger.status("people").reservations == 2

    # predict gives what the estimator gives, in the file's order, whatever the file's format
    for source, ending in (("t.parquet", "csv"), ("t.csv", "parquet")):
        answers = tmp_path / f"answers.{ending}"
        assert run(["predict", str(out / "model.gratis"), str(folder / source), "--output", str(answers)]) == 0
    parquet = pa.parquet.read_table(tmp_path / "answers.parquet")["prediction"].to_numpy()
    csv = pa.csv.read_csv(tmp_path / "answers.csv")["prediction"].to_numpy()
    np.testing.assert_allclose(parquet, csv, rtol=1e-12)
    rows = pa.parquet.read_table(folder / "t.parquet").to_pydict()
    sex = np.array(rows["sex"])
    matrix = np.column_stack([rows["z"], rows["b"], sex == "f", sex == "m"]).astype(float)
    np.testing.assert_allclose(parquet, load_model(out / "model.gratis").estimator.predict(matrix), rtol=1e-12)
    assert np.corrcoef(parquet, rows["y"])[0, 1] > 0.5

    capsys.readouterr()
    assert run(["report", str(out / "model.gratis"), "--output", str(tmp_path / "again.html")]) == 0
    page = (tmp_path / "again.html").read_text()
    assert page == (out / "report.html").read_text()
    assert "http" not in page.replace("http-equiv", "")
    assert "private release on 150 held-out rows" in page

    # a second model in the same folder, and a budget that has no room for one
    assert run([*command, *files]) == 2
    assert "already" in capsys.readouterr().err
    other = ["--schema", str(folder / "schema.json"), "--output", str(tmp_path / "other")]
    for _ in range(3):
        code = run([*command, *other, "--force", "--ledger", str(tmp_path / "l"), "--budget", "people", "--json"])
    assert code == 2
    assert "left" in capsys.readouterr().err


def test_classes_probabilities_and_hashing(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", str(folder / "t.csv"), "--target", "label", *BUDGET, "--no-audit", "--model", "logistic"]
    assert run([*command, "--hash", "4", "--ignore", "y", "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "classification of 'label' with 2 classes" in said.err
    certificate = Certificate.read(tmp_path / "out" / "certificate.json")
    assert "public-classes" in certificate.assumptions
    assert "public-types" in certificate.assumptions
    assert run(["predict", str(tmp_path / "out" / "model.gratis"), str(folder / "t.csv"), "--probabilities"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    assert lines[0] == '"prediction","probability of high","probability of low"'
    assert len(lines) == 601
    assert sum(float(x) for x in lines[1].split(",")[1:]) == pytest.approx(1.0)


@pytest.mark.parametrize("target", ["y", "kind"])
def test_a_file_larger_than_memory_is_trained_in_one_pass(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 3)) * [1, 10, 100]
    y = X @ [1.0, 0.1, 0.01] + 0.3 * rng.normal(size=4000)
    kind = np.array(["low", "mid", "top"])[np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))]
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], target: y if target == "y" else kind})
    pa.parquet.write_table(table, tmp_path / "large.parquet", row_group_size=1000)
    out = tmp_path / "out"
    command = ["fit", str(tmp_path / "large.parquet"), "--target", target, *BUDGET, "--memory", "1e-6", "--no-audit"]
    assert run([*command, "--hold-out", "0.2", "--output", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["certificate_verifies"]
    assert any("one pass in constant memory" in sentence for sentence in shown["plan"]["words"])
    assert "in one pass" in shown["plan"]["predicted_quality"]["source"]
    leaves = [event.kind for event in Certificate.read(out / "certificate.json").event.leaves()]
    assert leaves.count("one-pass-iteration") == (1 if target == "y" else 3)
    assert run(["predict", str(out / "model.gratis"), str(tmp_path / "large.parquet"), "--output",
                str(tmp_path / "answers.parquet")]) == 0  # fmt: skip
    answers = pa.parquet.read_table(tmp_path / "answers.parquet")["prediction"].to_numpy(zero_copy_only=False)
    if target == "y":
        assert np.corrcoef(answers, y)[0, 1] > 0.8
    else:
        assert np.mean(answers == kind) > 0.5
    refused = [*command, "--model", "random-features", "--output", str(tmp_path / "other")]
    assert run(refused) == 2
    assert "one pass" in capsys.readouterr().err


def test_dry_run_spends_and_writes_nothing(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Ledger.create(tmp_path / "l", {"people": Budget(epsilon=4.0, delta=1e-3)})
    before = (tmp_path / "l").read_bytes()
    command = ["fit", str(folder / "t.csv"), "--target", "y", *BUDGET, "--hash", "2", "--dry-run", "--json"]
    where = ["--ledger", str(tmp_path / "l"), "--budget", "people", "--output", str(tmp_path / "out")]
    assert run([*command, *where]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["model"] in ("linear", "random-features")
    assert plan["predicted_quality"]["low"] <= plan["predicted_quality"]["value"] <= plan["predicted_quality"]["high"]
    assert (tmp_path / "l").read_bytes() == before
    assert not (tmp_path / "out").exists()


WRONG = {
    "missing column": (["t.csv", "--target", "q", *BUDGET], "no column 'q'"),
    "missing file": (["nowhere.csv", "--target", "y", *BUDGET], "no file"),
    "one value": (["one.csv", "--target", "label", "--hash", "2", *BUDGET], "single value"),
    "text among numbers": (["words.csv", "--target", "y", *BUDGET, "--schema", "numbers.json"], "'z' holds text"),
    "text without a rule": (["t.csv", "--target", "y", *BUDGET], "'sex' holds text"),
    "unwritable": (["t.csv", "--target", "y", "--hash", "2", *BUDGET, "--output", "t.csv/out"], "cannot use"),
    "truncated": (["cut.parquet", "--target", "y", *BUDGET], "damaged"),
    "epsilon zero": (["t.csv", "--target", "y", "--hash", "2", "--epsilon", "0", "--delta", "1e-3"], "epsilon"),
    "delta one": (["t.csv", "--target", "y", "--hash", "2", "--epsilon", "1", "--delta", "1"], "delta"),
    "unknown model": (["t.csv", "--target", "y", "--hash", "2", *BUDGET, "--model", "forest"], "unknown model"),
    "wrong task": (["t.csv", "--target", "label", "--hash", "2", *BUDGET, "--task", "regression"], "numbers"),
    "unknown ledger": (["t.csv", "--target", "y", "--hash", "2", *BUDGET, "--ledger", "no", "--budget", "x"], "no"),
    "half a ledger": (["t.csv", "--target", "y", "--hash", "2", *BUDGET, "--budget", "x"], "both"),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused_in_one_sentence(
    folder: Path, tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Ledger.create(tmp_path / "l", {"people": Budget(epsilon=4.0, delta=1e-3)})
    before = (tmp_path / "l").read_bytes()
    placed = [str(folder / a) if a.endswith((".csv", ".parquet", ".json", "/out")) else a for a in arguments]
    command = ["fit", *placed]
    if "--model" not in command:
        command += ["--model", "linear"] if "label" not in command else ["--model", "logistic"]
    if words == "numbers":
        command[-1] = "linear"
    if "--output" not in command:
        command += ["--output", str(tmp_path / "out")]
    if "--budget" not in command:
        command += ["--ledger", str(tmp_path / "l"), "--budget", "people"]
    assert run(command) == 2
    said = capsys.readouterr()
    last = said.err.strip().split("\n")[-1]
    assert last.startswith("gratis: ")
    assert words in last
    assert (tmp_path / "l").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} <= {"l", "out"}
    assert not list((tmp_path / "out").glob("*"))


FEATURES = ["--model", "random-features", *BUDGET]
NUMBERS = ["t.csv", "--target", "y", "--hash", "2", "--ignore", "label", *FEATURES]
IMAGES = ["images.parquet", "--target", "kind", *FEATURES]
WRONG_FEATURES = {
    "none": ([*NUMBERS, "--n-features", "0"], "at least 1, got 0"),
    "fewer than none": ([*NUMBERS, "--n-features", "-1"], "at least 1, got -1"),
    "none of another model": ([*NUMBERS, "--n-features", "0", "--model", "linear"], "belong to"),
    "unknown": ([*NUMBERS, "--features", "foo"], "'tanh', 'relu', 'erf', got 'foo'"),
    "unnamed": ([*NUMBERS, "--features", ""], "got ''"),
    "images of a regression": ([*NUMBERS, "--features", "scattering"], "got 'scattering'"),
    "no square": ([*IMAGES, "--features", "scattering", "--ignore", "p0"], "square images"),
    "a square of odd side": (
        [*IMAGES, "--features", "scattering", "--ignore", ",".join(f"p{i}" for i in range(15))],
        "multiple of",
    ),
    "a number for scattering": ([*IMAGES, "--features", "scattering", "--n-features", "9"], "leave --n-features out"),
    "beyond memory": ([*NUMBERS, "--n-features", "100000000000000"], "100000000000000"),
    "beyond an index": ([*NUMBERS, "--n-features", "99999999999999999999999"], "99999999999999999999999"),
    "classes beyond memory": ([*IMAGES, "--n-features", "100000000000000"], "100000000000000"),
    "two classes beyond memory": ([*IMAGES, "--n-features", "150000000"], "150000000"),
}


@pytest.mark.parametrize("dry", [True, False], ids=["dry", "real"])
@pytest.mark.parametrize(("arguments", "words"), WRONG_FEATURES.values(), ids=WRONG_FEATURES)
def test_wrong_features_are_refused_before_anything_is_simulated_or_spent(
    folder: Path,
    tmp_path: Path,
    arguments: list[str],
    words: str,
    dry: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drawn(*_: object) -> None:
        raise AssertionError("a synthetic problem was drawn")

    monkeypatch.setattr("gratis.estimators.model_choice._simulated", drawn)
    Ledger.create(tmp_path / "l", {"people": Budget(epsilon=4.0, delta=1e-3)})
    before = (tmp_path / "l").read_bytes()
    command = ["fit", str(folder / arguments[0]), *arguments[1:], "--output", str(tmp_path / "out")]
    command += ["--ledger", str(tmp_path / "l"), "--budget", "people", *(["--dry-run"] if dry else [])]
    assert run(command) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gratis: ")
    assert said.err.count("\n") == 1
    assert words in said.err
    assert (tmp_path / "l").read_bytes() == before
    assert not (tmp_path / "out").exists()


def test_the_prediction_is_for_the_features_that_were_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def predicted(table: list[str], *options: str) -> dict[str, float]:
        assert run(["fit", str(folder / table[0]), *table[1:], *options, "--dry-run", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["plan"]["predicted_quality"]

    default = predicted(NUMBERS)
    assert predicted(NUMBERS, "--n-features", "2000", "--features", "tanh")["value"] == default["value"]
    one, relu = predicted(NUMBERS, "--n-features", "1"), predicted(NUMBERS, "--features", "relu")
    assert one["value"] < default["value"] - 0.05
    assert "p = 1" in one["source"]
    assert relu["value"] != default["value"]
    assert predicted(IMAGES, "--n-features", "1")["value"] < predicted(IMAGES)["value"] - 0.1


def test_more_features_than_a_simulation_can_take(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gratis.estimators.model_choice._MOST_FEATURES", 50)
    many = ["--n-features", "51", "--dry-run", "--json"]
    assert run(["fit", str(folder / NUMBERS[0]), *NUMBERS[1:], *many]) == 0
    found = json.loads(capsys.readouterr().out)["plan"]["predicted_quality"]
    assert "p = 50" in found["source"]
    assert "51 features do as well as 50" in found["assumptions"]
    assert run(["fit", str(folder / IMAGES[0]), *IMAGES[1:], *many]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["predicted_quality"] is None
    assert "not predicted" in plan["words"][-1]


def test_scattering_is_trained_and_reported_without_a_prediction(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "Accuracy on images depends on the images and is not predicted."
    command = ["fit", str(folder / IMAGES[0]), *IMAGES[1:], "--features", "scattering"]
    assert run([*command, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert sentence in said
    assert "Predicted" not in said
    out = tmp_path / "out"
    assert run([*command, "--hold-out", "0.25", "--output", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["plan"]["predicted_quality"] is None
    assert shown["held_out_score"]["quantity"] == "accuracy"
    assert not (out / "report-figure-2.png").exists()  # no curve of predictions
    assert run(["report", str(out / "model.gratis"), "--output", str(tmp_path / "again.html")]) == 0
    page = (tmp_path / "again.html").read_text()
    assert page == (out / "report.html").read_text()
    assert sentence in page
    assert "accuracy, held-out rows" in page
    assert ", predicted" not in page
    assert run(["predict", str(out / "model.gratis"), str(folder / IMAGES[0])]) == 0


def test_wrong_model_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.gratis").write_bytes(b"PK\x03\x04 no model")
    for command in (["predict", "{}", str(folder / "t.csv")], ["report", "{}", "--output", str(tmp_path / "r.html")]):
        assert run([part.format(tmp_path / "model.gratis") for part in command]) == 2
        assert "not a model file" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["model.gratis"]


def test_kill_during_training_leaves_the_budget_spent_and_no_model(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL as soon as the ledger holds the reservation; the next run says what happened."""
    ledger = Ledger.create(tmp_path / "l", {"people": Budget(epsilon=5.0, delta=1e-3)})
    out = tmp_path / "out"
    command = ["fit", str(folder / "t.csv"), "--target", "y", "--hash", "2", *BUDGET, *QUICK, "--output", str(out)]
    command += ["--ledger", str(tmp_path / "l"), "--budget", "people"]
    # The descent waits, so that the signal arrives while the program trains and not after.
    program = (
        "import sys, time; import gratis.training.staged as s; from gratis.cli.program import run\n"
        "from gratis.estimators.table_fit import TableJob\n"
        "def slow(*a, **k): time.sleep(600)\n"
        "check = TableJob.check\n"
        "def checked(job): check(job); s.descend = slow\n"
        "TableJob.check = checked\nsys.exit(run(sys.argv[1:]))"
    )
    child = subprocess.Popen([sys.executable, "-c", program, *command], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while ledger.status("people").reservations == 0 and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    status = ledger.status("people")
    assert status.reservations == 1
    assert len(status.never_committed) == 1
    assert not (out / "model.gratis").exists()
    assert run(command) == 2  # what is left does not pay for another
    said = " ".join(capsys.readouterr().err.split())
    assert "never finished" in said
    assert "left no model" in said
    assert ledger.status("people").reservations == 1


def test_a_ledger_that_fails_after_training_leaves_the_mark(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "l", {"people": Budget(epsilon=9.0, delta=1e-3)})

    def broken(*_: object) -> None:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(Ledger, "commit", broken)
    command = ["fit", str(folder / "t.csv"), "--target", "y", "--hash", "2", *BUDGET, *QUICK]
    where = ["--output", str(tmp_path / "out"), "--ledger", str(tmp_path / "l"), "--budget", "people"]
    assert run([*command, *where]) == 2
    assert ledger.status("people").reservations == 1
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["unfinished.json"]


def test_the_audit_is_in_the_report_and_its_alarm_is_the_exit_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gratis.cli import worst_case

    def audited(*arguments: object, **choices: object) -> object:
        return audit(*arguments, **choices | {"runs": 60, "confidence": 0.95})

    audit = worst_case.audit_full_batch
    monkeypatch.setattr(worst_case, "audit_full_batch", audited)
    exact = worst_case.descend
    # A trainer that forgets most of its noise must be found out.
    monkeypatch.setattr(worst_case, "descend", lambda *a, **k: exact(*a, **k | {"mu": 20 * k["mu"]}))
    command = ["fit", str(folder / "t.csv"), "--target", "y", "--hash", "2", *BUDGET, "--model", "linear"]
    assert run([*command, "--output", str(tmp_path / "out")]) == 3
    assert "ALARM" in (tmp_path / "out" / "report.html").read_text()


def test_compare_and_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", str(folder / "t.csv"), "--public"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["columns"]["sex"] == {"kind": "categorical", "levels": ["f", "m"]}
    assert run(["schema", str(folder / "t.csv")]) == 0
    assert json.loads(capsys.readouterr().out)["columns"]["sex"] == {"kind": "categorical", "buckets": 32}
    command = ["compare", str(folder / "t.csv"), "--target", "y", "--hash", "2", "--epsilon", "0.1,8", "--json"]
    assert run(command) == 0
    rows = json.loads(capsys.readouterr().out)["predictions"]
    assert [r["epsilon"] for r in rows] == [0.1, 0.1, 8.0, 8.0]
    assert rows[2]["value"] > rows[0]["value"] + 0.1
    assert run(["compare", "--n", "100"]) == 2
    assert "--d" in capsys.readouterr().err
