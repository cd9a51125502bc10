"""Do private intervals for coefficients cover? Simulations through `DPLinearRegression(inference=True)` itself.

    python benchmarks/intervals.py --replicates 200 --output intervals.json

Every replicate draws a new table and new noise. Tables are in odd units (factors 25, 1 and .01, shifted), R² is about
.5: normal columns; columns in turn log-normal, 0/1 and normal, with skewed errors ("mixed"); neighbours correlated by
.8; errors that grow with a column; errors of Student's law with 3 degrees; skewed errors; 0/1 columns, of which .5 to
.08 are ones ("binary"). Widths are divided by those of least squares
with its robust covariance on the same rows; R² is on fresh rows, "plain" that of the fit without inference.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis import DPLinearRegression

Array = NDArray[np.float64]
DELTA, TEST = 1e-6, 2000
KINDS = ("normal", "mixed", "correlated", "heteroscedastic", "heavy", "skewed", "binary")
LAWS = {"mixed": "mixed columns, log-normal errors", "heavy": "normal columns, student errors"}
LAWS |= {"skewed": "normal columns, log-normal errors"}
# Kind, rows, columns, ε, relation; the cheapest and the most telling first.
CELLS = (
    *(f"{kind} {size} 1 replace-one" for size in ("1000 3", "5000 10") for kind in KINDS),
    *(f"{kind} {size} 1 zero-out" for size in ("1000 3", "5000 10") for kind in KINDS),
    *(f"{kind} 20000 10 {epsilon} replace-one" for epsilon in ("1", "4", ".5") for kind in KINDS),
    *(f"{kind} {size} replace-one" for size in ("100000 10 4", "100000 10 1", "20000 40 4") for kind in KINDS[:2]),
    *(
        f"{kind} {size} {epsilon} replace-one"
        for size in ("1000 3", "5000 10")
        for epsilon in ("4", ".5")
        for kind in KINDS
    ),
    *(f"{kind} {size} replace-one" for size in ("100000 3 4", "100000 40 4", "100000 40 1") for kind in KINDS[:2]),
)


def draw(kind: str, n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Rows, targets, and the true intercept and slopes."""
    X = rng.standard_normal((n, d))
    sizes = np.ones(d)
    errors = rng.standard_normal(n)
    if kind == "correlated":
        for j in range(1, d):
            X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    if kind == "mixed":
        X[:, ::3], X[:, 1::3] = np.exp(0.8 * X[:, ::3]), X[:, 1::3] > 0.8
        sizes[::3], sizes[1::3] = np.sqrt((np.exp(0.64) - 1) * np.exp(0.64)), np.sqrt(0.2119 * 0.7881)
        errors = (np.exp(0.8 * errors) - np.exp(0.32)) / np.sqrt((np.exp(0.64) - 1) * np.exp(0.64))
    if kind == "binary":
        shares = np.linspace(0.5, 0.08, d)
        X, sizes = (rng.random((n, d)) < shares).astype(np.float64), np.sqrt(shares * (1 - shares))
    if kind == "heteroscedastic":
        errors *= (0.3 + np.abs(X[:, 0])) / np.sqrt(0.09 + 0.6 * np.sqrt(2 / np.pi) + 1)
    if kind == "heavy":
        errors = rng.standard_t(3, n) / np.sqrt(3.0)
    if kind == "skewed":
        errors = (np.exp(0.8 * errors) - np.exp(0.32)) / np.sqrt((np.exp(0.64) - 1) * np.exp(0.64))
    slopes = np.random.default_rng(77 + d).standard_normal(d)
    slopes *= 5 / np.linalg.norm(slopes) / sizes
    units = np.ones(d)
    units[::2], units[1::4] = 25.0, 0.01
    shift = 3.0 * units
    return X * units + shift, X @ slopes + 5 + 5 * errors, np.array([5 - (slopes / units) @ shift, *slopes / units])


