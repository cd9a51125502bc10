"""A fit that is predicted to be worthless asks first: by public facts alone, before anything is spent."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gratis
from gratis.cli.program import run
from gratis.estimators.worth import worthless_words
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import WorthlessFitWarning
from gratis.records.plans import is_worthless, predicted_gain


def plan(rows: int, columns: int, epsilon: float = 1.0, model: str = "linear", **more: object) -> gratis.Plan:
    return gratis.plan(model, rows=rows, columns=columns, epsilon=epsilon, delta=1e-5, **more)


@pytest.mark.parametrize(
    ("model", "classes"), [("linear", None), ("logistic", 2), ("logistic", 5), ("additive", None), ("additive", 2)]
)
def test_few_rows_are_worthless_and_many_are_not(model: str, classes: int | None) -> None:
    assert is_worthless(plan(60, 10, model=model, classes=classes), classes)
    assert not is_worthless(plan(5000, 10, model=model, classes=classes), classes)
    assert not is_worthless(plan(60, 2, 100.0, model=model, classes=classes), classes)
    assert predicted_gain(plan(60, 10, model=model, classes=classes).prediction, classes) > 0


def test_what_is_said_to_do_would_do() -> None:
    planned = plan(400, 30)
    said = worthless_words(planned)
    assert said is not None
    assert said.startswith("400 rows of 30 columns at epsilon 1 are predicted to lose most of what there is to learn: ")
    rows, epsilon, columns = re.search(r"about (\d+) rows, epsilon ([\d.]+) or (\d+) columns? would do", said).groups()
    for better in (plan(int(rows), 30), plan(400, 30, float(epsilon)), plan(400, int(columns))):
        assert not is_worthless(better, None)
    # and not much less would do
    for worse in (plan(int(0.8 * int(rows)), 30), plan(400, 30, 0.8 * float(epsilon)), plan(400, int(columns) + 1)):
        assert is_worthless(worse, None)
    assert "persons of 30" in str(worthless_words(planned, "persons"))
    assert worthless_words(plan(5000, 5)) is None
    assert worthless_words(plan(100, 5, model="mlp", classes=2)) is None  # nothing is predicted of it
    features = worthless_words(plan(30, 20, 0.1, model="random-features"))
    assert features is not None
    assert "rows" in features


def test_python_warns_with_a_class_of_its_own() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    with pytest.warns(gratis.WorthlessFitWarning, match="60 rows of 3 columns at epsilon 1"):
        gratis.DPLinearRegression(epsilon=1.0, delta=1e-5).fit(X, X[:, 0])
    frame = pa.table({"a": X[:, 0], "b": X[:, 1], "y": X[:, 0]})
    with pytest.warns(WorthlessFitWarning):
        gratis.DPTableRegressor(1.0, 1e-5, model="linear").fit(frame, "y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gratis.DPLinearRegression(epsilon=100.0, delta=1e-5).fit(X, X[:, 0])


def test_the_command_stops_unless_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 5))
    lines = [",".join(f"{v:.4f}" for v in (*row, row.sum())) for row in x]
    (tmp_path / "t.csv").write_text("a,b,c,d,e,y\n" + "\n".join(lines), encoding="utf-8")
    ledger = Ledger.create(tmp_path / "l", {"t": Budget(epsilon=1.0, delta=1e-5)})
    command = [
        "fit", str(tmp_path / "t.csv"), "--target", "y", "--epsilon", "1", "--delta", "1e-5", "--model", "linear",
        "--output", str(tmp_path / "out"), "--ledger", str(tmp_path / "l"), "--budget", "t", "--no-audit",
        "--no-report",
    ]  # fmt: skip
    assert run(command) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "100 rows of 5 columns at epsilon 1 are predicted to lose most of what there is to learn" in said
    assert re.search(r"about \d+ rows or epsilon [\d.]+ would do; nothing was spent: add --yes", said)
    assert ledger.status("t").reservations == 0
    assert not list((tmp_path / "out").iterdir())
    assert run([*command, "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "would do" in shown["plan"]["worthless"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", WorthlessFitWarning)  # it is said once
        assert run([*command, "--yes"]) == 0
    assert "would do." in " ".join(capsys.readouterr().err.split())
    assert ledger.status("t").reservations == 1
