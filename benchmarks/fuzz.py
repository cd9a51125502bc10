"""Hostile input for estimators, files and the command line: everything is answered or refused, nothing is a traceback.

    python benchmarks/fuzz.py [--cases 20000] [--seed 0] [--seconds 60] [--only KIND]
    python benchmarks/fuzz.py --seed 0 --case 1234

The second form repeats one case and shows its traceback. Counts by kind and outcome go to the standard output:

ok       an answer
refused  a GratisError (command line: one sentence and exit code 2 or 3), or scikit-learn's own check of its input
FAILED   any other exception, exit code or message, more than `--seconds` for one case, or a budget that was spent on
         something that was refused

A case is a function of (seed, number) alone. Nothing is trained on more than a dozen rows.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gratis
from gratis.accounting import verify_certificate
from gratis.cli.program import run
from gratis.estimators.table_fit import plan_table_fit
from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError
from gratis.rows.cluster_client import connected
from gratis.rows.encoding import TableSchema
from gratis.rows.frames import FrameTable
from gratis.rows.undecided import UndecidedError

Rng = np.random.Generator
FILES = Path(__file__).parents[1] / "tests" / "estimators" / "files_0_1_0"
SEEDED = {"noise_seed": 1, "insecure_reproducible": True}


class TooSlowError(BaseException):
    """A case that did not end; no handler of ordinary errors may swallow it."""


def pick(rng: Rng, options: Any) -> Any:
    """One of the options, as it is (numpy would convert it)."""
    options = list(options)
    return options[rng.integers(len(options))]


# ---------------------------------------------------------------- hostile values

NUMBERS: list[Any] = [
    0, 1, -1, 2, 0.5, 1e-5, 1e-300, 5e-324, 1e300, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
    10**18, 10**400, -(10**400), np.float32(1.0), np.float64(2.0), np.int8(3), True, False,
]  # fmt: skip
OBJECTS: list[Any] = [
    None, "", "x", "1", "nan", b"bytes", "\ud800", [], [1], {}, {"a": 1}, (1, 2), object(), np.array([1.0]), 1j, print,
]  # fmt: skip
CELLS = [0.0, -0.0, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e154, 1e200, 1e308, -1e308]
HOLES = [np.nan, np.inf, -np.inf]


def absurd(rng: Rng) -> Any:
    """A number or an object that hardly any parameter can be."""
    return pick(rng, NUMBERS if rng.random() < 0.6 else OBJECTS)


def matrix(rng: Rng, n: int, d: int) -> Any:
    """Rows: usually finite and extreme here and there, at times with holes, of odd types or shapes."""
    X: Any = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    style = rng.integers(12)
    if style < 4:
        X[rng.random((n, d)) < 0.3] = pick(rng, CELLS)
    elif style == 4:
        X[rng.random((n, d)) < 0.3] = pick(rng, HOLES)
    elif style == 5:
        X[rng.integers(n)] = pick(rng, CELLS + HOLES)
    elif style == 6:
        with np.errstate(all="ignore"):
            X = X.astype(pick(rng, ["f2", "f4", "i1", "i8", "u1", "?", "c16", "U8", "S8", "O", ">f8", "M8[s]"]))
    elif style == 7:
        X = pick(rng, [X[:, 0], X[:0], X[:, :0], X[:1], X[None], X.tolist(), [[1, 2], [3]], X.T, np.asfortranarray(X)])
    elif style == 8 and rng.random() < 0.5:
        X = absurd(rng)
    elif style == 9:
        X = X.astype(object)
        X[rng.integers(n), rng.integers(d)] = absurd(rng)
    return X


def numeric_target(rng: Rng, n: int) -> Any:
    """Targets of a regression."""
    y: Any = rng.normal(size=n)
    style = rng.integers(8)
    if style < 2:
        y[rng.integers(n)] = pick(rng, CELLS + HOLES)
    elif style == 2:
        y = np.full(n, pick(rng, CELLS))
    elif style == 3:
        y = pick(
            rng, [y[:-1], y[:, None], np.column_stack([y, y]), y.astype("f2"), y.astype(object), y.astype(str), None]
        )
    elif style == 4:
        y = y.astype(object)
        y[rng.integers(n)] = absurd(rng)
    return y


LABELS: list[list[Any]] = [
    [0, 1], [1, 2, 3], ["a", "b"], ["", "ä", "b"], [b"a", b"b"], [True, False], [0.0, 1.0], [0.5, 1.5], [-1e308, 1e308],
    [0, "a"], [None, "a"], [b"a", "a"], [np.nan, 1.0], [np.inf, 0.0], [10**30, 1], [(1,), (2,)], ["\ud800", "b"],
]  # fmt: skip


def labels(rng: Rng, n: int) -> Any:
    """Labels of every kind."""
    kinds = pick(rng, LABELS)
    values = [pick(rng, kinds) for _ in range(n)]
    if rng.random() < 0.2:
        values[rng.integers(n)] = absurd(rng)
    if rng.random() < 0.1:
        return pick(rng, [values[:-1], [[v] for v in values], None, np.arange(n), np.zeros(n), np.arange(n) / 7])
    if rng.random() < 0.5:
        return values
    made = np.empty(n, dtype=object)
    made[:] = values
    with contextlib.suppress(Exception):  # what has no other type stays an array of objects
        return np.array(values) if rng.random() < 0.7 else made
    return made


def parameters(rng: Rng, cls: type) -> dict[str, Any]:
    """Cheap settings; a third of the time one or two of them absurd."""
    names = cls._get_param_names()  # type: ignore[attr-defined]
    chosen: dict[str, Any] = {"epsilon": pick(rng, [1.0, 10.0]), "delta": 1e-3, **SEEDED}
    usual: dict[str, list[Any]] = {
        "neighbouring": ["replace-one", "zero-out"], "preprocessing": ["private", "none"],
        "on_invalid": ["raise", "impute", "zero"], "algorithm": ["auto", "one-pass", "full-batch"],
        "n_features": [5], "width": [3], "depth": [2], "steps": [2], "features": ["tanh", "relu"],
        "centre": [True, False], "classes": [None, None, *LABELS], "pairs": ["auto", False],
        "class_weight": [None, None, None, "balanced", {0: 2.0}], "inference": [False, False, False, True],
    }  # fmt: skip
    chosen |= {name: pick(rng, values) for name, values in usual.items() if name in names}
    while rng.random() < 0.3:
        name = pick(rng, [n for n in names if n not in ("verbose", "ledger")])
        chosen[name] = absurd(rng)
    return chosen


# ---------------------------------------------------------------- cases: each returns the word for its outcome

ESTIMATORS = [
    gratis.DPLinearRegression, gratis.DPLogisticRegression, gratis.DPRandomFeaturesRegressor,
    gratis.DPRandomFeaturesClassifier, gratis.DPMLPClassifier, gratis.DPAdditiveRegressor, gratis.DPAdditiveClassifier,
]  # fmt: skip


def persons(rng: Rng, n: int) -> Any:
    """Whose rows they are: numbers, texts, none, of several kinds, too few of them."""
    ids: list[Any] = [
        7,
        7.0,
        "007",
        "ann",
        " ann ",
        None,
        float("nan"),
        "",
        b"x",
        ("a", 1),
        True,
        2**70,
        -0.0,
        "\ud800",
        "x" * 100_000,
    ]
    found: list[Any] = [pick(rng, ids) for _ in range(n if rng.random() < 0.9 else n + 1)]
    return rng.integers(0, 3, n) if rng.random() < 0.3 else absurd(rng) if rng.random() < 0.1 else found


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[dict[str, Any]]:
    """A ledger and a budget in it, as an estimator takes them; what is refused must have spent nothing."""
    ledger = Ledger.create(folder / f"w{time.monotonic_ns()}.ledger", {"d": Budget(epsilon=400.0, delta=0.1)})
    try:
        yield {"ledger": ledger, "dataset": "d"}
    finally:
        error = sys.exc_info()[1]
        lost = ledger.status("d").never_committed
        if lost and isinstance(error, Exception):
            raise AssertionError("spent on a failure") from error


def fit(rng: Rng, folder: Path) -> str:
    """Fit an estimator, and ask it about other hostile rows."""
    cls = pick(rng, ESTIMATORS)
    n, d = pick(rng, [2, 5, 12]), int(rng.integers(1, 4))  # few sizes: planning one pass takes seconds, once a size
    classifier = hasattr(cls, "predict_proba")
    X, y = matrix(rng, n, d), labels(rng, n) if classifier else numeric_target(rng, n)
    given, groups = parameters(rng, cls), {"groups": persons(rng, n)} if rng.random() < 0.2 else {}
    with watched(folder) if rng.random() < 0.2 else contextlib.nullcontext({}) as books:
        model = cls(**given | books)
        model.fit(X, y, **groups)
    assert verify_certificate(model.certificate_) == []
    return asked(rng, model, d)


def on_dask(rng: Rng, folder: Path) -> str:
    """Fit Dask arrays, whose targets may be of any type, on workers in this process."""
    import dask.array as da

    n, d = 12, int(rng.integers(1, 3))
    classifier = rng.random() < 0.3
    cls = gratis.DPLogisticRegression if classifier else gratis.DPLinearRegression
    X, y = matrix(rng, n, d), labels(rng, n) if classifier else numeric_target(rng, n)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or 0 in X.shape:
        X = rng.normal(size=(n, d))
    target = np.empty(n, dtype=object)
    listed = list(y)[:n] if isinstance(y, list | np.ndarray) else []
    target[: len(listed)] = listed
    given: dict[str, Any] = {"on_invalid": pick(rng, ["zero", "impute", "raise"]), "epsilon": 1.0, "delta": 1e-3}
    if classifier:
        given["classes"] = pick(rng, LABELS[:5])
    lazy = da.from_array(target, chunks=5) if rng.random() < 0.7 else target
    workers()
    with watched(folder) as books:
        cls(**given, **SEEDED, **books).fit(da.from_array(X, chunks=(5, X.shape[1])), lazy)
    return "ok"


@functools.cache
def workers() -> Any:
    """Workers in this process, until it ends."""
    client = connected("threads:1")
    atexit.register(client.__exit__, None, None, None)
    return client.__enter__()


def asked(rng: Rng, model: Any, d: int) -> str:
    """Predict hostile rows; what cannot be predicted may be refused, and the model stays."""
    rows = matrix(rng, int(rng.integers(1, 6)), d if rng.random() < 0.8 else d + 1)
    answers = model.predict(rows)
    if len(answers) != len(rows):
        raise AssertionError("not one answer for each row")
    return "ok"


def stored_model(rng: Rng) -> str:
    """Ask the stored models: cheap, and with settings changed after training."""
    model = gratis.load_model(FILES / f"{pick(rng, ['linear', 'logistic', 'random_features', 'one_pass'])}.gratis")
    return asked(rng, model.estimator, 2)


def bytes_of(rng: Rng, content: bytes) -> bytes:
    """Damage a file: flip, cut, insert, exchange numbers and names."""
    style = rng.integers(6)
    place = int(rng.integers(max(len(content), 1)))
    if style == 0:
        return content[:place]
    if style == 1:
        return (
            content[:place] + bytes(rng.integers(256, size=int(rng.integers(1, 9)), dtype=np.uint8)) + content[place:]
        )
    if style == 2:
        return content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :]
    if style == 3:
        return (
            content[:place] + pick(rng, [b"[" * 5000, b"\xff\xfe", b"\x00", b'"', b"NaN", b"1e999"]) + content[place:]
        )
    if style == 4:
        return content.replace(
            *pick(rng, [(b"1", b"9" * 500), (b"0.", b"-1."), (b"[", b"{"), (b"true", b"1"), (b"a", b"b")])
        )
    return content + content


def tree(rng: Rng, data: Any) -> Any:
    """Exchange something inside JSON data for something absurd."""
    data = json.loads(json.dumps(data))
    node, path = data, []
    while isinstance(node, (dict, list)) and node and (not path or rng.random() < 0.8):
        key = pick(rng, node.keys() if isinstance(node, dict) else range(len(node)))
        path.append((node, key))
        node = node[key]
    parent, key = path[-1]
    style = rng.random()
    if style < 0.2 and isinstance(parent, dict):
        del parent[key]
    elif style < 0.3 and isinstance(parent, dict):
        parent["more"] = 1
    else:
        parent[key] = pick(rng, [
            0, -1, 1, 0.5, 1e308, 1e-308, 10**12, 10**17, 10**400, None, True, "", "inf", "x", [], {}, [parent[key]],
            [[1.0, 10**12]], [[0.0, 1]], {"kind": "composition", "events": []},
        ])  # fmt: skip
    return data


def certificate_file(rng: Rng, folder: Path) -> str:
    """Read and verify a changed certificate."""
    content = (FILES / f"{pick(rng, ['linear', 'logistic', 'one_pass', 'random_features'])}.json").read_bytes()
    changed = bytes_of(rng, content) if rng.random() < 0.4 else json.dumps(tree(rng, json.loads(content))).encode()
    (folder / "c.json").write_bytes(changed)
    return "refused" if verify_certificate(Certificate.read(folder / "c.json")) else "ok"


def schema_file(rng: Rng, folder: Path) -> str:
    """Read a changed schema."""
    data = {
        "columns": {
            "a": "numeric",
            "b": {"kind": "categorical", "levels": ["x", "y"]},
            "c": {"kind": "categorical", "buckets": 4},
        }
    }
    text = json.dumps(data).encode()
    (folder / "s.json").write_bytes(bytes_of(rng, text) if rng.random() < 0.4 else json.dumps(tree(rng, data)).encode())
    TableSchema.read(folder / "s.json")
    return "ok"


def model_file(rng: Rng, folder: Path) -> str:
    """Load a changed model file, resealed so that its sums agree, and predict."""
    import hashlib

    name = pick(rng, ["linear", "logistic", "random_features", "random_features_classifier"])
    content = (FILES / f"{name}.gratis").read_bytes()
    path = folder / "m.gratis"
    if rng.random() < 0.3:
        path.write_bytes(bytes_of(rng, content))
    else:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = {name: file.read(name) for name in file.namelist()}
        head = json.loads(members.pop("model.json"))
        if rng.random() < 0.5:
            head = tree(rng, head)
        else:
            chosen = pick(rng, members)
            if chosen.endswith("npy") and rng.random() < 0.7:
                buffer = io.BytesIO()
                rows = matrix(rng, int(rng.integers(1, 5)), 2)
                try:
                    cells = np.asarray(rows)
                except ValueError:  # rows of unequal lengths
                    cells = np.asarray(rows, dtype=object)
                np.save(buffer, cells, allow_pickle=True)
                members[chosen] = buffer.getvalue()
            else:
                members[chosen] = bytes_of(rng, members[chosen])
        if isinstance(head.get("sha256"), dict):
            head["sha256"] = {name: hashlib.sha256(part).hexdigest() for name, part in members.items()}
        with zipfile.ZipFile(path, "w") as file:
            for name, part in {"model.json": json.dumps(head).encode(), **members}.items():
                file.writestr(name, part)
    model = gratis.load_model(path).estimator
    model.predict(rng.normal(size=(3, model.n_features_in_)))  # what was loaded can be used
    return "ok"


def ledger_file(rng: Rng, folder: Path) -> str:
    """Open a damaged ledger."""
    path = folder / f"l{rng.integers(10**9)}.ledger"
    Ledger.create(path)
    path.write_bytes(bytes_of(rng, path.read_bytes()))
    Ledger.open(path).verify()
    return "ok"


def table_file(rng: Rng, folder: Path) -> Path:
    """A small table, sound or broken, as CSV or Parquet."""
    n = int(rng.integers(0, 12))
    cells: list[str] = [
        "1",
        "-2.5",
        "0",
        "",
        "nan",
        "inf",
        "1e308",
        "1e999",
        "x",
        "ä",
        '"',
        "true",
        "2020-01-01",
        "a,b",
        "\ud800",
    ]
    sound = rng.random() < 0.6
    columns = {name: [str(rng.integers(5)) if sound or rng.random() < 0.8 else pick(rng, cells) for _ in range(n)]
               for name in ("a", "b", "y")}  # fmt: skip
    header = ",".join(pick(rng, [list(columns), ["a", "a", "y"], ["", "b", "y"], list(columns)]))
    text = header + "\n" + "".join(",".join(row) + "\n" for row in zip(*columns.values(), strict=True))
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        content = bytes_of(rng, content)
    path = folder / pick(rng, ["t.csv", "t.csv", "t.parquet", "t.csv.gz", "t.arrow", "t.txt", "t.jsonl", "t.xlsx"])
    if path.suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        lines = "\n".join(json.dumps(row) for row in rows).encode()
        content = lines if rng.random() < 0.7 else bytes_of(rng, lines)
    if path.suffix == ".parquet" and rng.random() < 0.8:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = [pa.float64(), pa.float16(), pa.int8(), pa.string(), pa.binary(), pa.bool_(), pa.date32(), pa.null()]
        values = {name: pick(rng, kinds) for name in columns}
        table = pa.table({
            name: pa.array([1] * n, pa.int32()).cast(kind) if pa.types.is_floating(kind) else pa.nulls(n, kind)
            for name, kind in values.items()
        })  # fmt: skip
        pq.write_table(table, path)
        if rng.random() < 0.3:
            path.write_bytes(bytes_of(rng, path.read_bytes()))
        return path
    path.write_bytes(content)
    return path


AMOUNTS = [
    "1.234,56", "1 234,56", "1\u202f234,5", "1'234.56", "€ 45.000,00", "45.000,00 €", "(4,567)", "12 %", "7-", "1.234",
    "1,234", "$1,200.50", "-5", "3,5", "0", "n/a", "", "x", "CHF 5", "03/14/2015", "31.12.2015", "\ud800", "x" * 5000,
]  # fmt: skip


def amounts(rng: Rng, n: int) -> list[Any]:
    """A column as people write numbers and dates: mostly of one kind, at times of several, at times none of text."""
    usual: list[Any] = pick(rng, [AMOUNTS[:1], AMOUNTS[1:3], AMOUNTS[3:4], AMOUNTS[4:6], AMOUNTS[9:11], AMOUNTS[19:20],
                                  [1, 2, 3.5], [True, False], ["a", "b"], AMOUNTS])  # fmt: skip
    odd: list[Any] = [*AMOUNTS, None, 10**30, 1e308, float("nan"), [1], {"a": 1}]
    share = pick(rng, [0.0, 0.0, 0.1, 0.5])
    return [pick(rng, odd) if rng.random() < share else pick(rng, usual) for _ in range(n)]


def people_table(rng: Rng, folder: Path) -> Any:
    """Hostile cells in a file of any format, or in a data frame."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = int(rng.integers(2, 40))
    columns = {name: amounts(rng, n) for name in ("a", "b", "c")}
    columns["y"] = pick(rng, [rng.normal(size=n).tolist(), rng.integers(0, 3, n).tolist(), amounts(rng, n)])
    columns["person_id"] = [pick(rng, ["ann", "bob", "x" * 100_000, None, 7]) for _ in range(n)]
    form = pick(rng, ["csv", "csv", "jsonl", "jsonl", "parquet", "folder", "xlsx", "frame"])
    path = folder / f"t.{form}"
    if form == "frame":
        return pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
    if form == "csv":
        separator = pick(rng, ";;,\t")
        lines = [separator.join(columns)]
        for row in zip(*columns.values(), strict=True):
            cells = ["" if cell is None else str(cell) for cell in row]
            lines.append(separator.join(f'"{cell}"' if separator in cell else cell for cell in cells))
        content = "\n".join(lines).encode("utf-8", "surrogatepass")
        path.write_bytes(bytes_of(rng, content) if rng.random() < 0.1 else content)
    elif form == "jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        rows[rng.integers(n)] |= pick(rng, [{}, {}, {"hiv": 1}, {"a": [1]}, {"\ud800": 1}])
        text = "\n".join(json.dumps(row) for row in rows) + "\n" + pick(rng, [*[""] * 9, "[1]\n", "[" * 9999])
        content = text.encode()
        path.write_bytes(bytes_of(rng, content) if rng.random() < 0.1 else content)
    elif form == "xlsx":
        import openpyxl

        book = openpyxl.Workbook()
        book.active.append([*columns, *pick(rng, [[], [None, "far"], ["a"]])])
        for row in zip(*columns.values(), strict=True):
            cells = ["\ufffd" if cell == "\ud800" else cell for cell in row]
            book.active.append([None if isinstance(cell, list | dict) else cell for cell in cells])
        book.save(path)
        if rng.random() < 0.1:
            path.write_bytes(bytes_of(rng, path.read_bytes()))
    else:
        texts = {
            name: pa.array([None if not isinstance(c, str | int | float) else str(c).encode("utf-8", "surrogatepass")
                            for c in cells], pa.binary())
            for name, cells in columns.items()
        }  # fmt: skip
        table = pa.table({
            name: pa.Array.from_buffers(pa.string(), n, cells.buffers()) for name, cells in texts.items()
        })  # fmt: skip
        path.mkdir() if form == "folder" else None
        for part in range(2 if form == "folder" else 1):
            some = table.slice(part * n // 2) if form == "folder" else table
            pq.write_table(some, path / f"{part}.parquet" if form == "folder" else path)
    return path


def whole_table(rng: Rng, folder: Path) -> str:
    """Plan, check and fit a hostile table: with a ledger, of which nothing is taken for what is refused."""
    source = people_table(rng, folder)
    if not isinstance(source, Path):
        source = FrameTable(source)
    several = [[], ["a"], ["a", "b"], ["a", "b", "c"]]
    told: dict[str, Any] = {
        "numeric": pick(rng, [[], [], *several]), "hash_buckets": pick(rng, [None, 4]),
        "unit": pick(rng, [None, None, "person_id"]), "missing_target": pick(rng, ["refuse", "leave-out", "leave-out"]),
        "task": pick(rng, ["auto", "auto", "regression"]), "held_out": pick(rng, [0.0, 0.0, 0.3]),
    }  # fmt: skip
    if told["unit"] is None:
        told["private_levels"] = [name for name in pick(rng, several) if name not in told["numeric"]]
        told["ignore"] = ["person_id"]
    if isinstance(source, Path):
        told["decimal"] = pick(rng, [None, None, ".", ","])
        told["memory_bytes"] = pick(rng, [4e9, 4e9, 1.0])
    budget = Budget(epsilon=pick(rng, [1.0, 100.0]), delta=1e-3)
    try:
        job = plan_table_fit(source, "y", budget, **told)
    except UndecidedError as error:  # what it prints is followed once
        job = plan_table_fit(source, "y", budget, **{**told, **followed(told, error.advice)})
    job.check()
    with watched(folder) as books:
        try:
            done = job.run(ledger=books["ledger"].path, dataset="d")
        except GratisError as error:
            if "common enough" not in str(error):  # levels that were paid for and released
                raise
            return "refused"
    assert verify_certificate(done.estimator.certificate_) == []
    return "ok"


def followed(told: dict[str, Any], advice: Any) -> dict[str, Any]:
    """What was told along with what a refusal advises."""
    lists = {name: [*told.get(name, ()), *value] for name, value in advice.items() if isinstance(value, tuple)}
    return {**advice, **{name: list(dict.fromkeys(value)) for name, value in lists.items()}}


WORDS = [
    "0",
    "1",
    "-1",
    "0.5",
    "1e-5",
    "1e308",
    "-1e308",
    "1e999",
    "nan",
    "inf",
    "x",
    "",
    "10",
    "1e26",
    "9" * 400,
    "ä",
    "a,b",
    "y",
    "--",
]


def arguments(rng: Rng, folder: Path) -> list[str]:
    """A command with options that may make sense."""

    def value(*usual: str) -> str:
        return pick(rng, usual) if rng.random() < 0.6 else pick(rng, WORDS)

    made = people_table(rng, folder) if rng.random() < 0.3 else None
    table = str(made if isinstance(made, Path) else table_file(rng, folder))
    certificate, model = str(FILES / "linear.json"), str(FILES / "linear.gratis")
    options: dict[str, dict[str, str]] = {
        "account epsilon": {"mu": value("1"), "delta": value("1e-5"), "neighbouring": value("zero-out")},
        "account mu": {"epsilon": value("1"), "delta": value("1e-5")},
        "account delta": {"epsilon": value("1"), "mu": value("1")},
        "account ladder": {"steps": value("1,10"), "epsilon": value("1"), "delta": value("1e-5")},
        "plan linear": {"n": value("100"), "d": value("2"), "epsilon": value("1"), "delta": value("1e-5"),
                        "algorithm": value("one-pass", "full-batch"), "spectrum": value("isotropic", table)},
        "plan network": {"n": value("100"), "d": value("2"), "width": value("4"), "classes": value("1", "2"),
                         "time": value("0.5"), "kl-budget": value("1")},
        "ledger create": {"name": value("b"), "epsilon": value("1"), "delta": value("1e-5"), "mu": value("1")},
        "fit": {"target": value("y"), "epsilon": value("1"), "delta": value("0.01"), "ignore": value("a"),
                "model": value("linear", "logistic"), "task": value("auto", "regression"),
                "classes": value("0,1"), "hold-out": value("0", "0.3"),
                "memory": value("1"), "hash": value("4"), "output": str(folder / "out"), "unit": value("a", "b"),
                "private-levels": value("a", "b"), "levels": value("a=x,y"), "numeric": value("a"),
                "missing-target": value("leave-out"), "separator": value(";"), "encoding": value("latin-1"),
                "decimal": value(","), "ledger": str(folder / "w.ledger")},
        "compare": {"target": value("y"), "epsilon": value("1"), "delta": value("1e-3")},
        "schema": {"most-levels": value("3")},
        "predict": {"output": str(folder / pick(rng, ["p.csv", "p.parquet", "p"]))},
        "report": {"output": str(folder / pick(rng, ["r.html", "no/where.html"]))},
        "certificate verify": {"model": value(model, table, certificate)},
    }  # fmt: skip
    command = pick(rng, options)
    needed = {"delta", "epsilon", "mu", "n", "d", "target", "width", "name", "output"}
    kept = {k: v for k, v in options[command].items() if rng.random() < (0.9 if k in needed else 0.3)}
    found = command.split() + [part for key, word in kept.items() for part in (f"--{key}", word)]
    if "--ledger" in found:
        Ledger.create(folder / "w.ledger", {"d": Budget(epsilon=400.0, delta=0.1)})
        found += ["--budget", "d"]
    if command == "fit":
        found += ["--no-audit", "--yes", *(["--dry-run"] if rng.random() < 0.7 else [])]
        found += [flag for flag in ("--balanced", "--inference") if rng.random() < 0.1]
    files = {"ledger create": [str(folder / "l.ledger")], "fit": [table], "compare": [table], "schema": [table],
             "predict": [value(model), table], "report": [value(model, table)],
             "certificate verify": [value(certificate, model, table)]}  # fmt: skip
    found += files.get(command, [])
    if rng.random() < 0.2:
        found.append("--json")
    return found if rng.random() < 0.95 else found[: rng.integers(len(found) + 1)]


def judged(code: int, out: str, err: str) -> str:
    """The word for what a command did; anything but an answer or one sentence is a failure."""
    if code == 0:
        return "ok"
    sentences = [line for line in err.strip().splitlines() if line.startswith("gratis: ")]
    if code in (2, 3) and (len(sentences) == 1 or (code == 2 and "Usage" in out + err)) and "Traceback" not in err:
        return "refused"
    raise AssertionError(f"exit code {code} with {err[-2000:]!r}")


def command(rng: Rng, folder: Path) -> str:
    """Run a command in this process."""
    words = arguments(rng, folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except Exception as error:
            error.add_note(f"gratis {words}")
            raise
    try:
        books = folder / "w.ledger"
        if code and books.exists() and Ledger.open(books).status("d").never_committed:
            raise AssertionError(f"spent on a failure: {err.getvalue()[-2000:]!r}")
        return judged(code, out.getvalue(), err.getvalue())
    except AssertionError as error:
        error.add_note(f"gratis {words}")
        raise


def process(rng: Rng, folder: Path, seconds: float) -> str:
    """Run a command in a process of its own."""
    words = [word.encode("utf-8", "surrogatepass") for word in arguments(rng, folder)]
    code = "from gratis.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, check=False, timeout=seconds, cwd=folder
    )
    try:
        return judged(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))
    except AssertionError as error:
        error.add_note(f"gratis {words}")
        raise


