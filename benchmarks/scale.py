"""A table that no memory holds: a fit streamed by one process and on Dask workers, in bytes, CPU seconds and memory.

    python benchmarks/scale.py FOLDER [--fits 131072 262144 524288] [--pass-rows 8000000] [--output FILE]

Makes rows × 50 columns of float32 and a target in Parquet under FOLDER, and removes them at the end. Whole fits of a
linear model (ε = 1) are measured at the sizes of `--fits`: one process, and local clusters of 1, 2 and 4 workers that
read their blocks at every release, and of 2 that keep them. Of the large table one gradient step is measured, which is
one of the readings of a fit. Every measurement is a process of its own; CPU seconds are those of coordinator (with
Dask's scheduler) and workers, bytes are what they asked the system for. Finished measurements are taken from --output.
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
    return {"cpu": mine.ru_utime + mine.ru_stime, "peak": mine.ru_maxrss / 1024, "read": int(read.split()[1]) / 1e6}


def _imported() -> None:
    """What a worker loads once, before the clock starts."""
    import gratis.estimators.table_job  # noqa: F401


def measure(folder: Path, kind: str, workers: int, kept: bool) -> dict[str, Any]:
    """One fit, or one gradient step, in this process and on its workers."""
    from gratis.estimators.table_fit import plan_table_fit
    from gratis.mechanisms.noise import NoiseSource
    from gratis.mechanisms.rows import Rows
    from gratis.models.linear import LinearModel
    from gratis.records.budget import Budget
    from gratis.records.settings import Descent
    from gratis.rows import cluster_client
    from gratis.rows.cluster import ClusterRows, rows_per_block
    from gratis.rows.cluster_table import ClusterTable
    from gratis.stages.full_batch import descend

    if not kept:
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
            blocks = (
                -(-job.n_rows // rows_per_block(COLUMNS)) if kept else len(ClusterTable(client, job.training)._blocks())
            )
        before = used()
        on_workers = client.run(used) if client else {}
        if kind == "fit":
            found = job.run(cluster=client).estimator
            score = float(np.linalg.norm(found.coef_[:5] - 1) + np.linalg.norm(found.coef_[5:]))
        else:
            rows: Any = Rows(job.training.batches, job.training.n_rows, job.training.n_features)
            if client is not None:
                rows = ClusterTable(client, job.training).rows(lambda X, y: (X, y))
            run = descend(
                rows, LinearModel(), steps=1, clip_norm=8.0, learning_rate=0.5, mu=1.0,
                neighbouring=budget.neighbouring, noise=NoiseSource.secure(),
            )  # fmt: skip
            score = float(np.abs(run.parameters).max())
        after, last = used(), client.run(used) if client else {}
    spent = [{name: last[key][name] - on_workers[key][name] for name in ("cpu", "read")} for key in last]
    rows = job.training.n_rows
    return {
        "kind": kind, "rows": rows, "workers": workers, "kept": kept, "readings": passes[0],
        "blocks": blocks,
        "coordinator cpu": after["cpu"] - before["cpu"], "coordinator read": after["read"] - before["read"],
        "coordinator peak": after["peak"], "workers cpu": sum(one["cpu"] for one in spent),
        "workers read": sum(one["read"] for one in spent),
        "largest worker peak": max((one["peak"] for one in last.values()), default=0.0), "score": score,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fits", type=int, nargs="*", default=[2**17, 2**18, 2**19])
    parser.add_argument("--pass-rows", type=int, nargs="*", default=[8_000_000])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--output", type=Path, default=Path("scale.json"))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, workers, kept = options.one
        print(json.dumps(measure(options.folder, kind, int(workers), kept == "kept")))
        return
    done: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    work = [(rows, "step", 0, False) for rows in options.pass_rows]
    work += [(rows, "step", 2, False) for rows in options.pass_rows]
    largest = max(options.fits, default=0)
    for rows in options.fits:
        work.append((rows, "fit", 0, False))
        work += [(rows, "fit", n, False) for n in (options.workers if rows == largest else [2])]
    work.append((largest, "fit", 2, True))
    for rows, kind, workers, kept in sorted(work):
        key = f"{kind} {rows} {workers} {'kept' if kept else 'read'}"
        if key in done or not rows:
            continue
        table = options.folder / f"rows-{rows}"
        if not table.exists():
            shutil.rmtree(options.folder, ignore_errors=True)  # one table at a time
            make(table, rows)
        size = sum(file.stat().st_size for file in table.iterdir()) / 1e6
        command = [sys.executable, __file__, str(table), "--one", kind, str(workers), "kept" if kept else "read"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        done[key] = json.loads(said.splitlines()[-1]) | {"megabytes": size}
        options.output.write_text(json.dumps(done, indent=1) + "\n")
        print(key, done[key], flush=True)
    shutil.rmtree(options.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
