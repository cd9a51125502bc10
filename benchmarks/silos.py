"""Linear regression over silos: what it costs that nobody sees exact sums. Prints JSON.

    python benchmarks/silos.py [--silos 8] [--honest 6] [--draws 50]

Tables of `GRATIS_DATA`: California housing, winequality (white), cpu_act. The first 300 rows are declared public and
give the scales, every fifth of the others is for testing, the rest is cut into silos of unequal sizes by position. For
each table and ε: R² on the test rows, median (and 10 %, 90 %) over draws of the noise, of the same sums released by one
curator, by silos whose total alone is seen, and by silos whose shares are seen.
One run is by processes: a plan file, one process a silo that reads it and writes its share, one coordinator.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gratis.estimators.scales import PublicScales
from gratis.estimators.silos import SiloPlan, SiloShare, combine_shares, make_share, release_share
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget

TABLES = ("california/california_housing.csv.gz", "tabular/winequality_white", "tabular/pmlb_573_cpu_act")
EPSILONS = (0.5, 1.0, 2.0, 8.0)
DELTA = 1e-6


def table(name: str) -> tuple[Any, Any]:
    import pandas as pd

    folder = Path(os.environ["GRATIS_DATA"])
    path = next(p for p in sorted((folder / name).parent.iterdir()) if p.name.startswith(Path(name).name))
    with gzip.open(path, "rt") as file:
        first = file.readline()
        file.seek(0)
        separator = max(",;\t", key=first.count)
        frame = pd.read_csv(file, sep=separator)
    target = "target" if "target" in frame else frame.columns[-1]
    y = frame.pop(target).to_numpy(dtype=np.float64)
    order = np.random.default_rng(0).permutation(len(y))
    return frame.to_numpy(dtype=np.float64)[order], y[order]


def problem(name: str, silos: int) -> dict[str, Any]:
    X, y = table(name)
    scales = PublicScales.from_sample(X[:300], y[:300])
    X, y = X[300:], y[300:]
    test = np.arange(len(y)) % 5 == 0
    ends = np.cumsum(np.arange(1, silos + 1) / (silos * (silos + 1) / 2)) * (~test).sum()
    cuts = [0, *np.rint(ends).astype(int).tolist()]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    return {"X": X[~test], "y": y[~test], "X_test": X[test], "y_test": y[test], "parts": parts, "scales": scales}


def plan_for(given: dict[str, Any], epsilon: float, honest: int, *, seen: bool) -> SiloPlan:
    scales = given["scales"]
    return SiloPlan(
        rows=tuple(part.stop - part.start for part in given["parts"]), columns=given["X"].shape[1],
        budget=Budget(epsilon=epsilon, delta=DELTA), honest=honest, means=tuple(map(float, scales.means)),
        scales=tuple(map(float, scales.scales)), target_mean=scales.target_mean, target_scale=scales.target_scale,
        shares_are_seen=seen,
    )  # fmt: skip


def r2(model: Any, given: dict[str, Any]) -> float:
    error = np.square(given["y_test"] - model.predict(given["X_test"])).mean()
    return 1 - float(error / given["y_test"].var())


def scores(given: dict[str, Any], plan: SiloPlan, draws: int) -> list[float]:
    found = []
    for _ in range(draws):
        shares = [
            SiloShare(plan=plan.digest, silo=i, values=tuple(release_share(
                plan, given["X"][part], given["y"][part], noise=NoiseSource.secure()).ravel().tolist()))
            for i, part in enumerate(given["parts"])
        ]  # fmt: skip
        found.append(r2(combine_shares(plan, shares, inside_secure_aggregation=True), given))
    return found


def by_processes(name: str, silos: int, honest: int) -> dict[str, Any]:
    """A plan file, one process a silo, one coordinator."""
    given = problem(name, silos)
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_for(given, 2.0, honest, seen=True)
        plan.write(f"{folder}/plan.json")
        start = time.perf_counter()
        running = [
            subprocess.Popen([sys.executable, __file__, "--silo", str(i), folder, name, "--silos", str(silos)])
            for i in range(silos)
        ]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit("a silo failed")
        model = combine_shares(plan, [SiloShare.read(path) for path in sorted(Path(folder).glob("share-*.json"))])
        sizes = [path.stat().st_size for path in Path(folder).glob("share-*.json")]
        return {
            "table": name, "epsilon": 2.0, "processes": silos, "r2": r2(model, given),
            "bytes_of_a_share": max(sizes), "seconds_on_a_busy_machine": time.perf_counter() - start,
        }  # fmt: skip


def silo(place: int, folder: str, name: str, silos: int) -> None:
    given = problem(name, silos)
    part = given["parts"][place]
    plan = SiloPlan.read(f"{folder}/plan.json")
    certificate = make_share(plan, place, given["X"][part], given["y"][part], f"{folder}/share-{place}.json")
    certificate.write(f"{folder}/certificate-{place}.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--silos", type=int, default=8)
    parser.add_argument("--honest", type=int, default=6)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--silo", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.silo:
        silo(int(options.silo[0]), options.silo[1], options.silo[2], options.silos)
        return
    report: dict[str, Any] = {"silos": options.silos, "honest": options.honest, "draws": options.draws, "tables": {}}
    for name in TABLES:
        given = problem(name, options.silos)
        one = given | {"parts": [slice(0, len(given["y"]))]}
        rows: dict[str, Any] = {"rows": len(given["y"]), "columns": given["X"].shape[1]}
        for epsilon in EPSILONS:
            ways = {
                "one curator": (one, plan_for(one, epsilon, 1, seen=True)),
                "total seen": (given, plan_for(given, epsilon, options.honest, seen=False)),
                "shares seen": (given, plan_for(given, epsilon, options.honest, seen=True)),
            }
            for way, (parts, plan) in ways.items():
                found = np.quantile(scores(parts, plan, options.draws), [0.1, 0.5, 0.9]).round(4).tolist()
                rows.setdefault(way, {})[str(epsilon)] = found
        # Hardly any noise: what clipping and the ridge leave.
        quiet = replace(plan_for(one, 1.0, 1, seen=True), budget=Budget(epsilon=1e6, delta=DELTA))
        rows["without noise"] = round(scores(one, quiet, 1)[0], 4)
        design = np.column_stack([given["X"], np.ones(len(given["y"]))])
        ols = np.linalg.lstsq(design, given["y"], rcond=None)[0]
        error = np.square(given["y_test"] - given["X_test"] @ ols[:-1] - ols[-1]).mean()
        rows["least squares"] = round(1 - float(error / given["y_test"].var()), 4)
        report["tables"][name] = rows
        print(name, rows, file=sys.stderr, flush=True)
    report["processes"] = by_processes(TABLES[0], options.silos, options.honest)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
