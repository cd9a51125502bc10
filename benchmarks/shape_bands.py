"""Do the bands of additive models hold? Pointwise, for the curve's own expectation over tables and noise.

    python benchmarks/shape_bands.py --replicates 100 --output shape_bands.json

Every replicate draws a new table (a sine, a kink, a line, and columns without effect; standard normal) and new noise.
The expectation of a curve is the mean over all replicates, so what shrinking takes from it is not counted: a band says
how far privacy and sampling move a curve. Between the 3rd and 97th hundredth of each column; band: 1.96 deviations.

Tables: "regression"; "classes", log-odds of deviation 1.4; "faint", .5; "rare", one record in twelve of the second
class; "correlated", neighbouring columns by .7; "three" classes; "levels", the third column one of five levels; "pair",
regression on two columns and their product, whose surface is looked at as well, in its own line.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from gratis import DPAdditiveClassifier, DPAdditiveRegressor

# Table, rows, columns, ε, relation.
CELLS = (
    "classes 8000 3 2 replace-one", "faint 8000 3 2 replace-one", "three 8000 3 2 replace-one",
    "correlated 8000 4 2 replace-one", "levels 8000 3 2 replace-one", "classes 8000 3 2 zero-out",
    "classes 4000 3 1 replace-one", "rare 20000 3 2 replace-one", "regression 8000 3 2 replace-one",
    "regression 4000 5 1 replace-one", "pair 8000 2 2 replace-one", "classes 20000 5 1 replace-one",
    "regression 20000 5 1 replace-one", "classes 8000 10 8 replace-one", "pair-classes 20000 2 2 replace-one",
)  # fmt: skip
GRID = np.linspace(-1.88, 1.88, 25)


def draw(table: str, n: int, d: int, rng: np.random.Generator) -> tuple[Any, Any]:
    X = rng.standard_normal((n, d))
    if table == "correlated":
        for j in range(1, d):
            X[:, j] = 0.7 * X[:, j - 1] + np.sqrt(0.51) * X[:, j]
    if table.startswith("pair"):
        signal = np.sin(2 * X[:, 0]) + 0.5 * np.abs(X[:, 1]) + 0.5 * X[:, 0] * X[:, 1]
    else:
        signal = np.sin(2 * X[:, 0]) + 0.5 * np.abs(X[:, 1])
        if table == "levels":
            X[:, 2] = rng.integers(0, 5, n)
            signal += 0.3 * (X[:, 2] - 2)
        else:
            signal += 0.3 * X[:, 2]
    if table in ("regression", "pair"):
        return X, signal + 0.7 * rng.standard_normal(n)
    if table == "three":
        return X, np.argmax(np.column_stack([1.5 * signal, X[:, 1], 0 * signal]) + rng.gumbel(size=(n, 3)), axis=1)
    odds = {"faint": 0.5 * signal - 0.2, "rare": 1.2 * signal - 3.5}.get(table, 1.5 * signal - 0.6)
    return X, (rng.random(n) < expit(odds)).astype(int)


def replicate(text: str, seed: int) -> tuple[list[Any], list[Any]]:
    """Values and stated deviations of every term (curves, then surfaces), flat, on places fixed for all replicates."""
    table, rows, columns, epsilon, relation = text.split()
    d = int(columns)
    X, y = draw(table, int(rows), d, np.random.default_rng([seed, int(rows)]))
    asked: dict[str, Any] = {"pairs": "auto" if table.startswith("pair") else False, "noise_seed": seed}
    asked |= {"insecure_reproducible": True, "neighbouring": relation}
    if table == "levels":
        asked["categorical"] = {2: 5}
    if table in ("regression", "pair"):
        model: Any = DPAdditiveRegressor(float(epsilon), 1e-6, **asked)
    else:
        model = DPAdditiveClassifier(float(epsilon), 1e-6, classes=range(3 if table == "three" else 2), **asked)
    found = model.fit(X, y).model_
    grid = np.repeat(GRID[:, None], d, axis=1)
    if table == "levels":
        grid[:, 2] = np.arange(len(GRID)) % 5
    places, unit = found.basis.columns.places(grid), float(found.target.scale[0])
    values = [unit * found.curves[j][places[:, j]] for j in range(d)]
    stated = [unit * found.curve_deviations(j)[places[:, j]] for j in range(d)]
    for q, (i, j) in enumerate(found.basis.pairs.chosen):
        at = np.ix_(places[:, i], places[:, j])
        values.append(unit * found.surfaces[q][at])
        stated.append(unit * found.surface_deviations(q)[at])
    return [part.ravel().tolist() for part in values], [part.ravel().tolist() for part in stated]


def lines(text: str, found: list[tuple[list[Any], list[Any]]]) -> list[str]:
    """Rows of the table in docs/results/intervals.md: one for the curves, one for the surface if there is one."""
    columns = int(text.split()[2])
    said = []
    for label, part in (("", slice(0, columns)), (", surface", slice(columns, None))):
        values, stated = (np.array([one[which][part] for one in found if len(one[0][part])]) for which in (0, 1))
        if not values.size:
            continue
        count = len(values)
        # The mean holds a share of each replicate itself.
        away = np.abs(values - values.mean(axis=0)) * np.sqrt(count / (count - 1))
        inside = away < 1.959964 * stated
        ratio = np.median(np.sqrt(np.square(stated).mean(axis=0)) / values.std(axis=0, ddof=1))
        each = inside.mean(axis=(0, 2))
        said.append(
            f"| {text}{label} | {count} | {inside.mean():.3f} | {each.min():.3f} | {each.max():.3f} | {ratio:.2f} |"
        )
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=",".join(CELLS), help="table rows columns epsilon relation, …")
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--output", type=Path, help="the lines of the table, by cell; those there are not made again")
    arguments = parser.parse_args()
    results: dict[str, list[str]] = {}
    if arguments.output and arguments.output.exists():
        results = json.loads(arguments.output.read_text())
    for text in arguments.cells.split(","):
        if text not in results:
            results[text] = lines(text, [replicate(text, seed) for seed in range(arguments.replicates)])
            if arguments.output:
                arguments.output.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n")
        print("\n".join(results[text]), flush=True)


if __name__ == "__main__":
    main()
