"""What a stranger's cells hold must not be published by a guess: headers that are records, targets that are values."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gratis import DPLogisticRegression, DPTableClassifier, DPTableRegressor
from gratis.cli.program import run
from gratis.estimators.table_fit import plan_table_fit
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.rows.amounts import numbers
from gratis.rows.columns import Column, Kind
from gratis.rows.encoding import TableSchema
from gratis.rows.tables import open_table, refuse_headless
from gratis.rows.undecided import UndecidedError

RNG = np.random.default_rng(0)
BUDGET = Budget(epsilon=1.0, delta=1e-5)
NUMBER = st.one_of(st.integers(-(10**6), 10**6).map(str), st.floats(-1e6, 1e6).map(lambda x: f"{x:.2f}"))


def task_of(frame: pd.DataFrame, path: Path, **told: Any) -> str:
    frame.to_csv(path, index=False)
    return plan_table_fit(path, "y", BUDGET, missing_target="leave-out", **told).task


@pytest.mark.parametrize("rows", [60, 3000])
@pytest.mark.parametrize("stray", [False, True])
def test_values_of_persons_are_never_classes(rows: int, stray: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    """Fractions, many numbers and about as many words as rows: all of them would stand in the model file."""
    x = rng.normal(size=rows)
    few = rng.choice([0.25, 0.5, 17.08], rows)  # few values, and values all the same
    for values in (
        rng.normal(50, 9, rows).round(2),
        few,
        np.arange(rows) * 7,
        np.array([f"n{i}" for i in range(rows)]),
    ):
        frame = pd.DataFrame({"x": x, "y": values.astype(object)})
        if stray:
            frame.loc[rows - 1, "y"] = "-"
        with pytest.raises(GratisError, match="publishes its classes") as refused:
            task_of(frame, tmp_path / "t.csv", task="classification")
        assert not any(str(value) in str(refused.value) for value in values if len(str(value)) > 3)
        if not stray:
            with pytest.raises(GratisError, match=r"publishes its classes: .*classes=\[…\]"):
                DPTableClassifier(1.0, 1e-5).fit(frame.infer_objects(), "y")
        told = [str(value) for value in sorted(set(map(str, values)))[:2]]
        assert task_of(frame, tmp_path / "t.csv", classes=told) == "classification"


def test_few_whole_numbers_and_words_are_classes(tmp_path: Path, rng: np.random.Generator) -> None:
    x = rng.normal(size=400)
    for values in (np.arange(400) % 32, np.arange(400) % 3 / 1.0, np.array(list("abcd"))[np.arange(400) % 4]):
        assert task_of(pd.DataFrame({"x": x, "y": values}), tmp_path / "t.csv", task="classification")
    # Nobody said which: of whole numbers with few rows each, a number is predicted.
    assert task_of(pd.DataFrame({"x": x[:60], "y": np.arange(60) % 20}), tmp_path / "t.csv") == "regression"
    with pytest.raises(GratisError, match="classes"):
        DPLogisticRegression(1.0, 1e-5).fit(x[:, None], np.arange(400) // 2)
    for rows in (10, 400):  # of persons, their number decides, whatever their rows
        ids = np.minimum(np.arange(rows), 9)
        with pytest.raises(GratisError, match="five records"):
            DPLogisticRegression(1.0, 1e-5).fit(x[:rows, None], np.arange(rows) % 5, groups=ids)


@given(st.lists(NUMBER, min_size=1, max_size=8), st.lists(st.sampled_from(["Rome", "", "x"]), max_size=2))
def test_a_record_is_no_header(record: list[str], words: list[str]) -> None:
    whole = all(cell.isdigit() for cell in record)
    steps = {int(b) - int(a) for a, b in pairwise(record)} if whole else set()
    if len(record) >= 4 and len(steps) == 1:
        return  # 0, 1, 2, 3: they count columns
    with pytest.raises(GratisError, match="no header") as refused:
        refuse_headless(pa.schema([(name, pa.string()) for name in [*record, *words]]))
    assert not any(cell in str(refused.value) for cell in record)


@pytest.mark.parametrize(
    "header", ["age,city,income", ",0,1,2,3,label", "country,2010,2015,2020,2025", "id,1x1,1x2,1x3", "x1,x2,y"]
)
def test_headers_of_names_pass(header: str) -> None:
    refuse_headless(pa.schema([(name, pa.string()) for name in header.split(",")]))


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_file_without_a_header_is_refused_and_not_quoted(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, path = pd.DataFrame([[67, 67.08, 67.08], [39, 71.5, 40.25]]), tmp_path / f"t.{kind}"
    frame.to_csv(path, index=False, header=False) if kind == "csv" else frame.to_excel(path, index=False, header=False)
    for target in ("67.08", "income"):
        assert run(["fit", str(path), "--target", target, "--epsilon", "1", "--delta", "1e-5"]) == 2
        said = capsys.readouterr().err
        assert "no header" in said
        assert "67" not in said


@given(st.integers(-999, 999), st.integers(0, 3))
def test_levels_are_numbers_however_they_are_written(number: int, zeros: int) -> None:
    levels = (str(number), "other")
    cells = [str(number), f"{number}." + "0" * zeros, f"{number}.5", f"x{number}", "007"]
    found = Column(name="a", kind=Kind.CATEGORICAL, levels=levels).positions(pa.array(cells))
    assert found.tolist() == [0, 0, -1, -1, -1]
    assert Column(name="a", kind=Kind.CATEGORICAL, levels=levels).positions(pa.array([float(number)])).tolist() == [0]


@pytest.mark.parametrize("levels", [("0", "1"), ("False", "True"), ("false", "true")])
@pytest.mark.parametrize("cells", [[False, True], ["False", "True"], ["0.0", "1.0"], [0.0, 1.0], ["FALSE", "1"]])
def test_truth_values_are_one_however_they_are_written(levels: tuple[str, ...], cells: list[Any]) -> None:
    assert Column(name="a", kind=Kind.CATEGORICAL, levels=levels).positions(pa.array(cells)).tolist() == [0, 1]


def test_classes_that_no_row_holds_are_refused_and_leaving_all_out_is_not_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": rng.normal(size=100), "y": ["1.0", "0.0"] * 50}).to_csv(path, index=False)
    command = ["fit", str(path), "--target", "y", "--epsilon", "1", "--delta", "1e-5", "--output", str(tmp_path / "o")]
    assert run([*command, "--classes", "yes,no"]) == 2
    said = capsys.readouterr().err
    assert "holds a declared class" in said
    assert "leave-out" not in said
    assert run([*command, "--classes", "0,1", "--no-audit", "--no-report"]) == 0


@given(st.integers(0, 10**9), st.integers(0, 99), st.sampled_from("$€£¥₹"), st.sampled_from(["", "-"]))
def test_amounts_are_read_cell_by_cell(whole: int, cents: int, sign: str, minus: str) -> None:
    value = float(f"{minus}{whole}.{cents:02}")
    cells = [f"{minus}{sign}{whole:,}.{cents:02}", f"{minus}{whole:,}.{cents:02} {sign}", f"{minus}{whole}.{cents:02}%"]
    found = numbers(pa.array([*cells, "-", f"{sign}1.200", "0,125", "n/a", None]))
    assert found[:3].tolist() == [value] * 3
    assert np.isnan(found[3:]).all()


def test_amounts_with_a_decimal_comma(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;1.200,50 €\n2,5;900 €\n3,5;1.200 €\n4,5;12,5 %\n", encoding="utf-8")
    schema = TableSchema.of(table := open_table(path))
    assert schema.matrix(next(iter(table.batches(["a", "b"], 10))))[:, 1].tolist() == [1200.5, 900.0, 1200.0, 12.5]


STRAY = ["-", "n.a.", "unknown"]


def printed(said: str) -> list[str]:
    return shlex.split(next(line for line in said.splitlines() if line.startswith("  gratis ")))[1:]


@pytest.mark.parametrize("told", [[], ["--task", "regression"], ["--model", "linear"]])
@pytest.mark.parametrize("amounts", [False, True])
def test_numbers_with_stray_cells_are_read_by_the_command_that_is_printed(
    told: list[str], amounts: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    """Features and target, all of them by one command; the target's stray cells are rows that contribute nothing."""
    x, z = rng.normal(50, 9, (2, 900)).round(2)
    frame = pd.DataFrame({"x": x, "z": z, "y": (1000 * x).round(0)}).astype(object)
    for name in frame:
        frame[name] = [f"${value:,.2f}" if amounts else str(value) for value in frame[name]]
        frame.loc[rng.choice(900, 90, replace=False), name] = rng.choice(STRAY, 90)
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    command = ["fit", str(path), "--target", "y", "--epsilon", "99", "--delta", "1e-5", "--output", str(tmp_path / "o")]
    assert run([*command, *told]) == 2
    said = capsys.readouterr().err
    assert "--missing-target leave-out" in said
    assert "--numeric x,z,y" in said
    assert not any(cell in said for cell in (*STRAY[1:], *map(str, x[:20])))
    assert run([*printed(said), "--no-audit", "--no-report"]) == 0
    capsys.readouterr()
    model = DPTableRegressor.load(tmp_path / "o" / "model.gratis")
    assert model.schema_.names == ("x", "z")
    assert model.score(pd.DataFrame({"x": x, "z": z}), 1000 * x) > 0.8


