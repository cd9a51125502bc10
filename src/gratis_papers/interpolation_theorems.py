"""Three theorems on how many parameters interpolate: one neuron (Cover), one wide layer, √n neurons (S1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.progress import tracked
from gratis_papers.tangent_kernel import FullyConnected, tangent_kernel

__all__ = ["cover_probability", "few_neurons_rows", "on_sphere", "one_neuron_rows", "wide_layer_rows"]

Array = NDArray[np.float64]


def on_sphere(n: int, d: int, rng: np.random.Generator) -> Array:
    """Draw n points, uniform on the sphere of radius √d."""
    X = rng.standard_normal((n, d))
    return np.asarray(X * (math.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)))


def cover_probability(n: int, p: int) -> float:
    """Share of the 2^n labellings of n points in generic position of R^p that one neuron fits (Cover 1965).

    >>> cover_probability(40, 20), cover_probability(5, 5)
    (0.5, 1.0)
    """
    return sum(math.comb(n - 1, k) for k in range(p)) / 2 ** (n - 1)


def one_neuron_rows(n: int, ratios: list[float], draws: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """How often random labels of n Gaussian points are fitted by sign⟨x, w⟩, w ∈ R^p, by linear programming."""
    from scipy.optimize import linprog

    rows = []
    for ratio in tracked(ratios, "one neuron"):
        p = max(1, round(ratio * n))
        fitted = 0
        for _ in range(draws):
            signed = rng.standard_normal((n, p)) * rng.choice([-1.0, 1.0], n)[:, None]
            found = linprog(np.zeros(p), A_ub=-signed, b_ub=-np.ones(n), bounds=(None, None), method="highs")
            fitted += found.status == 0
        chance = cover_probability(n, p)
        rows.append({"theorem": "one neuron", "n": n, "p": p, "ratio": p / n, "fitted": fitted / draws, "cover": chance,
                     "standard_error": math.sqrt(max(chance * (1 - chance), 1e-12) / draws)})  # fmt: skip
    return rows


def wide_layer_rows(
    n: int, width: int, ratios: list[float], seeds: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """λ_min(ΦΦᵀ) of a four-layer ReLU network whose layer k alone is wide, N_k = ratio·n; the others have `width`."""
    rows = []
    for k in tracked((1, 2, 3), "wide layers"):
        for ratio in ratios:
            widths = [width] * 4  # d, N_1, N_2, N_3
            widths[k] = round(ratio * n)
            values = []
            for _ in range(seeds):
                network = FullyConnected.random(widths, "relu", rng)
                values.append(float(np.linalg.eigvalsh(tangent_kernel(network, on_sphere(n, width, rng)))[0]))
            rows.append({"theorem": "wide layer", "layer": k, "n": n, "width": widths[k], "smallest": np.mean(values),
                         "least": min(values)})  # fmt: skip
    return rows


def few_neurons_rows(
    sizes: list[int], ratios: list[float], seeds: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """λ_min(ΦΦᵀ)/(N_1N_2) of a three-layer tanh network with N_1 = N_2 = d = √(ratio·n): order √n neurons.

    The output layer has entries of order one, as in the theorem.
    """
    rows = []
    for n in tracked(sizes, "√n neurons"):
        for ratio in ratios:
            width = max(2, round(math.sqrt(ratio * n)))
            values = []
            for _ in range(seeds):
                drawn = FullyConnected.random([width] * 3, "tanh", rng)
                weights = (*drawn.weights[:-1], drawn.weights[-1] * math.sqrt(width))
                kernel = tangent_kernel(FullyConnected(weights, drawn.activation), on_sphere(n, width, rng))
                values.append(max(0.0, float(np.linalg.eigvalsh(kernel)[0])) / width**2)
            rows.append({"theorem": "few neurons", "n": n, "width": width, "neurons": 2 * width,
                         "ratio": width**2 / n, "smallest": float(np.mean(values)), "least": min(values)})  # fmt: skip
    return rows
