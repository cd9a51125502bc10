"""Wide tables: what 2,000 × 20,000 costs, and where the second-moment stage should be left out.

    python benchmarks/wide_tables.py size --classes 10
    python benchmarks/wide_tables.py synthetic --rows 500,2000 --columns 50,200,800 --mus 0.25,1,4
    GRATIS_DATA=... python benchmarks/wide_tables.py tables --epsilons 0.3,1,3

`size` prints CPU seconds, seconds and peak memory of one fit, and its score on fresh rows. The other two train with
second moments and without on the same rows and print both scores against crowding κd/(nμ), the number that the rules
`second_moments_pay` of `models.linear` and `stages.staged` ask for. `tables` sets a fifth of the rows aside, never
looked at, and validates on a fifth of the others. Noise seeds are fixed: never do that with data that matters.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import resource
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.accounting.gdp import gdp_epsilon_upper_bound
from gratis.estimators import DPLinearRegression, DPLogisticRegression
from gratis.models import linear
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring
from gratis.stages import staged

Array = NDArray[np.float64]
DELTA = 1e-5


def factors(n: int, d: int, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Twenty factors carry half of the variance of the columns, and all of the signal."""
    hidden = rng.standard_normal((n, 20))
    X = hidden @ (rng.standard_normal((20, d)) / math.sqrt(20))
    for rows in np.array_split(X, 20):
        rows += rng.standard_normal(rows.shape)
    scores = hidden @ rng.standard_normal((20, max(k, 1)))
    if k:
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(np.float64)
    return X, scores[:, 0] / math.sqrt(20) + 0.5 * rng.standard_normal(n)


def size(n: int, d: int, k: int, epsilon: float) -> None:
    X, y = factors(n + 500, d, k, np.random.default_rng(0))
    choices: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA}
    model = DPLogisticRegression(classes=list(range(k)), **choices) if k else DPLinearRegression(**choices)
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X[:n], y[:n])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(
        f"{n} x {d}, {k or 'no'} classes, epsilon {epsilon:g}: CPU {cpu:.1f} s, {wall:.1f} s, "
        f"peak {peak:.2f} GB with the data ({X.nbytes / 1e9:.2f} GB), score {model.score(X[n:], y[n:]):.3f}"
    )


def score(
    train: tuple[Array, Array], fresh: tuple[Array, Array], precondition: bool, n_classes: int | None, **budget: Any
) -> float:
    """R² or accuracy on fresh rows of the estimator as it is shipped, but for what the rule says."""
    # Every recipe asks the rule by its name in the module that imported it.
    with ExitStack() as patched:
        for module in (
            "gratis.models.linear",
            "gratis.recipes.linear",
            "gratis.stages.staged",
            "gratis.recipes.logistic",
        ):
            patched.enter_context(mock.patch(f"{module}.second_moments_pay", return_value=precondition))
        if n_classes is None:
            model: Any = DPLinearRegression(insecure_reproducible=True, **budget)
        else:
            model = DPLogisticRegression(classes=list(range(n_classes)), insecure_reproducible=True, **budget)
        return float(model.fit(*train).score(*fresh))


def compare(name: str, splits: list[Any], mu: float, relation: Neighbouring, n_classes: int | None, draws: int) -> None:
    n, d = splits[0][0][0].shape
    found = {}
    epsilon = gdp_epsilon_upper_bound(mu=mu, delta=DELTA)
    budget = {"epsilon": epsilon, "delta": DELTA, "neighbouring": str(relation)}
    for precondition in (True, False):
        found[precondition] = [
            score(*split, precondition, n_classes, noise_seed=seed, **budget)
            for split in splits
            for seed in range(draws)
        ]
    gain = np.subtract(found[False], found[True])
    if n_classes is None:
        pays = linear.second_moments_pay(d, n * mu / relation.sensitivity_factor)
    else:
        pays = staged.second_moments_pay(n, d, mu=mu, neighbouring=relation)
    print(
        f"{name:24s} {n:5d} x {d:4d} mu {mu:.3f} {relation!s:11s} crowding "
        f"{relation.sensitivity_factor * d / (n * mu):6.2f} with {np.mean(found[True]):6.3f} without "
        f"{np.mean(found[False]):6.3f} gain {gain.mean():6.3f} +- {gain.std() / math.sqrt(gain.size):.3f} rule "
        f"{'with' if pays else 'without'}",
        flush=True,
    )


