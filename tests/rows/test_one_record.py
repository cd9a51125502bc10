"""One record decides nothing that is published or refused, in any format: or the certificate names the assumption."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from gratis import DPTableClassifier, DPTableRegressor
from gratis.cli.program import run
from gratis.estimators.table_fit import plan_table_fit
from gratis.ledger import Ledger
from gratis.records.assumptions import ASSUMPTIONS, assumption_id
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError
from gratis.rows import frames, tables
from gratis.rows.frames import FrameTable, by_first_cells
from gratis.rows.tables import open_table

BUDGET = Budget(epsilon=1.0, delta=1e-5)
N, FIRST = 300, 100  # rows, and those of them from which a rule may look
LONG = "x" * 100_000
BYTES = object()  # stands for a text that is no UTF-8
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def few_first_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the last record lies beyond them."""
    monkeypatch.setattr(tables, "FIRST_BYTES", 4000)
    monkeypatch.setattr(frames, "FIRST_BYTES", 4000)
    monkeypatch.setattr(frames, "_FIRST_ROWS", FIRST)
    monkeypatch.setattr(tables, "_FIRST", FIRST)


def records() -> list[Row]:
    return [
        {"x": i % 7 + 0.5, "k": i % 5, "t": "ab"[i % 2], "eu": f"{i % 9},5", "y": (i * 37 % 100) / 4, "z": i % 2}
        for i in range(N)
    ]


def as_bytes(value: Any) -> Any:
    return b"\xff\xfe" if value is BYTES else value


def csv(rows: list[Row], path: Path) -> Path:
    lines = [";".join(rows[0])]
    for row in rows:
        cells = ["" if row[n] is None else "\udcff" if row[n] is BYTES else str(row[n]) for n in rows[0]]
        lines.append(";".join(cells + [str(v) for n, v in row.items() if n not in rows[0]]))
    path = path.with_suffix(".csv")
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return path


def json_lines(rows: list[Row], path: Path) -> Path:
    path = path.with_suffix(".jsonl")
    lines = [json.dumps({n: "\udcff" if v is BYTES else v for n, v in row.items()}) for row in rows]
    path.write_bytes("\n".join(lines).replace('"\\udcff"', '"\udcff"').encode("utf-8", "surrogateescape"))
    return path


def arrow(rows: list[Row]) -> Any:
    """Types as they are declared; a value that one cannot hold is missing."""
    kinds = {
        "x": pa.float64(),
        "k": pa.int64(),
        "t": pa.string(),
        "eu": pa.string(),
        "y": pa.float64(),
        "z": pa.int64(),
    }
    columns = {}
    for name, kind in kinds.items():
        cells = [as_bytes(row[name]) for row in rows]
        if kind == pa.string():
            raw = pa.array([c.encode() if isinstance(c, str) else c for c in cells], pa.binary())
            columns[name] = pa.Array.from_buffers(kind, len(raw), raw.buffers())
        else:
            whole = pa.types.is_integer(kind)
            fits = (int,) if whole else (int, float)
            columns[name] = pa.array([c if type(c) in fits else None for c in cells], kind)
    return pa.table(columns)


def arrow_file(rows: list[Row], path: Path) -> Path:
    table, path = arrow(rows), path.with_suffix(".arrow")
    with pa.ipc.new_file(str(path), table.schema) as sink:
        sink.write_table(table)
    return path