def test_a_target_alone_is_read_by_what_is_advised_and_words_are_not_called_numbers(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    x = rng.normal(50, 9, 900).round(2)
    frame = pd.DataFrame({"x": x, "y": [STRAY[0] if i % 9 == 0 else str(value) for i, value in enumerate(x)]})
    with pytest.raises(UndecidedError) as refused:
        DPTableRegressor(1.0, 1e-5).fit(frame, "y")
    assert refused.value.advice == {"numeric": ("y",), "missing_target": "leave-out"}
    assert DPTableRegressor(1.0, 1e-5, **refused.value.advice).plan(frame, "y").task == "regression"
    lenient = TableSchema((Column(name="y", kind=Kind.NUMERIC, lenient=True),))
    assert DPTableRegressor(1.0, 1e-5, schema=lenient, missing_target="leave-out").plan(frame, "y").target.lenient
    words = frame.assign(y=np.where(x > 50, "a", "b"))
    with pytest.raises(GratisError, match="cannot be regressed"):
        DPTableRegressor(1.0, 1e-5).fit(words, "y")


@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d/%m/%y", "%m-%d-%Y %H:%M", "%Y/%m/%d", "%Y-%m-%d %H:%M:%S"])
def test_dates_are_read_and_shown_with_their_format(form: str, tmp_path: Path) -> None:
    days = pd.Timestamp("2013-01-01 07:30") + pd.to_timedelta(np.random.default_rng(0).integers(0, 900, 500), "D")
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": np.arange(500), "when": days.strftime(form), "y": np.arange(500) / 7}).to_csv(path, index=False)
    job = plan_table_fit(path, "y", BUDGET)
    X, _ = job.training.arrays()
    np.testing.assert_array_equal(X[:, 1], (days.normalize() - pd.Timestamp("2000-01-01")).days)
    assert ("when.hour" in job.schema.names) == ("%H" in form)
    shown = next(one for one in job.readings if one.name == "when")
    assert form in shown.read_as or form.startswith("%Y-")
