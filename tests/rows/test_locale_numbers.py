"""Tables as office programs of several countries write them: the same numbers as from the clean file, or a refusal."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gratis import DPTableClassifier, DPTableRegressor
from gratis.cli.program import run
from gratis.estimators import load_model
from gratis.estimators.table_fit import plan_table_fit
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.rows.amounts import numbers, unreadable, written
from gratis.rows.cluster_client import connected
from gratis.rows.encoding import EncodedRows, TableSchema
from gratis.rows.frames import FrameTable
from gratis.rows.streaming import FileRows
from gratis.rows.tables import open_table
from gratis.rows.undecided import UndecidedError

BUDGET = Budget(epsilon=100.0, delta=1e-5)  # so that noise decides nothing here
N = 800


def clean() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 900, N), "D")
    frame = pd.DataFrame({
        "area": rng.normal(1500, 400, N).round(2), "debt": rng.normal(0, 9000, N).round(2),
        "share": rng.uniform(0, 90, N).round(1), "rooms": rng.integers(1, 9, N), "sold": days,
    })  # fmt: skip
    return frame.assign(price=(30 * frame["area"] + frame["debt"] + 500 * frame["rooms"]).round(2))


def grouped(value: float, places: int, thousands: str, decimal: str) -> str:
    return f"{value:,.{places}f}".translate({ord(","): thousands, ord("."): decimal})


def bracketed(text: str) -> str:
    return f"({text[1:]})" if text.startswith("-") else text


# A country: separator, encoding, a date, and how an area, a debt, a share and a price are written.
Form = Callable[[float], str]
Country = tuple[str, str, str, Form, Form, Form, Form]
COUNTRIES: dict[str, Country] = {
    "german": (
        ";", "cp1252", "%d.%m.%Y", lambda v: grouped(v, 2, ".", ","), lambda v: grouped(v, 2, ".", ","),
        lambda v: grouped(v, 1, ".", ",") + " %", lambda v: grouped(v, 2, ".", ",") + " €",
    ),
    "swiss": (
        ";", "utf-8-sig", "%d.%m.%Y", lambda v: grouped(v, 2, "'", "."), lambda v: grouped(v, 2, "’", "."),
        lambda v: f"{v:.1f}%", lambda v: "CHF " + grouped(v, 2, "'", "."),
    ),
    "french": (
        ";", "utf-8-sig", "%d/%m/%Y", lambda v: grouped(v, 2, "\u202f", ","), lambda v: grouped(v, 2, "\u00a0", ","),
        lambda v: grouped(v, 1, " ", ",") + "\u00a0%", lambda v: grouped(v, 2, " ", ",") + "\u00a0€",
    ),
    "british": (
        ",", "utf-8", "%d/%m/%Y", lambda v: f"{v:,.2f}", lambda v: f"{v:,.2f}", lambda v: f"{v:.1f}%",
        lambda v: ("-£" if v < 0 else "£") + f"{abs(v):,.2f}",
    ),
    "american": (
        ",", "utf-8", "%m/%d/%Y", lambda v: f"{v:,.2f}", lambda v: bracketed(f"{v:,.2f}"), lambda v: f"{v:.1f}%",
        lambda v: "$" + f"{v:,.2f}",
    ),
    "accountant": (
        "\t", "utf-8", "%d.%m.%Y", lambda v: "EUR " + grouped(v, 2, ".", ","),
        lambda v: bracketed(grouped(v, 2, ".", ",")), lambda v: grouped(v, 1, ".", ","),
        lambda v: grouped(abs(v), 2, ".", ",") + ("-" if v < 0 else ""),
    ),
}  # fmt: skip


def written_by(country: Country, path: Path, frame: pd.DataFrame | None = None) -> Path:
    separator, encoding, date, area, debt, share, price = country
    frame = clean() if frame is None else frame
    texts = frame.assign(sold=frame["sold"].dt.strftime(date))
    for name, form in (("area", area), ("debt", debt), ("share", share), ("price", price)):
        texts[name] = frame[name].map(form)
    texts.to_csv(path, sep=separator, encoding=encoding, index=False)
    return path


def fitted(path: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the first command, or by the one that it prints; with a ledger, of which a refusal takes nothing."""
    ledger = Ledger.create(output.parent / "l", {"d": BUDGET})
    command = ["fit", str(path), "--target", "price", "--epsilon", "100", "--delta", "1e-5", "--model", "linear"]
    command += ["--no-audit", "--no-report", "--output", str(output), "--ledger", str(ledger.path), "--budget", "d"]
    code = run(command)
    said = capsys.readouterr().err
    if code == 2:
        status = ledger.status("d")
        assert status.remaining_mu == status.total_mu
        printed = re.search(r"^  (gratis fit .*)$", said, re.MULTILINE)
        assert printed, said
        code = run(shlex.split(printed[1])[1:])
        said = capsys.readouterr().err
    assert code == 0, said


