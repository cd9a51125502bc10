"""A Dask cluster of real processes beside one machine: the same bits, with workers that are killed, and what it costs.

    python benchmarks/cluster.py [--kills 100] [--rows 400000] [--output FILE]

First fits on arrays and on 1, 2 and 4 workers, compared bit for bit; then fits while workers are killed (SIGKILL) at
random moments until so many have died. Noise seeds are fixed, so that bits can be compared: never do that otherwise.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as Dask's workers have it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from gratis import DPAdditiveRegressor, DPLinearRegression, DPLogisticRegression
from gratis.estimators.released_arrays import arrays_digest, released_arrays

SEEDED = {"epsilon": 1.0, "delta": 1e-6, "noise_seed": 11, "insecure_reproducible": True}
MODELS: dict[str, Any] = {
    "linear": lambda: DPLinearRegression(**SEEDED),
    "logistic": lambda: DPLogisticRegression(**SEEDED, classes=[0, 1]),
    "additive": lambda: DPAdditiveRegressor(**SEEDED),
}


def table(n: int, d: int = 10) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * 10.0 ** np.arange(-2, d - 2)
    y = (X / 10.0 ** np.arange(-2, d - 2)) @ rng.normal(size=d) + rng.normal(size=n)
    return X, y


def target(model: str, y: Any) -> Any:
    return (y > 0).astype(np.float64) if model == "logistic" else y


def digest(model: str, X: Any, y: Any) -> tuple[str, float]:
    begun = time.perf_counter()
    found = MODELS[model]().fit(X, y)
    return arrays_digest(released_arrays(found)), time.perf_counter() - begun


def killer(cluster: Any, done: threading.Event, kills: list[int], most: int) -> None:
    """Kill a random worker process every second or so; its nanny starts another."""
    rng = random.Random(1)
    while not done.wait(rng.uniform(0.2, 1.2)) and len(kills) < most:
        pids = [worker.pid for worker in cluster.workers.values() if worker.pid]
        if len(pids) > 1:
            try:
                os.kill(rng.choice(pids), signal.SIGKILL)
                kills.append(1)
            except ProcessLookupError:
                pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    X, y = table(options.rows)
    results: dict[str, Any] = {"rows": options.rows, "columns": X.shape[1]}
    expected = {}
    for model in MODELS:
        expected[model], seconds = digest(model, X, target(model, y))
        results[model] = {"arrays": seconds}
    for workers in (1, 2, 4):
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            for model in MODELS:
                found, seconds = digest(
                    model, da.from_array(X, chunks=(50_000, 10)), da.from_array(target(model, y), chunks=30_000)
                )
                results[model][f"{workers} workers"] = seconds
                results[model][f"{workers} workers, same bits"] = found == expected[model]
                print(model, workers, found == expected[model], f"{seconds:.1f} s", flush=True)
    kills: list[int] = []
    fits = wrong = refused = 0
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster),
    ):
        done = threading.Event()
        thread = threading.Thread(target=killer, args=(cluster, done, kills, options.kills))
        thread.start()
        while len(kills) < options.kills:
            model = list(MODELS)[fits % len(MODELS)]
            try:
                found, _ = digest(
                    model, da.from_array(X, chunks=(50_000, 10)), da.from_array(target(model, y), chunks=30_000)
                )
                wrong += found != expected[model]
            except Exception as error:
                refused += 1
                print("refused:", error, flush=True)
            fits += 1
            print(f"{len(kills)} kills, {fits} fits, {wrong} wrong, {refused} refused", flush=True)
        done.set()
        thread.join()
    results["chaos"] = {"kills": len(kills), "fits": fits, "wrong": wrong, "refused": refused}
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
