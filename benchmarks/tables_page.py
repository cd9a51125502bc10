"""Writes what `tables.py` and `dpebm.py` measured into docs/results: tables.md, classifiers.md and small.md.

python benchmarks/tables_page.py
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import numpy as np

from gratis.estimators.model_choice import choose_model
from gratis.records.budget import Budget
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from tables import DELTA, EPSILONS, RELATIONS, RESULTS

MODELS = ("additive", "linear")
LARGEST = 100.0  # ε at which a classifier must be what it would be without privacy
Row = dict[str, Any]


def values(row: Row, model: str, relation: str, epsilon: float, part: str = "score") -> list[float]:
    return list(row.get(f"{model} {relation} {epsilon:g}", {}).get(part, []))


def mean(found: list[float] | None) -> float:
    return float(np.mean(found)) if found else float("nan")


def written(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}".replace("0.", ".", 1).replace("-", "−")


def chosen(row: Row, epsilon: float, relation: str) -> str:
    budget = Budget(epsilon=epsilon, delta=DELTA, neighbouring=Neighbouring.parse(relation))
    model = choose_model(Facts(rows=row["n"], columns=row["d"], classes=row["classes"]), budget).model
    return "additive" if model == "additive" else "linear"


def ebm(row: dict[str, list[float]], epsilon: float) -> float:
    """DP-EBM's better variant."""
    found = [mean(row.get(f"{variant} {epsilon:g}")) for variant in ("told", "trimmed")]
    return float(np.nanmax(found)) if not np.isnan(found).all() else float("nan")


