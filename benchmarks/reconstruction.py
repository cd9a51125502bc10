"""Reconstruction from random features: one step against automatic differentiation, and the authors' setting whole.

    python benchmarks/reconstruction.py [--whole]

n=20, d=100, p=20000, ReLU (S1). The tapes are written in the plain ways one would write them in torch; ours is the
analytic gradient, on all features and on the part of them that the first stage uses.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from gratis.audits.reconstruction import FrozenLayer, match_points, reconstruct, span_residual
from gratis.models.random_features import RELU, RandomFeatures
from gratis.papers.s1_reconstruction import interpolant, sphere_problem

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


def interleaved(steps: dict[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Best time of each, measured side by side so that a busy machine disturbs all alike."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def main() -> None:
    rng = np.random.default_rng(0)
    X, y = sphere_problem(N, D, rng)
    features = RandomFeatures(n_inputs=D, n_features=P, activation=RELU, seed=1)
    layer, theta = FrozenLayer.from_features(features), interpolant(features, X, y)
    points, column = rng.standard_normal((N, D)), theta[:, None].astype(np.float32)
    first = 3 * N * D
    steps: dict[str, Callable[[], object]] = {
        "torch autograd, QR, float64": tape("qr", torch.float64, theta, layer.weights),
        "torch autograd, QR, float32": tape("qr", torch.float32, theta, layer.weights),
        "torch autograd, normal equations, float64": tape("solve", torch.float64, theta, layer.weights),
        "torch autograd, normal equations, float32": tape("solve", torch.float32, theta, layer.weights),
        "ours, all features": lambda: span_residual(points, layer, column),
        "ours, first stage": lambda: span_residual(points, layer.part(first), column[:first]),
    }
    times = interleaved(steps)
    for name, seconds in times.items():
        ratios = ", ".join(f"{seconds / times[key]:5.1f}× {key}" for key in ("ours, all features", "ours, first stage"))
        print(f"{name:45s} {1e3 * seconds:7.2f} ms   {ratios}")
    if "--whole" in sys.argv:
        start = time.perf_counter()
        found = reconstruct(theta, layer, N, rng=rng)
        error = match_points(X, found.points).mean_error
        print(f"whole attack: {time.perf_counter() - start:.1f} s, {found.gradients} gradients, error {error:.2g}")


if __name__ == "__main__":
    main()
