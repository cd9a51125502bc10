"""S1: how many parameters interpolate — λ_min of the tangent kernel against p, and descent in the linear regime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.progress import tracked
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.tangent_kernel import FullyConnected, linear_regime_losses, tangent_kernel

__all__ = ["eigenvalues_by_width", "interpolation", "linear_regime"]

Array = NDArray[np.float64]


def _sphere(n: int, d: int, rng: np.random.Generator) -> Array:
    X = rng.standard_normal((n, d))
    return np.asarray(X * (math.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)))


def eigenvalues_by_width(
    n: int, d: int, depth: int, ratios: list[float], seeds: int, activation: str, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return λ_min(ΦΦᵀ), relative to the mean of the diagonal, for networks of `depth` layers with p ≈ ratio·n."""
    rows = []
    for ratio in tracked(ratios, "widths"):
        # All hidden layers have one width N: p = dN + (depth − 2)N² + N.
        square, linear, p = depth - 2, d + 1, ratio * n
        width = p / linear if square == 0 else (math.sqrt(linear**2 + 4 * square * p) - linear) / (2 * square)
        width = max(1, round(width))
        values, parameters = [], 0
        for _ in range(seeds):
            network = FullyConnected.random([d] + [width] * (depth - 1), activation, rng)
            kernel = tangent_kernel(network, _sphere(n, d, rng))
            values.append(max(0.0, float(np.linalg.eigvalsh(kernel)[0])) / float(np.trace(kernel) / n))
            parameters = network.n_parameters
        rows.append({"depth": depth, "width": width, "p": parameters, "ratio": parameters / n,
                     "smallest": float(np.mean(values)), "least": float(np.min(values))})  # fmt: skip
    return rows


def linear_regime(n: int, d: int, width: int, steps: int, activation: str, rng: np.random.Generator) -> dict[str, Any]:
    """Train a wide two-layer network and predict its losses from the tangent kernel at initialisation.

    The output layer has entries of order one, so that the kernel grows with the width and the weights hardly move.
    """
    X = _sphere(n, d, rng)
    drawn = FullyConnected.random([d, width], activation, rng)
    network = FullyConnected((drawn.weights[0], drawn.weights[1] * math.sqrt(width)), drawn.activation)
    start = network.outputs(X)
    y = start + rng.standard_normal(n)
    kernel = tangent_kernel(network, X)
    values = np.linalg.eigvalsh(kernel)
    eta = 1 / values[-1]
    return {
        "step_size": float(eta),
        "rate": float(eta * values[0] / 2),
        "measured": network.descend(X, y, step_size=eta, steps=steps),
        "predicted": linear_regime_losses(kernel, start - y, step_size=eta, steps=steps),
    }


def interpolation(scale: str, rng: np.random.Generator) -> PaperResult:
    """Two-, three- and four-layer networks on the sphere, tanh; λ_min against p/n, and one descent."""
    if scale == "full":
        n, d, seeds, ratios, width, steps = 300, 30, 5, [0.25, 0.5, 0.8, 1, 1.3, 1.7, 2.5, 4, 8, 16, 40], 3000, 400
    else:
        n, d, seeds, ratios, width, steps = 60, 10, 2, [0.5, 0.9, 1.5, 4, 12], 1000, 300
    rows = [row for depth in (2, 3, 4) for row in eigenvalues_by_width(n, d, depth, ratios, seeds, "tanh", rng)]
    below = max(row["smallest"] for row in rows if row["ratio"] < 0.95)
    above = min(row["least"] for row in rows if row["ratio"] > 3.5)
    descent = linear_regime(max(20, n // 6), d, width, steps, "tanh", rng)
    measured, predicted = descent["measured"], descent["predicted"]
    bound = measured[0] * (1 - descent["rate"]) ** np.arange(steps + 1)
    visible = predicted > 1e-20 * predicted[0]  # below that is rounding
    off = float(np.max(np.abs(np.log(measured[visible] / predicted[visible]))))
    claims = [
        Claim("λ_min is 0 (to rounding) where p < n, at every depth", below < 1e-10, below, exact=True),
        Claim("λ_min > 0 from p a few times n: at least 10⁻⁴ of the mean diagonal for p ≥ 3.5n", above > 1e-4, above),
        Claim("training loss falls geometrically: below (1 − ηλ_min/2)^k at every k", bool((measured <= bound).all()),
              float(np.max(measured / bound))),
        Claim("loss within a factor of 1.3 of the linear regime's prediction at every step", off < math.log(1.3),
              math.exp(off)),
    ]  # fmt: skip

    def draw_figure(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for depth in (2, 3, 4):
            chosen = [row for row in rows if row["depth"] == depth]
            left.plot([row["ratio"] for row in chosen], [max(row["smallest"], 1e-12) for row in chosen], "o-", ms=3,
                      label=f"{depth} layers")  # fmt: skip
        left.axvline(1, color="grey", lw=0.7, ls=":")
        left.set(xscale="log", yscale="log", xlabel="p / n", ylabel="λ_min / mean diagonal")
        left.legend()
        right.plot(measured, label="measured")
        right.plot(predicted, "--", label="linear regime")
        right.plot(bound, ":", color="grey", label="(1 − ηλ_min/2)^k")
        right.set(yscale="log", xlabel="step", ylabel="‖f − y‖²", ylim=(measured[-1] / 3, 2 * measured[0]))
        right.legend()
        figure.suptitle(f"Interpolation: tangent kernel, n={n}, d={d}, tanh")

    table = rows + [
        {"step": int(k), "measured_loss": float(measured[k]), "predicted_loss": float(predicted[k])}
        for k in np.linspace(0, steps, 11).astype(int)
    ]
    settings = {"n": n, "d": d, "seeds": seeds, "activation": "tanh", "width_of_descent": width, "steps": steps}
    return PaperResult(settings, table, claims, draw_figure)
