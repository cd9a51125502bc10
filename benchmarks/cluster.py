"""A Dask cluster of real processes beside one machine: the same bits, with workers that are killed, and what it costs.

    python benchmarks/cluster.py [--kills 100] [--rows 40005] [--workers 1 2 4] [--output FILE]

First fits on arrays, on a folder of Parquet files streamed by one process, and on 1, 2 and 4 workers (Dask arrays, and
the folder), compared bit for bit; then fits while workers are killed (SIGKILL) at random moments until so many have
died, each with a reservation in a ledger; then fits with a worker that returns garbage for one block of one release.
Noise seeds are fixed, so that bits can be compared: never do that otherwise.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as Dask's workers have it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import random
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from gratis import DPAdditiveRegressor, DPLinearRegression, DPLogisticRegression, DPRandomFeaturesRegressor
from gratis.estimators.released_arrays import arrays_digest, released_arrays
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.settings import Descent
from gratis.rows import cluster as rows_on_cluster
from gratis.rows.cluster_table import ClusterTable
from gratis.rows.encoding import Column, EncodedRows, Kind, TableSchema
from gratis.rows.streaming import open_rows
from gratis.rows.tables import open_table

SEEDED = {"epsilon": 1.0, "delta": 1e-6, "noise_seed": 11, "insecure_reproducible": True}
rows_on_cluster._BLOCK_NUMBERS = 4096 * 10  # one chunk a block: few rows are many blocks
WORKERS = 4  # of which some die
BUDGET = Budget(epsilon=400.0, delta=1e-3)  # room for all the fits of a run
MODELS: dict[str, Any] = {
    "linear": lambda **more: DPLinearRegression(**SEEDED, descent=Descent(steps=16), **more),
    "logistic": lambda **more: DPLogisticRegression(**SEEDED, classes=[0, 1], descent=Descent(steps=16), **more),
    "additive": lambda **more: DPAdditiveRegressor(**SEEDED, **more),
    "random features": lambda **more: DPRandomFeaturesRegressor(
        **SEEDED, n_features=20, descent=Descent(steps=10), **more
    ),
}


def table(n: int, d: int = 10) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * 10.0 ** np.arange(-2, d - 2)
    y = (X / 10.0 ** np.arange(-2, d - 2)) @ rng.normal(size=d) + rng.normal(size=n)
    return X, y


def target(model: str, y: Any) -> Any:
    return (y > 0).astype(np.float64) if model == "logistic" else y


def digest(model: str, *rows: Any, **more: Any) -> tuple[str, float]:
    begun = time.perf_counter()
    found = MODELS[model](**more).fit(*rows)
    return arrays_digest(released_arrays(found)), time.perf_counter() - begun


def on_dask(model: str, X: Any, y: Any) -> tuple[Any, Any]:
    return da.from_array(X, chunks=(50_000, 10)), da.from_array(target(model, y), chunks=30_000)


def write(folder: Path, X: Any, y: Any) -> None:
    folder.mkdir()
    for part, start in enumerate(range(0, len(y), 70_000)):
        rows = slice(start, start + 70_000)
        named = {f"x{place}": column for place, column in enumerate(X[rows].T)} | {"y": y[rows]}
        pq.write_table(pa.table(named), folder / f"{part}.parquet", row_group_size=20_000)


def folder_on(client: Any, folder: Path) -> ClusterTable:
    table = open_table(folder)
    schema = TableSchema.of(table, target="y")
    return ClusterTable(client, EncodedRows(table, schema, Column(name="y", kind=Kind.NUMERIC), table.count_rows()))


def garbage(kind: str, at: int) -> Any:
    """`block_sum` that answers wrongly for one block of the release number `at`."""
    whole, calls = rows_on_cluster.ClusterRows.total, [0]

    def total(self: Any, contribution: Any) -> Any:
        calls[0] += 1
        if calls[0] != at:
            return whole(self, contribution)

        def wrong(*chunk: Any) -> Any:
            part = np.array(contribution(*chunk), dtype=np.float64)
            if len(chunk[0]) == rows_on_cluster.ROWS_PER_CHUNK:
                return part
            if kind == "shape":  # only of the last chunk, which is short
                return np.append(part.ravel(), 0.0)
            return np.full_like(part, np.nan if kind == "nan" else np.inf)

        return whole(self, wrong)

    return total


def killer(cluster: Any, done: threading.Event, kills: list[int], most: int) -> None:
    """Kill a random worker process every few seconds; its nanny starts another."""
    rng = random.Random(1)
    while not done.wait(rng.uniform(0.5, 5.0)) and len(kills) < most:
        pids = [worker.pid for worker in cluster.workers.values() if worker.pid]
        cluster.scale(WORKERS)  # in the place of those that their nannies gave up
        if len(pids) > 1:
            try:
                os.kill(rng.choice(pids), signal.SIGKILL)
                kills.append(1)
            except ProcessLookupError:
                pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=40_005)  # the last chunk is short
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    X, y = table(options.rows)
    results: dict[str, Any] = {"rows": options.rows, "columns": X.shape[1]}
    expected = {}
    with tempfile.TemporaryDirectory() as scratch:
        for model in MODELS:
            expected[model], seconds = digest(model, X, target(model, y))
            results[model] = {"arrays": seconds}
            if not options.workers:
                continue
            folder = Path(scratch) / model.replace(" ", "-")
            write(folder, X, target(model, y))
            streamed, _ = digest(model, open_rows(folder, target="y"))
            results[model]["Parquet, same bits"] = streamed == expected[model]
            print(model, "Parquet", streamed == expected[model], flush=True)
        for workers in options.workers:
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                for model in MODELS:
                    found, seconds = digest(model, *on_dask(model, X, y))
                    read, _ = digest(model, folder_on(client, Path(scratch) / model.replace(" ", "-")))
                    same = [found == expected[model], read == expected[model]]
                    results[model][f"{workers} workers"] = seconds
                    results[model][f"{workers} workers, same bits (arrays, folder)"] = same
                    print(model, workers, same, f"{seconds:.1f} s", flush=True)
        results["chaos"] = chaos(X, y, expected, options.kills, Path(scratch) / "ledger")
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def chaos(X: Any, y: Any, expected: dict[str, str], most: int, path: Path) -> dict[str, Any]:
    """Kill workers during fits until `most` have died; then let one answer wrongly. Count what becomes of it."""
    kills: list[int] = []
    fits = wrong = refused = wrongly_spent = 0
    ledger = Ledger.create(path, {"rows": BUDGET, "garbage": BUDGET})
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster),
    ):
        done = threading.Event()
        thread = threading.Thread(target=killer, args=(cluster, done, kills, most))
        thread.start()
        while len(kills) < most:
            model = list(MODELS)[fits % len(MODELS)]
            before = ledger.status("rows").reservations
            try:
                found, _ = digest(model, *on_dask(model, X, y), ledger=ledger, dataset="rows")
                wrong += found != expected[model]
                spent = 1
            except GratisError as error:
                refused += 1
                spent = 0 if "nothing was spent" in str(error) else 1
                print("refused:", error, flush=True)
            wrongly_spent += ledger.status("rows").reservations != before + spent
            fits += 1
            print(f"{len(kills)} kills, {fits} fits, {wrong} wrong, {refused} refused", flush=True)
        done.set()
        thread.join()
        status = ledger.status("rows")
        caught, whole = 0, rows_on_cluster.ClusterRows.total
        for kind in ("shape", "nan", "infinity"):
            for at in (2, 9):  # of the scales, and later: the first only looks for rows that are not finite
                rows_on_cluster.ClusterRows.total = garbage(kind, at)  # type: ignore[method-assign]
                try:
                    digest("linear", *on_dask("linear", X, y), ledger=ledger, dataset="garbage")
                except GratisError as error:
                    caught += "no finite sum" in str(error)
                finally:
                    rows_on_cluster.ClusterRows.total = whole  # type: ignore[method-assign]
        uncommitted = len(ledger.status("garbage").never_committed)
    return {
        "kills": len(kills), "fits": fits, "wrong": wrong, "refused": refused, "reserved": status.reservations,
        "spent other than once": wrongly_spent,
        "committed": status.reservations - len(status.never_committed), "garbage": 6, "garbage refused": caught,
        "garbage reserved, never committed": uncommitted,
    }  # fmt: skip


if __name__ == "__main__":
    main()
