"""Real tables at ε = 1, δ = 1e−5: ours with private and with public preprocessing, OLS, AdaSSP, mean prediction.

    GRATIS_DATA=... python benchmarks/linear_tables.py --tables california,bike_hour --seeds 10 --output tables.json

Test R² (accuracy for classes), median over random 80/20 splits, of `DPLinearRegression` and `DPLogisticRegression` as
they are shipped. Noise seeds are fixed so that a table can be reproduced: never do that with data that matters.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.estimators import DPLinearRegression, DPLogisticRegression
from gratis.estimators.scales import PublicScales
from gratis.mechanisms.location_scale import Standardiser
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring
from tabular import CLASSIFICATION, REGRESSION, split

Array = NDArray[np.float64]
EPSILON, DELTA = 1.0, 1e-5


def settings(relation: Neighbouring, seed: int, public: PublicScales | None = None) -> dict[str, Any]:
    return {
        "epsilon": EPSILON,
        "delta": DELTA,
        "neighbouring": str(relation),
        "preprocessing": "private" if public is None else "public",
        "public": public,
        "noise_seed": seed,
        "insecure_reproducible": True,
    }


def public_map(X: Array, tail: float = 0.02) -> Standardiser:
    """Means, deviations and windows of a public sample."""
    centre, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return Standardiser(centre, scale, np.maximum(np.quantile(np.abs(X - centre), 1 - tail, axis=0), 2 * scale))


def ols(X: Array, y: Array) -> Callable[[Array], Array]:
    design = np.column_stack([X, np.ones(len(X))])
    size = np.abs(design).max(axis=0)
    size[size == 0] = 1.0  # a level that occurs in no training row
    solution = np.linalg.lstsq(design / size, y, rcond=1e-10)[0] / size
    return lambda Z: np.column_stack([Z, np.ones(len(Z))]) @ solution


def adassp(
    X: Array, y: Array, relation: Neighbouring, rng: np.random.Generator, row_bound: float, target_bound: float
) -> Array:
    """AdaSSP (Wang 2018, Algorithm 2) with exact Gaussian accounting: three releases of μ/√3.

    Rows are clipped to `row_bound`, targets to ±`target_bound`. Sensitivities: smallest eigenvalue B²; XᵀX in
    Frobenius norm B² (√2·B² for an exchange); Xᵀy κ·B·B_y.
    """
    whole = calibrate_mu(Budget(epsilon=EPSILON, delta=DELTA, neighbouring=relation))
    mu, columns, kappa = whole / math.sqrt(3), X.shape[1], relation.sensitivity_factor
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    X = X * np.minimum(1, row_bound / np.maximum(norms, 1e-300))
    y = np.clip(y, -target_bound, target_bound)
    moments = X.T @ X
    noise = rng.standard_normal((columns, columns))
    sigma = row_bound**2 * math.sqrt(kappa) / mu
    # As in the paper: a lower confidence bound of the smallest eigenvalue, then just enough ridge (ρ = .05).
    smallest = float(np.linalg.eigvalsh(moments)[0]) + row_bound**2 / mu * (rng.standard_normal() - 1.645)
    ridge = max(0.0, sigma * math.sqrt(columns * math.log(2 * columns**2 / 0.05)) - max(smallest, 0.0))
    products = X.T @ y + kappa * row_bound * target_bound / mu * rng.standard_normal(columns)
    noisy = moments + sigma * (np.triu(noise) + np.triu(noise, 1).T)
    return np.asarray(np.linalg.solve(noisy + ridge * np.eye(columns), products))


def adassp_best_case(
    train: tuple[Array, Array], test: tuple[Array, Array], relation: Neighbouring, seed: int
) -> dict[str, float]:
    """R² for a grid of clip quantiles, with non-private means, deviations and norms: bounds nobody has."""
    X, y = train
    scaled = public_map(X)
    centre, scale = y.mean(), y.std()
    sizes = np.abs((y - centre) / scale)
    found = {}
    for winsorised in (False, True):
        window = scaled.window if winsorised else np.full(X.shape[1], np.inf)
        maps = Standardiser(scaled.centre, scaled.scale, window)
        Z, T = (np.column_stack([maps.transform(part), np.ones(len(part))]) for part in (X, test[0]))
        norms = np.linalg.norm(Z, axis=1)
        for row_quantile in (0.1, 0.5, 0.9, 1.0):
            for target_quantile in (0.9, 0.99, 1.0):
                bounds = np.quantile(norms, row_quantile), np.quantile(sizes, target_quantile)
                rng = np.random.default_rng(seed)
                theta = adassp(Z, (y - centre) / scale, relation, rng, *map(float, bounds))
                key = f"{winsorised}/{row_quantile}/{target_quantile}"
                found[key] = r_squared(test[1], T @ theta * scale + centre)
    return found


def r_squared(y: Array, predicted: Array) -> float:
    return float(1 - np.square(y - predicted).mean() / y.var())


def regression(name: str, relation: Neighbouring, seeds: int) -> dict[str, Any]:
    X, y = REGRESSION[name]()
    columns: dict[str, list[float]] = {k: [] for k in ("ols", "private", "public", "mean", "seconds")}
    best: list[dict[str, float]] = []
    predicted: list[tuple[float, float, float]] = []
    for seed in range(seeds):
        train, test = split(X, y, seed)
        columns["ols"].append(r_squared(test[1], ols(*train)(test[0])))
        started = time.perf_counter()
        private = DPLinearRegression(**settings(relation, seed)).fit(*train)
        columns["seconds"].append(time.perf_counter() - started)
        columns["private"].append(r_squared(test[1], private.predict(test[0])))
        # The excess risk is half of a squared error: in units of the target's variance it is what R² should lose.
        said = private.plan_.prediction
        predicted.append((2 * said.low, 2 * said.value, 2 * said.high))
        # A tenth of the rows plays the public sample and is not trained on.
        tenth = len(train[1]) // 10
        scales = PublicScales.from_sample(train[0][:tenth], train[1][:tenth])
        public = DPLinearRegression(**settings(relation, seed, scales)).fit(train[0][tenth:], train[1][tenth:])
        columns["public"].append(r_squared(test[1], public.predict(test[0])))
        columns["mean"].append(r_squared(test[1], np.full(len(test[1]), train[1].mean())))
        best.append(adassp_best_case(train, test, relation, seed))
    medians = {key: float(np.median(values)) for key, values in columns.items()}
    medians["adassp"] = max(float(np.median([b[key] for b in best])) for key in best[0])
    lost = float(np.median(np.subtract(columns["ols"], columns["private"])))
    rows = {"n": round(0.8 * len(y)), "d": X.shape[1]}
    lists = {"private_all": columns["private"], "ols_all": columns["ols"]}
    return rows | medians | {
        "worst_private": min(columns["private"]),
        "ols_minus_private": lost,
        "predicted_excess": [float(v) for v in np.median(predicted, axis=0)],
    } | lists  # fmt: skip


def classification(name: str, relation: Neighbouring, seeds: int) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    X, y = CLASSIFICATION[name]()
    classes = np.unique(y)
    columns: dict[str, list[float]] = {k: [] for k in ("logistic", "private", "public", "majority", "seconds")}
    for seed in range(seeds):
        train, test = split(X, y, seed)
        scaler = StandardScaler().fit(train[0])
        if seed == 0:
            known = LogisticRegression(max_iter=200, tol=1e-3).fit(scaler.transform(train[0]), train[1])
            columns["logistic"].append(float(known.score(scaler.transform(test[0]), test[1])))
        started = time.perf_counter()
        private = DPLogisticRegression(classes=classes, **settings(relation, seed)).fit(*train)
        columns["seconds"].append(time.perf_counter() - started)
        columns["private"].append(float(private.score(*test)))
        tenth = len(train[1]) // 10
        scales = PublicScales.from_sample(train[0][:tenth])
        public = DPLogisticRegression(classes=classes, **settings(relation, seed, scales))
        columns["public"].append(float(public.fit(train[0][tenth:], train[1][tenth:]).score(*test)))
        columns["majority"].append(float((test[1] == np.bincount(train[1].astype(int)).argmax()).mean()))
    medians = {key: float(np.median(values)) for key, values in columns.items()}
    rows = {"n": round(0.8 * len(y)), "d": X.shape[1], "classes": len(classes)}
    return rows | medians | {"worst_private": min(columns["private"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join([*REGRESSION, *CLASSIFICATION]))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--relation", choices=[*map(str, Neighbouring), "both"], default="both")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    relations = list(Neighbouring) if arguments.relation == "both" else [Neighbouring(arguments.relation)]
    results: dict[str, Any] = {}
    for name in arguments.tables.split(","):
        for relation in relations:
            run = regression if name in REGRESSION else classification
            row = run(name, relation, arguments.seeds)
            results[f"{name} {relation}"] = row
            cells = " ".join(
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
                for key, value in row.items()
                if not isinstance(value, list)
            )
            print(f"{name:18s} {relation:12s} {cells}", flush=True)
            if arguments.output:
                arguments.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
