"""Replay audits at length: hostile neighbours of every estimator in every mode, and of the score on held-out rows.

    python benchmarks/replay.py [--pairs 20000] [--workers 2] [--only WORD]

Writes docs/results/replay.json after every cell; cells of the same program text are not repeated, so that a run that
was stopped goes on. Rewrites docs/results/audits.md at the end. Exit code 3 if a pair shows more than is certified.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import contextlib
import functools
import hashlib
import importlib
import itertools
import json
import math
import multiprocessing
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gratis
from gratis.audits.hostile import HostileTables, Table
from gratis.audits.replay import ReplayAudit, record
from gratis.audits.trainings import (
    audit_tables,
    estimator_training,
    held_out_training,
    in_primal,
    subsampled_training,
)
from gratis.estimators.scales import PublicScales
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring
from gratis.rows.streaming import ArrayRows

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "replay.json"
EPSILON, DELTA = 4.0, 1e-3
SHAPES = ((20, 2), (40, 3), (33, 4), (60, 5))
NUMBERS, TEXTS = (0, 1), ("a", "b", "c")
# name: (estimator, options, classes, in the primal)
ESTIMATORS: dict[str, tuple[str, dict[str, Any], tuple[Any, ...] | None, bool]] = {
    "linear": ("DPLinearRegression", {}, None, False),
    "linear, one pass": ("DPLinearRegression", {"algorithm": "one-pass"}, None, False),
    "linear, one pass, streamed": ("DPLinearRegression", {"algorithm": "one-pass"}, None, False),
    "linear, intervals": ("DPLinearRegression", {"inference": True}, None, False),
    "linear, winsorised intervals": ("DPLinearRegression", {"inference": "winsorised"}, None, False),
    "logistic, intervals": ("DPLogisticRegression", {"inference": True}, NUMBERS, False),
    "additive, regression": ("DPAdditiveRegressor", {}, None, False),
    "additive, monotone": ("DPAdditiveRegressor", {"monotone": {1: "increasing"}}, None, False),
    "additive, classes": ("DPAdditiveClassifier", {}, NUMBERS, False),
    "additive, texts": ("DPAdditiveClassifier", {}, TEXTS, False),
    "logistic": ("DPLogisticRegression", {}, NUMBERS, False),
    "logistic, texts": ("DPLogisticRegression", {}, TEXTS, False),
    "logistic, one pass": ("DPLogisticRegression", {"algorithm": "one-pass"}, NUMBERS, False),
    "logistic, one pass, texts": ("DPLogisticRegression", {"algorithm": "one-pass"}, TEXTS, False),
    "logistic, one pass, streamed": ("DPLogisticRegression", {"algorithm": "one-pass"}, NUMBERS, False),
    "random features, regression": ("DPRandomFeaturesRegressor", {"n_features": 16}, None, False),
    # A clip norm below 1, where a factor divided by it may overflow.
    "random features, regression, narrow": ("DPRandomFeaturesRegressor", {"n_features": 4}, None, False),
    "random features, regression, wide": ("DPRandomFeaturesRegressor", {"n_features": 80}, None, False),
    "random features, regression, wide, in the primal": ("DPRandomFeaturesRegressor", {"n_features": 80}, None, True),
    "random features, classes": ("DPRandomFeaturesClassifier", {"n_features": 16}, NUMBERS, False),
    "random features, texts": ("DPRandomFeaturesClassifier", {"n_features": 16}, TEXTS, False),
    "random features, classes, wide": ("DPRandomFeaturesClassifier", {"n_features": 80}, NUMBERS, False),
    "random features, classes, wide, in the primal": ("DPRandomFeaturesClassifier", {"n_features": 80}, NUMBERS, True),
    "network": ("DPMLPClassifier", {"width": 8, "steps": 4}, NUMBERS, False),
    "network, texts": ("DPMLPClassifier", {"width": 8, "steps": 4}, TEXTS, False),
}
RELATIONS, PREPROCESSING, ON_INVALID = ("replace-one", "zero-out"), ("private", "public", "none"), (
    "raise", "zero", "impute",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One estimator in one mode."""

    estimator: str
    relation: str
    preprocessing: str = "-"
    on_invalid: str = "-"
    declared: bool = True

    @property
    def key(self) -> str:
        undeclared = "" if self.declared else "; classes not declared"
        return f"{self.estimator}; {self.relation}; {self.preprocessing}; {self.on_invalid}{undeclared}"

    @property
    def shape(self) -> tuple[int, int]:
        if "intervals" in self.estimator:  # fewer rows have none, by a public rule
            return 160, 2
        # A pass takes seconds to plan for each shape.
        return (40, 3) if "one pass" in self.estimator else SHAPES[zlib.crc32(self.key.encode()) % len(SHAPES)]


