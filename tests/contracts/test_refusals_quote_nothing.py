"""No refusal holds a private cell: neither its message nor any error that it carries along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from gratis import (
    DPLinearRegression,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRandomFeaturesClassifier,
    DPRandomFeaturesRegressor,
)
from gratis.records.errors import GratisError
from gratis.rows.encoding import Column, EncodedRows, Kind, TableSchema
from gratis.rows.streaming import open_rows
from gratis.rows.tables import open_table

CANARY = "canary17"
X, Y = np.zeros((4, 2)), np.array([0.0, 1.0, 0.0, 1.0])


def carried(error: BaseException) -> Iterator[BaseException]:
    """The error and all that hang on it, also those that a traceback would not show."""
    waiting, seen = [error], set()
    while waiting:
        current = waiting.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting += [other for other in (current.__cause__, current.__context__) if other is not None]


def refuse(action: Callable[[], Any]) -> None:
    with pytest.raises((GratisError, ValueError)) as caught:
        action()
    for error in carried(caught.value):
        assert CANARY not in repr(error)
        assert CANARY not in str(error)


def test_the_walk_sees_what_from_none_hides() -> None:
    def hiding() -> None:
        try:
            float(CANARY)
        except ValueError:
            raise GratisError("refused") from None

    with pytest.raises(AssertionError):
        refuse(hiding)


TEXT = X.astype(object)
TEXT[1, 1] = CANARY
ESTIMATORS = (
    DPLinearRegression,
    DPLogisticRegression,
    DPRandomFeaturesRegressor,
    DPRandomFeaturesClassifier,
    DPMLPClassifier,
)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("rows", [TEXT, TEXT.tolist(), TEXT.astype(str), [[1.0], [CANARY, 2.0], [1.0], [1.0]]])
def test_estimators_quote_no_feature(kind: Any, rows: Any) -> None:
    refuse(lambda: kind(1.0, 1e-5).fit(rows, Y))


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    "labels", [[0.0, 1.0, CANARY, 1.0], np.array([0, 1, CANARY, 1], dtype=object), np.array(["0", "1", CANARY, "1"])]
)
def test_estimators_quote_no_target(kind: Any, labels: Any) -> None:
    choices = {} if "Regress" in kind.__name__ and "Logistic" not in kind.__name__ else {"classes": [0, 1]}
    refuse(lambda: kind(1.0, 1e-5, **choices).fit(X, labels))


def csv_of_unequal_rows(folder: Path) -> Path:
    path = folder / "t.csv"
    path.write_text("a,b\n1,2\n" + f"3,4,{CANARY}\n")
    return path


def parquet_with_broken_text(folder: Path) -> Path:
    cells = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 9], dtype=np.int32)), pa.py_buffer(CANARY.encode() + b"\xff")
    )
    path = folder / "t.parquet"
    pa.parquet.write_table(pa.table({"a": cells, "b": pa.array([1.0])}), path)
    return path


def test_readers_quote_no_cell(tmp_path: Path) -> None:
    unequal = csv_of_unequal_rows(tmp_path)
    refuse(lambda: list(open_rows(unequal, target="b", n_rows=2).batches()))
    late = tmp_path / "late.csv"
    late.write_text("a,b\n" + "1,2\n" * 400_000 + f"3,4,{CANARY}\n")
    refuse(lambda: list(open_rows(late, target="b", n_rows=400_001).batches()))
    table = open_table(parquet_with_broken_text(tmp_path))
    schema = TableSchema((Column(name="a", kind=Kind.CATEGORICAL, buckets=4),))
    X, _ = EncodedRows(table, schema, Column(name="b", kind=Kind.NUMERIC), 1).arrays()
    assert not X.any()  # missing
    for ending in ("parquet", "arrow"):
        damaged = tmp_path / f"d.{ending}"
        damaged.write_text(CANARY * 50)
        refuse(lambda damaged=damaged: open_table(damaged))


def test_networks_quote_no_record() -> None:
    pytest.importorskip("torch")
    from gratis.stages.networks import checked_arrays

    refuse(lambda: checked_arrays([[1.0, CANARY], [2.0]], [0, 1]))


class Odd:
    """An entry whose own conversion raises what nobody expects, with its text."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error(CANARY)

    def __len__(self) -> int:
        raise self.error(CANARY)


@pytest.mark.parametrize("error", [RuntimeError, KeyError, ZeroDivisionError, AttributeError, AssertionError])
@pytest.mark.parametrize("where", ["X", "y"])
def test_what_an_entry_raises_gets_nowhere(error: type[Exception], where: str) -> None:
    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(50, 2)).astype(object), rng.normal(size=50).astype(object)
    (rows[1:2, 1] if where == "X" else target[1:2])[0] = Odd(error)
    refuse(lambda: DPLinearRegression(1.0, 1e-5).fit(rows, target))
    for handling in ("zero", "impute"):
        for listed in (False, True):
            given = (rows.tolist(), target.tolist()) if listed else (rows, target)
            assert np.isfinite(DPLinearRegression(1.0, 1e-3, on_invalid=handling).fit(*given).coef_).all()
