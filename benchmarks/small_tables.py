"""No fit of a small table may be much worse than the mean: many fits of `DPLinearRegression`, and the worst of them.

    GRATIS_DATA=... python benchmarks/small_tables.py --fits 20 --output small.json

Test R² over random 80/20 splits of tables with few rows, ε = .3, 1, 3, both relations, a new split and new noise each
time; nothing but ε, δ and the relation is given. Noise seeds are fixed so that a row can be reproduced. Beside them
the R² of the mean of the training targets without privacy: small test parts are below zero with it, too.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np

from gratis.estimators import DPLinearRegression
from gratis.records.neighbouring import Neighbouring
from linear_tables import DELTA, r_squared
from tabular import REGRESSION, split

SMALL = (
    "housing", "stock", "forest", "energy", "concrete", "fri_c4_100", "pmlb_4544", "airfoil", "winequality_red",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(SMALL))
    parser.add_argument("--epsilons", default="0.3,1,3")
    parser.add_argument("--relations", default=",".join(map(str, Neighbouring)))
    parser.add_argument("--fits", type=int, default=20, help="of each table at each ε and relation")
    parser.add_argument("--first", type=int, default=0, help="the first split")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    cells = list(product(map(float, arguments.epsilons.split(",")), arguments.relations.split(",")))
    tables = {name: REGRESSION[name]() for name in arguments.tables.split(",")}
    results: dict[str, list[float]] = {f"{name} {e:g} {r}": [] for name in tables for e, r in cells}
    means: dict[str, list[float]] = {name: [] for name in tables}
    for seed in range(arguments.first, arguments.first + arguments.fits):
        for name, (X, y) in tables.items():
            train, test = split(X, y, seed)
            means[name].append(r_squared(test[1], np.full(len(test[1]), train[1].mean())))
            for epsilon, relation in cells:
                model = DPLinearRegression(
                    epsilon=epsilon, delta=DELTA, neighbouring=relation, noise_seed=seed, insecure_reproducible=True
                ).fit(*train)
                results[f"{name} {epsilon:g} {relation}"].append(r_squared(test[1], model.predict(test[0])))
            if arguments.output:
                arguments.output.write_text(json.dumps({"fits": results, "mean": means}, indent=1))
        print(f"split {seed}", flush=True)
    for cell, found in results.items():
        print(f"{cell:32s} median {np.median(found):6.3f} mean {np.mean(found):6.3f} worst {min(found):6.3f}")
    values = np.concatenate([np.array(found) for found in results.values()])
    print(f"{len(values)} fits, worst {values.min():.3f}, {(values < -0.1).sum()} below −.1")


if __name__ == "__main__":
    main()
