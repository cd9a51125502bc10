"""S1: how many parameters reconstruct the training data — the threshold p ≈ nd, pictures, and private training."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import gdp_epsilon_upper_bound, gdp_mu_lower_bound
from gratis.audits.attacked_models import DELTA, interpolant, pictures, private_parameters, sphere_problem
from gratis.audits.reconstruction import FrozenLayer, chance_error, match_points, reconstruct
from gratis.models.random_features import RELU, Activation, RandomFeatures
from gratis_papers.registry import Claim, PaperResult

__all__ = ["attack_row", "reconstruction"]

Array = NDArray[Any]

# φ of S1's assumption (B2): φ_0 = φ_2 = 0, φ_1 ≠ 0, coefficients of order ≥ 3 of both parities; bounded. Its even part
# is cos z − a·cos 2z − b with a, b such that its Hermite coefficients of order 0 and 2 vanish: E cos(kz) = e^{−k²/2}.
_A = math.exp(1.5) / 4
_B = math.exp(-0.5) - _A * math.exp(-2)


def _both(z: Array) -> Array:
    return np.asarray(np.tanh(z) + 0.5 * (np.cos(z) - np.float32(_A) * np.cos(2 * z) - np.float32(_B)))


def _both_derivative(z: Array) -> Array:
    return np.asarray(1 - np.square(np.tanh(z)) + 0.5 * (np.float32(2 * _A) * np.sin(2 * z) - np.sin(z)))


BOTH_PARITIES = Activation("tanh and cosines", _both, limit=4.0)


def attack_row(
    theta: Array, features: RandomFeatures, X: Array, rng: np.random.Generator, *, hops: int, steps: int = 2000
) -> dict[str, Any]:
    """Attack θ and compare with the truth."""
    begun = perf_counter()
    found = reconstruct(theta, FrozenLayer.from_features(features), len(X), rng=rng, steps=steps, hops=hops)
    return {
        "p": features.n_features,
        "ratio": features.n_features / X.size,
        "error": match_points(X, found.points).mean_error,
        "error_up_to_sign": match_points(X, found.points, up_to_sign=True).mean_error,
        "residual": found.residual,
        "gradients": found.gradients,
        "whole_gradients": found.whole_gradients,
        "seconds": round(perf_counter() - begun, 1),
    }


def reconstruction(scale: str, rng: np.random.Generator) -> PaperResult:
    """Sweep of p/(nd), the authors' setting, private training at ε = 8 and beyond, and images."""
    full = scale == "full"
    n, d, seeds = (10, 40, 3) if full else (5, 16, 1)
    # The attack on private training has the same effort as that on the other.
    steps, hops = (1000, 6) if full else (300, 2)
    ratios = [0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10] if full else [0.1, 0.5, 1, 2, 5, 10]
    rows: list[dict[str, Any]] = []
    chance = []
    mu = gdp_mu_lower_bound(epsilon=8.0, delta=DELTA)
    for ratio in ratios:
        for seed in range(seeds):
            X, y = sphere_problem(n, d, rng)
            chance.append(chance_error(X, rng))
            features = RandomFeatures(n_inputs=d, n_features=max(n, round(ratio * n * d)), activation=RELU, seed=seed)
            rows.append(
                {
                    "training": "none",
                    **attack_row(interpolant(features, X, y), features, X, rng, hops=hops, steps=steps),
                }
            )
            theta = private_parameters(features, X, y, mu, seed)
            row = attack_row(theta, features, X, rng, hops=hops, steps=steps)
            rows.append({"training": "private", "epsilon": 8.0, "mu": mu, **row})
    level = float(np.mean(chance))
    draws = 5 if full else 1
    by_budget = [row for seed in range(draws) for row in _success_by_budget(n, d, full, seed, steps, hops, rng)]
    rows += by_budget
    succeeded = [row["epsilon"] for row in by_budget if row["error"] < 0.5 * level]

    def mean(kind: str, ratio: float) -> float:
        p = max(n, round(ratio * n * d))
        return float(np.mean([r["error"] for r in rows if r["training"] == kind and r["p"] == p]))

    least_private = min(mean("private", ratio) for ratio in ratios) / level
    claims = [
        Claim("near 0 at p = 10·nd: mean error below .05", mean("none", 10) < 0.05, mean("none", 10)),
        Claim("near chance below: error above .8 of chance at p = nd/2", mean("none", 0.5) > 0.8 * level,
              mean("none", 0.5) / level),
        Claim("falls sharply beyond p ≈ nd: from nd to 5nd by more than half of chance",
              mean("none", 1) - mean("none", 5) > 0.5 * level, mean("none", 1) - mean("none", 5)),
        Claim("private training at ε = 8 stays near chance (above .9 of it) at every p", least_private > 0.9,
              least_private),
    ]  # fmt: skip
    notes = [f"chance after matching {level:.3f} (√2 before); errors are ‖x − x̂‖/√d after Hungarian matching"]
    notes.append(
        f"private training is first broken (error below half of chance, p = 10nd, any of {draws} draws of the problem) "
        f"at ε ≈ {min(succeeded):.3g}"
        if succeeded else "no budget tried lets the attack succeed on private training"
    )  # fmt: skip
    if full:
        X, y = sphere_problem(20, 100, rng)
        features = RandomFeatures(n_inputs=100, n_features=20_000, activation=RELU, seed=1)
        rows.append({"training": "none", "setting": "authors: n=20, d=100, p=20000",
                     **attack_row(interpolant(features, X, y), features, X, rng, hops=hops)})  # fmt: skip
        claims.append(Claim("authors' setting n=20, d=100, p=20000: error below .05", rows[-1]["error"] < 0.05,
                            rows[-1]["error"]))  # fmt: skip
    side, p = (16, 100_000) if full else (4, 4000)
    images, labels, shape, source = pictures(10, side)
    weights = FrozenLayer.from_features(
        RandomFeatures(n_inputs=images.shape[1], n_features=p, activation=RELU, seed=2)
    ).weights
    layer = FrozenLayer(weights, _both, _both_derivative)
    features = RandomFeatures(n_inputs=images.shape[1], n_features=p, activation=BOTH_PARITIES, seed=2)
    trained = {
        "no privacy": interpolant(features, images, labels),
        "private, ε = 8": private_parameters(features, images, labels, mu, 2),
    }
    at_chance = chance_error(images, rng)
    notes.append(f"pictures: 10 of {source}, {shape[0]}×{shape[1]}, d={images.shape[1]}, p={p},"
                 f" an activation with Hermite coefficients of both parities; chance {at_chance:.3f}")  # fmt: skip
    shown = {}
    for kind, theta in trained.items():
        # One attack takes minutes: its start is fixed, whatever was drawn before.
        start = np.random.default_rng(0)
        found = reconstruct(theta, layer, len(images), rng=start, steps=600 if full else 100, hops=2 if full else 0)
        shown[kind] = match_points(images, found.points)
        rows.append({"training": kind, "setting": notes[-1], "p": p, "ratio": p / images.size,
                     "error": shown[kind].mean_error, "residual": found.residual,
                     "gradients": found.gradients})  # fmt: skip
    words = "Each row of X̂ is close to a training sample"
    error = shown["no privacy"].mean_error
    claims.append(Claim("pictures: mean error below .1", error < 0.1, error, words=words))
    hidden = shown["private, ε = 8"].mean_error / at_chance
    claims.append(Claim("pictures: private training at ε = 8 stays near chance (above .9 of it), by the same attack",
                        hidden > 0.9, hidden))  # fmt: skip

    def draw_figure(figure: Any) -> None:
        top, bottom = figure.subfigures(2, 1, height_ratios=[1.5, 1])
        axes = top.subplots()
        for kind, label in (("none", "no privacy"), ("private", "private, ε = 8")):
            axes.plot(ratios, [mean(kind, ratio) for ratio in ratios], "o-", label=label)
            single = [r for r in rows if r["training"] == kind and "setting" not in r]
            axes.plot([r["ratio"] for r in single], [r["error"] for r in single], ".", color="grey", ms=3)
        axes.axhline(level, color="grey", lw=0.7, ls=":", label="chance")
        axes.axvline(1, color="grey", lw=0.7, ls=":")
        axes.set(xscale="log", xlabel="p / (nd)", ylabel="‖x − x̂‖/√d after matching", ylim=(-0.03, 1.45))
        axes.set_title(f"Reconstruction of the training points, n={n}, d={d}, ReLU random features")
        axes.legend()
        panels = bottom.subplots(3, len(images))
        private = shown["private, ε = 8"].points
        for i, column in enumerate(panels.T):
            for axis, row in zip(column, (images[i], shown["no privacy"].points[i], private[i]), strict=True):
                low, high = images[i].min(), images[i].max()
                axis.imshow(np.clip((row.reshape(shape) - low) / (high - low), 0, 1).squeeze(), cmap="gray")
                axis.set_axis_off()
        bottom.suptitle(
            f"{source}: originals; reconstructions; reconstructions from private training, ε = 8", fontsize=9
        )

    settings = {"n": n, "d": d, "seeds": seeds, "ratios": ratios, "activation": "relu", "delta": DELTA,
                "private": "C=½√p, ηT=5d/p, 100 steps, replace-one",
                "attack": {"steps": steps, "hops": hops}}  # fmt: skip
    return PaperResult(settings, rows, claims, draw_figure, tuple(notes))


def _success_by_budget(
    n: int, d: int, full: bool, seed: int, steps: int, hops: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Attack private training at p = 10nd with ever larger budgets, on one draw of the problem."""
    X, y = sphere_problem(n, d, rng)
    features = RandomFeatures(n_inputs=d, n_features=10 * n * d, activation=RELU, seed=seed)
    rows = []
    for mu in np.logspace(1, 5, 9 if full else 2):
        theta = private_parameters(features, X, y, float(mu), seed)
        rows.append({"training": "by budget", "draw": seed, "mu": float(mu),
                     "epsilon": gdp_epsilon_upper_bound(mu=float(mu), delta=DELTA),
                     **attack_row(theta, features, X, rng, hops=hops, steps=steps)})  # fmt: skip
    return rows
