"""Regressions on splits that nobody looked at, one line a fit, so that several processes can share the work.

    GRATIS_DATA=... python benchmarks/regression_fits.py --tables housing,stock --models additive,linear --seeds 0:5
    python benchmarks/regression_fits.py --page

Splits have seeds 70000, 70001, …; noise has the same seeds. Every fit adds a line to OUTPUT (default fits.jsonl here);
what is there already is not run again. `--collect a.jsonl b.jsonl` writes docs/results/fits.json, and `--page` prints
the tables of docs/results/tables.md and small.md that come from it. `auto` is one of the two models by public sizes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tables import DELTA, EPSILONS, RELATIONS, RESULTS, _best, chosen, written
from tabular import loaded, one_hot, split

FIRST = 70000
SMALL = (
    "housing", "stock", "forest", "energy", "concrete", "fri_c4_100", "pmlb_4544", "airfoil", "winequality_red",
)  # fmt: skip
FIELDS = ("table", "seed", "model", "eps", "rel", "r2", "mean", "lo", "hi")
KEY = ("table", "seed", "model", "eps", "rel")


def measured(name: str, model: str, epsilon: float, relation: str, seed: int) -> dict[str, Any]:
    from gratis import DPAdditiveRegressor, DPLinearRegression

    X, y, levels, _ = loaded(name)
    (A, a), (B, b) = split(X, y, seed, FIRST)
    options: dict[str, Any] = {
        "epsilon": epsilon, "delta": DELTA, "neighbouring": relation, "noise_seed": FIRST + seed,
        "insecure_reproducible": True,
    }  # fmt: skip
    low = high = None
    if model == "linear":
        found = DPLinearRegression(**options).fit(one_hot(A, levels), a).predict(one_hot(B, levels))
    else:
        fitted = DPAdditiveRegressor(**options, categorical=levels or None).fit(A, a)
        found, low, high = fitted.predict(B), fitted.expected_score_.low, fitted.expected_score_.high
    score, mean = (float(1 - np.square(b - said).mean() / b.var()) for said in (found, a.mean()))
    return dict(zip(FIELDS, (name, seed, model, epsilon, relation, score, mean, low, high), strict=True))


def read(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]  # the last one may be cut off
    return {tuple(row[part] for part in KEY): row for row in rows}


def page() -> str:
    rows = [dict(zip(FIELDS, row, strict=True)) for row in json.loads((RESULTS / "fits.json").read_text())]
    sizes = json.loads((RESULTS / "comparison.json").read_text())
    others = json.loads((RESULTS / "dpebm.json").read_text())
    names = [name for name in sizes if any(row["table"] == name for row in rows)]
    cells: dict[tuple[str, str, float, str], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["table"], row["model"], row["eps"], row["rel"]), []).append(row)

    def mean(name: str, model: str, epsilon: float, relation: str) -> float:
        found = cells.get((name, model, epsilon, relation), [])
        return float(np.mean([row["r2"] for row in found])) if found else float("nan")

    lines = []
    for relation in RELATIONS:
        lines += [
            f"\n### {relation}\n",
            "| table | n × d | additive, ε = .3 / 1 / 3 (splits) | linear (splits) | DP-EBM, other splits |",
            "|---|---|---|---|---|",
        ]
        for name in names:
            texts = []
            for model in ("additive", "linear"):
                parts = [
                    f"**{written(v)}**" if chosen(sizes[name], e, relation) == model else written(v)
                    for e in EPSILONS
                    for v in [mean(name, model, e, relation)]
                ]
                counts = [len(cells.get((name, model, e, relation), [])) for e in EPSILONS]
                texts.append(f"{' / '.join(parts)} ({', '.join(map(str, counts))})")
            ebm = " / ".join(written(_best(others.get(name, {}), e)) for e in EPSILONS)
            lines.append(f"| {name} | {sizes[name]['n']} × {sizes[name]['d']} | {texts[0]} | {texts[1]} | {ebm} |")
    lines.append("")
    for relation, epsilon in product(RELATIONS, EPSILONS):
        autos = {n: mean(n, chosen(sizes[n], epsilon, relation), epsilon, relation) for n in names}
        both = {n: (v, _best(others.get(n, {}), epsilon)) for n, v in autos.items()}
        both = {n: pair for n, pair in both.items() if not np.isnan(pair).any()}
        losses = [f"{n} ({written(a)} against {written(b)})" for n, (a, b) in both.items() if a <= b]
        behind = []
        for n in names:
            picked = {m: cells.get((n, m, epsilon, relation), []) for m in ("additive", "linear")}
            common = set.intersection(*({row["seed"] for row in part} for part in picked.values()))
            if sizes[n]["n"] < 2000 or not common:
                continue
            means = {m: np.mean([r["r2"] for r in part if r["seed"] in common]) for m, part in picked.items()}
            gap = max(means.values()) - means[chosen(sizes[n], epsilon, relation)]
            behind += [f"{n} {written(float(gap))} ({len(common)})"] if gap > 0.01 else []
        lines.append(
            f"- {relation}, ε = {epsilon:g}: `auto` above DP-EBM on {len(both) - len(losses)} of {len(both)} tables"
            + (f", below on {', '.join(losses)}" if losses else "")
            + (f"; more than .01 below our better model (n ≥ 2000; splits): {', '.join(behind)}" if behind else "")
            + "."
        )
    ranges = [row["lo"] <= row["r2"] <= row["hi"] for row in rows if row["model"] == "additive"]
    lines.append(f"- Stated 80 % ranges held in {np.mean(ranges):.0%} of {len(ranges)} additive fits.")
    lines += [
        "",
        "| model | fits of small tables | below −.1 | −.3 | −1 | worst | at ε = .3 / 1 / 3 | where |",
        "|" + "---|" * 8,
    ]
    for model in ("linear", "additive"):
        small = [row for row in rows if row["model"] == model and row["table"] in SMALL]
        bad = [row for row in small if row["r2"] < -0.1]
        each = [f"{sum(r['eps'] == e for r in bad)} of {sum(r['eps'] == e for r in small)}" for e in EPSILONS]
        where = ", ".join(
            f"{n} {sum(r['table'] == n for r in bad)}" for n in SMALL if any(r["table"] == n for r in bad)
        )
        deep = [str(sum(row["r2"] < limit for row in small)) for limit in (-0.3, -1)]
        lines.append(
            f"| {model} | {len(small)} | {len(bad)} | {' | '.join(deep)} | {written(min(r['r2'] for r in small))} | "
            f"{' / '.join(each)} | {where} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(SMALL))
    parser.add_argument("--models", default="additive,linear")
    parser.add_argument("--seeds", default="0:5")
    parser.add_argument("--output", type=Path, default=Path("fits.jsonl"))
    parser.add_argument("--collect", type=Path, nargs="+")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.page:
        print(page())
        return
    if given.collect:
        rows = {key: row for path in given.collect for key, row in read(path).items()}
        lines = [
            json.dumps([round(v, 4) if isinstance(v, float) else v for v in (row[f] for f in FIELDS)])
            for row in rows.values()
        ]
        (RESULTS / "fits.json").write_text("[\n" + ",\n".join(sorted(lines)) + "\n]\n")
        return
    first, last = map(int, given.seeds.split(":"))
    known = read(given.output)
    cells = product(range(first, last), given.tables.split(","), given.models.split(","), EPSILONS, RELATIONS)
    for seed, name, model, epsilon, relation in cells:
        if (name, seed, model, epsilon, relation) not in known:
            row = measured(name, model, epsilon, relation, seed)
            with given.output.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
