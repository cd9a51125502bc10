"""One source of rows gives the same bits as another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from gratis import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRandomFeaturesClassifier,
    DPRandomFeaturesRegressor,
)
from gratis.estimators.released_arrays import released_arrays
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.settings import Descent
from gratis.rows.encoding import Column, EncodedRows, Kind, TableSchema
from gratis.rows.streaming import ArrayRows, open_rows
from gratis.rows.tables import ParquetTable, open_table

N = 9000  # three chunks, the last one short
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)) * [1.0, 20.0, 0.1] + [0.0, 5.0, 0.0]
Y = X @ [1.0, 0.05, 3.0] + RNG.normal(size=N)
SEEDED: dict[str, Any] = {"noise_seed": 5, "insecure_reproducible": True, "delta": 1e-5, "epsilon": 2.0}
MODELS = {
    "linear": DPLinearRegression(**SEEDED),
    "wide": DPLinearRegression(**SEEDED, preprocessing="none"),
    "one pass": DPLinearRegression(algorithm="one-pass", **SEEDED),
    "logistic": DPLogisticRegression(classes=[0, 1], **SEEDED),
    "additive": DPAdditiveRegressor(**SEEDED),
    "additive classes": DPAdditiveClassifier(classes=[0, 1], **SEEDED),
    "features": DPRandomFeaturesRegressor(n_features=20, descent=Descent(steps=2), **SEEDED),
    "features of classes": DPRandomFeaturesClassifier(
        n_features=20, classes=[0, 1], descent=Descent(steps=2), **SEEDED
    ),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The same records as two arrays, and as streams of every kind, for a number and for two classes."""
    folder = tmp_path_factory.mktemp("rows")
    made: dict[str, dict[str, Any]] = {}
    for task, target in (("number", Y), ("classes", (Y > 0.3).astype(float))):
        table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": target})
        base = folder / task
        base.mkdir()
        pa.parquet.write_table(table, folder / f"{task}.parquet", row_group_size=777)
        pa.csv.write_csv(table, folder / f"{task}.csv")
        pa.feather.write_feather(table, str(folder / f"{task}.arrow"), compression="uncompressed")
        for part, start in enumerate(range(0, N, 2500)):
            pa.parquet.write_table(table.slice(start, 2500), base / f"part-{part}.parquet")
        made[task] = {
            "arrays": (X, target),
            "Arrow table": (table.select(["a", "b", "c"]), table["y"]),
            "pandas": (table.select(["a", "b", "c"]).to_pandas(), table["y"].to_pandas()),
            "polars": (polars.from_arrow(table.select(["a", "b", "c"])), polars.from_arrow(table["y"])),
            "stream": (ArrayRows(X, target, batch_rows=1000),),
            "parquet": (open_rows(folder / f"{task}.parquet", target="y"),),
            "csv": (open_rows(folder / f"{task}.csv", target="y", n_rows=N),),
            "arrow": (open_rows(folder / f"{task}.arrow", target="y"),),
            "folder": (open_rows(base, target="y"),),
        }
    return made


def bits(model: Any) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(array).tobytes() for name, array in released_arrays(model).items()}


@pytest.mark.slow(but=["linear"])
@pytest.mark.parametrize("name", MODELS)
def test_every_source_gives_the_same_bits(name: str, sources: dict[str, dict[str, Any]]) -> None:
    model = MODELS[name]
    found = sources["classes" if hasattr(model, "classes") else "number"]
    whole = bits(model.fit(*found["arrays"]))
    event = model.certificate_.event
    for source in found.values():
        assert bits(model.fit(*source)) == whole
        assert model.certificate_.event == event


