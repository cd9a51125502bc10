"""Default estimators on the real tables beside what else one could take: one page of wins and losses.

    GRATIS_DATA=... python benchmarks/tables.py --models additive,references [--tables california,adult] [--splits 5]
    GRATIS_DATA=... python benchmarks/tables.py --models linear [--splits 5]
    python benchmarks/tables.py --page

Test R², AUC (two classes) or accuracy, δ = 1e−5, ε = .3, 1, 3, both relations, mean over random 80/20 splits, for the
additive and the linear (logistic) model as they are shipped, and for `auto`, which is one of the two by public sizes.
Without privacy: least squares or logistic regression, and gradient boosting. AdaSSP has bounds and clipping chosen on
the test rows; DP-EBM (`dpebm.py`, in its own environment) was told true bounds. Splits have seeds 80000, 80001, …, on
which nothing was chosen; the first is run for all tables, then the second, and so on. Adds what is missing to
docs/results/comparison.json after every cell; `--page` rewrites the tables in docs/results/tables.md. Noise
seeds are fixed so that a table can be reproduced: never do that with data that matters.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from gratis import DPAdditiveClassifier, DPAdditiveRegressor, DPLinearRegression, DPLogisticRegression
from gratis.estimators.model_choice import choose_model
from gratis.records.budget import Budget
from gratis.records.facts import Facts
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
    "optdigits", "dna", "mfeat_factors",
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
    if model == "linear":
        kind: Any = DPLinearRegression if regression else DPLogisticRegression
        A, B = one_hot(A, levels), one_hot(B, levels)
    else:
        kind = DPAdditiveRegressor if regression else DPAdditiveClassifier
        options["categorical"] = levels or None
    fitted = kind(**options).fit(A, a)
    found, said = scores(fitted, B, b), getattr(fitted, "expected_score_", None)
    if said is None:
        return found
    inside = said.low <= found["score" if regression else "accuracy"] <= said.high
    return found | {"low": said.low, "high": said.high, "inside": inside}


def measure(tables: list[str], models: list[str], splits: int) -> None:
    path = RESULTS / "comparison.json"

    def added(name: str, key: str, seed: int, values: Callable[[], dict[str, float]]) -> None:
        """Measure a cell that is not known yet and write it down at once; two processes may do that in turn."""
        known = json.loads(path.read_text()) if path.exists() else {}
        if len(next(iter(known.get(name, {}).get(key, {}).values()), [])) > seed:
            return
        found = values()
        known = json.loads(path.read_text()) if path.exists() else {}
        cell = known.setdefault(name, {}).setdefault(key, {})
        for part, value in found.items():
            cell.setdefault(part, []).append(round(float(value), 4))
        path.write_text(json.dumps(known, indent=1) + "\n")
        print(name, seed, key, {part: round(float(value), 3) for part, value in found.items()}, flush=True)

    for seed in range(splits):
        for name in tables:
            X, y, levels, regression = loaded(name)
            known = json.loads(path.read_text()) if path.exists() else {}
            known.setdefault(name, {}).update(
                n=round(0.8 * len(y)),
                d=X.shape[1],
                regression=regression,
                classes=None if regression else int(y.max()) + 1,
            )
            path.write_text(json.dumps(known, indent=1) + "\n")
            train, test = split(one_hot(X, levels), y, seed, FIRST)
            if "references" in models:
                added(name, "without privacy", seed, lambda: references(train, test, regression, first=seed == 0))  # noqa: B023
                for relation in RELATIONS if regression else ():
                    added(
                        name, f"adassp {relation} 1", seed,
                        lambda: adassp_best_case(train, test, Neighbouring.parse(relation), seed),  # noqa: B023
                    )  # fmt: skip
            for model in models:
                for relation in RELATIONS if model != "references" else ():
                    for epsilon in EPSILONS:
                        added(
                            name, f"{model} {relation} {epsilon:g}", seed,
                            lambda: ours(name, model, epsilon, relation, seed),  # noqa: B023
                        )  # fmt: skip


def mean(values: list[float] | None) -> float:
    return float(np.mean(values)) if values else float("nan")


def written(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}".replace("0.", ".", 1).replace("-", "−")


def chosen(row: dict[str, Any], epsilon: float, relation: str) -> str:
    budget = Budget(epsilon=epsilon, delta=DELTA, neighbouring=Neighbouring.parse(relation))
    model = choose_model(Facts(rows=row["n"], columns=row["d"], classes=row["classes"]), budget).model
    return "additive" if model == "additive" else "linear"


def page() -> str:
    known = json.loads((RESULTS / "comparison.json").read_text())
    others = json.loads((RESULTS / "dpebm.json").read_text())
    lines = []
    for relation in RELATIONS:
        lines += [
            f"\n### {relation}\n",
            "| table | n × d | additive, ε = .3 / 1 / 3 | linear or logistic | AdaSSP, ε = 1 | DP-EBM, bounds told "
            "| without privacy: linear, boosting |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, row in known.items():
            cells = []
            for model in ("additive", "linear"):
                found = [mean(row.get(f"{model} {relation} {e:g}", {}).get("score")) for e in EPSILONS]
                picks = [chosen(row, e, relation) == model for e in EPSILONS]
                cells.append(
                    " / ".join(f"**{written(v)}**" if p else written(v) for v, p in zip(found, picks, strict=True))
                )
            best = max((mean(v) for v in row.get(f"adassp {relation} 1", {}).values()), default=float("nan"))
            ebm = [_best(others.get(name, {}), e) for e in EPSILONS]
            free = ", ".join(written(mean(row["without privacy"].get(key))) for key in ("linear", "boosting"))
            lines.append(
                f"| {name} | {row['n']} × {row['d']} | {cells[0]} | {cells[1]} | {written(best)} | "
                f"{' / '.join(map(written, ebm))} | {free} |"
            )
    return "\n".join(lines) + "\n\n" + summary(known, others)


def _best(row: dict[str, list[float]], epsilon: float) -> float:
    found = [mean(row.get(f"{variant} {epsilon:g}")) for variant in ("told", "trimmed")]
    return float(np.nanmax(found)) if not np.isnan(found).all() else float("nan")


def summary(known: dict[str, Any], others: dict[str, Any]) -> str:
    lines = []
    for relation in RELATIONS:
        for epsilon in EPSILONS:
            scores: dict[str, dict[str, float]] = {}
            for name, row in known.items():
                found = {
                    m: mean(row.get(f"{m} {relation} {epsilon:g}", {}).get("score")) for m in ("additive", "linear")
                }
                scores[name] = found | {"auto": found[chosen(row, epsilon, relation)]}
            lines.append(f"- {relation}, ε = {epsilon:g}: " + "; ".join(
                _against(model, {name: found[model] for name, found in scores.items()}, others, epsilon)
                for model in ("additive", "auto")
            ) + ".")  # fmt: skip
            gaps = {name: _behind(row, epsilon, relation) for name, row in known.items() if row["n"] >= 2000}
            behind = [f"{name} {written(gap)}" for name, gap in gaps.items() if gap > 0.01]
            if behind:
                lines[-1] += f" `auto` more than .01 below our better model (n ≥ 2000): {', '.join(behind)}."
    regression = [row for row in known.values() if row["regression"]]
    for label, rows in (("R²", regression), ("accuracy", [r for r in known.values() if not r["regression"]])):
        inside = [v for row in rows for key, c in row.items() if key.startswith("additive") for v in c["inside"]]
        if inside:
            lines.append(
                f"- Stated 80 % ranges of {label} held in {np.mean(inside):.0%} of {len(inside)} additive fits."
            )
    scores = [v for row in regression for key, c in row.items() if key.startswith("additive") for v in c["score"]]
    lines.append(f"- Regressions below R² −.1: {sum(v < -0.1 for v in scores)} of {len(scores)} additive fits.")
    return "\n".join(lines)


def _behind(row: dict[str, Any], epsilon: float, relation: str) -> float:
    """How far `auto` is below our better model, on the splits that both were measured on; NaN where there is none."""
    cells = {m: row.get(f"{m} {relation} {epsilon:g}", {}).get("score", []) for m in ("additive", "linear")}
    common = min(map(len, cells.values()))
    means = {model: mean(values[:common]) for model, values in cells.items()}
    return max(means.values()) - means[chosen(row, epsilon, relation)]


def _against(model: str, scores: dict[str, float], others: dict[str, Any], epsilon: float) -> str:
    """On how many of the tables where both were measured a model is above DP-EBM, and where not."""
    pairs = {name: (score, _best(others.get(name, {}), epsilon)) for name, score in scores.items()}
    both = {name: pair for name, pair in pairs.items() if not np.isnan(pair).any()}
    losses = [f"{name} ({written(a)} against {written(b)})" for name, (a, b) in both.items() if a <= b]
    found = f"`{model}` above DP-EBM on {len(both) - len(losses)} of {len(both)} tables"
    return found + (f", below on {', '.join(losses)}" if losses else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--models", default="additive,references,linear")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if not given.page:
        measure(given.tables.split(","), given.models.split(","), given.splits)
        return
    path = RESULTS / "tables.md"
    start, _, rest = path.read_text(encoding="utf-8").partition("<!-- table -->")
    end = rest.partition("<!-- end of table -->")[2]
    path.write_text(f"{start}<!-- table -->\n{page()}\n<!-- end of table -->{end}", encoding="utf-8")


if __name__ == "__main__":
    main()
