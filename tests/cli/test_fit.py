"""`gratis fit`, `predict`, `report`, `compare` and `schema` as a new user types them, and as a careless one does."""

from __future__ import annotations

import errno
import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gratis import Budget, Ledger, load_model
from gratis.accounting import verify_certificate
from gratis.cli.program import run
from gratis.estimators.model_file import save_model
from gratis.estimators.table_fit import TableJob
from gratis.records.certificates import Certificate
from gratis.records.errors import LedgerError

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
    header = (path / "t.csv").read_bytes().split(b"\n", 1)
    (path / "twice.csv").write_bytes(header[0].replace(b'"b"', b'"z"') + b"\n" + header[1])
    (path / "latin.csv").write_bytes(header[0].replace(b'"b"', b'"\xfc"') + b"\n" + header[1])
    pa.parquet.write_table(
        pa.Table.from_arrays([table["z"], table["b"], table["y"]], ["z", "z", "y"]), path / "twice.parquet"
    )
    pa.parquet.write_table(table.append_column("bytes", pa.array([b"\xff", b"a"] * 300)), path / "bytes.parquet")
    (path / "deep.json").write_text('{"columns":' + "[" * 100_000 + "]" * 100_000 + "}")
    (path / "long.json").write_text('{"columns": {"z": {"kind": "numeric", "missing": ' + "9" * 5000 + "}}}")
    (path / "large.json").write_text('{"columns": {"z": {"kind": "numeric", "missing": ' + "9" * 400 + "}}}")
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
    # One entry for model and score, of disjoint rows: the price that was shown is what the ledger charges.
    status = ledger.status("people")
    (entry,) = status.releases
    assert shown["plan"]["price"] == entry.price
    assert (entry.model, entry.released) == ("DPLinearRegression", Certificate.read(out / "certificate.json").released)
    assert "held out, and the score on them costs nothing more" in " ".join(shown["plan"]["words"])

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


