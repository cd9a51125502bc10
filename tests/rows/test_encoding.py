"""Encoding by public rules: levels and buckets, missing values, positions, and what is refused."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from gratis.records.errors import GratisError
from gratis.rows import amounts, encoding
from gratis.rows import columns as rows_columns
from gratis.rows.encoding import Column, EncodedRows, Kind, TableSchema, distinct_values, held_out_rows
from gratis.rows.tables import open_table

TEXT = "age,sex,member,income,city\n39,f,true,1.5,Rome\n?,m,false,2.5,Oslo\n41,x,,3.5,Rome\n"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    return path


SCHEMA = {"sex": {"kind": "categorical", "levels": ["f", "m"]}, "city": {"kind": "categorical", "buckets": 4}}


def rows(path: Path, schema: dict | None = None, target: str = "income") -> EncodedRows:
    table = open_table(path)
    full = TableSchema.of(table, target=target, declared=TableSchema.from_json({"columns": schema or SCHEMA}))
    return EncodedRows(table, full, Column(name=target, kind=Kind.NUMERIC), table.count_rows())


def test_levels_buckets_truth_values_and_missing_cells(people: Path) -> None:
    stream = rows(people)
    X, y = stream.arrays()
    np.testing.assert_array_equal(y, [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(X[:, :4], [[39, 1, 0, 1], [np.nan, 0, 1, 0], [41, 0, 0, np.nan]])
    assert X[:, 4:].sum(axis=1).tolist() == [1, 1, 1]
    np.testing.assert_array_equal(X[0, 4:], X[2, 4:])
    stream.validate()


def test_line_breaks_in_cells_do_not_cut_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of the reader end anywhere: a break in quotes at the end of one must not become a new row."""
    monkeypatch.setattr("gratis.rows.tables.FIRST_BYTES", 64)
    path = tmp_path / "notes.csv"
    path.write_text("note,income\n" + "".join(f'"line {i}\nand {"more " * (i % 7)}",{i}\n' for i in range(200)))
    table = open_table(path)
    assert table.count_rows() == 200
    found = [value.as_py() for batch in table.batches(["income"], 50) for value in batch.column(0)]
    assert found == [str(i) for i in range(200)]


def test_a_public_value_fills_missing_numbers(people: Path) -> None:
    X, _ = rows(people, SCHEMA | {"age": {"kind": "numeric", "missing": 40}}).arrays()
    assert X[:, 0].tolist() == [39, 40, 41]


def test_text_needs_a_declaration(people: Path) -> None:
    table = open_table(people)
    with pytest.raises(
        GratisError,
        match=r"(?s)^add --private-levels sex,city; .*\n'city' holds text.* never read.*--hash.*--schema",
    ):
        TableSchema.of(table)
    hashed = TableSchema.of(table, buckets=3, ignored=["city"])
    assert hashed.column("sex") == Column(name="sex", kind=Kind.CATEGORICAL, buckets=3)
    assert "city" not in " ".join(hashed.names)
    with pytest.raises(GratisError, match="no column 'town'"):
        TableSchema.of(table, ignored=["town"])