def least_squares_errors(X: Array, y: Array) -> Array:
    """Robust (HC0) standard errors of intercept and slopes."""
    centre, scale = X.mean(axis=0), X.std(axis=0)
    Z = np.column_stack([np.ones(len(X)), (X - centre) / scale])
    bread = np.linalg.inv(Z.T @ Z)
    left = Z * (y - Z @ (bread @ (Z.T @ y)))[:, None]
    change = np.diag([1.0, *1 / scale])
    change[0, 1:] = -centre / scale
    return np.asarray(np.sqrt(np.diag(change @ bread @ left.T @ left @ bread @ change.T)))


def replicate(cell: str, seed: int, *, plain: bool) -> dict[str, Any]:
    """One table, one fit, and for some tables the plain fit beside it."""
    kind, rows, columns, epsilon, relation = cell.split()
    rng = np.random.default_rng([seed, int(rows), int(columns)])
    X, y, truth = draw(kind, int(rows), int(columns), rng)
    fresh, answers, _ = draw(kind, TEST, int(columns), rng)
    asked = {"neighbouring": relation, "noise_seed": seed, "insecure_reproducible": True}
    model = DPLinearRegression(float(epsilon), DELTA, inference=True, **asked).fit(X, y)  # type: ignore[arg-type]
    found: dict[str, Any] = {"withheld": model.inference_.withheld is not None, "r2": model.score(fresh, answers)}
    details = model.plan_.prediction.details
    family = details.get("interval_width_family", {})
    found["predicted"] = family.get(LAWS.get(kind, "")) or details.get("interval_width_over_ols")
    if not found["withheld"]:
        found["z"] = ((model.params - truth) / model.bse).tolist()
        found["width"] = (model.bse / least_squares_errors(X, y)).tolist()
        found["share"] = model.inference_.privacy_share.tolist()
        _, low, high = model.predict(fresh, interval="observation").T
        found["observed"] = float(((answers > low) & (answers < high)).mean())
    if plain:
        other = DPLinearRegression(float(epsilon), DELTA, **asked)  # type: ignore[arg-type]
        found["plain"] = other.fit(X, y).score(fresh, answers)
    return found


def row(cell: str, found: list[dict[str, Any]]) -> str:
    """One row of the table in docs/results/intervals.md."""
    given = [one for one in found if not one["withheld"]]
    gained = [one["r2"] - one["plain"] for one in found if "plain" in one]
    said = [f"{cell} | {len(found)} | {1 - len(given) / len(found):.2f}"]
    if given:
        covered = np.abs([one["z"] for one in given]) < 1.959964
        widths = np.array([one["width"] for one in given])[:, 1:]
        share = np.median([one["share"][1:] for one in given])
        said.append(
            f"{covered[:, 1:].mean():.3f} | {covered[:, 1:].mean(axis=0).min():.3f} | {covered[:, 0].mean():.3f}"
        )
        said.append(f"{np.median(widths):.2f} | {given[0]['predicted']:.2f} | {share:.2f}")
        said.append(f"{np.mean([one['observed'] for one in given]):.3f}")
    else:
        said.append(" | ".join(["–"] * 7))
    return "| " + " | ".join([*said, f"{np.mean(gained):+.4f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=",".join(CELLS), help="kind rows columns epsilon relation, …")
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--plain", type=int, default=12, help="replicates with the plain fit beside")
    parser.add_argument("--output", type=Path, help="partial results; those that are there are not made again")
    parser.add_argument("--table", action="store_true", help="print the table of what is there, and stop")
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    if arguments.output and arguments.output.exists():
        results = json.loads(arguments.output.read_text())
    if arguments.table:
        print("\n".join(row(cell, found) for cell, found in results.items()))
        return
    for cell in arguments.cells.split(","):
        found, started = results.setdefault(cell, []), time.process_time()
        todo = range(len(found), arguments.replicates)
        for seed in todo:
            found.append(replicate(cell, seed, plain=seed < arguments.plain))
            if arguments.output and (seed % 10 == 9 or seed == todo[-1]):
                arguments.output.write_text(json.dumps(results))
        if todo:
            print(row(cell, found), f"{(time.process_time() - started) / len(todo):.2f} s", flush=True)


if __name__ == "__main__":
    main()
