"""What real files are like: separators, encodings, packing, sheets, dates, indices; the same numbers from all."""

from __future__ import annotations

import bz2
import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from gratis.estimators import DPTableRegressor
from gratis.estimators.table_fit import plan_table_fit
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.rows.columns import Column, Kind
from gratis.rows.dates import date_parts
from gratis.rows.encoding import EncodedRows, TableSchema
from gratis.rows.frames import FrameTable
from gratis.rows.readings import readings_text
from gratis.rows.tables import open_table

FRAME = pd.DataFrame(
    {
        "größe": [1.5, -2.25, 1234.5, 0.125],
        "name": ["Zoë", "b", "c", "ü"],
        "day": ["2013-01-02", "2014-02-03", "2013-12-31", "1999-01-01"],
        "y": [1.5, 2.5, 3.5, 4.5],
    }
)
SCHEMA = {"name": {"kind": "categorical", "levels": ["Zoë", "ü"]}}


def encoded(table: Any) -> tuple[np.ndarray, np.ndarray]:
    schema = TableSchema.of(table, target="y", declared=TableSchema.from_json({"columns": SCHEMA}))
    return EncodedRows(table, schema, Column(name="y", kind=Kind.NUMERIC), table.count_rows()).arrays()


def written(path: Path) -> dict[str, Path]:
    """The same table in every way of writing it."""
    text = {
        "plain.csv": {}, "semicolons.csv": {"sep": ";"}, "tabs.csv": {"sep": "\t"}, "tabs.tsv": {"sep": "\t"},
        "bars.txt": {"sep": "|"}, "european.csv": {"sep": ";", "decimal": ","},
        "latin.csv": {"encoding": "latin-1"}, "windows.csv": {"encoding": "cp1252", "sep": ";", "decimal": ","},
        "marked.csv": {"encoding": "utf-8-sig"}, "wide.csv": {"encoding": "utf-16"},
        "wide-le.csv": {"encoding": "utf-16-le"},
    }  # fmt: skip
    for name, options in text.items():
        FRAME.to_csv(path / name, index=False, **options)
    plain = (path / "plain.csv").read_bytes()
    (path / "packed.csv.gz").write_bytes(gzip.compress(plain))
    (path / "packed.csv.bz2").write_bytes(bz2.compress(plain))
    with pa.output_stream(str(path / "packed.csv.zst"), compression="zstd") as sink:
        sink.write(plain)
    with (path / "lines.jsonl").open("w") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in FRAME.to_dict("records"))
    FRAME.assign(day=pd.to_datetime(FRAME["day"])).to_excel(path / "sheet.xlsx", index=False)
    (path / "folder").mkdir()
    for part in range(2):
        FRAME.assign(day=pd.to_datetime(FRAME["day"]).dt.date)[2 * part : 2 * part + 2].to_parquet(
            path / "folder" / f"{part}.parquet", index=False
        )
    return {found.name: found for found in path.iterdir()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written(tmp_path_factory.mktemp("formats"))


NAMES = [
    "plain.csv", "semicolons.csv", "tabs.csv", "tabs.tsv", "bars.txt", "european.csv", "latin.csv", "windows.csv",
    "marked.csv", "wide.csv", "wide-le.csv", "packed.csv.gz", "packed.csv.bz2", "packed.csv.zst", "lines.jsonl",
    "sheet.xlsx", "folder",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_way_of_writing_gives_the_same_numbers(files: dict[str, Path], name: str) -> None:
    X, y = encoded(open_table(files[name]))
    np.testing.assert_array_equal(y, FRAME["y"])
    np.testing.assert_array_equal(X[:, 0], FRAME["größe"])
    np.testing.assert_array_equal(X[:, 1:3], [[1, 0], [0, 0], [0, 0], [0, 1]])
    # 4750 days after 2000-01-01, January, a Wednesday.
    np.testing.assert_array_equal(X[0, 3:6], [4750, 1, 2])
    np.testing.assert_array_equal(X[:, 4], [1, 2, 12, 1])
    assert not open_table(files[name]).changed()


@pytest.mark.parametrize(
    "frame", [FRAME, pl.from_pandas(FRAME), pa.Table.from_pandas(FRAME)], ids=["pandas", "polars", "arrow"]
)
def test_frames_are_tables(frame: Any) -> None:
    declared = TableSchema.from_json(
        {"columns": SCHEMA | {"day": {"kind": "date", "parts": ["days", "month", "weekday"]}}}
    )
    table = FrameTable(frame)
    schema = TableSchema.of(table, target="y", declared=declared)
    X, _ = EncodedRows(table, schema, Column(name="y", kind=Kind.NUMERIC), 4).arrays()
    np.testing.assert_array_equal(X[0], [1.5, 1, 0, 4750, 1, 2])


def test_what_is_told_wins_and_what_is_wrong_is_said(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(GratisError, match="UTF-8"):
        open_table(files["latin.csv"], encoding="utf-8")
    assert open_table(files["semicolons.csv"], decimal=".").types["größe"] == pa.float64()
    for wrong in ({"encoding": "klingon"}, {"encoding": "rot13"}, {"separator": "ab"}, {"decimal": "x"}):
        with pytest.raises(GratisError, match=r"encoding|separator|decimal"):
            open_table(files["plain.csv"], **wrong)
    with pytest.raises(GratisError, match="text files"):
        open_table(files["folder"].joinpath("0.parquet"), separator=";")
    (tmp_path / "t.csv.gz").write_bytes(b"no archive")
    (tmp_path / "t.xlsx").write_bytes(b"no sheet")
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n["SECRET"]\n')
    (tmp_path / "empty.csv").write_text("")
    for name in ("t.csv.gz", "t.xlsx", "t.jsonl", "empty.csv"):
        with pytest.raises(GratisError) as refused:
            open_table(tmp_path / name)
        assert "SECRET" not in str(refused.value)


def test_bytes_that_the_encoding_lacks_are_named_and_never_raise_in_a_pass(tmp_path: Path) -> None:
    """An ASCII header does not tell that cells are Latin-1: they are missing in a pass, and refused before one."""
    (tmp_path / "t.csv").write_bytes("c,y\nZoë,1\nb,2\n".encode("latin-1"))
    table = open_table(tmp_path / "t.csv")
    schema = TableSchema.of(table, target="y", buckets=4)
    rows = EncodedRows(table, schema, Column(name="y", kind=Kind.NUMERIC), 2)
    X, _ = rows.arrays()
    np.testing.assert_array_equal(X.sum(axis=1), [0, 1])
    with pytest.raises(GratisError, match=r"'c' .*--encoding"):
        rows.validate()
    told = open_table(tmp_path / "t.csv", encoding="latin-1")
    fine = EncodedRows(told, schema, Column(name="y", kind=Kind.NUMERIC), 2)
    fine.validate()
    np.testing.assert_array_equal(fine.arrays()[0].sum(axis=1), [1, 1])
    # \x81 is no character of Windows-1252: the row is read, and raises nothing.
    (tmp_path / "u.csv").write_bytes(b"c,y\n\x81,1\nb,2\n")
    odd = open_table(tmp_path / "u.csv", encoding="windows-1252")
    assert len(EncodedRows(odd, schema, Column(name="y", kind=Kind.NUMERIC), 2).arrays()[1]) == 2


def test_decimal_commas_and_thousands(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b;y\n1,5;1.234,5;1\n-2,25;12;2\n;1.234.567;3\n", encoding="utf-8")
    table = open_table(tmp_path / "t.csv", decimal=",")
    declared = TableSchema.from_json({"columns": {"b": "numeric"}})
    X, _ = EncodedRows(
        table, TableSchema.of(table, target="y", declared=declared), Column(name="y", kind=Kind.NUMERIC), 3
    ).arrays()
    np.testing.assert_array_equal(X, [[1.5, 1234.5], [-2.25, 12], [np.nan, 1234567]])


def test_dates_of_every_type_agree() -> None:
    moments = [datetime.datetime(2013, 1, 2, 12, 30), datetime.datetime(1969, 12, 31, 23), None]
    parts = ("days", "year", "month", "weekday", "hour")
    expected = [[4750, 2013, 1, 2, 12.5], [-10958, 1969, 12, 2, 23], [np.nan] * 5]
    texts = [None if moment is None else moment.isoformat(sep=sep) for moment, sep in zip(moments, "T  ", strict=True)]
    for cells in (
        pa.array(moments, pa.timestamp("s")), pa.array(moments, pa.timestamp("ns")), pa.array(texts),
        pa.array(texts).dictionary_encode(),
    ):  # fmt: skip
        np.testing.assert_array_equal(date_parts(cells, parts), expected)
    days = date_parts(pa.array([None if moment is None else moment.date() for moment in moments]), parts)
    np.testing.assert_array_equal(days[:, :4], np.array(expected)[:, :4])
    told = date_parts(pa.array(["02.01.2013", "2013-01-02", "x"]), ("days",), "%d.%m.%Y")
    np.testing.assert_array_equal(told[:, 0], [4750, np.nan, np.nan])
    hostile = pa.array([2**62, -(2**62), 0], pa.timestamp("s"))
    assert np.isfinite(date_parts(hostile, parts)).all()


def test_ordered_levels_are_one_number() -> None:
    schema = TableSchema.from_json({"columns": {"size": {"kind": "ordered", "levels": ["S", "M", "L"]}}})
    assert schema.names == ("size",)
    X = schema.matrix(pa.record_batch({"size": ["L", "S", "XXL", None]}))
    np.testing.assert_array_equal(X[:, 0], [2, 0, np.nan, np.nan])
    assert TableSchema.from_json(schema.to_json()) == schema


def test_cells_that_are_no_numbers_are_missing_where_that_was_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,1\n(dirty),2\n3,3\n")
    table = open_table(tmp_path / "t.csv")
    lenient = TableSchema.from_json({"columns": {"a": {"kind": "numeric", "unreadable": "missing"}}})
    rows = EncodedRows(table, lenient, Column(name="y", kind=Kind.NUMERIC), 3)
    rows.validate()
    np.testing.assert_array_equal(rows.arrays()[0][:, 0], [1, np.nan, 3])
    strict = TableSchema.from_json({"columns": {"a": "numeric"}})
    with pytest.raises(GratisError, match=r"--numeric a"):
        EncodedRows(table, strict, Column(name="y", kind=Kind.NUMERIC), 3).validate()


def test_indices_are_left_out_and_identifiers_named(tmp_path: Path) -> None:
    FRAME.assign(customer_id=range(4)).to_csv(tmp_path / "t.csv")
    table = open_table(tmp_path / "t.csv")
    schema = TableSchema.of(table, target="y", declared=TableSchema.from_json({"columns": SCHEMA}))
    assert schema.column("") == Column(name="", kind=Kind.IGNORED)
    found = {reading.name: reading for reading in schema.readings(table, Column(name="y", kind=Kind.NUMERIC))}
    assert "index" in found[""].read_as
    assert "identifier" in (found["customer_id"].warning or "")
    assert found["name"].becomes == ("name=Zoë", "name=ü")
    assert found["y"].read_as == "the target: number"
    assert found["day"].becomes == ("day.days", "day.month", "day.weekday")
    lines = "\n".join(readings_text(tuple(found.values())))
    assert "'customer_id' looks like an identifier" in lines
    # Pandas says in Parquet which column was its index; a name of its own is only warned of.
    indexed = FRAME.set_index("größe")
    indexed.to_parquet(tmp_path / "t.parquet")
    named = open_table(tmp_path / "t.parquet")
    assert named.index_columns == ("größe",)
    readings = TableSchema.of(named, target="y", declared=TableSchema.from_json({"columns": SCHEMA}), ignored=["day"])
    assert any("index of pandas" in (reading.warning or "") for reading in readings.readings(named))


def test_wide_tables_are_told_in_few_lines() -> None:
    table = FrameTable(pa.table({f"x{i}": [0.0] for i in range(300)} | {"t": ["a"]}))
    schema = TableSchema.of(table, buckets=3)
    lines = readings_text(schema.readings(table))
    assert len(lines) == 2
    assert "'x0' … 'x299' (300)" in lines[0]


def test_columns_that_hold_neither_numbers_nor_text_are_named() -> None:
    table = FrameTable(pa.table({"a": [[1, 2]], "b": ["x"], "c": ["y"]}))
    with pytest.raises(GratisError, match=r"(?s)^add .*ignore=\['a'\].*'c' holds text.*'a' \(list"):
        TableSchema.of(table)


def test_identifiers_are_not_searched_for_levels() -> None:
    table = FrameTable(pa.table({"town": ["x"], "idNum": ["y"], "e-mail": ["z"]}))
    with pytest.raises(GratisError, match=r"add private_levels=\['town'\], ignore=\['idNum', 'e-mail'\]"):
        TableSchema.of(table)


def test_frames_of_mixed_cells_are_text_and_quote_none() -> None:
    table = FrameTable(pd.DataFrame({"a": [1, "SECRET", 2.5]}))
    assert table.types == {"a": pa.string()}
    with pytest.raises(GratisError, match="holds text") as refused:
        TableSchema.of(table)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__context__ is None
    with pytest.raises(GratisError, match="data frame"):
        FrameTable([1, 2, 3])


def test_dates_that_begin_with_the_day(tmp_path: Path) -> None:
    """With a decimal comma and Latin-1, as an office program writes them; a cell that is no date is missing."""
    path = tmp_path / "t.csv"
    lines = ["Fläche;gebaut;Preis", *["81,5;31.12.2015;1,5", "60,25;1.2.2016;2,5"] * 20, "70,0;unbekannt;3,5"]
    path.write_bytes("\n".join(lines).encode("latin-1"))
    table = open_table(path)
    assert table.types == {"Fläche": pa.float64(), "gebaut": pa.string(), "Preis": pa.float64()}  # one is no date
    path.write_bytes("\n".join(lines[:-1]).encode("latin-1"))
    table = open_table(path)
    assert table.types["gebaut"] == pa.date32()
    schema = TableSchema.of(table, target="Preis")
    assert schema.names == ("Fläche", "gebaut.days", "gebaut.month", "gebaut.weekday")
    X, y = EncodedRows(table, schema, Column(name="Preis", kind=Kind.NUMERIC), 40).arrays()
    assert X[:2].tolist() == [[81.5, 5843.0, 12.0, 3.0], [60.25, 5875.0, 2.0, 0.0]]
    assert y[:2].tolist() == [1.5, 2.5]


def test_files_without_rows_say_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"")
    with pytest.raises(GratisError, match=r"'t\.csv' is empty"):
        open_table(path)
    path.write_text("a,y\n")
    with pytest.raises(GratisError, match="columns and no rows"):
        plan_table_fit(path, "y", Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(GratisError, match="no rows"):
        DPTableRegressor(1.0, 1e-5).fit(
            pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}), "y"
        )
