"""S1: how many parameters interpolate — λ_min of the tangent kernel against p, and descent in the linear regime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.progress import tracked
from gratis_papers.interpolation_theorems import few_neurons_rows, on_sphere, one_neuron_rows, wide_layer_rows
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.tangent_kernel import FullyConnected, linear_regime_losses, tangent_kernel

__all__ = ["eigenvalues_by_width", "interpolation", "linear_regime"]

Array = NDArray[np.float64]


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
            kernel = tangent_kernel(network, on_sphere(n, d, rng))
            values.append(max(0.0, float(np.linalg.eigvalsh(kernel)[0])) / float(np.trace(kernel) / n))
            parameters = network.n_parameters
        rows.append({"depth": depth, "width": width, "p": parameters, "ratio": parameters / n,
                     "smallest": float(np.mean(values)), "least": float(np.min(values))})  # fmt: skip
    return rows


def linear_regime(n: int, d: int, width: int, steps: int, activation: str, rng: np.random.Generator) -> dict[str, Any]:
    """Train a wide two-layer network and predict its losses from the tangent kernel at initialisation.

    The output layer has entries of order one, so that the kernel grows with the width and the weights hardly move.
    """
    X = on_sphere(n, d, rng)
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


def _theorem_claims(neuron: list[dict[str, Any]], wide: list[dict[str, Any]], few: list[dict[str, Any]]) -> list[Claim]:
    off = max(abs(row["fitted"] - row["cover"]) / max(row["standard_error"], 0.005) for row in neuron)
    half = next(row["cover"] for row in neuron if row["ratio"] == 0.5)
    claims = [
        Claim("one neuron: the share of labellings that are fitted is Cover's, within 4 standard errors", off < 4, off,
              words="label interpolation for data in generic position is possible if and only if p/n > 1/2"),
        Claim("one neuron: half of all labellings at p/n = ½", half == 0.5, half, exact=True),
    ]  # fmt: skip
    for k in (1, 2, 3):
        found = [row for row in wide if row["layer"] == k and row["width"] >= 2 * row["n"]]
        slope = np.polyfit(np.log([row["width"] for row in found]), np.log([row["smallest"] for row in found]), 1)[0]
        claims.append(Claim(f"one wide layer, k = {k}: λ_min grows like N_k (slope between .7 and 1.3 from 2n to 16n)",
                            0.7 < slope < 1.3, float(slope), words="λ_min(ΦΦᵀ) = Θ̃(N_k)"))  # fmt: skip
    sizes = sorted({row["n"] for row in few})
    enough = {row["n"]: row for row in few if abs(math.log2(row["ratio"] / 8)) < 0.5}
    kept = enough[sizes[-1]]["smallest"] / enough[sizes[0]]["smallest"]
    words = "Ω̃(√n) neurons and thus Ω̃(n) parameters are enough to interpolate n data points"
    claims.append(Claim(f"√n neurons: λ_min/(N_1N_2) at N_1N_2 = 8n keeps half of its value from n = {sizes[0]} to "
                        f"{sizes[-1]}", kept > 0.5, kept, words=words))  # fmt: skip
    share = enough[sizes[-1]]["neurons"] / sizes[-1]
    claims.append(Claim(f"√n neurons: fewer than n/4 of them at n = {sizes[-1]}", share < 0.25, share, words=words))
    return claims


def interpolation(scale: str, rng: np.random.Generator) -> PaperResult:
    """λ_min against p/n (tanh, two to four layers), one descent, one neuron, one wide layer, √n neurons."""
    if scale == "full":
        n, d, seeds, ratios, width, steps = 300, 30, 5, [0.25, 0.5, 0.8, 1, 1.3, 1.7, 2.5, 4, 8, 16, 40], 3000, 400
    else:
        n, d, seeds, ratios, width, steps = 60, 10, 2, [0.5, 0.9, 1.5, 4, 12], 1000, 300
    if scale == "full":
        neuron = one_neuron_rows(100, [0.3, 0.38, 0.44, 0.5, 0.56, 0.62, 0.7], 200, rng)
        wide = wide_layer_rows(100, 40, [1, 2, 4, 8, 16], 5, rng)
        few = few_neurons_rows([200, 400, 800, 1600], [0.5, 1, 2, 4, 8, 16], 3, rng)
    else:
        neuron = one_neuron_rows(20, [0.3, 0.5, 0.7], 40, rng)
        wide = wide_layer_rows(30, 20, [1, 4, 16], 2, rng)
        few = few_neurons_rows([50, 200], [0.5, 2, 8], 2, rng)
    rows = [row for depth in (2, 3, 4) for row in eigenvalues_by_width(n, d, depth, ratios, seeds, "tanh", rng)]
    below = max(row["smallest"] for row in rows if row["ratio"] < 0.95)
    above = min(row["least"] for row in rows if row["ratio"] > 3.5)
    descent = linear_regime(max(20, n // 6), d, width, steps, "tanh", rng)
    measured, predicted = descent["measured"], descent["predicted"]
    bound = measured[0] * (1 - descent["rate"]) ** np.arange(steps + 1)
    visible = predicted > 1e-20 * predicted[0]  # below that is rounding
    off = float(np.max(np.abs(np.log(measured[visible] / predicted[visible]))))
    claims = [
        *_theorem_claims(neuron, wide, few),
        Claim("λ_min is 0 (to rounding) where p < n, at every depth", below < 1e-10, below, exact=True),
        Claim("λ_min > 0 from p a few times n: at least 10⁻⁴ of the mean diagonal for p ≥ 3.5n", above > 1e-4, above),
        Claim("training loss falls geometrically: below (1 − ηλ_min/2)^k at every k", bool((measured <= bound).all()),
              float(np.max(measured / bound))),
        Claim("loss within a factor of 1.3 of the linear regime's prediction at every step", off < math.log(1.3),
              math.exp(off)),
    ]  # fmt: skip

    def draw_figure(figure: Any) -> None:
        (left, right, empty), (one, layer, root) = figure.subplots(2, 3)
        for depth in (2, 3, 4):
            chosen = [row for row in rows if row["depth"] == depth]
            left.plot([row["ratio"] for row in chosen], [max(row["smallest"], 1e-12) for row in chosen], "o-", ms=3,
                      label=f"{depth} layers")  # fmt: skip
        left.axvline(1, color="grey", lw=0.7, ls=":")
        left.set(xscale="log", yscale="log", xlabel="p / n", ylabel="λ_min / mean diagonal", title="tanh networks")
        right.plot(measured, label="measured")
        right.plot(predicted, "--", label="linear regime")
        right.plot(bound, ":", color="grey", label="(1 − ηλ_min/2)^k")
        right.set(yscale="log", xlabel="step", ylabel="‖f − y‖²", ylim=(measured[-1] / 3, 2 * measured[0]),
                  title="gradient descent")  # fmt: skip
        empty.set_axis_off()
        empty.text(0, 0.5, f"How many parameters\ninterpolate n labels?\n\ntop: n={n}, d={d}\nbelow: three theorems",
                   va="center", fontsize=9)  # fmt: skip
        ratios = [row["ratio"] for row in neuron]
        one.errorbar(ratios, [row["fitted"] for row in neuron], [2 * row["standard_error"] for row in neuron], fmt="o",
                     ms=3, label="fitted")  # fmt: skip
        one.plot(ratios, [row["cover"] for row in neuron], lw=1, label="Cover")
        one.axvline(0.5, color="grey", lw=0.7, ls=":")
        one.set(xlabel="p / n", ylabel="labellings fitted", title="one neuron")
        for k in (1, 2, 3):
            chosen = [row for row in wide if row["layer"] == k]
            layer.plot([row["width"] for row in chosen], [row["smallest"] for row in chosen], "o-", ms=3,
                       label=f"k = {k}")  # fmt: skip
        widths = np.array([row["width"] for row in chosen])
        layer.plot(widths, chosen[-1]["smallest"] * widths / widths[-1], ":", color="grey", label="∝ N_k")
        layer.set(xscale="log", yscale="log", xlabel="N_k", ylabel="λ_min", title="one wide layer")
        for size in sorted({row["n"] for row in few}):
            chosen = [row for row in few if row["n"] == size]
            root.plot([row["ratio"] for row in chosen], [row["smallest"] for row in chosen], "o-", ms=3,
                      label=f"n = {size}")  # fmt: skip
        root.axvline(1, color="grey", lw=0.7, ls=":")
        root.set(xscale="log", xlabel="N₁N₂ / n", ylabel="λ_min / (N₁N₂)", title="√n neurons")
        for axes in (left, right, one, layer, root):
            axes.tick_params(labelsize=6)
            axes.xaxis.label.set_size(7)
            axes.yaxis.label.set_size(7)
            axes.title.set_size(8)
            axes.legend(fontsize=6)

    table = [*rows, *neuron, *wide, *few] + [
        {"step": int(k), "measured_loss": float(measured[k]), "predicted_loss": float(predicted[k])}
        for k in np.linspace(0, steps, 11).astype(int)
    ]
    settings = {"n": n, "d": d, "seeds": seeds, "activation": "tanh", "width_of_descent": width, "steps": steps}
    return PaperResult(settings, table, claims, draw_figure)
