"""Audits at length: every estimator, the two trainers on their worst cases, and the five sabotages.

    python benchmarks/audits.py [--seconds 120] [--only WORD]

Writes docs/results/audits.json after every audit (those in it already are not repeated) and audits.md from it.
`--seconds` is processor time for the trainings of one audit of an estimator.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gratis.audits.distinguishing import Audit, audit_trainer
from gratis.audits.estimators import ESTIMATORS, estimator_audit
from gratis.audits.worst_case import pushing_neighbours, tempting_neighbours
from gratis.mechanisms.noise import NoiseSource

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "audits.json"
EPSILON, DELTA, ROWS, COLUMNS = 8.0, 1e-5, 100, 3

_spec = importlib.util.spec_from_file_location("sabotage", ROOT / "tests" / "audits" / "test_sabotage.py")
assert _spec is not None
assert _spec.loader is not None
sabotage: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sabotage)

Run = Callable[[], Audit]


def estimators(seconds: float) -> Iterator[tuple[str, str, Run]]:
    """Every estimator on rows that are its worst case, and with private scales on rows that vary."""
    for preprocessing in ("none", "private"):
        for name in ESTIMATORS:
            if preprocessing == "none" and name.startswith("additive"):
                continue  # its scales are always private
            for algorithm in (None, "one-pass") if name in ("linear", "logistic") else (None,):
                title = name if algorithm is None else f"{name}, one pass"
                rows = "worst case" if preprocessing == "none" else "private scales"
                yield "estimators", f"{title}; {rows}", _estimator(name, algorithm, preprocessing, seconds)


def _estimator(name: str, algorithm: str | None, preprocessing: str, seconds: float) -> Run:
    def run() -> Audit:
        options = {"epsilon": EPSILON, "delta": DELTA, "preprocessing": preprocessing, "algorithm": algorithm}
        prepared = estimator_audit(name, n=ROWS, d=COLUMNS, options=options)
        event = prepared.create().fit(prepared.X, prepared.y).certificate_.event
        trainers = prepared.trainer(prepared.other_y), prepared.trainer(prepared.y)
        start = time.process_time()
        for _ in range(3):
            trainers[0](0)
        each = (time.process_time() - start) / 3
        runs = int(min(4000, max(60, seconds / (2 * each))))
        return audit_trainer(*trainers, event, runs=runs, exchanged=True, delta=DELTA)

    return run


def worst_cases() -> Iterator[tuple[str, str, Run]]:
    """The trainers on the neighbours for which their accounting is tight; noise from the operating system."""

    class Secure(NoiseSource):
        @classmethod
        def insecure(cls, seed: int) -> NoiseSource:
            return NoiseSource.secure()

    def one_pass(event: Any, pair: Any, runs: int) -> Run:
        return lambda: sabotage.audit_one_pass(event, pair, runs, source=Secure)

    pushing = pushing_neighbours(sabotage.N, sabotage.D)
    yield "worst cases", "one pass, mu 1", one_pass(sabotage.falling_event(1.0), pushing, 10_000)
    yield "worst cases", "one pass, mu 3", one_pass(sabotage.falling_event(3.0), pushing, 4000)
    tempting = tempting_neighbours(30, step_size=1.0, clip_norm=1.0)
    yield "worst cases", "one pass, tempting stream, mu 3", one_pass(sabotage.constant_event(30, 3.0), tempting, 4000)
    for mu, runs in ((1.0, 10_000), (3.0, 4000)):
        yield (
            "worst cases",
            f"full batch, mu {mu:g}",
            lambda mu=mu, runs=runs: sabotage.audit_full_batch(runs, source=Secure, mu=mu),
        )


def sabotages() -> Iterator[tuple[str, str, Run]]:
    """The five faults; each audit must raise the alarm. Seeded, as in the tests that these come from."""
    falling, constant, pushing = (
        sabotage.falling_event(),
        sabotage.constant_event,
        pushing_neighbours(sabotage.N, sabotage.D),
    )
    kernel = "gratis.stages.one_pass_kernels.advance"

    def patched(name: str, value: Any, run: Run) -> Run:
        def inside() -> Audit:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(name, value)
                return run()

        return inside

    def twice(X: Any, y: Any) -> Any:
        order = [0, 0, *range(2, len(X))]
        return X[order], y[order]

    yield (
        "sabotages",
        "noise halved, one pass",
        lambda: sabotage.audit_one_pass(falling, pushing, 1000, source=sabotage.HalfNoise),
    )
    yield "sabotages", "noise halved, full batch", lambda: sabotage.audit_full_batch(1000, source=sabotage.HalfNoise)
    yield (
        "sabotages",
        "clipping off, one pass",
        patched(
            kernel, sabotage.without(clip=False), lambda: sabotage.audit_one_pass(constant(sabotage.N), pushing, 300)
        ),
    )
    uncapped = tempting_neighbours(30, step_size=1.0, clip_norm=1.0, capped=False)
    yield (
        "sabotages",
        "step cap off, one pass",
        patched(kernel, sabotage.without(cap=False), lambda: sabotage.audit_one_pass(constant(30), uncapped, 300)),
    )
    yield (
        "sabotages",
        "a record used twice, one pass",
        lambda: sabotage.audit_one_pass(falling, pushing, 1000, reader=twice),
    )

    def reused() -> Audit:
        def seeded(label: int, offset: int) -> Any:
            train, event = sabotage.one_vs_rest(label, offset)

            def run(i: int) -> Any:
                sabotage.SeedReused.seed = offset + i
                return train(i)

            return run, event

        (first, event), (second, _) = seeded(0, 0), seeded(1, 10**6)
        return audit_trainer(first, second, event, runs=600)

    yield (
        "sabotages",
        "seed reused across releases",
        patched("gratis.stages.one_pass.OnePassTrainer", sabotage.SeedReused, reused),
    )


def row(group: str, name: str, audit: Audit, seconds: float) -> dict[str, Any]:
    normal = audit.mu_if_normal
    return {
        "group": group, "audit": name, "trainings": audit.mu.samples, "alarm": audit.alarm,
        "mu": audit.mu.low, "mu_if_normal": normal.low, "proved_mu": audit.proved_mu,
        "epsilon": audit.epsilon_by_curve, "epsilon_assuming_nothing": audit.epsilon.low,
        "proved_epsilon": audit.proved_epsilon, "tightness": audit.tightness,
        "mu_if_normal_over_proved": normal.low / audit.proved_mu, "confidence": audit.mu.confidence,
        "delta": audit.delta, "cpu_seconds": round(seconds, 1),
    }  # fmt: skip


WORDS = {
    "estimators": f"## Every estimator\n\nε = {EPSILON:g}, δ = {DELTA:g}, replace-one, {ROWS} rows of {COLUMNS} "
    "columns, one record exchanged for its opposite. “Worst case”: no private scales, and all other rows are zero, so "
    "that nothing hides the record. What is missing to 100 % has causes that were not told apart: other releases take "
    "a share of the budget (second moments, the mean of the features), the attack looks at a few numbers only, and a "
    "bound from so many trainings gives something away. “Private scales”: rows that vary, all releases of the "
    "default estimator; the attack looks at the trained parameters, so "
    "the share that pays for scales is not seen, and a hundred ordinary rows hide the record. These audits have little "
    "power: near 0 they say that this attack saw nothing, not that nothing leaks; the worst cases are the test.",
    "worst cases": "## The trainers on their worst-case neighbours\n\nThe accounting is tight, and it shows: all of "
    "these should reach at least 80 %.",
    "sabotages": "## Five sabotages\n\nClaimed mu is 1 (that of two releases together for the reused seed, √2); every "
    "one must raise the alarm. On this pair half the noise and a record used twice differ by a factor of two in all "
    "outputs, and the seeds are the same: hence equal numbers.",
}


def page(rows: list[dict[str, Any]]) -> str:
    parts = [
        "# Audits\n\nWhat attacks prove from below, beside what the accountant proves from above. Bounds hold with "
        "95 % confidence, mu and ε together, and assume nothing about the outputs (Gaussian trade-off with "
        "Clopper–Pearson; ε through the Gaussian curve); the column “mu if normal” assumes normal scores. Made by "
        "`python benchmarks/audits.py`; the numbers are in `audits.json`."
    ]
    for group, words in WORDS.items():
        lines = [words, "", "| | trainings | audited mu ≥ | mu if normal ≥ | proved mu ≤ | audited ε ≥ | proved ε ≤ "
                 "| audited/proved ε | verdict |", "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
        lines += [
            f"| {r['audit']} | {r['trainings']:,} | {r['mu']:.3g} | {r['mu_if_normal']:.3g} | {r['proved_mu']:.3g} "
            f"| {r['epsilon']:.3g} | {r['proved_epsilon']:.3g} | {r['tightness']:.0%} "
            f"| {'ALARM' if r['alarm'] else 'consistent'} |"
            for r in rows
            if r["group"] == group
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def replayed() -> str:
    """The section on replay audits, from what benchmarks/replay.py wrote."""
    found = json.loads((ROOT / "docs" / "results" / "replay.json").read_text(encoding="utf-8"))
    lines = [
        "## Replay\n\nEvery release of a fit is recorded and played to a fit on a hostile neighbour: values before "
        "noise are compared (√Σ‖Δ‖²/σ² over the certified mu, at most 1), and calls, exceptions, warnings and all "
        f"that is published must be equal. ε = {found['epsilon']:g}, δ = {found['delta']:g}; 20 to 60 rows, 2 to 5 "
        "columns; "
        "both relations, preprocessing private, public and none, on_invalid raise, zero and impute. "
        f"**{found['pairs']:,} pairs, largest ratio {found['largest_ratio']:.6f}, {found['alarms']} modes with an "
        "alarm.** “One pass”: distance of two runs with equal noise, a necessary condition. “Wide”: noise is drawn "
        "apart from its value, so only the sequence of draws, shapes and lattices were compared; the same fits in the "
        "primal have their own row. Six sabotages (noise halved, clip off, a label check that raises, an engine chosen "
        "by the data, rows sorted by content, a seed used twice) are each caught: `tests/audits/"
        "test_replay_sabotage.py`. Made by `python benchmarks/replay.py`; the numbers are in `replay.json`.",
        "",
        "| | pairs | refused before noise | largest ratio | in | modes with differences |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {e['pairs']:,} | {e['refused']:,} | "
        f"{'not visible' if e['hidden_draws'] and not e['largest_ratio'] else format(e['largest_ratio'], '.6f')} "
        f"| {e['in']} | {e['differing_cells']} |"
        for name, e in found["estimators"].items()
    ]
    return "\n".join(lines)


def write_page() -> None:
    """Write audits.md from both result files."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    section = replayed() if (ROOT / "docs" / "results" / "replay.json").is_file() else ""
    RESULTS.with_suffix(".md").write_text(page(rows) + (f"\n{section}\n" if section else ""), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    write_page()
    for group, name, run in (*worst_cases(), *sabotages(), *estimators(options.seconds)):
        if options.only not in f"{group}: {name}" or any(r["audit"] == name for r in rows):
            continue
        start = time.process_time()
        rows.append(row(group, name, run(), time.process_time() - start))
        print(json.dumps(rows[-1]), flush=True)
        RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        write_page()


if __name__ == "__main__":
    main()
