"""Do private intervals for coefficients cover? Simulations through `DPLinearRegression(inference=True)` itself.

    python benchmarks/intervals.py --rounds 100,500 --output fits.jsonl         # resumable, a line a fit
    python benchmarks/intervals.py --summary intervals.json fits.jsonl …        # the cells, and the table

Every replicate draws a new table and new noise. Tables are in odd units (factors 25, 1 and .01, shifted), R² is about
.5: normal columns; columns in turn log-normal, 0/1 and normal, with skewed errors ("mixed"); neighbours correlated by
.8; errors that grow with a column; errors of Student's law with 3 degrees; skewed errors; 0/1 columns, of which .5 to
.08 are ones ("binary"). Widths are divided by those of least squares with its robust covariance on the same rows; R² is
on fresh rows, "plain" that of the fit without inference.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis import DPLinearRegression, plan
from gratis.recipes.linear_inference import least_rows
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring

Array = NDArray[np.float64]
DELTA, TEST, SEED = 1e-6, 1000, 20261118
KINDS = ("normal", "mixed", "correlated", "heteroscedastic", "heavy", "skewed", "binary")
LAWS = {"mixed": "mixed columns, log-normal errors", "heavy": "normal columns, student errors"}
LAWS |= {"skewed": "normal columns, log-normal errors", "binary": "0/1 columns, normal errors"}
LAWS |= {"correlated": "correlated columns, normal errors", "heteroscedastic": "normal columns, growing errors"}
# Fits of a cell at most, where they are dear; those of 5,000 rows and 10 columns or fewer have as many as are asked.
MOST = {
    (1000, 40): 20, (5000, 40): 20, (20000, 3): 20, (20000, 10): 20, (20000, 40): 6, (100000, 3): 4, (100000, 10): 4,
    (100000, 40): 1,
}  # fmt: skip
# Kind, rows, columns, ε, relation; the cheapest first.
CELLS = tuple(
    f"{kind} {rows} {columns} {epsilon} {relation}"
    for rows, columns in sorted(((n, d) for n in (1000, 5000, 20000, 100000) for d in (3, 10, 40)), key=np.prod)
    for epsilon in ("1", "4", ".5")
    for relation in ("replace-one", "zero-out")
    for kind in KINDS
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


def too_few(cell: str) -> bool:
    """Whether the public rule withholds."""
    _, rows, columns, epsilon, relation = cell.split()
    return int(rows) < least_rows(
        int(columns), Budget(epsilon=float(epsilon), delta=DELTA, neighbouring=Neighbouring(relation))
    )


def replicate(cell: str, seed: int, *, plain: bool) -> dict[str, Any]:
    """One table, one fit, and for some tables the plain fit beside it."""
    kind, rows, columns, epsilon, relation = cell.split()
    rng = np.random.default_rng([SEED, seed, int(rows), int(columns)])
    X, y, truth = draw(kind, int(rows), int(columns), rng)
    fresh, answers, _ = draw(kind, TEST, int(columns), rng)
    asked = {"neighbouring": relation, "noise_seed": SEED + seed, "insecure_reproducible": True}
    model = DPLinearRegression(float(epsilon), DELTA, inference=True, **asked).fit(X, y)  # type: ignore[arg-type]
    found: dict[str, Any] = {"withheld": model.inference_.withheld is not None}
    if not found["withheld"]:
        found["z"] = np.round((model.params - truth) / model.bse, 3).tolist()
        found["width"] = np.round(model.bse / least_squares_errors(X, y), 4).tolist()
        found["share"] = np.round(model.inference_.privacy_share, 3).tolist()
        _, low, high = model.predict(fresh, interval="observation").T
        found["observed"] = float(((answers > low) & (answers < high)).mean())
    if plain:
        other = DPLinearRegression(float(epsilon), DELTA, **asked).fit(X, y)  # type: ignore[arg-type]
        found["gained"] = round(model.score(fresh, answers) - other.score(fresh, answers), 5)
    return found


def fits_there(*files: Path) -> dict[str, list[dict[str, Any]]]:
    """Fits by cell, each seed once."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for file in files:
        for line in file.read_text().splitlines() if file.exists() else ():
            fit = json.loads(line)
            found.setdefault(fit["cell"], {})[fit["seed"]] = fit
    return {cell: list(fits.values()) for cell, fits in found.items()}


