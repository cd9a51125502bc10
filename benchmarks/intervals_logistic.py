"""Do private intervals of logistic regression cover? Simulations through `DPLogisticRegression(inference=True)` itself.

    python benchmarks/intervals_logistic.py --rounds 50,200 --output logistic.jsonl   # resumable, a line a fit
    python benchmarks/intervals_logistic.py --table --output logistic.jsonl

Every replicate draws a new table and new noise: columns normal, or in turn log-normal, 0/1 and normal ("mixed"), in odd
units as in `intervals.py`; linear log-odds of a given deviation and shift. Widths are divided by those of maximum
likelihood on the same rows; average marginal effects are compared with those of a million rows. "Predicted" is the
plan's formula for the cell's own law (columns, deviation, share of the second class), before the data.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gratis import DPLogisticRegression
from gratis.planning.interval_width import _known_basis, _logistic_width
from gratis.planning.rehearsal import rehearse
from gratis.recipes.logistic_inference import LogisticInference
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from intervals import fits_there, simulate

Array = NDArray[np.float64]
DELTA, MANY, SEED = 1e-6, 1_000_000, 20261118
# Columns, rows, their number, ε, deviation and shift of the log-odds, relation; the cheapest first.
CELLS = (
    "normal 5000 3 1 1 0 replace-one", "normal 5000 3 1 1 0 zero-out", "mixed 5000 3 1 1 0 replace-one",
    "mixed 5000 3 1 1 0 zero-out", "normal 5000 3 4 2 0 replace-one", "normal 5000 10 1 1 0 replace-one",
    "mixed 5000 10 1 1 -1 zero-out", "normal 20000 3 1 3 -2 replace-one", "normal 20000 10 1 1 0 replace-one",
    "mixed 20000 10 4 2 -1 zero-out",
)  # fmt: skip


def draw(cell: str, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Rows, log-odds, and the true intercept and slopes."""
    kind, _, columns, _, deviation, shift, _ = cell.split()
    d = int(columns)
    X, sizes = rng.standard_normal((n, d)), np.ones(d)
    if kind == "mixed":
        X[:, ::3], X[:, 1::3] = np.exp(0.8 * X[:, ::3]), X[:, 1::3] > 0.8
        sizes[::3], sizes[1::3] = np.sqrt((np.exp(0.64) - 1) * np.exp(0.64)), np.sqrt(0.2119 * 0.7881)
    slopes = np.random.default_rng(77 + d).standard_normal(d)
    slopes *= float(deviation) / np.linalg.norm(slopes) / sizes
    middle = np.zeros(d)
    if kind == "mixed":
        middle[::3], middle[1::3] = np.exp(0.32), 0.2119
    level = float(shift) - slopes @ middle
    units = np.ones(d)
    units[::2], units[1::4] = 25.0, 0.01
    odds = X @ slopes + level
    return X * units + 3 * units, odds, np.array([level - 3 * slopes.sum(), *slopes / units])


@cache
def steepness(cell: str) -> float:
    """E p(1−p)."""
    p = expit(draw(cell, MANY, np.random.default_rng(1))[1])
    return float((p * (1 - p)).mean())


def likelihood_errors(X: Array, y: Array) -> Array:
    """Standard errors of intercept and slopes by maximum likelihood."""
    centre, scale = X.mean(axis=0), X.std(axis=0)
    Z = np.column_stack([np.ones(len(X)), (X - centre) / scale])
    found = np.zeros(Z.shape[1])
    for _ in range(25):
        p = expit(Z @ found)
        information = (Z * (p * (1 - p))[:, None]).T @ Z
        found += np.linalg.solve(information, Z.T @ (y - p))
    change = np.diag([1.0, *1 / scale])
    change[0, 1:] = -centre / scale
    return np.asarray(np.sqrt(np.diag(change @ np.linalg.inv(information) @ change.T)))


def replicate(cell: str, seed: int) -> dict[str, Any]:
    _, rows, columns, epsilon, _, _, relation = cell.split()
    rng = np.random.default_rng([SEED, seed, int(rows), int(columns)])
    X, odds, truth = draw(cell, int(rows), rng)
    y = (rng.random(len(X)) < expit(odds)).astype(int)
    model = DPLogisticRegression(
        float(epsilon), DELTA, classes=[0, 1], inference=True, neighbouring=relation, noise_seed=SEED + seed,
        insecure_reproducible=True,
    ).fit(X, y)  # fmt: skip
    if model.inference_.withheld is not None:
        return {"withheld": True}
    effects = np.asarray(model.marginal_effects())
    fresh, at, _ = draw(cell, 1000, rng)
    _, low, high = model.inference_.predict(fresh, "mean").T
    return {
        "withheld": False,
        "z": ((model.params - truth) / model.bse).tolist(),
        "width": (model.bse / likelihood_errors(X, y)).tolist(),
        "effects": ((effects[:, 0] - truth[1:] * steepness(cell)) / effects[:, 1]).tolist(),
        "odds": float(((at > low) & (at < high)).mean()),
    }


def predicted(cell: str) -> tuple[float, list[float]]:
    """The width that the plan's formula gives the cell's own law, and the plan's range."""
    kind, rows, columns, epsilon, deviation, _, relation = cell.split()
    budget = Budget(epsilon=float(epsilon), delta=DELTA, neighbouring=Neighbouring(relation))
    recipe = LogisticInference(Facts(rows=int(rows), columns=int(columns), classes=2), budget, Reading())
    share = float(expit(draw(cell, MANY, np.random.default_rng(1))[1]).mean())
    known = (_known_basis(int(columns) + 1),) if kind == "normal" else rehearse(recipe._rehearsal(), kind)
    widths = [_logistic_width(recipe.step, recipe.width.radius, one, float(deviation), share) for one in known]
    return float(np.median(np.concatenate(widths))), recipe.plan.prediction.details["interval_width_range"]


def row(cell: str, found: list[dict[str, Any]]) -> str:
    """One row of the table in docs/results/intervals.md."""
    given = [one for one in found if not one["withheld"]]
    said = f"| {cell} | {len(found)} | {1 - len(given) / len(found):.2f} | "
    if not given:
        return said + " | ".join(["–"] * 8) + " |"
    covered = np.abs([one["z"] for one in given]) < 1.959964
    width = np.median(np.array([one["width"] for one in given])[:, 1:])
    effects = (np.abs([one["effects"] for one in given]) < 1.959964).mean()
    value, (low, high) = predicted(cell)
    return said + (
        f"{covered[:, 1:].mean():.3f} | {covered[:, 1:].mean(axis=0).min():.3f} | {covered[:, 0].mean():.3f} | "
        f"{width:.2f} | {value:.2f} | {low:.2f}–{high:.2f} | {effects:.3f} | "
        f"{np.mean([one['odds'] for one in given]):.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=",".join(CELLS), help="columns rows d epsilon deviation shift relation, …")
    parser.add_argument("--rounds", default="50,200", help="fits a cell, in turn")
    parser.add_argument("--output", type=Path, required=True, help="a line a fit; those there are not made again")
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    arguments = parser.parse_args()
    rounds = [int(n) for n in arguments.rounds.split(",")]
    if not arguments.table:
        simulate(arguments.output, arguments.cells.split(","), rounds, replicate, lambda _: max(rounds))
    for cell, found in fits_there(arguments.output).items():
        print(row(cell, found))


if __name__ == "__main__":
    main()
