"""Do the bands of additive models hold? Pointwise, for the curve's own expectation over tables and noise.

    python benchmarks/shape_bands.py --replicates 60

Every replicate draws a new table (a sine, a kink, a line, and columns without effect; standard normal) and new noise.
The expectation of a curve is the mean over all replicates, so what shrinking takes from it is not counted: a band says
how far privacy and sampling move a curve. Between the 3rd and 97th hundredth of each column; band: 1.96 deviations.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.special import expit

from gratis import DPAdditiveClassifier, DPAdditiveRegressor

# Task, rows, columns, ε.
CELLS = ("regression 8000 3 2", "regression 4000 5 1", "regression 20000 5 1", "classes 8000 3 2")
GRID = np.linspace(-1.88, 1.88, 25)


def draw(task: str, n: int, d: int, rng: np.random.Generator) -> tuple[Any, Any]:
    X = rng.standard_normal((n, d))
    signal = np.sin(2 * X[:, 0]) + 0.5 * np.abs(X[:, 1]) + 0.3 * X[:, 2]
    if task == "regression":
        return X, signal + 0.7 * rng.standard_normal(n)
    return X, (rng.random(n) < expit(1.5 * signal - 0.6)).astype(int)


def cell(text: str, replicates: int) -> str:
    task, rows, columns, epsilon = text.split()
    d = int(columns)
    curves, deviations = [], []
    for seed in range(replicates):
        X, y = draw(task, int(rows), d, np.random.default_rng([seed, int(rows)]))
        asked: dict[str, Any] = {"pairs": False, "noise_seed": seed, "insecure_reproducible": True}
        if task == "regression":
            model: Any = DPAdditiveRegressor(float(epsilon), 1e-6, **asked)
        else:
            model = DPAdditiveClassifier(float(epsilon), 1e-6, classes=[0, 1], **asked)
        found = model.fit(X, y).model_
        places, unit = found.basis.columns.places(np.repeat(GRID[:, None], d, axis=1)), float(found.target.scale[0])
        curves.append([unit * found.curves[j][places[:, j], 0] for j in range(d)])
        deviations.append([unit * found.curve_deviations(j)[places[:, j], 0] for j in range(d)])
    values, stated = np.array(curves), np.array(deviations)
    # The mean holds a share of each replicate itself.
    away = np.abs(values - values.mean(axis=0)) * np.sqrt(replicates / (replicates - 1))
    inside = away < 1.959964 * stated
    ratio = np.median(np.sqrt(np.square(stated).mean(axis=0)) / values.std(axis=0, ddof=1))
    each = inside.mean(axis=(0, 2))
    return f"| {text} | {replicates} | {inside.mean():.3f} | {each.min():.3f} | {each.max():.3f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=",".join(CELLS), help="task rows columns epsilon, …")
    parser.add_argument("--replicates", type=int, default=60)
    arguments = parser.parse_args()
    for text in arguments.cells.split(","):
        print(cell(text, arguments.replicates), flush=True)


if __name__ == "__main__":
    main()
