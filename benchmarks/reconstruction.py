"""Reconstruction from random features: one step against automatic differentiation, and the authors' setting whole.

    python benchmarks/reconstruction.py [--whole] [--json FILE]

n=20, d=100, p=20000, ReLU (S1). The tapes are written in the plain ways one would write them in torch; ours is the
analytic gradient, on all features and on the part of them that the first stage uses. `--whole` also runs the attack,
and so says how many steps are of which kind. Times are processor time of
all threads, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gratis.audits.attacked_models import interpolant, sphere_problem
from gratis.audits.reconstruction import FrozenLayer, match_points, reconstruct
from gratis.audits.span_projection import SpanResidual
from gratis.models.random_features import RELU, RandomFeatures

N, D, P = 20, 100, 20_000


def tape(kind: str, dtype: torch.dtype, theta: np.ndarray, weights: np.ndarray) -> Callable[[], None]:
    V, target = torch.tensor(weights, dtype=dtype), torch.tensor(theta, dtype=dtype)
    points = torch.randn(N, D, dtype=dtype, requires_grad=True)

    def step() -> None:
        points.grad = None
        features = torch.relu(points * (math.sqrt(D) / points.norm(dim=1, keepdim=True)) @ V.T)
        if kind == "qr":
            basis, _ = torch.linalg.qr(features.T)
            residual = target - basis @ (basis.T @ target)
        else:
            residual = target - features.T @ torch.linalg.solve(features @ features.T, features @ target)
        (residual @ residual / (target @ target)).backward()

    return step


def interleaved(steps: dict[str, Callable[[], object]], rounds: int = 25) -> dict[str, float]:
    """Median processor time of each, measured side by side so that a busy machine disturbs all alike."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()  # its data is in the cache again, as it would be inside a descent
            start = time.process_time()
            step()
            times[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X, y = sphere_problem(N, D, rng)
    features = RandomFeatures(n_inputs=D, n_features=P, activation=RELU, seed=1)
    layer, theta = FrozenLayer.from_features(features), interpolant(features, X, y)
    points, first = rng.standard_normal((N, D)), 3 * N * D
    whole, part = SpanResidual(layer, theta[:, None]), SpanResidual(layer.part(first), theta[:first, None])
    steps: dict[str, Callable[[], object]] = {
        "torch autograd, QR, float64": tape("qr", torch.float64, theta, layer.weights),
        "torch autograd, QR, float32": tape("qr", torch.float32, theta, layer.weights),
        "torch autograd, normal equations, float64": tape("solve", torch.float64, theta, layer.weights),
        "torch autograd, normal equations, float32": tape("solve", torch.float32, theta, layer.weights),
        "ours, all features": lambda: whole(points),
        "ours, first stage": lambda: part(points),
    }
    times = interleaved(steps)
    result: dict[str, Any] = {
        "n": N, "d": D, "p": P, "activation": "relu", "threads": torch.get_num_threads(),
        "milliseconds": {name: round(1e3 * seconds, 3) for name, seconds in times.items()},
    }  # fmt: skip
    kinds = {"all features": times["ours, all features"], "first stage": times["ours, first stage"]}
    if options.whole:
        start, clock = time.perf_counter(), time.process_time()
        found = reconstruct(theta, layer, N, rng=rng)
        share = found.whole_gradients / found.gradients
        kinds["mean step of the attack"] = share * kinds["all features"] + (1 - share) * kinds["first stage"]
        result["attack"] = {
            "seconds": round(time.perf_counter() - start, 1), "cpu_seconds": round(time.process_time() - clock, 1),
            "gradients": found.gradients, "on_all_features": found.whole_gradients,
            "error": match_points(X, found.points).mean_error, "residual": found.residual,
        }  # fmt: skip
    result["times_faster"] = {
        kind: {name: round(times[name] / ours, 2) for name in times if name.startswith("torch")}
        for kind, ours in kinds.items()
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