def cells() -> Iterator[Cell]:
    for name, relation in itertools.product(ESTIMATORS, RELATIONS):
        additive = name.startswith("additive")  # always finds its own scales
        for preprocessing, on_invalid in itertools.product(("-",) if additive else PREPROCESSING, ON_INVALID):
            yield Cell(name, relation, preprocessing, on_invalid)
    for name, on_invalid in itertools.product(("logistic", "random features, classes", "network"), ON_INVALID):
        yield Cell(name, "replace-one", "private", on_invalid, declared=False)
    for relation in RELATIONS:
        yield Cell("network, subsampled", relation)
        yield Cell("score, regression", relation)
        yield Cell("score, classes", relation)


def faster() -> None:
    """Remember what is a function of public facts or of releases: budgets and versions."""

    def everywhere(module: str, name: str, wrap: Callable[[Any], Any]) -> None:
        with contextlib.suppress(ImportError, AttributeError):
            old = getattr(importlib.import_module(module), name)
            new = wrap(old)
            for loaded in list(sys.modules.values()):
                if getattr(loaded, "__name__", "").startswith("gratis") and getattr(loaded, name, None) is old:
                    setattr(loaded, name, new)

    importlib.import_module("gratis.estimators.evaluation")
    for module in ("linear", "random_features", "network", "one_pass"):
        importlib.import_module(f"gratis.recipes.{module}")
    cached = functools.lru_cache(maxsize=None)
    everywhere("gratis.accounting.certification", "_versions", cached)
    everywhere("gratis.accounting.calibration", "calibrate_mu", cached)
    everywhere("gratis.accounting.gdp", "gdp_epsilon_upper_bound", cached)


def audited(cell: Cell, pairs: int, round_: int) -> dict[str, Any]:
    seeds = itertools.count(zlib.crc32(f"{cell.key} {round_}".encode()) << 32)
    rng = np.random.default_rng(zlib.crc32(f"rows {cell.key} {round_}".encode()))
    relation = Neighbouring.parse(cell.relation)
    start = time.process_time()
    training, tables = prepared(cell, seeds)
    record(training(tables.draw(rng)))  # imports and plans
    audit = audit_tables(training, tables, relation, pairs=pairs, rng=rng, per_recording=8)
    return {"cell": cell.key, "round": round_, "asked": pairs, **slim(audit),
            "cpu_seconds": round(time.process_time() - start, 1)}  # fmt: skip


def slim(audit: ReplayAudit) -> dict[str, Any]:
    data = audit.to_json()
    data["kinds_of_differences"] = len(data["differences"])
    data["differences"] = data["differences"][:5]
    del data["verdict"], data["limits"]
    return data


def prepared(cell: Cell, seeds: Iterator[int]) -> tuple[Callable[[Any], Any], HostileTables]:
    n, d = cell.shape

    def source() -> NoiseSource:
        return NoiseSource.insecure(next(seeds))

    if cell.estimator == "network, subsampled":
        from gratis.records.events import PoissonSubsampledGaussian
        from gratis.stages.poisson_sampling import PoissonSampling

        event = PoissonSubsampledGaussian(
            sampling_rate=0.3, noise_multiplier=1.0, steps=5, neighbouring=Neighbouring.parse(cell.relation)
        )
        sampling = PoissonSampling(n, event)
        tables = HostileTables(n=n, d=d, classes=NUMBERS, invalid=True, outside=False)
        return lambda table: subsampled_training(sampling, 2, table, source), tables
    if cell.estimator.startswith("score"):
        classes = NUMBERS if "classes" in cell.estimator else None
        budget = Budget(epsilon=EPSILON, delta=DELTA, neighbouring=Neighbouring.parse(cell.relation))
        options: dict[str, Any] = {"noise_seed": 1, "insecure_reproducible": True, "on_invalid": "impute"}
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        if classes is None:
            fitted = gratis.DPLinearRegression(EPSILON, DELTA, **options).fit(X, X[:, 0])
        else:
            labels = (X[:, 0] > 0).astype(float)
            fitted = gratis.DPLogisticRegression(EPSILON, DELTA, classes=list(classes), **options).fit(X, labels)
        tables = HostileTables(n=n, d=d, classes=classes, invalid=True)
        return lambda table: held_out_training(fitted, budget, table, source), tables

    name, options, classes, _ = ESTIMATORS[cell.estimator]
    settings = dict(options) | {
        "epsilon": EPSILON, "delta": DELTA, "neighbouring": cell.relation, "on_invalid": cell.on_invalid,
        "insecure_reproducible": True,
    }  # fmt: skip
    if cell.preprocessing != "-":
        settings["preprocessing"] = cell.preprocessing
    if cell.preprocessing == "public":
        settings["public"] = PublicScales([0.0] * d, [1.0] * d, target_mean=0.0, target_scale=1.0)
    if classes is not None and cell.declared:
        settings["classes"] = list(classes)
    if "in the primal" in cell.estimator:
        settings = in_primal(settings)
    kind = getattr(gratis, name)

    def create() -> Any:
        return kind(**settings, noise_seed=next(seeds))

    tables = HostileTables(
        n=n, d=d, classes=classes, invalid=cell.on_invalid != "raise", outside=None if cell.declared else False
    )
    if "streamed" in cell.estimator:
        return lambda table: estimator_training(create, table, streamed), tables
    return lambda table: estimator_training(create, table), tables