def test_declared_numbers_that_are_text_are_refused(people: Path, tmp_path: Path) -> None:
    with pytest.raises(GratisError, match="'city' holds text"):
        rows(people, SCHEMA | {"city": "numeric"}).validate()
    pa.parquet.write_table(pa.table({"a": ["x", "y"], "y": [1.0, 2.0]}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    schema = TableSchema.of(table, declared=TableSchema.from_json({"columns": {"a": "numeric"}}))
    with pytest.raises(GratisError, match="should hold numbers, but holds text"):
        schema.check_types(table)


def test_a_missing_target_is_refused_before_anything_is_spent(people: Path) -> None:
    with pytest.raises(GratisError, match="target 'age' is missing"):
        rows(people, SCHEMA, target="age").validate()


def test_text_that_is_no_utf8_is_missing(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ab", b"\xff\xfe"], pa.binary()).buffers())
    pa.parquet.write_table(pa.table({"c": broken, "y": [1.0, 2.0]}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    stream = EncodedRows(table, TableSchema.of(table, target="y", buckets=4), Column(name="y", kind=Kind.NUMERIC), 2)
    stream.validate()
    assert stream.arrays()[0].sum(axis=1).tolist() == [1.0, 0.0]
    assert [found for found, _ in stream.texts(["c"])] == [[["ab", None]]]
    assert distinct_values(table, "c", 5) == ("ab",)


def test_every_format_is_encoded_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=500), "c": rng.choice(["x", "y", "z"], 500), "y": rng.integers(0, 3, 500)}
    table = pa.table(columns | {"c": pa.array(columns["c"]).dictionary_encode()})
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=70)
    pa.feather.write_feather(table, str(tmp_path / "t.arrow"), chunksize=90)
    pa.csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    declared = TableSchema.from_json({"columns": {"c": {"kind": "categorical", "levels": ["z", "x", "y"]}}})
    target = Column(name="y", kind=Kind.CATEGORICAL, levels=("0", "1", "2"))
    found = []
    for ending in ("parquet", "arrow", "csv"):
        file = open_table(tmp_path / f"t.{ending}")
        assert distinct_values(file, "y", 5) == ("0", "1", "2")
        assert distinct_values(file, "a", 5) is None
        schema = TableSchema.of(file, target="y", declared=declared)
        found.append(EncodedRows(file, schema, target, file.count_rows()).arrays())
    for X, y in found:
        np.testing.assert_allclose(X, found[0][0], rtol=1e-12)
        np.testing.assert_array_equal(y, columns["y"])
    np.testing.assert_array_equal(found[0][0][:, 1:].argmax(axis=1), [["z", "x", "y"].index(c) for c in columns["c"]])


def test_one_record_does_not_change_how_another_is_read() -> None:
    column = Column(name="c", kind=Kind.CATEGORICAL, levels=("3", "4"))
    alone, beside = (column.encode(pa.array(values)) for values in ([3.0, 4.0], [3.0, 4.5]))
    np.testing.assert_array_equal(alone[0], [1, 0])
    np.testing.assert_array_equal(beside, [[1, 0], [0, 0]])


def test_held_out_rows_are_a_partition_by_position(people: Path) -> None:
    held = held_out_rows(0, 1000, 0.1)
    assert 95 <= held.sum() <= 105
    np.testing.assert_array_equal(held[300:700], held_out_rows(300, 400, 0.1))
    table = open_table(people)
    schema = TableSchema.of(table, target="income", declared=TableSchema.from_json({"columns": SCHEMA}))
    target = Column(name="income", kind=Kind.NUMERIC)
    parts = [
        EncodedRows(table, schema, target, 3, held_out=0.5, part=part).arrays()[1] for part in ("training", "held-out")
    ]
    assert sorted(np.concatenate(parts).tolist()) == [1.5, 2.5, 3.5]


@pytest.mark.parametrize("held_out", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("at_once", [7, 1000])
def test_blocks_hold_so_many_chosen_rows_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: float, at_once: int
) -> None:
    monkeypatch.setattr(encoding, "_POSITIONS_AT_ONCE", at_once)
    n = 103
    pa.parquet.write_table(pa.table({"a": np.arange(n) / 2, "y": np.arange(n) / 1.0}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    schema, target = TableSchema.of(table, target="y"), Column(name="y", kind=Kind.NUMERIC)
    stream = EncodedRows(table, schema, target, n, held_out=held_out, part="training")
    expected = np.flatnonzero(~held_out_rows(0, n, held_out))
    assert stream.n_rows == len(expected)
    for size in (1, 4, 50):
        blocks = stream.blocks(size)
        assert [block.n_rows for block in blocks[:-1]] == [size] * (len(blocks) - 1)
        np.testing.assert_array_equal(np.concatenate([block.arrays()[1] for block in blocks]), expected)


@pytest.mark.parametrize(
    "schema",
    [
        [],
        {"columns": {"a": "number"}},
        {"columns": {"a": {"kind": "categorical"}}},
        {"columns": {"a": {"kind": "categorical", "levels": []}}},
        {"columns": {"a": {"kind": "categorical", "levels": ["x", "x"]}}},
        {"columns": {"a": {"kind": "categorical", "buckets": 1}}},
        {"columns": {"a": {"kind": "numeric", "missing": "zero"}}},
        {"columns": {"a": {"kind": "numeric", "range": [0, 1]}}},
    ],
)
def test_wrong_schemas_are_refused(schema: object) -> None:
    with pytest.raises(GratisError):
        TableSchema.from_json(schema)


def test_schemas_survive_json(people: Path) -> None:
    schema = TableSchema.of(open_table(people), declared=TableSchema.from_json({"columns": SCHEMA}))
    assert TableSchema.from_json(schema.to_json()) == schema


def test_wide_tables_are_read_a_type_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many calls to Arrow for 300 columns as for 3, and the same numbers as column by column."""
    rng = np.random.default_rng(0)
    calls: list[int] = []
    for name in ("numbers", "unreadable"):
        work = getattr(amounts, name)

        def counted(*given: object, work: Callable[..., object] = work) -> object:
            calls.append(1)
            return work(*given)

        monkeypatch.setattr(amounts, name, counted)
        monkeypatch.setattr(rows_columns if name == "numbers" else encoding, name, counted)
    counts = []
    for width in (3, 300):
        cells: dict[str, object] = {f"c{i}": rng.normal(size=20).astype("f4" if i % 2 else "f8") for i in range(width)}
        cells |= {"t": rng.choice(["u", "v"], 20), "last": [None, *rng.normal(size=19)], "y": rng.normal(size=20)}
        pa.parquet.write_table(pa.table(cells), tmp_path / "t.parquet")
        pa.csv.write_csv(pa.table(cells), tmp_path / "t.csv")
        declared = TableSchema.from_json({"columns": {
            "t": {"kind": "categorical", "levels": ["u", "v"]}, "last": {"kind": "numeric", "missing": 7},
        }})  # fmt: skip
        for name in ("t.csv", "t.parquet"):
            table = open_table(tmp_path / name)
            schema = TableSchema.of(table, target="y", declared=declared)
            rows = EncodedRows(table, schema, Column(name="y", kind=Kind.NUMERIC), 20)
            calls.clear()
            rows.validate()
            X, y = rows.arrays()
            counts.append(len(calls))
            batch = next(table.batches([*(column.name for column in schema.used), "y"], 100))
            single = np.hstack([column.encode(batch.column(column.name)) for column in schema.used])
            np.testing.assert_array_equal(X, single)
            assert X[0, -1] == 7
            np.testing.assert_allclose(y, cells["y"])
    assert counts[:2] == counts[2:]


def test_repeated_names_are_refused_in_every_format(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, ["a", "b", "a"])
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    pa.csv.write_csv(table, tmp_path / "t.csv")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.csv", "t.arrow"):
        with pytest.raises(GratisError, match="'a' occurs more than once"):
            open_table(tmp_path / name)


def test_half_floats_are_levels_and_numbers(tmp_path: Path) -> None:
    cells = pa.array(np.array([1, 2.5, 1], dtype=np.float16))
    pa.parquet.write_table(pa.table({"a": cells}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert distinct_values(table, "a", 5) == ("1", "2.5")
    np.testing.assert_array_equal(Column(name="a", kind=Kind.NUMERIC).encode(cells)[:, 0], [1, 2.5, 1])


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    table, before = open_table(path), path.stat()
    assert not table.changed()
    path.write_text("a,c\n1,2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # size and time as before: the names tell
    assert table.changed()
    path.write_text("a,b\n1,2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not table.changed()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert table.changed()
    path.unlink()
    assert table.changed()