@pytest.mark.parametrize("country", COUNTRIES)
def test_a_table_of_every_country_is_fitted_by_the_first_or_the_printed_second_command(
    country: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same numbers as from the clean file to the last bit, so that R² is that of the clean file."""
    frame = clean()
    path = written_by(COUNTRIES[country], tmp_path / "t.csv")
    fitted(path, tmp_path / "out", capsys)
    model = DPTableRegressor.load(tmp_path / "out" / "model.gratis")
    assert model.schema_.names == ("area", "debt", "share", "rooms", "sold.days", "sold.month", "sold.weekday")
    frame.to_parquet(tmp_path / "clean.parquet")
    told = {} if country != "german" else {"encoding": "windows-1252"}
    dirty = plan_table_fit(path, "price", BUDGET, **told)
    dates = {"columns": {"sold": {"kind": "date", "parts": ["days", "month", "weekday"]}}}
    right = plan_table_fit(tmp_path / "clean.parquet", "price", BUDGET, schema=TableSchema.from_json(dates))
    for one, other in zip(dirty.training.arrays(), right.training.arrays(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.score(frame.astype({"sold": str}), frame["price"].to_numpy()) > 0.8
    # What is read is shown before anything is spent.
    words = {one.name: one.read_as for one in dirty.readings}
    assert ("comma" in words["area"]) == (country in ("german", "french", "accountant"))
    assert words["price"].startswith("the target: number")


@pytest.mark.parametrize("country", ["german", "american"])
def test_new_files_are_read_as_the_model_file_says(country: str, tmp_path: Path, capsys: Any) -> None:
    """A new file whose few cells could be either (1.234) is read as the training file was."""
    encoding, decimal = ("utf-8", ",") if country == "german" else ("utf-8", None)
    parts = COUNTRIES[country]
    fitted(written_by((parts[0], encoding, *parts[2:]), tmp_path / "t.csv"), tmp_path / "out", capsys)
    saved = load_model(tmp_path / "out" / "model.gratis")
    columns = saved.context["table"]["schema"]["columns"]  # type: ignore[index, call-overload]
    assert columns["area"].get("decimal") == decimal
    assert saved.context["table"]["target"].get("decimal") == decimal  # type: ignore[index, call-overload]
    cells = {"german": ("1.234", "-5.678", "7"), "american": ("1,234", "(5,678)", "7")}[country]
    pd.DataFrame({"area": [cells[0]], "debt": [cells[1]], "share": [cells[2]], "rooms": [3], "sold": ["2014-01-02"]}
    ).to_csv(tmp_path / "new.csv", index=False, sep=";")  # fmt: skip
    plain = pd.DataFrame({"area": [1234.0], "debt": [-5678.0], "share": [7.0], "rooms": [3], "sold": ["2014-01-02"]})
    model = DPTableRegressor.load(tmp_path / "out" / "model.gratis")
    assert model.predict(tmp_path / "new.csv").tolist() == model.predict(plain).tolist()
    assert run(["predict", str(tmp_path / "out" / "model.gratis"), str(tmp_path / "new.csv")]) == 0
    assert float(capsys.readouterr().out.splitlines()[1]) == model.predict(plain)[0]


def test_one_reading_in_memory_in_a_stream_and_on_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    path = written_by((";", "utf-8", *COUNTRIES["german"][2:]), tmp_path / "t.csv")
    job = plan_table_fit(path, "price", BUDGET, model="linear")
    X, y = job.training.arrays()
    parts = [block.arrays() for block in job.training.blocks(300)]
    np.testing.assert_array_equal(np.vstack([part[0] for part in parts]), X)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), y)
    options = {"noise_seed": 1, "insecure_reproducible": True}
    told = {"model": "linear", "options": options}
    held = plan_table_fit(path, "price", BUDGET, **told).run().estimator
    streamed = plan_table_fit(path, "price", BUDGET, memory_bytes=1.0, **told).run().estimator
    np.testing.assert_array_equal(held.coef_, streamed.coef_)
    with connected("threads:2") as client:
        there = plan_table_fit(path, "price", BUDGET, **told).run(cluster=client).estimator
    np.testing.assert_array_equal(held.coef_, there.coef_)


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "arrow", "xlsx", "pandas"])
def test_texts_of_other_formats_are_read_alike(ending: str, tmp_path: Path) -> None:
    frame = clean()[["area", "price"]]
    texts = frame.map(lambda value: grouped(value, 2, ".", ",") + " €")
    source: Any = tmp_path / f"t.{ending}"
    if ending == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in texts.to_dict("records")))
    elif ending == "parquet":
        texts.to_parquet(source, index=False)
    elif ending == "arrow":
        texts.to_feather(source)
    elif ending == "xlsx":
        texts.to_excel(source, index=False)
    else:
        job = DPTableRegressor(8.0, 1e-5).plan(texts, "price")
    if ending != "pandas":
        job = plan_table_fit(source, "price", BUDGET)
    assert job.task == "regression"
    X, y = job.training.arrays()
    np.testing.assert_array_equal(X[:, 0], frame["area"])
    np.testing.assert_array_equal(y, frame["price"])


@given(
    st.decimals(-(10**9), 10**9, places=2), st.sampled_from([",", ".", "'", "’", " ", "\u00a0", "\u202f"]),
    st.sampled_from([".", ","]), st.sampled_from(["", "€", "$", "CHF", "EUR", "%"]), st.sampled_from("(-<"),
    st.booleans(),
)  # fmt: skip
def test_every_writing_is_the_number(
    value: Any, thousands: str, decimal: str, unit: str, minus: str, before: bool
) -> None:
    if thousands == decimal:
        return
    text = grouped(abs(float(value)), 2, thousands, decimal)
    text = f"{unit} {text}" if before and unit not in ("", "%") else f"{text} {unit}".strip()
    if value < 0:
        text = {"(": f"({text})", "-": f"-{text}", "<": f"{text}-"}[minus]
    assert numbers(pa.array([text]), decimal).tolist() == [float(value)]
    assert not unreadable(pa.array([text]), decimal)
    look = written({"a": pa.array([text])})
    assert ("a" in look.commas) == (decimal == ",")  # two digits behind it leave no doubt


@pytest.mark.parametrize(
    "text", ["--5", "(-5)", "$5€", "5.5.5", "1.23.456", "12 34", "5 %%", "()", "€", "1,2,3", "5 EURO", "1 2345"]
)
def test_what_is_no_number_is_none(text: str) -> None:
    assert np.isnan(numbers(pa.array([text]), ".")).all()
    assert np.isnan(numbers(pa.array([text]), ",")).all()
    assert unreadable(pa.array([text]))


def test_what_could_be_either_stays_as_it_was_with_a_hint_and_an_option(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cells = [f"{a}.{b:03}" for a, b in zip(rng.integers(1, 999, 300), rng.integers(0, 999, 300), strict=True)]
    path = tmp_path / "t.csv"
    pd.DataFrame({"a": cells, "y": cells}).to_csv(path, index=False, sep=";")
    job = plan_table_fit(path, "y", BUDGET)
    warned = {one.name: one.warning or "" for one in job.readings}
    assert all("--decimal ," in warned[name] for name in ("a", "y"))
    np.testing.assert_array_equal(job.training.arrays()[0][:, 0], [float(cell) for cell in cells])
    for sign in (".", ","):
        forced = plan_table_fit(path, "y", BUDGET, decimal=sign)
        expected = [float(cell if sign == "." else cell.replace(".", "")) for cell in cells]
        np.testing.assert_array_equal(forced.training.arrays()[1], expected)
        assert not any(one.warning for one in forced.readings)
    declared = TableSchema.from_json({"columns": {"a": {"kind": "numeric", "decimal": ","}}})
    X, y = plan_table_fit(path, "y", BUDGET, schema=declared).training.arrays()
    np.testing.assert_array_equal(X[:, 0], [float(cell.replace(".", "")) for cell in cells])
    np.testing.assert_array_equal(y, [float(cell) for cell in cells])
    # Another column that leaves no doubt says which it is.
    pd.DataFrame({"a": cells, "b": ["1,5"] * 300, "y": cells}).to_csv(path, index=False, sep=";")
    job = plan_table_fit(path, "y", BUDGET)
    np.testing.assert_array_equal(job.training.arrays()[1], [float(cell.replace(".", "")) for cell in cells])


@pytest.mark.parametrize("told", [[], ["--model", "linear"]])
def test_a_target_of_numbers_in_text_is_never_taken_for_classes(
    told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """15 values, of which one in ten is unknown: it was a classification with 15 classes, and spent the budget."""
    rng = np.random.default_rng(0)
    salary = rng.integers(30, 45, N) * 1000.0
    frame = pd.DataFrame({"x": salary + rng.normal(0, 500, N), "y": [grouped(v, 2, ".", ",") for v in salary]})
    frame.loc[::10, "y"] = "k. A."
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--epsilon", "8", "--delta", "1e-5", *told]
    command += ["--no-audit", "--no-report", "--output", str(tmp_path / "out")]
    assert run(command) == 2
    said = capsys.readouterr().err
    assert "--numeric y" in said
    printed = re.search(r"^  (gratis fit .*)$", said, re.MULTILINE)
    assert printed
    assert run(shlex.split(printed[1])[1:]) == 0
    model = DPTableRegressor.load(tmp_path / "out" / "model.gratis")
    assert model._context["table"]["target"] == {
        "name": "y", "kind": "numeric", "unreadable": "missing", "decimal": ","
    }  # fmt: skip
    job = plan_table_fit(tmp_path / "t.csv", "y", BUDGET, numeric=["y"], missing_target="leave-out")
    np.testing.assert_array_equal(job.training.arrays()[1], np.where(frame["y"] == "k. A.", np.nan, salary))


def test_texts_of_digits_are_not_taken_for_classes_unless_that_is_said() -> None:
    rng = np.random.default_rng(0)
    frame = pa.table({"x": rng.normal(size=200), "y": rng.choice(["0", "1"], 200)})
    with pytest.raises(UndecidedError, match="--task classification") as refused:
        plan_table_fit(FrameTable(frame), "y", BUDGET)
    assert refused.value.advice["numeric"] == ("y",)
    assert DPTableClassifier(1.0, 1e-5).plan(frame, "y").task == "classification"


def test_that_no_cell_is_a_number_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": np.arange(100.0), "y": np.arange(100) / 7})
    frame.to_csv(path, index=False)
    with pytest.raises(GratisError, match=r"no cell of 'a'.* can be read as a number.*--ignore a"):
        plan_table_fit(path, "y", BUDGET, numeric=["a"])
    with pytest.raises(GratisError, match="no cell of 'a'"):
        plan_table_fit(path, "a", BUDGET, numeric=["a"])
    late = pd.DataFrame({"a": np.arange(100.0), "y": [None] * 99 + ["-"]})
    late.to_csv(path, index=False)
    with pytest.raises(GratisError, match="no cell of 'y'"):
        plan_table_fit(path, "y", BUDGET, numeric=["y"])


def test_streams_of_numbers_have_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;y\n1,5;2\n2,25;3\n7;4\n")
    rows = FileRows(open_table(path), target="y", n_rows=3)
    assert np.vstack([X for X, _ in rows.batches()])[:, 0].tolist() == [1.5, 2.25, 7.0]
    path.write_text("a;y\n1,5;2\n2,25;3\n1.234;4\n")
    table = open_table(path)
    schema = TableSchema.of(table, target="y")
    assert schema.columns[0].decimal == ","
    target = plan_table_fit(path, "y", BUDGET, any_delta=True).target
    assert EncodedRows(table, schema, target, 3).arrays()[0][:, 0].tolist() == [1.5, 2.25, 1234.0]


def test_hashing_and_schemas_leave_amounts_and_dates_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written_by((";", "utf-8", *COUNTRIES["french"][2:]), tmp_path / "t.csv")
    job = plan_table_fit(path, "price", BUDGET, hash_buckets=4)
    assert job.schema.names == ("area", "debt", "share", "rooms", "sold.days", "sold.month", "sold.weekday")
    assert run(["schema", str(path)]) == 0
    columns = json.loads(capsys.readouterr().out)["columns"]
    assert columns["area"] == columns["price"] == {"kind": "numeric", "decimal": ","}
    assert columns["sold"]["format"] == "%d/%m/%Y"
    (tmp_path / "s.json").write_text(json.dumps({"columns": columns}))
    again = plan_table_fit(path, "price", BUDGET, schema=tmp_path / "s.json")
    np.testing.assert_array_equal(again.training.arrays()[0], job.training.arrays()[0])


def test_a_new_file_without_numbers_is_predicted_with_what_is_missing(tmp_path: Path) -> None:
    """`--numeric` refuses a table whose cells are none before a fit, and never one that is asked about."""
    frame = clean()[["area", "price"]]
    texts = frame.assign(area=[f"{v:.2f}" if i % 9 else "-" for i, v in enumerate(frame["area"])])
    model = DPTableRegressor(8.0, 1e-5, numeric=["area"], model="linear").fit(texts, "price")
    assert np.isfinite(model.predict(pd.DataFrame({"area": ["-"]}))).all()