def streamed(model: Any, table: Table) -> Any:
    return model.fit_rows(ArrayRows(table.X, table.y))


def run_cell(cell: Cell, pairs: int, round_: int) -> dict[str, Any]:
    """In a worker; a program that breaks in the audit itself is a result too."""
    try:
        return audited(cell, pairs, round_)
    except Exception as error:
        return {"cell": cell.key, "round": round_, "asked": pairs, "broken": f"{type(error).__name__}: {error}"}


def fingerprint() -> str:
    """Of the program text: results of another text are not resumed."""
    digest = hashlib.sha256()
    for path in sorted(Path(gratis.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    text, chosen = fingerprint(), [cell for cell in cells() if options.only in cell.key]
    rows: list[dict[str, Any]] = []
    if options.output.is_file():
        earlier = json.loads(options.output.read_text(encoding="utf-8"))
        rows = earlier["cells"] if earlier["program"] == text else []
    start = time.monotonic()

    def work(round_: int, each: int, wanted: list[Cell]) -> None:
        done = {(row["cell"], row["round"]) for row in rows}
        missing = [cell for cell in wanted if (cell.key, round_) not in done]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, mp_context=context, initializer=faster) as pool:
            # A score and a subsampled network have two modes each, where an estimator has eighteen.
            sizes = [each * (9 if cell.preprocessing == "-" else 1) for cell in missing]
            jobs = [pool.submit(run_cell, cell, size, round_) for cell, size in zip(missing, sizes, strict=True)]
            for future in as_completed(jobs):
                row = future.result()
                rows.append(row)
                save(options.output, text, rows, chosen)
                print(line(row), flush=True)

    work(0, math.ceil(options.pairs / max(1, len(chosen))), chosen)
    for round_ in (1, 2):
        live = [cell for cell in chosen if any(row["cell"] == cell.key and row.get("pairs") for row in rows)]
        left = options.pairs - sum(row.get("pairs", 0) for row in rows)
        if left > 0 and live:
            work(round_, math.ceil(left / len(live)), live)
    found = save(options.output, text, rows, chosen)
    print(f"\n{time.monotonic() - start:.0f} s\n" + summary_lines(found))
    if options.output == RESULTS:
        from audits import write_page

        write_page()
    return 3 if found["alarms"] else 0


def line(row: dict[str, Any]) -> str:
    if "broken" in row:
        return f"BROKEN  {row['cell']}: {row['broken']}"
    word = "ALARM   " if row["alarm"] else "refused " if not row["pairs"] else "        "
    what = f"; {row['differences'][0]['what'][:110]}" if row["differences"] else ""
    return f"{word}{row['cell']}: {row['pairs']} pairs, ratio {row['largest_ratio']:.4f}{what}"


def save(path: Path, text: str, rows: list[dict[str, Any]], chosen: list[Cell]) -> dict[str, Any]:
    """Write all cells and what they say together."""
    order = {cell.key: place for place, cell in enumerate(chosen)}
    rows.sort(key=lambda row: (order.get(row["cell"], len(order)), row["round"]))
    by: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = by.setdefault(
            row["cell"].split(";")[0],
            {"pairs": 0, "refused": 0, "largest_ratio": 0.0, "in": "", "differing_cells": 0, "hidden_draws": 0,
             "coupled_releases": 0},
        )  # fmt: skip
        if "broken" in row:
            entry["differing_cells"] += 1
            continue
        for name in ("pairs", "refused"):
            entry[name] += row[name]
        for name in ("hidden_draws", "coupled_releases"):
            entry[name] = max(entry[name], row[name])
        entry["differing_cells"] += bool(row["differences"])
        if row["largest_ratio"] > entry["largest_ratio"]:
            entry["largest_ratio"], entry["in"] = row["largest_ratio"], row["cell"].split("; ", 1)[1]
    found = {
        "program": text, "epsilon": EPSILON, "delta": DELTA,
        "pairs": sum(row.get("pairs", 0) for row in rows), "refused": sum(row.get("refused", 0) for row in rows),
        "largest_ratio": max((row.get("largest_ratio", 0.0) for row in rows), default=0.0),
        "alarms": sum(1 for row in rows if row.get("alarm", True)),
        "modes_refused": sorted({row["cell"] for row in rows if not row.get("pairs") and "broken" not in row}),
        "estimators": by, "cells": rows,
    }  # fmt: skip
    partial = path.with_suffix(".json.partial")
    partial.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return found


def summary_lines(found: dict[str, Any]) -> str:
    lines = [f"{found['pairs']} pairs replayed, {found['refused']} refused before any noise; largest ratio "
             f"{found['largest_ratio']:.6f}; {found['alarms']} cells with an alarm"]  # fmt: skip
    lines += [
        f"  {name}: {entry['pairs']} pairs, largest ratio {entry['largest_ratio']:.6f} ({entry['in']}), "
        f"{entry['differing_cells']} modes with differences"
        for name, entry in found["estimators"].items()
    ]
    lines += [f"  refused as a whole: {cell}" for cell in found["modes_refused"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