@pytest.mark.slow
@pytest.mark.parametrize(("on_invalid", "alone"), [("impute", 4), ("zero", 0)])
def test_scales_of_the_target_are_read_without_the_features(
    on_invalid: str, alone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a row counts whatever its features are; else they say whether its target does. The same bits both ways."""
    rows, target = X.copy(), Y.copy()
    rows[5:50, 1], rows[60], target[40:90], target[100] = np.nan, np.inf, np.nan, -np.inf
    pa.parquet.write_table(pa.table({"a": rows[:, 0], "b": rows[:, 1], "y": target}), tmp_path / "t.parquet")
    readings: list[list[str]] = []
    read = ParquetTable._read

    def recorded(self: Any, columns: Any, *more: Any) -> Any:
        readings.append(list(columns))
        return read(self, columns, *more)

    monkeypatch.setattr(ParquetTable, "_read", recorded)
    table = open_table(tmp_path / "t.parquet")
    encoded = EncodedRows(table, TableSchema.of(table, target="y"), Column(name="y", kind=Kind.NUMERIC), N)
    expected = bits(DPLinearRegression(**SEEDED, on_invalid=on_invalid).fit(rows[:, :2], target))
    for stream in (open_rows(tmp_path / "t.parquet", target="y"), encoded):
        readings.clear()
        found = DPLinearRegression(**SEEDED, on_invalid=on_invalid).fit(stream)
        assert bits(found) == expected
        assert readings.count(["y"]) == alone
        assert len(readings) > 70


def test_other_rows_give_other_bits(sources: dict[str, dict[str, Any]]) -> None:
    """Negative control."""
    model = MODELS["linear"]
    whole = bits(model.fit(*sources["number"]["arrays"]))
    moved = X.copy()
    moved[4, 1] += 40.0
    assert bits(model.fit(ArrayRows(moved, Y))) != whole


@pytest.mark.slow(but=["model1"])
@pytest.mark.parametrize(
    "model",
    [
        DPRandomFeaturesRegressor(1.0, 1e-5, n_features=50, descent=Descent(engine="dual")),
        DPMLPClassifier(1.0, 1e-5, classes=[0, 1]),
    ],
)
def test_models_that_need_all_rows_refuse_a_stream_before_anything_is_reserved(model: Any, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", {"rows": Budget(epsilon=9.0, delta=1e-4)})
    model.set_params(ledger=tmp_path / "l", dataset="rows")
    with pytest.raises(GratisError, match="all rows in memory"):
        model.fit(ArrayRows(X, (Y > 0) * 1.0))
    assert ledger.status("rows").reservations == 0


@pytest.mark.slow
@pytest.mark.parametrize("on_invalid", ["zero", "impute", "raise"])
@pytest.mark.parametrize("last", ["1,2,3,4,5,6\n", "", '"1,2,3,4\n'])
def test_what_cannot_be_read_is_refused_before_anything_is_reserved(last: str, on_invalid: str, tmp_path: Path) -> None:
    """A row of another length, far down, would otherwise end the fit in the middle of its first release."""
    path, n = tmp_path / "rows.csv", 300_000
    path.write_text("a,b,c,y\n" + "0.5,1.5,2.5,3.5\n" * (n - 1) + last)
    ledger = Ledger.create(tmp_path / "l", {"rows": Budget(epsilon=9.0, delta=1e-4)})
    model = DPLinearRegression(1.0, 1e-5, on_invalid=on_invalid, ledger=tmp_path / "l", dataset="rows")
    with pytest.raises(GratisError):
        model.fit(open_rows(path, target="y", n_rows=n))
    assert ledger.status("rows").reservations == 0


def test_a_folder_of_files_must_have_one_kind_of_columns(tmp_path: Path) -> None:
    with pytest.raises(GratisError, match=r"no \.parquet file"):
        open_table(tmp_path)
    pa.parquet.write_table(pa.table({"a": [1.0]}), tmp_path / "1.parquet")
    pa.parquet.write_table(pa.table({"a": [1.0, 2.0]}), tmp_path / "2.parquet")
    table = open_table(tmp_path)
    assert table.count_rows() == 3
    assert not table.changed()
    pa.parquet.write_table(pa.table({"b": [1.0]}), tmp_path / "3.parquet")
    assert table.changed()
    with pytest.raises(GratisError, match="other columns"):
        open_table(tmp_path)
