"""`gratis fit --unit`."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gratis.accounting import PERSON_UNIT, verify_certificate
from gratis.cli.program import app
from gratis.cli.program import run as program
from gratis.estimators import load_model
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError

runner = CliRunner()


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(np.arange(200), rng.integers(1, 7, 200)))
    frame = pd.DataFrame(
        {"person": [f"p{i}" for i in ids], "a": rng.normal(size=len(ids)), "b": rng.normal(size=len(ids))}
    )
    frame["y"] = frame["a"] + 0.3 * rng.normal(size=len(ids))
    frame.to_csv(tmp_path / "panel.csv", index=False)
    return tmp_path / "panel.csv"


def run(table, *more):
    words = [
        "fit",
        str(table),
        "--target",
        "y",
        "--epsilon",
        "2",
        "--delta",
        "1e-5",
        "--output",
        str(table.parent / "out"),
    ]
    return runner.invoke(app, [*words, *more])


def test_persons_are_counted_held_out_scored_and_certified(table):
    done = run(
        table, "--unit", "person", "--model", "linear", "--hold-out", "0.25", "--no-report", "--no-audit", "--json",
        "--yes",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["plan"]["unit"] == "persons"
    trained, scored = found["plan"]["rows"], found["held_out_score"]["samples"]
    assert trained + scored == 200
    assert 30 < scored < 70
    certificate = Certificate.read(table.parent / "out" / "certificate.json")
    assert certificate.unit == PERSON_UNIT
    assert verify_certificate(certificate) == []
    # How many rows the persons have is not told.
    assert str(len(pd.read_csv(table))) not in " ".join(found["plan"]["words"])
    again = runner.invoke(
        app, ["audit", "replay", str(table.parent / "out" / "model.gratis"), "--pairs", "2", "--json"]
    )
    assert again.exit_code == 0, again.output
    assert "rows" in json.loads(again.stdout)["worst_pair"].split("→")[1]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--unit", "nobody"], "no column 'nobody' of ids"),
        (["--unit", "y"], "no column 'y' of ids"),
        (["--unit", "person", "--model", "random-features"], "random-features takes rows"),
        (["--unit", "person", "--private-levels", "a"], "levels are searched row by row"),
        (
            ["--unit", "person", "--model", "linear", "--algorithm", "one-pass"],
            "one-pass takes rows one by one",
        ),
        (["--unit", "person", "--delta", "0.005"], "number of persons, 200"),
    ],
)
def test_refused_with_one_sentence(table, more, words):
    done = run(table, *more)
    assert isinstance(done.exception, GratisError)
    assert words in str(done.exception)
    assert not (table.parent / "out" / "model.gratis").exists()


def test_rows_without_an_id_are_refused_or_left_out(table):
    frame = pd.read_csv(table)
    frame.loc[:20, "person"] = None
    frame.to_csv(table, index=False)
    refused = run(table, "--unit", "person", "--model", "linear")
    assert isinstance(refused.exception, GratisError)
    assert "no id" in str(refused.exception)
    left = run(
        table, "--unit", "person", "--model", "linear", "--missing-target", "leave-out", "--no-audit", "--no-report"
    )
    assert left.exit_code == 0, left.output


def test_nothing_that_is_stored_depends_on_how_many_rows_a_person_has(table):
    """At delta = 1e-3 a thousand rows would decide whether the report shows a program."""
    stored = []
    for more in (0, 1500):
        frame = pd.read_csv(table)
        one = frame[frame["person"] == frame["person"][0]]
        pd.concat([frame, *[one.head(1)] * more]).to_csv(table.parent / "other.csv", index=False)
        words = ["--target", "y", "--epsilon", "2", "--delta", "1e-3", "--unit", "person", "--model", "linear"]
        output = ["--output", str(table.parent / f"out{more}"), "--no-report", "--no-audit"]
        done = runner.invoke(app, ["fit", str(table.parent / "other.csv"), *words, *output])
        assert done.exit_code == 0, done.output
        context = load_model(table.parent / f"out{more}" / "model.gratis").context
        stored.append(
            re.sub(
                rf"out{more}|-?\d+\.\d+|[0-9a-f]{{64}}",
                "",
                json.dumps({**context, "date": ""}, sort_keys=True, default=str),
            )
        )
    assert stored[0] == stored[1]


def test_how_many_rows_a_person_has_refuses_nothing(table):
    """Where two thousand more rows of one person would not fit into --memory."""
    said = []
    for more in (0, 2000):
        frame = pd.read_csv(table)
        pd.concat([frame, *[frame.head(1)] * more]).to_csv(table.parent / "other.csv", index=False)
        words = ["--target", "y", "--epsilon", "2", "--delta", "1e-3", "--unit", "person", "--memory", "1e-4"]
        done = runner.invoke(app, ["fit", str(table.parent / "other.csv"), *words, "--model", "linear", "--dry-run"])
        said.append((done.exit_code, done.output, str(done.exception)))
    assert said[0] == said[1]
    assert said[0][0] == 0


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_how_many_rows_there_are_does_not_decide_what_passes_for_classes(tmp_path, task):
    """A class for five persons: with rows counted, one person's rows would turn a number into classes."""
    said = []
    for more in (0, 500):
        person = np.r_[np.arange(40), np.zeros(more, dtype=int)]
        frame = pd.DataFrame({"person": person, "x": np.arange(len(person)) / 7, "y": np.arange(len(person)) % 20})
        frame.to_csv(tmp_path / "t.csv", index=False)
        words = ["--target", "y", "--epsilon", "2", "--delta", "1e-3", "--unit", "person", "--task", task, "--dry-run"]
        done = runner.invoke(app, ["fit", str(tmp_path / "t.csv"), *words])
        said.append((done.exit_code, done.output, str(done.exception)))
    assert said[0] == said[1]


def test_text_is_hashed_by_the_command_that_a_refusal_prints(table, capsys):
    """A search for levels takes rows one by one: it is not advised where persons are the unit."""
    frame = pd.read_csv(table).assign(town=lambda f: np.where(f["y"] > 0, "Oslo", "Rome"))
    frame.to_csv(table, index=False)
    words = ["fit", str(table), "--target", "y", "--epsilon", "2", "--delta", "1e-3", "--unit", "person", "--dry-run"]
    assert program(words) == 2
    printed = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("  gratis fit "))
    assert "--private-levels" not in printed
    assert program(shlex.split(printed)[1:]) == 0