def parquet(rows: list[Row], path: Path) -> Path:
    pa.parquet.write_table(arrow(rows), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def folder(rows: list[Row], path: Path) -> Path:
    """As pandas writes parts: a whole column with one value missing becomes one of fractions."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for part, some in enumerate((rows[:200], rows[200:])):
        table = arrow(some)
        if table.column("k").null_count:
            table = table.set_column(1, "k", table.column("k").cast(pa.float64()))
        pa.parquet.write_table(table, path / f"{part}.parquet")
    return path


def excel(rows: list[Row], path: Path) -> Path:
    book = openpyxl.Workbook()
    names = list(rows[0])
    book.active.append(names)
    for row in rows:
        more = [v for n, v in row.items() if n not in rows[0]]
        book.active.append([None if v is BYTES else v for v in (*(row[n] for n in names), *more)])
    book.save(path.with_suffix(".xlsx"))
    return path.with_suffix(".xlsx")


def pandas_objects(rows: list[Row], _: Path) -> Any:
    return pd.DataFrame({name: pd.Series([as_bytes(row[name]) for row in rows], dtype=object) for name in rows[0]})


def pandas_typed(rows: list[Row], _: Path) -> Any:
    return arrow([{n: None if v is BYTES else v for n, v in row.items()} for row in rows]).to_pandas()


def polars(rows: list[Row], _: Path) -> Any:
    return pl.from_arrow(arrow([{n: None if v is BYTES else v for n, v in row.items()} for row in rows]))


FORMATS: dict[str, Callable[[list[Row], Path], Any]] = {
    "csv": csv, "json lines": json_lines, "arrow": arrow_file, "parquet": parquet, "folder": folder, "excel": excel,
    "pandas objects": pandas_objects, "pandas": pandas_typed, "polars": polars,
}  # fmt: skip
# What may be done to the last record.
CHANGES: dict[str, Row] = {
    "a fraction": {"k": 3.5},
    "a text among numbers": {"x": "SECRET"},
    "a long text among numbers": {"x": LONG},
    "a long level": {"t": LONG},
    "a level of its own": {"t": "SECRET"},
    "no UTF-8": {"t": BYTES},
    "no UTF-8 among numbers": {"x": BYTES},
    "another decimal sign": {"eu": "1,234.5"},
    "no number at all": {"eu": "SECRET"},
    "nothing": {"x": None, "t": None, "k": None, "eu": None},
    "a truth value": {"k": True},
    "no target": {"y": None},
    "a text for a target": {"y": "SECRET"},
    "a key of its own": {"hiv_positive": 1},
}
MODES: dict[str, Row] = {"leave-out": {"missing_target": "leave-out"}, "refuse": {}}


def outcome(source: Any, target: str, **told: Any) -> tuple[str, Any, tuple[str, ...]]:
    """Everything that is said, shown or stored before a training, or the refusal; and the assumptions by id."""
    try:
        path = FrameTable(source) if not isinstance(source, Path) else source
        job = plan_table_fit(path, target, BUDGET, private_levels=["t"], **told)
        job.check()
    except GratisError as error:
        return "refused", str(error), ()
    shown = [one.to_json() for one in job.readings]
    types = {name: str(kind) for name, kind in job.table.types.items()}
    said = (job.schema.names, types, job.task, job.target.to_json(), shown, job.words(), job.plan.event)
    return "planned", said, tuple(map(assumption_id, job.assumptions))


def published(found: tuple[str, Any, tuple[str, ...]], form: str) -> Any:
    """What an outcome publishes; a pandas frame's types are its own statement, an assumption that certificates name.

    Whole numbers with one missing are fractions to pandas.
    """
    if form != "pandas" or found[0] == "refused":
        return found
    names, _, task, target, shown, words, event = found[1]
    assert "public-types" in found[2]
    return names, task, target, [one | {"holds": ""} for one in shown], words, event


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMATS)
def test_the_last_record_decides_nothing(form: str, mode: str, tmp_path: Path) -> None:
    before = outcome(FORMATS[form](records(), tmp_path / "d"), "y", **MODES[mode])
    assert before[0] == "planned", before
    assert {"public-types", "readable-file" if mode == "leave-out" else "readable-cells"} <= {*before[2]}
    assert {*before[2]} <= {*ASSUMPTIONS}
    refused = set()
    for what, change in CHANGES.items():
        rows = records()
        rows[-1] = rows[-1] | change
        found = outcome(FORMATS[form](rows, tmp_path / "d"), "y", **MODES[mode])
        if found[0] == "refused":
            refused.add(what)  # which the assumption above is about
            assert "SECRET" not in found[1]
        else:
            assert found[2] == before[2]
            assert published(found, form) == published(before, form), what
    # Only text files refuse cells (of others what does not fit is missing); missing targets are refused unless told.
    texts = {"a text among numbers", "a long text among numbers", "no number at all"}
    allowed = {
        "csv": texts | {"no UTF-8", "no UTF-8 among numbers", "a key of its own", "a long level", "a truth value"},
        "json lines": texts | {"a truth value"},
    }.get(form, {"no number at all"})
    assert refused <= allowed | ({"no target", "a text for a target"} if mode == "refuse" else set())


@pytest.mark.parametrize("form", FORMATS)
def test_one_target_does_not_change_the_task(form: str, tmp_path: Path) -> None:
    """0 → 0.5 in one record: that classes which occur are public is stated, and a fraction among them is refused."""
    told = {"classes": ["0", "1"], "missing_target": "leave-out"}
    before = outcome(FORMATS[form](records(), tmp_path / "d"), "z", **told)
    for value in (0.5, "SECRET", None, BYTES, True):
        rows = records()
        rows[-1]["z"] = value
        found = outcome(FORMATS[form](rows, tmp_path / "d"), "z", **told)
        if form == "csv" and value is BYTES:
            assert found[0] == "refused"
            assert "readable-file" in before[2]
        else:
            assert published(found, form) == published(before, form)
    open_classes = outcome(FORMATS[form](records(), tmp_path / "d"), "z", task="classification")
    assert "public-classes" in open_classes[2]


def test_columns_and_types_of_json_lines_are_those_of_the_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = records()
    rows[0]["early"] = None
    rows[-1] |= {"hiv_positive": 1, "k": 3.5, "x": [1], "t": {"a": 1}}
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n[1, 2]\nnot json\n" + "[" * 100_000 + "\n")
    table = open_table(path)
    assert list(table.types) == ["x", "k", "t", "eu", "y", "z", "early"]
    assert table.types["k"] == pa.int64()
    assert table.types["early"] == pa.null()
    assert table.n_rows == N + 3  # a line that is no object is a record without cells
    *_, last = table.batches(["x", "k", "t"], N - 1)
    assert last.to_pylist() == [{"x": None, "k": "3.5", "t": None}, *[{"x": None, "k": None, "t": None}] * 3]
    told = open_table(path, columns=["k", "hiv_positive"])
    assert list(told.types) == ["k", "hiv_positive"]
    assert next(iter(told.batches(["hiv_positive"], N))).column(0)[-1].as_py() == "1"
    for wrong in ("[1]\n", "", "{'a': 1}\n", '{"\\ud800": 1}\n', "\n\n"):
        path.write_text(wrong)
        with pytest.raises(GratisError, match="every line must be a JSON object"):
            open_table(path)


def test_a_schema_says_which_keys_of_json_lines_are_read(tmp_path: Path) -> None:
    rows = records()
    rows[0]["secret"] = 1  # among the first lines
    path = json_lines(rows, tmp_path / "t")
    (tmp_path / "s.json").write_text(json.dumps({"columns": {"x": "numeric", "later": "numeric"}}))
    job = plan_table_fit(path, "y", BUDGET, schema=tmp_path / "s.json", missing_target="leave-out")
    assert job.schema.names == ("x", "later")
    model = DPTableRegressor(1.0, 1e-5, schema=str(tmp_path / "s.json")).plan(path, "y")
    assert model.schema.names == ("x", "later")


@pytest.mark.parametrize("form", ["csv", "json lines", "parquet"])
def test_a_model_file_is_the_same_but_for_noise(form: str, tmp_path: Path) -> None:
    """The attack: a further key, a fraction, a level of one's own, written to the file that is fitted."""
    stored = []
    for place in range(2):
        rows = records()
        rows[-1] |= {"k": 3.5, "t": "SECRET", **({"hiv_positive": 1} if form == "json lines" else {})} if place else {}
        path = FORMATS[form](rows, tmp_path / f"d{place}")
        out = tmp_path / f"out{place}"
        words = ["--target", "y", "--epsilon", "1", "--delta", "1e-5", "--levels", "t=a,b", "--model", "linear"]
        done = ["--missing-target", "leave-out", "--no-audit", "--no-report", "--output", str(out)]
        assert run(["fit", str(path), *words, *done, "--yes"]) == 0
        certificate = Certificate.read(out / "certificate.json")
        model = DPTableRegressor.load(out / "model.gratis")
        stored.append((model.schema_, model.readings_, certificate.assumptions, certificate.event))
    assert stored[0] == stored[1]
    assert "public-types" in stored[0][2]


def test_no_utf8_in_a_searched_column_is_paid_for_once_and_fitted(tmp_path: Path) -> None:
    """It failed after the search for levels had been reserved."""
    rows = records()
    rows[-1]["t"] = BYTES
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=8.0, delta=1e-5)})
    words = ["fit", str(parquet(rows, tmp_path / "d")), "--target", "y", "--epsilon", "8", "--delta", "1e-5"]
    words += [
        "--private-levels",
        "t",
        "--missing-target",
        "leave-out",
        "--no-audit",
        "--no-report",
        "--model",
        "linear",
    ]
    words += ["--ledger", str(tmp_path / "l"), "--budget", "d", "--output", str(tmp_path / "out")]
    assert run(words) == 0
    assert not ledger.status("d").never_committed


