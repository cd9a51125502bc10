"""S1: how many parameters interpolate — λ_min of the tangent kernel against p, and descent in the linear regime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.progress import tracked
from gratis_papers.interpolation_theorems import (
    few_neurons_rows,
    linearisation_rows,
    on_sphere,
    one_neuron_rows,
    wide_layer_rows,
)
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.tangent_kernel import FullyConnected, linear_regime_losses, tangent_kernel

__all__ = ["eigenvalues_by_width", "interpolation", "linear_regime"]

Array = NDArray[np.float64]


def eigenvalues_by_width(
    n: int,
    d: int,
    depth: int,
    ratios: list[float],
    seeds: int,
    activation: str,
    rng: np.random.Generator,
    *,
    points: Array | None = None,
) -> list[dict[str, Any]]:
    """Return λ_min(ΦΦᵀ), relative to the mean of the diagonal, for networks of `depth` layers with p ≈ ratio·n.

    Points are drawn on the sphere unless they are given.
    """
    rows = []
    for ratio in tracked(ratios, "widths"):
        # All hidden layers have one width N: p = dN + (depth − 2)N² + N.
        square, linear, p = depth - 2, d + 1, ratio * n
        width = p / linear if square == 0 else (math.sqrt(linear**2 + 4 * square * p) - linear) / (2 * square)
        width = max(1, round(width))
        values, parameters = [], 0
        for _ in range(seeds):
            network = FullyConnected.random([d] + [width] * (depth - 1), activation, rng)
            kernel = tangent_kernel(network, on_sphere(n, d, rng) if points is None else points)
            values.append(max(0.0, float(np.linalg.eigvalsh(kernel)[0])) / float(np.trace(kernel) / n))
            parameters = network.n_parameters
        rows.append({"depth": depth, "width": width, "p": parameters, "ratio": parameters / n,
                     "smallest": float(np.mean(values)), "least": float(np.min(values)),
                     "most": float(np.max(values))})  # fmt: skip
    return rows


def linear_regime(
    n: int, d: int, width: int, steps: int, activation: str, rng: np.random.Generator, *, points: Array | None = None
) -> dict[str, Any]:
    """Train a wide two-layer network and predict its losses from the tangent kernel at initialisation.

    The output layer has entries of order one, so that the kernel grows with the width and the weights hardly move.
    """
    X = on_sphere(n, d, rng) if points is None else points[:n]
    network = FullyConnected.random([d, width], activation, rng, unit_output=True)
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
        found = [row for row in wide if row["layer"] == k and row["width"] >= 8 * row["n"]]
        slope = np.polyfit(np.log([row["width"] for row in found]), np.log([row["smallest"] for row in found]), 1)[0]
        claims.append(Claim(f"one wide layer, k = {k}: λ_min grows like N_k (slope between .7 and 1.3 from 8n to 64n)",
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


def _linearisation_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """Of the widest networks; what each condition asks for is in S1's one-for-all theorem."""
    widest = max(row["width"] for row in rows)
    wide = [row for row in rows if row["width"] == widest]
    alpha, beta = min(row["alpha_kept"] for row in wide), max(row["beta_grown"] for row in wide)
    deviation = max(row["jacobian_deviation"] / row["deviation_allowed"] for row in wide)
    path = max(row["path_of_bound"] for row in rows)
    short = max(row["path_of_nearest"] / row["short_path_bound"] for row in rows)
    apart, functions = max(row["parameters_apart"] for row in wide), max(row["functions_apart"] for row in wide)
    at = f"(width {widest})"
    return [
        Claim(f"linearisation: (A1) along the path, σ_min(J) keeps .9 of its start and ‖J‖ grows by at most 1.1 {at}",
              alpha > 0.9 and beta < 1.1, alpha, words="Bounded spectrum of the Jacobian"),
        Claim(f"linearisation: (A2) along the path, ‖J(θ) − J(θ₀)‖ is at most α²/(2β) {at}", deviation < 1, deviation,
              words="Bounded deviation of the Jacobian"),
        Claim("linearisation: the path is shorter than 4‖f(θ₀) − y‖/α at every width", path < 1, path,
              words="Total gradient path is bounded"),
        Claim("linearisation: the path is shorter than 4(β/α) times the way to the linearisation's nearest solution at "
              "every width", short < 1, short, words="GD follows an almost direct route from initialization"),
        Claim(f"linearisation: ‖θ − θ_lin‖ is below a tenth of ‖θ − θ₀‖ at every step {at}", apart < 0.1, apart,
              words="GD dynamics close to GD dynamics of the linearization"),
        Claim(f"linearisation: on fresh points ‖f − f_lin‖ is below a tenth of ‖f − f₀‖ at every step {at}",
              functions < 0.1, functions,
              words="Model learned by GD close to model learned by the linearized flow on test points"),
    ]  # fmt: skip


