from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from gratis.records.errors import GratisError
from gratis.rows.streaming import ArrayRows, open_rows

N = 1000


@pytest.fixture
def columns():
    rng = np.random.default_rng(0)
    return {
        "a": rng.standard_normal(N),
        "b": rng.integers(-5, 5, N),
        "y": rng.standard_normal(N),
        "c": rng.standard_normal(N),
    }


@pytest.fixture
def files(columns, tmp_path):
    table = pa.table(columns)
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=300)
    pa.csv.write_csv(table, tmp_path / "t.csv")
    pa.feather.write_feather(table, str(tmp_path / "t.arrow"), compression="lz4", chunksize=170)
    return tmp_path


def collect(stream):
    pairs = list(stream.batches())
    return np.concatenate([X for X, _ in pairs]), np.concatenate([y for _, y in pairs])


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_every_format_gives_the_stored_rows_in_the_stored_order(files, columns, ending):
    stream = open_rows(files / f"t.{ending}", target="y", n_rows=N, batch_rows=64)
    X, y = collect(stream)
    assert (stream.n_rows, stream.n_features) == (N, 3)
    np.testing.assert_allclose(X, np.column_stack([columns["a"], columns["b"], columns["c"]]), rtol=1e-14)
    np.testing.assert_allclose(y, columns["y"], rtol=1e-14)
    stream.validate()
    for X_batch, y_batch in stream.batches():
        assert X_batch.flags.c_contiguous
        assert len(X_batch) == len(y_batch) <= 64


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_chosen_features_come_in_the_chosen_order(files, columns, ending):
    stream = open_rows(files / f"t.{ending}", target="a", n_rows=N, features=["c", "b"])
    X, y = collect(stream)
    np.testing.assert_allclose(X, np.column_stack([columns["c"], columns["b"]]), rtol=1e-14)
    np.testing.assert_allclose(y, columns["a"], rtol=1e-14)


def test_memory_map_is_read_in_views(tmp_path):
    X = np.memmap(tmp_path / "x.bin", dtype=np.float32, mode="w+", shape=(N, 4))
    X[:] = np.arange(4 * N).reshape(N, 4)
    stream = ArrayRows(X, np.arange(N), batch_rows=300)
    batches = [batch for batch, _ in stream.batches()]
    assert [len(b) for b in batches] == [300, 300, 300, 100]
    assert all(b.dtype == np.float32 and np.shares_memory(b, X) for b in batches)
    np.testing.assert_array_equal(np.concatenate(batches), X)


def test_single_precision_columns_stay_single(tmp_path):
    pa.parquet.write_table(pa.table({"a": np.ones(3, np.float32), "y": np.ones(3)}), tmp_path / "s.parquet")
    ((X, y),) = open_rows(tmp_path / "s.parquet", target="y").batches()
    assert X.dtype == np.float32
    assert y.dtype == np.float64


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_strings_are_refused_by_column_name_before_any_row_is_used(tmp_path, ending):
    table = pa.table({"good": [1.0, 2.0], "city": ["secret-city", "b"], "y": [0.0, 1.0]})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path)
    elif ending == "csv":
        pa.csv.write_csv(table, path)
    else:
        pa.feather.write_feather(table, str(path))
    with pytest.raises(GratisError, match="'city'") as caught:
        open_rows(path, target="y", n_rows=2)
    assert "secret" not in str(caught.value)
    assert open_rows(path, target="y", n_rows=2, features=["good"]).n_features == 1


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_missing_values_become_nan_and_validate_says_so(tmp_path, ending):
    table = pa.table({"a": pa.array([1, None, 3]), "b": [True, False, True], "y": [0.0, 1.0, None]})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path)
    elif ending == "csv":
        table = table.set_column(1, "b", pa.array([1, 0, 1]))
        pa.csv.write_csv(table, path)
    else:
        pa.feather.write_feather(table, str(path))
    stream = open_rows(path, target="y", n_rows=3)
    X, y = collect(stream)
    np.testing.assert_array_equal(X, [[1, 1], [np.nan, 0], [3, 1]])
    np.testing.assert_array_equal(y, [0, 1, np.nan])
    with pytest.raises(GratisError, match="finite"):
        stream.validate()


def test_csv_cell_that_is_no_number_after_the_first_block_is_missing_not_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("gratis.rows.tables.FIRST_BYTES", 64)
    lines = ["a,y"] + ["1.5,-2e3"] * 40 + ["secret,1", " 2 ,3", ".5,", "1e,1"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    X, y = collect(open_rows(tmp_path / "t.csv", target="y", n_rows=44))
    np.testing.assert_array_equal(X[39:, 0], [1.5, np.nan, 2, 0.5, np.nan])
    np.testing.assert_array_equal(y[39:], [-2000, 1, 3, np.nan, 1])


def test_ragged_csv_fails_without_quoting_a_cell(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,2\nsecret,3,4\n")
    with pytest.raises(GratisError) as caught:
        collect(open_rows(tmp_path / "t.csv", target="y", n_rows=2))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_declared_rows_are_checked(files):
    with pytest.raises(GratisError, match="999 rows were declared"):
        open_rows(files / "t.parquet", target="y", n_rows=999)
    with pytest.raises(GratisError, match="pass n_rows"):
        open_rows(files / "t.csv", target="y")
    with pytest.raises(GratisError, match="the source holds 1000"):
        open_rows(files / "t.csv", target="y", n_rows=1001).validate()


def test_bad_requests_are_refused(files, tmp_path):
    with pytest.raises(GratisError, match="no column 'z'"):
        open_rows(files / "t.parquet", target="z")
    with pytest.raises(GratisError, match="not the target"):
        open_rows(files / "t.arrow", target="y", features=["y"])
    with pytest.raises(GratisError, match="no file"):
        open_rows(tmp_path / "absent.parquet", target="y")
    with pytest.raises(GratisError, match="expected a"):
        open_rows(files / "t.ods", target="y")
    with pytest.raises(GratisError, match="real numbers"):
        ArrayRows(np.array([["a"]]), np.zeros(1))
    with pytest.raises(GratisError, match="one entry for each row"):
        ArrayRows(np.zeros((2, 2)), np.zeros(3))
    (tmp_path / "b.csv").write_text("a,y\ntrue,1\nfalse,2\n")
    with pytest.raises(GratisError, match="truth values"):
        open_rows(tmp_path / "b.csv", target="y", n_rows=2)


def test_a_cell_that_is_no_text_is_missing_wherever_it_stands(tmp_path: Path) -> None:
    """Beyond the first block, whose cells decide on the types, it once ended a pass after the reservation."""
    path, lines = tmp_path / "rows.csv", 500_000
    path.write_bytes(b"a,t\n" + b"0.25,1.5\n" * lines + b"\xff\xfe,2.5\n" + b"0.5,3.5\n")
    found = list(open_rows(path, target="t", n_rows=lines + 2).batches())
    X, y = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert np.flatnonzero(np.isnan(X[:, 0])).tolist() == [lines]
    assert (len(X), X[-1, 0], y[-2:].tolist()) == (lines + 2, 0.5, [2.5, 3.5])


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_header_tells_what_separates_cells(tmp_path, mark):
    (tmp_path / "t.csv").write_text(f"a{mark}y\n1.5{mark}2.5\n")
    X, y = next(open_rows(tmp_path / "t.csv", target="y", n_rows=1).batches())
    assert (X.tolist(), y.tolist()) == ([[1.5]], [2.5])
