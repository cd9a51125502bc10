"""Targets of any type on a Dask cluster: read as in one memory, and loaded before anything is reserved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gratis import DPLinearRegression
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.rows.cluster_client import connected

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

SEEDED = {"epsilon": 1.0, "delta": 1e-5, "noise_seed": 3, "insecure_reproducible": True}


@pytest.fixture(scope="module")
def client() -> Any:
    with connected("threads:2") as found:
        yield found


def table(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) + 5
    return X, X.sum(axis=1) + rng.normal(size=n)


def untouched(ledger: Ledger) -> bool:
    status = ledger.status("d")
    return status.remaining_mu == status.total_mu


class Odd:
    """An entry with a conversion of its own."""

    def __float__(self) -> float:
        raise RuntimeError("SECRET")


@pytest.mark.parametrize("handling", ["zero", "impute"])
def test_targets_of_objects_are_read_as_in_one_memory(client: Any, handling: str, tmp_path: Path) -> None:
    """None, text, a number beyond float64, a whole one, a long text, an object that raises: no entry ends a fit."""
    X, y = table()
    objects = y.astype(object)
    objects[-6:] = [None, "SECRET", 10**400, 7, "x" * 100_000, Odd()]
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=1.0, delta=1e-5)})
    blocks = objects if handling == "zero" else da.from_array(objects, chunks=1000)
    there = DPLinearRegression(**SEEDED, on_invalid=handling, ledger=ledger, dataset="d").fit(da.from_array(X), blocks)
    here = DPLinearRegression(**SEEDED, on_invalid=handling).fit(X, objects)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert "readable-file" in there.certificate_.assumptions
    assert not ledger.status("d").never_committed


def test_what_is_no_number_is_refused_before_anything_is_reserved(client: Any, tmp_path: Path) -> None:
    X, y = table()
    objects = y.astype(object)
    objects[-1] = "SECRET"
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=1.0, delta=1e-5)})
    with pytest.raises(GratisError, match="missing, infinite or not declared") as refused:
        DPLinearRegression(**SEEDED, ledger=ledger, dataset="d").fit(
            da.from_array(X), da.from_array(objects, chunks=1000)
        )
    assert "SECRET" not in str(refused.value)
    assert untouched(ledger)


@pytest.mark.parametrize("kept", [True, False])
def test_rows_that_cannot_be_loaded_are_refused_before_anything_is_reserved(
    client: Any, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = table()
    monkeypatch.setattr("gratis.rows.cluster_client.fits", lambda *_: kept)

    def lost(block: np.ndarray) -> np.ndarray:
        raise OSError("SECRET")

    gone = da.from_array(X).map_blocks(lost, dtype=np.float64, meta=np.empty((0, 3)))
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=1.0, delta=1e-5)})
    with pytest.raises(GratisError, match="nothing was spent") as refused:
        DPLinearRegression(**SEEDED, on_invalid="zero", ledger=ledger, dataset="d").fit(gone, da.from_array(y))
    assert "SECRET" not in str(refused.value)
    assert untouched(ledger)


def test_one_cell_of_a_data_frame_changes_nothing_that_is_published(client: Any) -> None:
    """A frame's meta says names and types; that a frame can be loaded at all is stated."""
    dd = pytest.importorskip("dask.dataframe")
    X, y = table(600)
    found = []
    for entry in (y[-1], "x" * 100_000, "\udcff"):
        frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=pd.Series([*y[:-1], entry], dtype=object))
        parts = dd.from_pandas(frame, npartitions=2)
        model = DPLinearRegression(**SEEDED, on_invalid="impute")
        if entry == "\udcff":  # Dask makes no text of it
            with pytest.raises(GratisError, match="nothing was spent") as refused:
                model.fit(parts[["a", "b", "c"]], parts["y"])
            assert refused.value.__context__ is None
            assert "readable-file" in found[0][1]
            continue
        model.fit(parts[["a", "b", "c"]], parts["y"])
        found.append((list(model.feature_names_in_), model.certificate_.assumptions, model.certificate_.event))
    assert all(one == found[0] for one in found)