def test_a_cell_far_from_a_sheet_adds_no_column(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["a", "y"])
    for i in range(20):
        book.active.append([i, i / 7])
    book.active["Z20"] = "SECRET"
    book.save(tmp_path / "t.xlsx")
    assert list(open_table(tmp_path / "t.xlsx").types) == ["a", "y"]


def test_targets_of_objects_have_the_type_of_the_first(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [row["x"] for row in records()]})
    for entry in ("SECRET", None, [1], 3 + 4j):
        y = pd.Series([*(row["y"] for row in records()[1:]), entry], dtype=object, name="y")
        job = DPTableRegressor(1.0, 1e-5, missing_target="leave-out").plan(frame, y)
        assert job.task == "regression"
    labels = pd.Series([*("ab"[i % 2] for i in range(N - 1)), 7], dtype=object)
    assert (
        DPTableClassifier(1.0, 1e-5, classes=["a", "b"], missing_target="leave-out").plan(frame, labels).n_classes == 2
    )


def test_a_folder_whose_parts_have_other_columns_is_refused(tmp_path: Path) -> None:
    for place, table in enumerate((pa.table({"a": [1], "b": ["x"]}), pa.table({"a": [1.5], "b": [None]}))):
        pa.parquet.write_table(table, tmp_path / f"{place}.parquet")
    assert open_table(tmp_path).types == {"a": pa.int64(), "b": pa.string()}
    for other in (pa.table({"a": ["x"], "b": ["x"]}), pa.table({"a": [1], "c": ["x"]}), pa.table({"a": [1]})):
        pa.parquet.write_table(other, tmp_path / "2.parquet")
        with pytest.raises(GratisError, match="other columns or types"):
            open_table(tmp_path)