def simulate(
    output: Path, cells: list[str], rounds: list[int], replicate: Callable[[str, int], dict[str, Any]],
    most: Callable[[str], int],
) -> None:  # fmt: skip
    """Append fits to `output` until every cell has as many as each round asks, `most` of a cell at most."""
    done = {cell: len(fits) for cell, fits in fits_there(output).items()}
    # The check for pipelines looks at all objects that are not frozen. Once: what is frozen is never collected.
    gc.collect()
    gc.freeze()
    with output.open("a") as file:
        for wanted in rounds:
            for cell in cells:
                started, todo = time.process_time(), range(done.get(cell, 0), min(wanted, most(cell)))
                for seed in todo:
                    fit = {"cell": cell, "seed": seed, **replicate(cell, seed)}
                    print(json.dumps(fit), file=file, flush=True)
                if todo:
                    done[cell] = todo[-1] + 1
                    print(cell, done[cell], f"{(time.process_time() - started) / len(todo):.3f} s a fit", flush=True)


def summed_up(cell: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """What the table says of a cell; the predictions are the plan's, before the data."""
    kind, rows, columns, epsilon, relation = cell.split()
    given = [one for one in found if not one["withheld"]]
    said: dict[str, Any] = {"fits": len(found), "withheld": round(1 - len(given) / len(found), 3)}
    gained = [one["gained"] for one in found if "gained" in one]
    if gained:
        said["gained"] = round(float(np.mean(gained)), 4)
    if not given or too_few(cell):
        return said
    covered = np.abs([one["z"] for one in given]) < 1.959964
    said["covered"] = round(float(covered[:, 1:].mean()), 4)
    said["columns"] = np.round(covered[:, 1:].mean(axis=0), 4).tolist()
    said["intercept"] = round(float(covered[:, 0].mean()), 4)
    said["width"] = round(float(np.median([one["width"][1:] for one in given])), 3)
    said["privacy"] = round(float(np.median([one["share"][1:] for one in given])), 3)
    observed = [one["observed"] for one in given if "observed" in one]
    said["observed"] = round(float(np.mean(observed)), 4) if observed else None
    details = plan(
        "linear", rows=int(rows), columns=int(columns), epsilon=float(epsilon), delta=DELTA, neighbouring=relation,
        inference=True,
    ).prediction.details  # fmt: skip
    member = details["interval_width_family"].get(LAWS.get(kind, "normal columns, normal errors"))
    said["predicted"] = None if member is None else round(member, 3)
    said["range"] = [round(end, 3) for end in details["interval_width_range"]]
    return said


def grid(cells: dict[str, dict[str, Any]]) -> list[str]:
    """Rows of the table in docs/results/intervals.md: all kinds of a size, an ε and a relation together."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in CELLS:
        if cell in cells:
            groups.setdefault(cell.split(maxsplit=1)[1], []).append(cells[cell])
    lines, hidden = [], []
    for said, found in groups.items():
        fits, given = sum(one["fits"] for one in found), [one for one in found if "covered" in one]
        if too_few(f"all {said}"):
            hidden.append(said)
            continue
        counts = [one["fits"] * (1 - one["withheld"]) for one in given]
        each, widths = [one["covered"] for one in given], [one["width"] for one in given]
        covered, slopes = np.average(each, weights=counts), sum(counts) * len(given[0]["columns"])
        low, high = given[0]["range"]
        lines.append(
            f"| {said} | {fits} | {1 - sum(counts) / fits:.3f} | {covered:.3f} ± {(0.0475 / slopes) ** 0.5:.3f} | "
            f"{min(each):.2f}–{max(each):.2f} | {min(widths):.2f}–{max(widths):.2f} | {low:.2f}–{high:.2f} | "
            f"{min(one['privacy'] for one in given):.2f}–{max(one['privacy'] for one in given):.2f} |"
        )
    return [*lines, f"Withheld by the public rule: {', '.join(hidden)}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fits", nargs="*", type=Path, help="with --summary: files of fits")
    parser.add_argument("--cells", default=",".join(CELLS), help="kind rows columns epsilon relation, …")
    parser.add_argument("--rounds", default="30,120,500", help="fits a cell, in turn")
    parser.add_argument("--plain", type=int, default=2, help="fits a cell with the plain fit beside")
    parser.add_argument("--output", type=Path, help="a line a fit; those that are there are not made again")
    parser.add_argument("--summary", type=Path, help="write what `fits` say of each cell")
    arguments = parser.parse_args()
    if arguments.summary:
        cells = {cell: summed_up(cell, found) for cell, found in fits_there(*arguments.fits).items()}
        arguments.summary.write_text(json.dumps({"delta": DELTA, "cells": cells}) + "\n")
        print("\n".join(grid(cells)))
        return
    rounds = [int(n) for n in arguments.rounds.split(",")]

    def most(cell: str) -> int:
        _, n, d, *_ = cell.split()
        return 1 if too_few(cell) else MOST.get((int(n), int(d)), max(rounds))

    simulate(
        arguments.output, arguments.cells.split(","), rounds,
        lambda cell, seed: replicate(cell, seed, plain=seed < arguments.plain), most,
    )  # fmt: skip


if __name__ == "__main__":
    main()