@pytest.mark.slow
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
    command = ["fit", str(tmp_path / "large.parquet"), "--target", target, "--epsilon", "4"]
    command += ["--delta", "1e-4", "--memory", "1e-6", "--no-audit", "--algorithm", "one-pass"]
    command += ["--model", "linear" if target == "y" else "logistic"]
    assert run([*command, "--hold-out", "0.2", "--output", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["certificate_verifies"]
    assert any("one pass in constant memory" in sentence for sentence in shown["plan"]["words"])
    leaves = [event.kind for event in Certificate.read(out / "certificate.json").event.leaves()]
    assert leaves.count("one-pass-iteration") == (1 if target == "y" else 3)
    assert run(["predict", str(out / "model.gratis"), str(tmp_path / "large.parquet"), "--output",
                str(tmp_path / "answers.parquet")]) == 0  # fmt: skip
    answers = pa.parquet.read_table(tmp_path / "answers.parquet")["prediction"].to_numpy(zero_copy_only=False)
    if target == "y":
        assert np.corrcoef(answers, y)[0, 1] > 0.8
    else:
        assert np.mean(answers == kind) > 0.5
    if target == "y":
        return
    refused = [part for part in command if part not in ("--algorithm", "one-pass", "--model", "linear", "logistic")]
    refused += ["--model", "mlp", "--output", str(tmp_path / "other")]
    assert run(refused) == 2
    assert "larger than memory" in capsys.readouterr().err


def test_dry_run_spends_and_writes_nothing(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Ledger.create(tmp_path / "l", {"people": Budget(epsilon=4.0, delta=1e-3)})
    before = (tmp_path / "l").read_bytes()
    command = ["fit", str(folder / "t.csv"), "--target", "y", *BUDGET, "--hash", "2", "--dry-run", "--json"]
    where = ["--ledger", str(tmp_path / "l"), "--budget", "people", "--output", str(tmp_path / "out")]
    assert run([*command, *where]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["model"] in ("linear", "additive")
    cost = plan["cost_of_privacy"]
    assert cost["low"] <= cost["value"] <= cost["high"]
    assert cost["unit"] == "R²"
    assert (tmp_path / "l").read_bytes() == before
    assert not (tmp_path / "out").exists()


WRONG = {
    "missing column": (["t.csv", "--target", "q", *BUDGET], "no column 'q'"),
    "missing file": (["nowhere.csv", "--target", "y", *BUDGET], "no file"),
    "one value": (["one.csv", "--target", "label", "--hash", "2", *BUDGET], "single value"),
    "text among numbers": (["words.csv", "--target", "y", *BUDGET, "--schema", "numbers.json"], "'z' holds text"),
    "text without a rule": (["t.csv", "--target", "y", *BUDGET], "\n'label' holds text"),
    "unwritable": (["t.csv", "--target", "y", "--hash", "2", *BUDGET, "--output", "t.csv/out"], "cannot use"),
    "truncated": (["cut.parquet", "--target", "y", *BUDGET], "damaged"),
    "epsilon zero": (["t.csv", "--target", "y", "--hash", "2", "--epsilon", "0", "--delta", "1e-3"], "epsilon"),
    "delta one": (["t.csv", "--target", "y", "--hash", "2", "--epsilon", "1", "--delta", "1"], "delta"),
    "unknown model": (["t.csv", "--target", "y", "--hash", "2", *BUDGET, "--model", "forest"], "unknown model"),
    "wrong task": (["t.csv", "--target", "label", "--hash", "2", *BUDGET, "--task", "regression"], "numbers"),
    "unknown ledger": (["t.csv", "--target", "y", "--hash", "2", *BUDGET, "--ledger", "no", "--budget", "x"], "no"),
    "repeated name": (["twice.csv", "--target", "y", "--hash", "2", *BUDGET], "'z' occurs more than once"),
    "repeated name, Parquet": (["twice.parquet", "--target", "y", *BUDGET], "'z' occurs more than once"),
    "target of bytes": (["bytes.parquet", "--target", "bytes", "--hash", "2", *BUDGET], "the type binary"),
    "deep schema": (["t.csv", "--target", "y", *BUDGET, "--schema", "deep.json"], "nested"),
    "long number": (["t.csv", "--target", "y", *BUDGET, "--schema", "long.json"], "number"),
    "large number": (["t.csv", "--target", "y", *BUDGET, "--schema", "large.json"], "too large"),
    "endless epsilon": (
        ["t.csv", "--target", "y", "--hash", "2", "--epsilon", "1e308", "--delta", "1e-3"],
        "noise_std",
    ),
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
    last, _, command_that_decides = said.err[said.err.index("gratis: ") :].strip().partition("\n  gratis fit ")
    assert "\n" not in last
    assert bool(command_that_decides) is ("holds text" in said.err)
    assert words in last + command_that_decides
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
def test_wrong_features_are_refused_before_anything_is_spent(
    folder: Path,
    tmp_path: Path,
    arguments: list[str],
    words: str,
    dry: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
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


@pytest.mark.slow
def test_scattering_is_trained_and_reported_without_a_prediction(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "Quality is not predicted"
    command = ["fit", str(folder / IMAGES[0]), *IMAGES[1:], "--features", "scattering"]
    assert run([*command, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert sentence in said
    assert "Predicted" not in said
    out = tmp_path / "out"
    assert run([*command, "--hold-out", "0.25", "--output", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["plan"]["cost_of_privacy"] is None
    assert shown["held_out_score"]["quantity"] == "accuracy"
    assert not (out / "report-figure-2.png").exists()  # no curve of predictions
    assert run(["report", str(out / "model.gratis"), "--output", str(tmp_path / "again.html")]) == 0
    page = (tmp_path / "again.html").read_text()
    assert page == (out / "report.html").read_text()
    assert sentence in page
    assert "accuracy on held-out rows" in page
    assert "expected on fresh rows" not in page
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
        "import sys, time; from gratis.private.session import Session as s; from gratis.cli.program import run\n"
        "from gratis.estimators.table_fit import TableJob\n"
        "def slow(*a, **k): time.sleep(600)\n"
        "check = TableJob.check\n"
        "def checked(*a): check(*a); s._released = slow\n"
        "TableJob.check = checked\nsys.exit(run(sys.argv[1:]))"
    )
    child = subprocess.Popen([sys.executable, "-c", program, *command], stderr=subprocess.DEVNULL)
    while ledger.status("people").reservations == 0:
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


def fit_command(folder: Path, tmp_path: Path, *options: str) -> list[str]:
    where = ["--output", str(tmp_path / "out"), "--ledger", str(tmp_path / "l"), "--budget", "people"]
    return ["fit", str(folder / "t.csv"), "--target", "y", "--hash", "2", *BUDGET, *QUICK, *where, *options]


def people(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l", {"people": Budget(epsilon=9.0, delta=1e-3)})


def test_the_model_is_saved_before_the_ledger_hears_of_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = people(tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise LedgerError("the ledger is damaged")

    monkeypatch.setattr(Ledger, "commit", broken)
    assert run(fit_command(folder, tmp_path)) == 2
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert f"the model is saved in '{tmp_path / 'out' / 'model.gratis'}'" in said
    assert "is spent of the budget 'people' (one more release of epsilon " in said
    assert len(ledger.status("people").never_committed) == 1
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"model.gratis", "certificate.json"}
    written = Certificate.read(tmp_path / "out" / "certificate.json")
    assert verify_certificate(written) == []
    assert load_model(tmp_path / "out" / "model.gratis").estimator.certificate_ == written


def test_what_is_added_to_the_model_may_fail(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curve, audit and report come after the pair; each that fails is named, and the exit code is 0."""

    def fails(*_: object, **__: object) -> None:
        assert (tmp_path / "out" / "model.gratis").exists()
        raise RuntimeError("no picture")

    ledger = people(tmp_path)
    for name in ("_curve", "_audit", "_write_report"):
        monkeypatch.setattr(f"gratis.cli.fit.{name}", fails)
    command = [part for part in fit_command(folder, tmp_path) if part != "--no-audit"]
    assert run([*command, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["report"] is None
    assert [note.split(" (")[0] for note in shown["notes"]] == [
        "Left out: the prediction for other budgets", "Left out: the audit", "Left out: the report",
    ]  # fmt: skip
    assert ledger.status("people").never_committed == ()
    saved = load_model(tmp_path / "out" / "model.gratis").estimator
    assert saved.certificate_.ledger_entry["committed"]


def test_the_audit_is_in_the_report_and_its_alarm_is_the_exit_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"verdict": "ALARM: no noise", "alarm": True, "words": "two neighbours", "mu": None}
    monkeypatch.setattr("gratis.cli.fit._audit", lambda job, estimator: found)
    command = [part for part in fit_command(folder, tmp_path) if part != "--no-audit"]
    people(tmp_path)
    assert run(command) == 3
    assert "ALARM" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("everywhere", [True, False], ids=["everywhere", "in the folder"])
def test_a_full_disk_says_what_is_spent_and_what_is_left(
    folder: Path, tmp_path: Path, everywhere: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file can grow (nothing is saved), or only the chosen folder is full (the model goes to a temporary one)."""
    ledger = people(tmp_path)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "out").mkdir()
    old = {"model.gratis": b"an old model", "certificate.json": b"its certificate"}
    for name, content in old.items():
        (tmp_path / "out" / name).write_bytes(content)

    def limited(path: Path, *parts: object) -> None:
        if not everywhere and "out" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000 if everywhere else soft, hard))
        try:
            save_model(path, *parts)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr("gratis.estimators.model_folder.save_model", limited)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert run(fit_command(folder, tmp_path, "--force")) == 2
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert ("File too large" if everywhere else "No space left") in said
    assert "is spent of the budget 'people' (one more release of epsilon " in said
    # the old pair is as it was, also with --force
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir() if p.name in old} == old
    status = ledger.status("people")
    assert (status.reservations, len(status.never_committed)) == (1, 1)
    kept = list((tmp_path / "temporary").glob("gratis-*/model.gratis"))
    if everywhere:
        assert "there is no model" in said
        assert not kept
    else:
        assert f"the model is saved in '{kept[0]}'" in said
        assert load_model(kept[0]).estimator.certificate_.ledger_entry["id"] == status.never_committed[0].id


def test_a_model_that_was_written_and_not_put_into_place_is_kept(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    people(tmp_path)
    rename = os.replace

    def broken(source: object, target: object) -> None:
        if Path(str(target)).name == "model.gratis" and Path(str(target)).parent.name == "out":
            raise OSError(30, "Read-only file system")
        rename(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", broken)
    assert run(fit_command(folder, tmp_path)) == 2
    (kept,) = (tmp_path / "out").glob(".partial-*/model.gratis")
    assert f"the model is saved in '{kept}'" in capsys.readouterr().err
    monkeypatch.setattr(os, "replace", rename)
    assert run(fit_command(folder, tmp_path, "--no-report")) == 0
    assert str(kept) in " ".join(capsys.readouterr().err.split())
    assert load_model(kept).estimator.certificate_.ledger_entry["name"] == "people"


@pytest.mark.parametrize("where", ["reading", "reserving", "training", "saving", "predicting"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_gets_a_sentence_on_what_is_spent(
    folder: Path,
    tmp_path: Path,
    where: str,
    number: signal.Signals,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """While the ledger is written and while the model is, the signal waits: what is said is what happened."""
    name = {
        "reading": "gratis.estimators.table_fit.TableJob.check",
        "reserving": "gratis.ledger.ledger.check_affordable",
        "training": "gratis.recipes.linear.run_session",
        "saving": "gratis.estimators.model_folder.save_model",
        "predicting": "gratis.cli.fit._curve",
    }[where]
    work = pkgutil.resolve_name(name)

    def signalled(*parts: object, **choices: object) -> object:
        os.kill(os.getpid(), number)
        return work(*parts, **choices)

    ledger = people(tmp_path)
    monkeypatch.setattr(name, signalled)
    # A shell's background ignores Ctrl-C, and a program started there leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    assert run(fit_command(folder, tmp_path)) == 128 + number
    said = capsys.readouterr().err.strip().split("\n")[-1]
    status, model = ledger.status("people"), tmp_path / "out" / "model.gratis"
    assert said.startswith("gratis: interrupted; " if number == signal.SIGINT else "gratis: stopped; ")
    if where == "reading":
        assert "nothing was spent" in said
        assert status.reservations == 0
        assert not list((tmp_path / "out").iterdir())
    elif where in ("reserving", "training"):
        assert "is spent of the budget 'people' (one more release of epsilon " in said
        assert "there is no model" in said
        assert len(status.never_committed) == 1
    else:
        assert f"the model is saved in '{model}', and" in said
        assert "is spent of the budget 'people' (one more release of epsilon " in said
        assert status.never_committed == ()
        assert load_model(model).estimator.certificate_ == Certificate.read(tmp_path / "out" / "certificate.json")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_failure(folder: Path, tmp_path: Path) -> None:
    """`gratis … | head`, with the reader gone before the first line; for fit also that of the standard error."""
    fit = ["fit", str(folder / "t.csv"), "--target", "y", "--hash", "2", *BUDGET, *QUICK, "--no-report"]
    fit += ["--output", str(tmp_path / "out")]
    predict = ["predict", str(tmp_path / "out" / "model.gratis"), str(folder / "t.csv")]
    for arguments in (fit, predict, ["--help"]):
        reading, writing = os.pipe()
        os.close(reading)
        both = subprocess.STDOUT if arguments is fit else subprocess.PIPE
        program = [sys.executable, "-c", "from gratis.cli import main; main()", *arguments]
        done = subprocess.run(program, check=False, stdout=writing, stderr=both)
        os.close(writing)
        assert done.returncode == 0, arguments
        assert not done.stderr
    assert load_model(tmp_path / "out" / "model.gratis").context["table"]["task"] == "regression"


@pytest.mark.parametrize("streamed", [False, True], ids=["in memory", "streamed"])
def test_a_file_that_changes_is_refused_before_the_reservation_and_named_after_it(
    tmp_path: Path, streamed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    rows = [f"{a:.3f},{b:.3f},{a - b:.3f}" for a, b in rng.normal(size=(300, 2))]
    table = tmp_path / "t.csv"

    def write(*more: str) -> None:
        table.write_text("\n".join(["a,b,y", *rows, *more]) + "\n")

    def after(module: str, name: str, change: Callable[[], None]) -> None:
        whole = getattr(sys.modules[module], name)

        def changed(*parts: object, **choices: object) -> object:
            found = whole(*parts, **choices)
            change()
            return found

        monkeypatch.setattr(f"{module}.{name}", changed)

    ledger = people(tmp_path)
    command = ["fit", str(table), "--target", "y", *BUDGET, *QUICK, "--no-report", "--hold-out", "0.2", "--json"]
    command += ["--output", str(tmp_path / "out"), "--ledger", str(tmp_path / "l"), "--budget", "people"]
    command += ["--memory", "1e-9"] if streamed else []
    write()
    with monkeypatch.context() as patch:
        check = TableJob.check
        # The same text again: only the time of the change tells.
        patch.setattr(TableJob, "check", lambda *given: (check(*given), write())[0])
        assert run(command) == 2
    assert "changed after it was opened: nothing was spent" in capsys.readouterr().err
    assert ledger.status("people").reservations == 0
    assert not list((tmp_path / "out").iterdir())
    after("gratis.recipes.linear", "run_session", lambda: write("1,1,0"))
    assert run(command) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["held_out_score"] is None
    assert any("changed while it was read" in note for note in shown["notes"]) == streamed
    assert ledger.status("people").reservations == 1
    assert "file changed" in load_model(tmp_path / "out" / "model.gratis").context["no_score"]


def test_predictions_and_reports_do_not_overwrite_what_they_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes((folder / "t.csv").read_bytes())
    (tmp_path / "link.csv").symlink_to(table)
    people(tmp_path)
    assert run(fit_command(folder, tmp_path, "--no-report")) == 0
    model = tmp_path / "out" / "model.gratis"
    before = table.read_bytes(), model.read_bytes()
    os.link(model, tmp_path / "model.csv")
    for command in (
        ["predict", str(model), str(table), "--output", str(table)],
        ["predict", str(model), str(table), "--output", str(tmp_path / "link.csv")],
        ["predict", str(model), str(table), "--output", str(tmp_path / "model.csv")],
        ["report", str(model), "--output", str(model)],
    ):
        capsys.readouterr()
        assert run(command) == 2
        assert "is the file that is read" in capsys.readouterr().err
    assert (table.read_bytes(), model.read_bytes()) == before


def test_a_delta_that_would_allow_to_publish_a_row_must_be_forced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(folder / "t.csv"), "--target", "y", "--hash", "2", "--epsilon", "4", *QUICK, "--dry-run"]
    assert run([*command, "--delta", str(1 / 600)]) == 2
    assert "one over the number of rows, 600" in capsys.readouterr().err
    assert run([*command, "--delta", str(1 / 600), "--force-delta"]) == 0
    assert run([*command, "--delta", str(1 / 601)]) == 0


def test_compare_and_schema(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", str(folder / "t.csv"), "--public"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["columns"]["sex"] == {"kind": "categorical", "levels": ["f", "m"]}
    assert run(["schema", str(folder / "t.csv")]) == 0
    assert json.loads(capsys.readouterr().out)["columns"]["sex"] == {"kind": "categorical", "buckets": 32}
    command = ["compare", str(folder / "t.csv"), "--target", "y", "--hash", "2", "--epsilon", "0.1,8", "--json"]
    assert run(command) == 0
    rows = json.loads(capsys.readouterr().out)["predictions"]
    assert [(r["epsilon"], r["model"]) for r in rows[::3]] == [(0.1, "linear"), (8.0, "linear")]
    assert rows[0]["cost"]["value"] > rows[3]["cost"]["value"] + 0.01
    assert [r["model"] for r in rows if r["chosen"]] == ["linear", "additive"]
    assert run(["compare", "--n", "100"]) == 2
    assert "--d" in capsys.readouterr().err


def test_auto_takes_curves_where_records_allow_them_and_says_what_to_expect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3000))
    y = np.abs(a) + 0.3 * b + 0.2 * rng.normal(size=3000)
    pa.parquet.write_table(pa.table({"a": a, "b": b, "y": y}), tmp_path / "t.parquet")
    command = ["fit", str(tmp_path / "t.parquet"), "--target", "y", "--epsilon", "4", "--delta", "1e-5", "--no-audit"]
    assert run([*command, "--hold-out", "0.2", "--output", str(tmp_path / "out"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["plan"]["model"] == "additive"
    expected, held_out = shown["expected_score"], shown["held_out_score"]
    # Both are noisy; five deviations of the held-out score, whose range is two of them, are more than chance. Downward:
    # above, the range ends at 1.
    assert abs(expected["value"] - held_out["value"]) < 2.5 * (held_out["value"] - held_out["low"]) + 0.05
    assert 0.7 < expected["low"] < expected["high"] < 1
    assert "R², expected on fresh rows" in (tmp_path / "out" / "report.html").read_text()