def synthetic(rows: list[int], columns: list[int], mus: list[float], classes: int | None, draws: int) -> None:
    """Rotated spectra k^-a of the same trace, or ten strong directions; signal where the variance is, or more so."""
    shapes: dict[str, Callable[[Array], Array]] = {
        "flat": np.ones_like,
        "1/k": lambda k: 1 / k,
        "1/k^2": lambda k: 1 / k**2,
        "ten": lambda k: np.where(k <= 10, k.size / 10, 1.0),
    }
    for n, d, mu in ((n, d, mu) for n in rows for d in columns for mu in mus):
        for (name, shape), lean in ((item, lean) for item in shapes.items() for lean in (0, 1)):
            if name == "flat" and lean:
                continue
            splits = []
            for draw in range(draws):
                rng = np.random.default_rng(zlib.crc32(repr((n, d, name, lean, draw)).encode()))
                spectrum = shape(np.arange(1.0, d + 1))
                spectrum *= d / spectrum.sum()
                Z = rng.standard_normal((n + 2000, d)) * np.sqrt(spectrum)
                signals = Z @ (rng.standard_normal((d, classes or 1)) * spectrum[:, None] ** (lean / 2))
                signals /= signals.std(axis=0)
                if classes:
                    y = (3 * signals + rng.gumbel(size=signals.shape)).argmax(axis=1).astype(np.float64)
                else:
                    y = math.sqrt(0.6) * signals[:, 0] + math.sqrt(0.4) * rng.standard_normal(n + 2000)
                X = Z @ np.linalg.qr(rng.standard_normal((d, d)))[0].T
                splits.append(((X[:n], y[:n]), (X[n:], y[n:])))
            compare(f"{name} lean {lean}", splits, mu, Neighbouring.REPLACE_ONE, classes, 1)


def tables() -> Iterator[tuple[str, Array, Array, int | None]]:
    folder = Path(os.environ["GRATIS_DATA"]) / "tabular"

    def plain(name: str) -> tuple[Array, Array]:
        with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
            table = np.genfromtxt(file, delimiter=",", skip_header=1)
        return table[:, :-1], table[:, -1]

    def columnar(name: str) -> tuple[Array, Array]:
        import pyarrow.parquet as pq

        table = pq.read_table(folder / f"{name}.parquet")
        features = [c for c in table.column_names if c != "target"]
        return np.column_stack([table[c].to_numpy() for c in features]).astype(np.float64), table["target"].to_numpy()

    def communities() -> tuple[Array, Array]:
        with gzip.open(folder / "communities_crime.csv.gz", "rt") as file:
            table = np.genfromtxt(file, delimiter=",", skip_header=1, missing_values="?")[:, 5:]
        kept = table[:, np.isnan(table).mean(axis=0) < 0.01]
        return np.nan_to_num(kept[:, :-1]), kept[:, -1]

    readers: dict[str, tuple[Callable[[], tuple[Array, Any]], bool]] = {
        "isolet": (lambda: plain("skfeature_isolet"), True),
        "mfeat_factors": (lambda: columnar("mfeat_factors"), True),
        "dna": (lambda: plain("pmlb_dna"), True),
        "clean2": (lambda: columnar("clean2"), True),
        "music": (lambda: plain("pmlb_4544_GeographicalOriginalofMusic"), False),
        "communities": (communities, False),
        "gas_drift": (lambda: columnar("gas_drift"), False),
        "isolet_halves": (lambda: plain("skfeature_isolet"), False),
    }
    for name, (read, classes) in readers.items():
        X, y = read()
        if name == "isolet_halves":
            y = (y < 14).astype(np.float64)
        if classes:
            levels, codes = np.unique(y, return_inverse=True)
            yield name, X, codes.astype(np.float64), len(levels)
        else:
            yield name, X, np.asarray(y, dtype=np.float64), None


def real(epsilons: list[float], draws: int) -> None:
    for name, X, y, n_classes in tables():
        seen = np.random.default_rng(20261113).permutation(len(X))[len(X) // 5 :]
        splits = []
        for draw in range(draws):
            order = np.random.default_rng(draw).permutation(seen)
            validation, train = np.split(order, [len(order) // 5])
            splits.append(((X[train], y[train]), (X[validation], y[validation])))
        for epsilon in epsilons:
            for relation in Neighbouring:
                mu = calibrate_mu(Budget(epsilon=epsilon, delta=DELTA, neighbouring=relation))
                compare(name, splits, mu, relation, n_classes, 1)


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("size", "synthetic", "tables"))
    parser.add_argument("--rows", default="2000")
    parser.add_argument("--columns", default="20000")
    parser.add_argument("--classes", type=int, default=0)
    parser.add_argument("--epsilons", type=numbers, default=[1.0])
    parser.add_argument("--mus", type=numbers, default=[0.25, 1.0, 4.0])
    parser.add_argument("--draws", type=int, default=3)
    asked = parser.parse_args()
    rows, columns = ([int(part) for part in text.split(",")] for text in (asked.rows, asked.columns))
    if asked.part == "size":
        size(rows[0], columns[0], asked.classes, asked.epsilons[0])
    elif asked.part == "synthetic":
        synthetic(rows, columns, asked.mus, asked.classes or None, asked.draws)
    else:
        real(asked.epsilons, asked.draws)


if __name__ == "__main__":
    main()