# Shares of all cases.
KINDS = {
    "fit": 0.35, "stored model": 0.08, "certificate": 0.1, "schema": 0.05, "model file": 0.08, "ledger": 0.03,
    "command": 0.175, "process": 0.015, "table": 0.11, "dask": 0.01,
}  # fmt: skip


def case(seed: int, number: int, folder: Path, seconds: float, only: str | None = None) -> tuple[str, str]:
    """Run one case; its kind and its outcome, or the exception that no case should raise."""
    rng = np.random.default_rng([seed, number])
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    kind = only or kind
    of_file: dict[str, Callable[[Rng, Path], str]] = {
        "certificate": certificate_file, "schema": schema_file, "model file": model_file, "ledger": ledger_file,
        "command": command, "process": lambda rng, folder: process(rng, folder, seconds), "table": whole_table,
        "dask": on_dask, "fit": fit,
    }  # fmt: skip
    with limited(seconds), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if kind in of_file:
                return kind, of_file[kind](rng, folder)
            return kind, stored_model(rng)
        except GratisError:
            return kind, "refused"
        except (ValueError, TypeError) as error:
            if is_scikit_learns(error):
                return kind, "refused"
            error.add_note(f"kind {kind}")
            raise
        except (Exception, TooSlowError) as error:
            error.add_note(f"kind {kind}")
            raise