def interpolation(scale: str, rng: np.random.Generator) -> PaperResult:
    """λ_min against p/n (tanh, two to four layers), one descent, one neuron, one wide layer, √n neurons."""
    if scale == "full":
        n, d, seeds, ratios, width, steps = 300, 30, 5, [0.25, 0.5, 0.8, 1, 1.3, 1.7, 2.5, 4, 8, 16, 40], 3000, 400
    else:
        n, d, seeds, ratios, width, steps = 60, 10, 2, [0.5, 0.9, 1.5, 4, 12], 1000, 300
    if scale == "full":
        neuron = one_neuron_rows(100, [0.3, 0.38, 0.44, 0.5, 0.56, 0.62, 0.7], 200, rng)
        wide = wide_layer_rows(100, 40, [1, 2, 4, 8, 16, 32, 64], 5, rng)
        few = few_neurons_rows([200, 400, 800, 1600], [0.5, 1, 2, 4, 8, 16], 3, rng)
    else:
        neuron = one_neuron_rows(20, [0.3, 0.5, 0.7], 40, rng)
        wide = wide_layer_rows(30, 20, [1, 8, 64], 2, rng)
        few = few_neurons_rows([50, 200], [0.5, 2, 8], 2, rng)
    lazy = linearisation_rows(50, 30, [100, 300, 1000, 3000, 10_000], 400, 3, rng) if scale == "full" else (
        linearisation_rows(20, 10, [100, 1000], 60, 2, rng)
    )  # fmt: skip
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
        *_linearisation_claims(lazy),
        Claim("λ_min is 0 (to rounding) where p < n, at every depth", below < 1e-10, below, exact=True),
        Claim("λ_min > 0 from p a few times n: at least 10⁻⁴ of the mean diagonal for p ≥ 3.5n", above > 1e-4, above),
        Claim("training loss falls geometrically: below (1 − ηλ_min/2)^k at every k", bool((measured <= bound).all()),
              float(np.max(measured / bound))),
        Claim("loss within a factor of 1.3 of the linear regime's prediction at every step", off < math.log(1.3),
              math.exp(off)),
    ]  # fmt: skip

    def draw_figure(figure: Any) -> None:
        figure.set_size_inches(12, 7)
        (left, right, near), (one, layer, root) = figure.subplots(2, 3)
        for depth in (2, 3, 4):
            _with_range(left, [row for row in rows if row["depth"] == depth], "ratio", f"{depth} layers")
        left.axvline(1, color="grey", lw=0.7, ls=":")
        left.set(xscale="log", yscale="log", xlabel="p / n", ylabel="λ_min / mean diagonal",
                 title=f"tanh networks, n = {n}, d = {d}")  # fmt: skip
        right.plot(measured, label="measured")
        right.plot(predicted, "--", label="linear regime")
        right.plot(bound, ":", color="grey", label="(1 − ηλ_min/2)^k")
        right.set(yscale="log", xlabel="step", ylabel="‖f − y‖²", ylim=(measured[-1] / 3, 2 * measured[0]),
                  title=f"gradient descent, width {width}")  # fmt: skip
        measured_by: dict[str, Callable[[dict[str, Any]], float]] = {
            "‖θ − θ_lin‖ / ‖θ − θ₀‖": lambda row: row["parameters_apart"],
            "‖f − f_lin‖ / ‖f − f₀‖": lambda row: row["functions_apart"],
            "path / (4‖f(θ₀) − y‖/α)": lambda row: row["path_of_bound"],
            "‖J − J₀‖ / (α²/2β)": lambda row: row["jacobian_deviation"] / row["deviation_allowed"],
        }
        for label, read in measured_by.items():
            found = [{"width": row["width"], "value": read(row)} for row in lazy]
            _with_range(near, _gathered(found, "width"), "width", label)
        near.axhline(1, color="grey", lw=0.7, ls=":")
        near.set(xscale="log", yscale="log", xlabel="width", ylabel="largest on the path",
                 title="how near the linearisation")  # fmt: skip
        ratios = [row["ratio"] for row in neuron]
        one.errorbar(ratios, [row["fitted"] for row in neuron], [2 * row["standard_error"] for row in neuron], fmt="o",
                     ms=3, label="fitted")  # fmt: skip
        one.plot(ratios, [row["cover"] for row in neuron], lw=1, label="Cover")
        one.axvline(0.5, color="grey", lw=0.7, ls=":")
        one.set(xlabel="p / n", ylabel="labellings fitted", title="one neuron")
        for k in (1, 2, 3):
            chosen = [row for row in wide if row["layer"] == k]
            _with_range(layer, chosen, "width", f"k = {k}")
        widths = np.array([row["width"] for row in chosen])
        layer.plot(widths, chosen[-1]["smallest"] * widths / widths[-1], ":", color="grey", label="∝ N_k")
        layer.set(xscale="log", yscale="log", xlabel="N_k", ylabel="λ_min", title="one wide layer")
        for size in sorted({row["n"] for row in few}):
            _with_range(root, [row for row in few if row["n"] == size], "ratio", f"n = {size}")
        root.axvline(1, color="grey", lw=0.7, ls=":")
        root.set(xscale="log", xlabel="N₁N₂ / n", ylabel="λ_min / (N₁N₂)", title="√n neurons")
        for axes in (left, right, near, one, layer, root):
            axes.legend()
        figure.suptitle("How many parameters interpolate n labels? (bars: least and most of the draws)")

    table = [*rows, *neuron, *wide, *few, *lazy] + [
        {"step": int(k), "measured_loss": float(measured[k]), "predicted_loss": float(predicted[k])}
        for k in np.linspace(0, steps, 11).astype(int)
    ]
    settings = {"n": n, "d": d, "seeds": seeds, "activation": "tanh", "width_of_descent": width, "steps": steps}
    return PaperResult(settings, table, claims, draw_figure)


def _gathered(rows: list[dict[str, Any]], over: str) -> list[dict[str, Any]]:
    """Mean, least and most of the rows' values for each setting."""
    found = []
    for x in sorted({row[over] for row in rows}):
        values = [row["value"] for row in rows if row[over] == x]
        found.append({over: x, "smallest": float(np.mean(values)), "least": min(values), "most": max(values)})
    return found


def _with_range(axes: Any, rows: list[dict[str, Any]], over: str, label: str) -> None:
    """A line of means with bars from the least draw to the largest; zeros are shown at 10⁻¹² of a log axis."""
    x, mean, least, most = (
        np.maximum([float(row[name]) for row in rows], 1e-12) for name in (over, "smallest", "least", "most")
    )
    axes.errorbar(x, mean, [np.maximum(mean - least, 0), np.maximum(most - mean, 0)], fmt="o-", ms=3, label=label)
