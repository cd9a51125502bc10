"""Three theorems on how many parameters interpolate: one neuron (Cover), one wide layer, √n neurons (S1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.progress import tracked
from gratis_papers.tangent_kernel import FullyConnected, tangent_kernel

__all__ = [
    "cover_probability",
    "few_neurons_rows",
    "linearisation_rows",
    "on_sphere",
    "one_neuron_rows",
    "wide_layer_rows",
]

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
    """λ_min(ΦΦᵀ) of a four-layer ReLU network whose layer k alone is wide, N_k = ratio·n; the others have `width`.

    The output layer has entries of order one, as in the theorem: with N(0, 1/N_3) the growth would be taken away again.
    """
    rows = []
    for k in tracked((1, 2, 3), "wide layers"):
        for ratio in ratios:
            widths = [width] * 4  # d, N_1, N_2, N_3
            widths[k] = round(ratio * n)
            values = []
            for _ in range(seeds):
                network = FullyConnected.random(widths, "relu", rng, unit_output=True)
                values.append(float(np.linalg.eigvalsh(tangent_kernel(network, on_sphere(n, width, rng)))[0]))
            rows.append({"theorem": "wide layer", "layer": k, "n": n, "width": widths[k],
                         "smallest": float(np.mean(values)), "least": min(values), "most": max(values)})  # fmt: skip
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
                network = FullyConnected.random([width] * 3, "tanh", rng, unit_output=True)
                kernel = tangent_kernel(network, on_sphere(n, width, rng))
                values.append(max(0.0, float(np.linalg.eigvalsh(kernel)[0])) / width**2)
            rows.append({"theorem": "few neurons", "n": n, "width": width, "neurons": 2 * width,
                         "ratio": width**2 / n, "smallest": float(np.mean(values)), "least": min(values),
                         "most": max(values)})  # fmt: skip
    return rows


def linearisation_rows(
    n: int, d: int, widths: list[int], steps: int, seeds: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """How near gradient descent on a two-layer tanh network stays to that on its linearisation, by width (S1).

    Both start from the same weights and have the step size 1/(2β²), β = ‖J(θ₀)‖, α = σ_min(J(θ₀)). Of the conditions
    (A1) and (A2) of Oymak & Soltanolkotabi 2019 what is seen is their worst along the path, not in a whole ball.
    Lengths are relative: the path to the theorem's 4‖f(θ₀) − y‖/α and to the way to the linearisation's nearest
    solution, distances from the linearisation to the way made so far and, on fresh points, to how far the function
    moved (S1's starts from zero, so that this is the function itself).
    """
    rows = []
    for width in tracked(widths, "linearisation"):
        for _ in range(seeds):
            X, fresh = on_sphere(n, d, rng), on_sphere(200, d, rng)
            start = FullyConnected.random([d, width], "tanh", rng, unit_output=True)
            y = start.outputs(X) + rng.standard_normal(n)
            rows.append({"theorem": "linearisation", "n": n, "width": width, "steps": steps,
                         **_beside_linearisation(start, X, y, fresh, steps)})  # fmt: skip
    return rows


def _beside_linearisation(start: FullyConnected, X: Array, y: Array, fresh: Array, steps: int) -> dict[str, float]:
    jacobian, at_fresh = start.jacobian(X), start.jacobian(fresh)
    singular = np.linalg.svd(jacobian, compute_uv=False)
    alpha, beta = float(singular[-1]), float(singular[0])
    eta, residual = 1 / (2 * beta**2), start.outputs(X) - y
    shapes = [weight.shape for weight in start.weights]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    first = np.concatenate([weight.ravel() for weight in start.weights])
    theta, linear, network = first.copy(), np.zeros_like(first), start
    path = apart = functions = deviation = 0.0
    least, most, scale = alpha, beta, float(np.linalg.norm(residual))
    for step in range(steps):
        features, backward = network.layers(X)
        off = network.outputs(X) - y
        gradient = np.concatenate([(F.T @ (B * off[:, None])).ravel() for F, B in zip(features, backward, strict=True)])
        theta -= eta * gradient
        path += eta * float(np.linalg.norm(gradient))
        linear -= eta * (jacobian.T @ (residual + jacobian @ linear))
        parts = zip(np.split(theta, ends), shapes, strict=True)
        network = FullyConnected(tuple(part.reshape(shape) for part, shape in parts), start.activation)
        apart = max(apart, float(np.linalg.norm(theta - first - linear) / np.linalg.norm(theta - first)))
        if step % max(1, steps // 20) == 0 or step == steps - 1:
            # The spectra of J(θ_k) and of J(θ_k) − J(θ₀) cost as much as some steps.
            now = network.jacobian(X)
            found = np.linalg.svd(now, compute_uv=False)
            least, most = min(least, float(found[-1])), max(most, float(found[0]))
            deviation = max(deviation, float(np.linalg.norm(now - jacobian, 2)))
            moved = network.outputs(fresh) - start.outputs(fresh)
            functions = max(functions, float(np.linalg.norm(moved - at_fresh @ linear) / np.linalg.norm(moved)))
    nearest = float(np.linalg.norm(np.linalg.lstsq(jacobian, -residual, rcond=None)[0]))
    return {
        "alpha": alpha,
        "beta": beta,
        "alpha_kept": least / alpha,
        "beta_grown": most / beta,
        "jacobian_deviation": deviation,
        "deviation_allowed": alpha**2 / (2 * beta),
        "path": path,
        "path_of_bound": path / (4 * scale / alpha),
        "path_of_nearest": path / nearest,
        "short_path_bound": 4 * beta / alpha,
        "parameters_apart": apart,
        "functions_apart": functions,
        "loss_left": float(np.sum((network.outputs(X) - y) ** 2)) / scale**2,
    }