def tables(known: dict[str, Row], others: dict[str, Any]) -> str:
    lines = []
    for relation in RELATIONS:
        lines += [
            f"\n### {relation}\n",
            "| table | n × d | splits | additive, ε = .3 / 1 / 3 | linear or logistic | AdaSSP, ε = 1 "
            "| DP-EBM, bounds told (splits) | without privacy: linear, boosting |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, row in known.items():
            cells = []
            for model in MODELS:
                found = [mean(values(row, model, relation, e)) for e in EPSILONS]
                picks = [chosen(row, e, relation) == model for e in EPSILONS]
                cells.append(
                    " / ".join(f"**{written(v)}**" if p else written(v) for v, p in zip(found, picks, strict=True))
                )
            counts = sorted({len(values(row, m, relation, e)) for m in MODELS for e in EPSILONS})
            best = max((mean(v) for v in row.get(f"adassp {relation} 1", {}).values()), default=float("nan"))
            other = others.get(name, {})
            runs = f" ({min(map(len, other.values()))})" if other else ""
            free = ", ".join(written(mean(row.get("without privacy", {}).get(key))) for key in ("score", "boosting"))
            lines.append(
                f"| {name} | {row['n']} × {row['d']} | {'–'.join(map(str, counts))} | {cells[0]} | {cells[1]} | "
                f"{written(best)} | {' / '.join(written(ebm(other, e)) for e in EPSILONS)}{runs} | {free} |"
            )
    return "\n".join([*lines, "", *summary(known, others)])


def summary(known: dict[str, Row], others: dict[str, Any]) -> list[str]:
    lines = []
    for relation, epsilon in product(RELATIONS, EPSILONS):
        means = {name: {m: mean(values(row, m, relation, epsilon)) for m in MODELS} for name, row in known.items()}
        autos = {name: found[chosen(known[name], epsilon, relation)] for name, found in means.items()}
        said = []
        for model, found in (("auto", autos), ("additive", {name: m["additive"] for name, m in means.items()})):
            pairs = {name: (value, ebm(others.get(name, {}), epsilon)) for name, value in found.items()}
            both = {name: pair for name, pair in pairs.items() if not np.isnan(pair).any()}
            losses = [f"{name} ({written(a)} against {written(b)})" for name, (a, b) in both.items() if a <= b]
            below = f", below on {', '.join(losses)}" if losses else ""
            said.append(f"`{model}` above DP-EBM on {len(both) - len(losses)} of {len(both)} tables{below}")
        gaps = {name: max(found.values()) - autos[name] for name, found in means.items() if known[name]["n"] >= 2000}
        behind = [f"{name} {written(gap)}" for name, gap in gaps.items() if gap > 0.01]
        said += [f"`auto` more than .01 below our better model (n ≥ 2000): {', '.join(behind)}"] if behind else []
        lines.append(f"- {relation}, ε = {epsilon:g}: {'; '.join(said)}.")
    return lines + ranges(known)


def ranges(known: dict[str, Row]) -> list[str]:
    """How often the stated 80 % ranges held, by model, ε and size."""
    lines = []
    for model, regression in product(MODELS, (True, False)):
        rows = [row for row in known.values() if row["regression"] == regression]

        def held(few: bool | None = None, epsilon: float | None = None, rows: Any = rows, model: str = model) -> str:
            found = [
                v
                for row in rows
                for r, e in product(RELATIONS, EPSILONS)
                if few in (None, row["n"] < 2000) and epsilon in (None, e)
                for v in values(row, model, r, e, "inside")
            ]
            return f"{np.mean(found):.0%} of {len(found)}" if found else "–"

        name = {True: {"linear": "linear"}, False: {"linear": "logistic"}}[regression].get(model, model)
        each = ", ".join(f"{held(epsilon=e)}" for e in EPSILONS)
        lines.append(
            f"- Stated 80 % ranges of {'R²' if regression else 'accuracy'}, {name}: held in {held()} fits "
            f"(ε = .3, 1, 3: {each}; below 2000 rows {held(few=True)})."
        )
    return lines


def classifiers(known: dict[str, Row]) -> str:
    rows = {name: row for name, row in known.items() if not row["regression"]}
    parts = ("accuracy", "balanced", "auc", "log loss")
    lines = []
    for model, relation in product(("linear", "additive"), reversed(RELATIONS)):
        lines += [
            f"\n### {'logistic' if model == 'linear' else model}, {relation}\n",
            "| table | rows × columns, classes | splits | accuracy | balanced accuracy | AUC | log loss |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, row in rows.items():
            cells = []
            for part in parts:
                found = [mean(values(row, model, relation, e, part)) for e in (*EPSILONS, LARGEST)]
                free = written(mean(row.get("without privacy", {}).get(part)))
                cells.append(f"{' / '.join(map(written, found))} ({free})")
            count = len(values(row, model, relation, EPSILONS[0]))
            lines.append(
                f"| {name} | {row['n']} × {row['d']}, {row['classes']} | {count or '–'} | {' | '.join(cells)} |"
            )
    lines += [
        "\n### The limit: logistic at ε = 100 against scikit-learn, the same splits\n",
        "| table | splits | accuracy | log loss | holds |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        ends = {part: values(row, "linear", "replace-one", LARGEST, part) for part in ("accuracy", "log loss")}
        if not ends["accuracy"]:
            continue
        count = len(ends["accuracy"])
        free = {part: mean(row.get("without privacy", {})[part][:count]) for part in ends}
        gap = mean(ends["accuracy"]) - free["accuracy"]
        ratio = mean(ends["log loss"]) / free["log loss"] - 1
        holds = "yes" if ratio <= 0.05 and gap >= -0.005 else "**no**"
        small = " (n < 2000)" if row["n"] < 2000 else ""
        lines.append(f"| {name}{small} | {count} | {gap:+.4f} | {ratio:+.1%} | {holds} |")
    lines += [
        "\n### What `auto` takes, replace-one: accuracy of our better model's; AUC of our better model's\n",
        "| table | ε = .3 | ε = 1 | ε = 3 |",
        "|---|---|---|---|",
    ]
    for name, row in rows.items():
        cells = []
        for epsilon in EPSILONS:
            model = chosen(row, epsilon, "replace-one")
            words = []
            for part in ("accuracy", "auc"):
                both = {m: mean(values(row, m, "replace-one", epsilon, part)) for m in MODELS}
                words.append(f"{written(both[model])} of {written(max(both.values()))}")
            cells.append(f"{'logistic' if model == 'linear' else model}: {'; '.join(words)}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def small(known: dict[str, Row]) -> str:
    """Fits of tables with fewer than 1500 rows that are worse than the mean."""
    lines = [
        "| model | fits | below −.1 | −.3 | −1 | worst | below −.1 at ε = .3 / 1 / 3 | where |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = {name: row for name, row in known.items() if row["regression"] and row["n"] < 1500}
    for model in ("auto", *MODELS):
        fits = [
            (name, e, value)
            for (name, row), r, e in product(rows.items(), RELATIONS, EPSILONS)
            for value in values(row, chosen(row, e, r) if model == "auto" else model, r, e)
        ]
        bad = [fit for fit in fits if fit[2] < -0.1]
        each = [f"{sum(e == at for _, e, _ in bad)} of {sum(e == at for _, e, _ in fits)}" for at in EPSILONS]
        names = [name for name, _, _ in bad]
        where = ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))
        deep = " | ".join(str(sum(value < limit for _, _, value in fits)) for limit in (-0.3, -1))
        worst = written(min(value for _, _, value in fits))
        lines.append(f"| {model} | {len(fits)} | {len(bad)} | {deep} | {worst} | {' / '.join(each)} | {where} |")
    return "\n".join(lines)


def main() -> None:
    known = json.loads((RESULTS / "comparison.json").read_text())
    others = json.loads((RESULTS / "dpebm.json").read_text())
    pages = {"tables": tables(known, others), "classifiers": classifiers(known), "small": small(known)}
    for name, text in pages.items():
        path = RESULTS / f"{name}.md"
        start, _, rest = path.read_text(encoding="utf-8").partition("<!-- table -->")
        end = rest.partition("<!-- end of table -->")[2]
        path.write_text(f"{start}<!-- table -->\n{text}\n<!-- end of table -->{end}", encoding="utf-8")


if __name__ == "__main__":
    main()
