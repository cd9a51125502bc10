"""Private random features: time of a DP-GD step against p, Gram accumulation against a plain product, peak memory.

All ratios are measured side by side in this run.
Usage: python benchmarks/random_features.py [--json] [--widths 4000 40000 4000000]
(Gram accumulation at p = 4,000,000 takes about a quarter of an hour on one core.)
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from functools import partial

import numpy as np

from gratis.accounting import calibrate_mu
from gratis.models.random_features import RandomFeatures, SquaredErrorModel
from gratis.records.budget import Budget
from gratis.stages.dual import simulate_dual
from gratis.stages.gram import accumulate_gram, decompose

N, D, STEPS, TEST = 2000, 100, 200, 500


def best_of(function, repeats: int) -> float:  # type: ignore[no-untyped-def]
    """Least wall time: what the machine can do when nobody disturbs it."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def product_rate() -> float:
    """GFlop/s of a plain float64 matrix product of the shape that Gram accumulation uses."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((N, 1024)), rng.standard_normal((1024, N))
    return 2 * N * N * 1024 / best_of(lambda: left @ right, 5) / 1e9


def primal_step(p: int) -> float:
    """Seconds of one step with Φ stored in float64: two matrix-vector products, clipping, noise."""
    rng = np.random.default_rng(0)
    phi, y = rng.random((N, p)), np.sign(rng.standard_normal(N))
    norms, theta = np.linalg.norm(phi, axis=1), np.zeros(p)

    def step() -> None:
        residual = 2 * (phi @ theta - y)
        residual *= np.minimum(1, math.sqrt(p) / 2 / (np.abs(residual) * norms))
        theta[:] += -1e-9 * (phi.T @ residual) + 1e-9 * rng.standard_normal(p)

    return best_of(step, 5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--widths", type=int, nargs="+", default=[4000, 40_000])
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X, X_test = rng.standard_normal((N, D)), rng.standard_normal((TEST, D))
    direction = rng.standard_normal(D)
    y, y_test = np.sign(X @ direction), np.sign(X_test @ direction)
    mu = calibrate_mu(Budget(epsilon=4.0, delta=1 / N))
    plain = product_rate()
    rows, runs = [], []
    for p in options.widths:
        start = time.perf_counter()
        gram = accumulate_gram(RandomFeatures(n_inputs=D, n_features=p), X, X_test)
        seconds = time.perf_counter() - start
        # What general products of these shapes would need; making the features is included in the time.
        rate = 2 * N * (N + TEST) * p / seconds / 1e9
        rows.append({"p": p, "gram_seconds": seconds, "gram_gflops": rate, "gram_over_product": rate / plain})
        spectrum = decompose(gram.train)

        def run(settings: int, steps: int, p: int = p, gram=gram, spectrum=spectrum) -> None:  # type: ignore[no-untyped-def]
            rate, clip = 5 * D / (p * STEPS), 0.5 * math.sqrt(p)
            std = math.sqrt(STEPS) * 2 * rate * clip / (N * mu)
            simulate_dual(
                gram, spectrum, SquaredErrorModel(), y, y_test, steps=steps,
                learning_rates=np.full((1, settings), rate), clip_norms=np.full(settings, clip),
                noise_stds=np.full((1, settings), std), n_seeds=1, rng=np.random.default_rng(1),
            )  # fmt: skip

        runs.append(run)
    for settings, name, repeats in ((1, "step_ms", 8), (60, "step_ms_for_60_settings", 3)):
        # In turn, so that a busy moment of the machine does not fall on one width alone; setup is subtracted.
        long = [math.inf] * len(runs)
        short = [math.inf] * len(runs)
        for _ in range(repeats):
            for i, run in enumerate(runs):
                long[i] = min(long[i], best_of(partial(run, settings, STEPS), 1))
                short[i] = min(short[i], best_of(partial(run, settings, 1), 1))
        for row, much, little in zip(rows, long, short, strict=True):
            row[name] = 1e3 * (much - little) / (STEPS - 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # before the primal reference stores Φ
    step = 1e3 * primal_step(40_000)
    fastest, slowest = min(r["step_ms"] for r in rows), max(r["step_ms"] for r in rows)
    report = {
        "n": N,
        "d": D,
        "product_gflops": plain,
        "rows": rows,
        "primal_step_ms_at_40000": step,
        "primal_over_dual": step / slowest,
        "slowest_over_fastest_step": slowest / fastest,
        "peak_memory_mb": memory,
    }
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print(f"plain float64 product: {plain:.1f} GFlop/s")
    for row in rows:
        print(
            f"p={row['p']:>9,}: step {row['step_ms']:.2f} ms, {row['step_ms_for_60_settings']:.1f} ms for 60 settings;",
            end=" ",
        )
        print(f"Gram {row['gram_seconds']:.1f} s, {row['gram_over_product']:.2f} of the product's speed")
    print(f"primal step at p=40,000 in float64: {step:.0f} ms, {step / slowest:.0f} times the dual's")
    print(f"slowest over fastest dual step: {slowest / fastest:.2f}; peak memory {memory:.0f} MB")


if __name__ == "__main__":
    main()