def is_scikit_learns(error: BaseException) -> bool:
    """Whether scikit-learn's own validation raised it (or numpy, called from there)."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    last = max((i for i, name in enumerate(frames) if f"{os.sep}gratis{os.sep}" in name), default=-1)
    return any(f"{os.sep}sklearn{os.sep}" in name for name in frames[last + 1 :])


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End a case that takes too long."""

    def stop(*_: Any) -> None:
        raise TooSlowError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def warm_up() -> None:
    """Import and compile what the first cases would be too slow for."""
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10) % 2
    for cls in ESTIMATORS:
        small = {"n_features": 5, "width": 3, "steps": 2, "algorithm": "one-pass"}
        cls(1.0, 1e-3, **SEEDED, **{k: v for k, v in small.items() if k in cls._get_param_names()}).fit(X, y)  # type: ignore[attr-defined]


def fuzz(
    cases: int, seed: int, seconds: float, first: int = 0, only: str | None = None
) -> tuple[Counter[Any], list[str]]:
    """Run cases; return counts by (kind, outcome), and for every failure how to repeat it."""
    counts: Counter[Any] = Counter()
    failures: list[str] = []
    warm_up()
    for number in range(first, first + cases):
        with tempfile.TemporaryDirectory() as folder:
            try:
                counts[case(seed, number, Path(folder), seconds, only)] += 1
            except (Exception, TooSlowError) as error:
                notes = getattr(error, "__notes__", [])
                counts[notes[-1].removeprefix("kind ") if notes else "?", "FAILED"] += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}:{where.lineno}"
                words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                chosen = "" if only is None else f" --only '{only}'"
                failures.append(f"--seed {seed} --case {number}{chosen}: {words} at {place} {' '.join(notes)[:400]}")
                print(failures[-1], flush=True)
    return counts, failures


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="repeat one case")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of one case")
    parser.add_argument("--only", choices=list(KINDS))
    asked_for = parser.parse_args()
    if asked_for.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(*case(asked_for.seed, asked_for.case, Path(folder), asked_for.seconds, asked_for.only))
        return 0
    begin = time.perf_counter()
    counts, failures = fuzz(asked_for.cases, asked_for.seed, asked_for.seconds, asked_for.first, asked_for.only)
    for kind in KINDS:
        print(f"{kind:>14}", *(f"{word} {counts[kind, word]:>6}" for word in ("ok", "refused", "FAILED")), sep="  ")
    print(f"{sum(counts.values())} cases, {len(failures)} failed, {time.perf_counter() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
