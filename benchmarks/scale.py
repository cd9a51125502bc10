"""A table that no memory holds: a fit streamed by one process and on Dask workers, in bytes, CPU seconds and memory.

    python benchmarks/scale.py FOLDER [--fits 1000000 4000000] [--readings 100000000] [--workers 0 1 2 4] [--output F]

Makes rows × 50 columns of float32 and a target in Parquet under FOLDER, one table at a time, and removes it at the end.
Whole fits of a linear model (ε = 1, 8 steps) are measured at the sizes of `--fits`, in one process (0 workers) and on
local clusters whose workers read their blocks at every release. Of the tables of `--readings` one gradient step in raw
columns is measured, the cheapest reading of a fit, and one histogram. Every measurement is a process of its own.
CPU seconds are those of coordinator (with Dask's scheduler) and workers; bytes are what they asked the system for.
Finished measurements are taken from --output.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as Dask's workers have it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS, PER_FILE, ROW_GROUP = 50, 1_000_000, 2**17
STEPS = 8  # of the descent, in the place of 64: every one is one more reading at the same cost


def make(folder: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for part, start in enumerate(range(0, rows, PER_FILE)):
        rng = np.random.default_rng(part)
        X = rng.standard_normal((COLUMNS, min(PER_FILE, rows - start)), dtype=np.float32)
        y = X[:5].sum(axis=0) + rng.standard_normal(X.shape[1], dtype=np.float32)
        named = {f"x{place}": column for place, column in enumerate(X)} | {"y": y}
        pq.write_table(pa.table(named), folder / f"{part:04d}.parquet", row_group_size=ROW_GROUP, compression="none",
                       use_dictionary=False)  # fmt: skip


def used() -> dict[str, float]:
    """CPU seconds, peak resident megabytes, and megabytes that were read, of this process."""
    mine = resource.getrusage(resource.RUSAGE_SELF)
    read = next(line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar"))
    # Not `ru_maxrss`: it begins with what the parent held when it started this process.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {
        "cpu": mine.ru_utime + mine.ru_stime,
        "peak": int(peak.split()[1]) / 1024,
        "read": int(read.split()[1]) / 1e6,
    }


def _imported() -> None:
    """What a worker loads once, before the clock starts."""
    import gratis.estimators.table_job  # noqa: F401


def measure(folder: Path, kind: str, workers: int) -> dict[str, Any]:
    """One fit, gradient step or histogram, in this process and on its workers."""
    from gratis.estimators.table_fit import plan_table_fit
    from gratis.mechanisms.location_scale import _Block
    from gratis.mechanisms.noise import NoiseSource
    from gratis.mechanisms.rows import Rows
    from gratis.models.generalised_linear import LinearModel
    from gratis.records.budget import Budget
    from gratis.records.settings import Descent
    from gratis.rows import cluster_client
    from gratis.rows.cluster import ClusterRows
    from gratis.rows.cluster_table import ClusterTable
    from gratis.stages.full_batch import descend

    cluster_client._KEPT_SHARE = 0.0
    passes = [0]
    for rows_kind in (Rows, ClusterRows):
        total = rows_kind.total

        def counted(self: Any, contribution: Any, total: Any = total) -> Any:
            passes[0] += 1
            return total(self, contribution)

        rows_kind.total = counted  # type: ignore[method-assign]
    budget = Budget(epsilon=1.0, delta=1e-9)
    options = {"descent": Descent(steps=STEPS)}
    job = plan_table_fit(folder, "y", budget, model="linear", memory_bytes=1.0, options=options)
    with cluster_client.connected(f"local:{workers}" if workers else None) as client:
        blocks = 0
        if client is not None:
            client.run(_imported)
            blocks = len(ClusterTable(client, job.training)._blocks())
        before, begun = used(), time.perf_counter()
        on_workers = client.run(used) if client else {}
        if kind == "fit":
            found = job.run(cluster=client).estimator
            score = float(np.linalg.norm(found.coef_[:5] - 1) + np.linalg.norm(found.coef_[5:]))
        else:
            rows: Any = Rows(job.training.batches, job.training.n_rows, job.training.n_features)
            if client is not None:
                rows = ClusterTable(client, job.training).rows(lambda X, y: (X, y))
            if kind == "histogram":
                distances = _Block(rows, COLUMNS, impute=True).half_octaves(np.zeros(COLUMNS), np.full(COLUMNS, 4.0))
                score = float(distances.sum() / COLUMNS / rows.n_rows)
            else:
                run = descend(
                    rows, LinearModel(), steps=1, clip_norm=8.0, learning_rate=0.5, mu=1.0,
                    neighbouring=budget.neighbouring, noise=NoiseSource.secure(),
                )  # fmt: skip
                score = float(np.abs(run.parameters).max())
        wall = time.perf_counter() - begun
        after, last = used(), client.run(used) if client else {}
    spent = [{name: last[key][name] - on_workers[key][name] for name in ("cpu", "read")} for key in last]
    rows = job.training.n_rows
    return {
        "kind": kind, "rows": rows, "workers": workers, "readings": passes[0], "blocks": blocks, "wall": wall,
        "coordinator cpu": after["cpu"] - before["cpu"], "coordinator read": after["read"] - before["read"],
        "coordinator peak": after["peak"], "workers cpu": sum(one["cpu"] for one in spent),
        "workers read": sum(one["read"] for one in spent),
        "largest worker peak": max((one["peak"] for one in last.values()), default=0.0), "score": score,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fits", type=int, nargs="*", default=[1_000_000, 4_000_000])
    parser.add_argument("--readings", type=int, nargs="*", default=[])
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2, 4])
    parser.add_argument("--output", type=Path, default=Path("scale.json"))
    parser.add_argument("--keep", action="store_true", help="do not remove the last table")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, workers = options.one
        print(json.dumps(measure(options.folder, kind, int(workers))))
        return
    done: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    sizes = [(rows, kind) for rows in options.readings for kind in ("step", "histogram")]
    sizes += [(rows, "fit") for rows in options.fits]
    for rows, kind, workers in [(*case, workers) for case in sorted(sizes) for workers in options.workers]:
        key = f"{kind} {rows} {workers}"
        if key in done:
            continue
        table = options.folder / f"rows-{rows}"
        if not table.exists():
            shutil.rmtree(options.folder, ignore_errors=True)  # one table at a time
            make(table, rows)
        size = sum(file.stat().st_size for file in table.iterdir()) / 1e6
        command = [sys.executable, __file__, str(table), "--one", kind, str(workers)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        done[key] = json.loads(said.splitlines()[-1]) | {"megabytes": size}
        options.output.write_text(json.dumps(done, indent=1) + "\n")
        print(key, done[key], flush=True)
    if not options.keep:
        shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
