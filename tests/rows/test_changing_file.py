"""A file that is rewritten in place while it is streamed: no row enters a sum twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gratis import DPLinearRegression
from gratis.estimators.table_fit import plan_table_fit
from gratis.ledger import Ledger
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.errors import ChangedTableError, GratisError
from gratis.rows.streaming import open_rows
from gratis.rows.tables import CSVTable, ParquetTable, open_table

N = 20_000
Write = Callable[[int], None]


def writer(path: Path) -> Write:
    """Write the table forwards (1) or backwards (−1), in as many bytes."""
    x = np.arange(10_000.0, 10_000 + N)
    columns = {"x": x, "y": x / 2}

    def write(step: int) -> None:
        table = pa.table({name: values[::step] for name, values in columns.items()})
        if path.suffix == ".csv":
            pa.csv.write_csv(table, path)
        else:
            pa.parquet.write_table(table, path, compression="none", use_dictionary=False, row_group_size=2000)

    return write


def rewritten(monkeypatch: pytest.MonkeyPatch, kind: type[Any], write: Write, after: int) -> None:
    """After so many readings the next one finds another file behind its first batch."""
    whole, passes = kind._read, [0]

    def read(self: Any, columns: Any, batch_rows: int, *more: Any) -> Iterator[Any]:
        passes[0] += 1
        changed = False
        for batch in whole(self, columns, min(batch_rows, 512), *more):
            yield batch
            if passes[0] == after and not changed:
                write(-1)
                changed = True

    monkeypatch.setattr(kind, "_read", read)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("hide", [False, True], ids=["as written", "with the old time"])
def test_a_reading_of_two_files_is_refused(
    ending: str, hide: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows of the Parquet file were read twice, as the test sees; text is read ahead."""
    path = tmp_path / f"t.{ending}"
    write = writer(path)
    write(1)
    before = path.stat()

    def again(step: int) -> None:
        write(step)
        if hide:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    table = open_table(path)
    monkeypatch.setattr("gratis.rows.tables._PARQUET_ROWS", 2048)  # decoded together
    rewritten(monkeypatch, type(table), again, after=1)
    read: list[float] = []
    batches = (read.extend(map(float, batch.column(0).to_pylist())) for batch in table.batches(["x"], 512))
    with pytest.raises(ChangedTableError):
        list(batches)
    assert len(set(read)) < len(read) or ending == "csv"
    write(1)
    monkeypatch.undo()
    assert sum(batch.num_rows for batch in open_table(path).batches(["x"], 512)) == N


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_streamed_fit_releases_nothing_of_two_files(
    ending: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused with nothing spent as long as nothing is reserved, and without a release afterwards."""
    path = tmp_path / f"t.{ending}"
    write = writer(path)
    write(1)
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=1.0, delta=1e-5)})
    job = plan_table_fit(path, "y", Budget(epsilon=1.0, delta=1e-5), model="linear", memory_bytes=1.0)
    job.check()
    drawn: list[int] = []
    normal = NoiseSource.normal

    def counted(self: Any, *given: Any, **more: Any) -> Any:
        drawn.append(1)
        return normal(self, *given, **more)

    monkeypatch.setattr(NoiseSource, "normal", counted)
    # A text file is looked at once more, to see that its columns are the same, and the next reading is of all of it.
    rewritten(monkeypatch, ParquetTable if ending == "parquet" else CSVTable, write, after + (ending == "csv"))
    if ending == "csv" and after > 1:  # parsed once, into a scratch file: later changes concern nobody
        job.run(ledger=tmp_path / "l", dataset="d")
        assert not ledger.status("d").never_committed
        return
    with pytest.raises(GratisError, match=r"no longer the one|changed"):
        job.run(ledger=tmp_path / "l", dataset="d")
    status = ledger.status("d")
    if after == 1:
        assert status.remaining_mu == status.total_mu
        assert not drawn
    assert job.table.changed()


def test_a_stream_of_numbers_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    write = writer(path)
    write(1)
    rewritten(monkeypatch, ParquetTable, write, after=2)
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=1.0, delta=1e-5)})
    model = DPLinearRegression(1.0, 1e-5, algorithm="full-batch", ledger=ledger, dataset="d")
    with pytest.raises(ChangedTableError):
        model.fit(open_rows(path, target="y"))
    status = ledger.status("d")
    assert status.remaining_mu == status.total_mu