def test_objects_are_of_the_kind_of_the_first() -> None:
    day, moment, clock = datetime.date(2013, 1, 2), datetime.datetime(2013, 1, 2, 3), datetime.time(4)
    kinds: list[tuple[list[Any], Any]] = [
        ([1, 2.5, Decimal("3")], pa.float64()), ([True], pa.bool_()), ([day], pa.date32()), ([clock], pa.time64("us")),
        ([moment, day], pa.timestamp("us")), (["a"], pa.string()), ([2**60], pa.string()), ([[1]], pa.binary()),
        ([pd.NA, None, float("nan"), pd.NaT], pa.float64()),
    ]  # fmt: skip
    for first, kind in kinds:
        rest = [1, True, "a", day, moment, clock, [1], 10**400, b"x", "\ud800", pd.Timestamp("2013-01-02", tz="UTC")]
        found = by_first_cells((first * FIRST)[:FIRST] + rest)
        assert found.type == kind, first
        found.validate(full=True)


@pytest.mark.parametrize("told", [{}, {"hash_buckets": 4}, {"numeric": ["row_id"]}], ids=["open", "hashed", "numeric"])
def test_columns_of_any_type_are_read_or_refused(told: Row) -> None:
    """A column that is called an identifier is looked at; of lists, bytes or spans of time there is nothing to see."""
    day, moment = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)
    cells: list[Any] = [[1], b"\xff", True, day, moment, datetime.time(1), {"a": 1}, datetime.timedelta(1), None]
    for cell in cells:
        table = FrameTable(pa.table({"row_id": [cell] * 60, "x": [i / 7 for i in range(60)], "y": list(range(60))}))
        found = outcome_of(table, told)
        assert found == "read" or isinstance(found, GratisError), (cell, found)


def outcome_of(table: FrameTable, told: Row) -> Any:
    try:
        job = plan_table_fit(table, "y", BUDGET, task="regression", **told)
        job.check()
        job.training.arrays()
    except Exception as error:
        return error
    return "read" if job.readings else None
