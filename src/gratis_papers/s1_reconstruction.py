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
from gratis_papers.sweeps import sweep

__all__ = ["attack_on_pictures", "attack_row", "one_attack", "reconstruction"]

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


def one_attack(
    n: int, d: int, p: int, draw: int, mu: float | None, steps: int, hops: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Attack one model on the sphere, trained without privacy (μ = None) or with; both see the same problems."""
    X, y = sphere_problem(n, d, np.random.default_rng([n, d, p, draw]))
    features = RandomFeatures(n_inputs=d, n_features=p, activation=RELU, seed=draw)
    theta = interpolant(features, X, y) if mu is None else private_parameters(features, X, y, mu, draw)
    return {"chance": chance_error(X, rng), **attack_row(theta, features, X, rng, hops=hops, steps=steps)}


def attack_on_pictures(side: int, p: int, mu: float | None, steps: int, hops: int, rng: np.random.Generator) -> Any:
    """Attack ten pictures; returns the matched points too, which are drawn."""
    images, labels, _, _ = pictures(10, side)
    plain = RandomFeatures(n_inputs=images.shape[1], n_features=p, activation=RELU, seed=2)
    features = RandomFeatures(n_inputs=images.shape[1], n_features=p, activation=BOTH_PARITIES, seed=2)
    theta = interpolant(features, images, labels) if mu is None else private_parameters(features, images, labels, mu, 2)
    layer = FrozenLayer(FrozenLayer.from_features(plain).weights, _both, _both_derivative)
    # One attack takes minutes: its start is fixed, whatever the other one's is.
    found = reconstruct(theta, layer, len(images), rng=np.random.default_rng(0), steps=steps, hops=hops)
    matched = match_points(images, found.points)
    return {
        "p": p,
        "ratio": p / images.size,
        "error": matched.mean_error,
        "chance": chance_error(images, rng),
        "residual": found.residual,
        "gradients": found.gradients,
        "points": np.round(matched.points, 3).tolist(),
    }


def reconstruction(scale: str, rng: np.random.Generator) -> PaperResult:
    """Sweep of p/(nd), the authors' setting, private training at ε = 8 and beyond, and images."""
    full, seed = scale == "full", int(rng.integers(2**62))
    n, d, draws = (10, 40, 3) if full else (5, 16, 1)
    # The attack on private training has the same effort as that on the other.
    steps, hops = (1000, 10) if full else (300, 2)
    ratios = [0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10] if full else [0.1, 0.5, 1, 2, 5, 10]
    mu = gdp_mu_lower_bound(epsilon=8.0, delta=DELTA)
    common = {"n": n, "d": d, "steps": steps, "hops": hops}
    tasks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if full:
        theirs = {"n": 20, "d": 100, "p": 20_000, "draw": 1, "mu": None, "steps": 2000, "hops": hops}
        tasks.append(({"training": "none", "setting": _AUTHORS}, theirs))
    for ratio in ratios:
        for draw in range(draws):
            p = max(n, round(ratio * n * d))
            tasks.append(({"training": "none"}, {**common, "p": p, "draw": draw, "mu": None}))
            tasks.append(
                ({"training": "private", "epsilon": 8.0, "mu": mu}, {**common, "p": p, "draw": draw, "mu": mu})
            )
    for draw in range(5 if full else 1):
        for budget in np.logspace(1, 5, 9 if full else 2).tolist():
            said = {"training": "by budget", "mu": budget, "draw": draw,
                    "epsilon": gdp_epsilon_upper_bound(mu=budget, delta=DELTA)}  # fmt: skip
            tasks.append((said, {**common, "p": 10 * n * d, "draw": draw, "mu": budget}))
    found = sweep(one_attack, [setting for _, setting in tasks], seed=seed)
    rows: list[dict[str, Any]] = [said | row for (said, _), row in zip(tasks, found, strict=True)]
    side, p = (16, 100_000) if full else (4, 4000)
    effort = {"steps": 600, "hops": 2} if full else {"steps": 100, "hops": 0}
    budgets = {"pictures": None, "pictures, private": mu}
    shown = sweep(attack_on_pictures, [{"side": side, "p": p, "mu": one, **effort} for one in budgets.values()],
                  seed=seed)  # fmt: skip
    rows += [{"training": kind, **row} for kind, row in zip(budgets, shown, strict=True)]
    images, _, shape, source = pictures(10, side)
    settings = {
        "n": n, "d": d, "draws": draws, "ratios": ratios, "activation": "relu", "delta": DELTA,
        "private": "C=½√p, ηT=5d/p, 100 steps, replace-one", "attack": {"steps": steps, "hops": hops},
        "pictures": {"source": source, "shape": list(shape), "originals": np.round(images, 3).tolist()},
    }  # fmt: skip
    notes = (
        f"chance after matching {_chance(rows):.3f} (√2 before); errors are ‖x − x̂‖/√d after Hungarian matching",
        _first_broken(rows),
        f"pictures: 10 of {source}, {shape[0]}×{shape[1]}, d={images.shape[1]}, p={p}, an activation with Hermite "
        f"coefficients of both parities; chance {shown[0]['chance']:.3f}",
    )
    return PaperResult(
        settings, rows, judge_attacks(settings, rows), lambda figure: draw_attacks(figure, settings, rows), notes
    )  # fmt: skip


_AUTHORS = "authors: n=20, d=100, p=20000"


def _chance(rows: list[dict[str, Any]]) -> float:
    return float(np.mean([row["chance"] for row in rows if row["training"] == "none" and "setting" not in row]))


def _first_broken(rows: list[dict[str, Any]]) -> str:
    tried = [row for row in rows if row["training"] == "by budget"]
    broken = [row["epsilon"] for row in tried if row["error"] < 0.5 * _chance(rows)]
    count = len({row["draw"] for row in tried})
    return (
        f"private training is first broken (error below half of chance, p = 10nd, any of {count} draws of the problem) "
        f"at ε ≈ {min(broken):.3g}"
        if broken
        else "no budget tried lets the attack succeed on private training"
    )


def _errors(settings: dict[str, Any], rows: list[dict[str, Any]], kind: str, ratio: float) -> list[float]:
    p = max(settings["n"], round(ratio * settings["n"] * settings["d"]))
    return [row["error"] for row in rows if row["training"] == kind and row["p"] == p and "setting" not in row]


def judge_attacks(settings: dict[str, Any], rows: list[dict[str, Any]]) -> list[Claim]:
    """The threshold, private training, the authors' setting, pictures."""

    def mean(kind: str, ratio: float) -> float:
        return float(np.mean(_errors(settings, rows, kind, ratio)))

    level = _chance(rows)
    least_private = min(mean("private", ratio) for ratio in settings["ratios"]) / level
    claims = [
        Claim("near 0 at p = 10·nd: mean error below .05", mean("none", 10) < 0.05, mean("none", 10)),
        Claim("near chance below: error above .8 of chance at p = nd/2", mean("none", 0.5) > 0.8 * level,
              mean("none", 0.5) / level),
        Claim("falls sharply beyond p ≈ nd: from nd to 5nd by more than half of chance",
              mean("none", 1) - mean("none", 5) > 0.5 * level, mean("none", 1) - mean("none", 5)),
        Claim("private training at ε = 8 stays near chance (above .9 of it) at every p", least_private > 0.9,
              least_private),
    ]  # fmt: skip
    claims += [
        Claim("authors' setting n=20, d=100, p=20000: error below .05", row["error"] < 0.05, row["error"])
        for row in rows
        if row.get("setting") == _AUTHORS
    ]
    clear, hidden = (next(r for r in rows if r["training"] == kind) for kind in ("pictures", "pictures, private"))
    claims.append(Claim("pictures: mean error below .1", clear["error"] < 0.1, clear["error"],
                        words="Each row of X̂ is close to a training sample"))  # fmt: skip
    share = hidden["error"] / hidden["chance"]
    claims.append(Claim("pictures: private training at ε = 8 stays near chance (above .9 of it), by the same attack",
                        share > 0.9, share))  # fmt: skip
    return claims


def draw_attacks(figure: Any, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Errors against p/(nd), every draw a dot; below, pictures and what was found of them."""
    figure.set_size_inches(9, 7)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.5, 1])
    axes, ratios = top.subplots(), settings["ratios"]
    for kind, label in (("none", "no privacy"), ("private", "private, ε = 8")):
        draws = [_errors(settings, rows, kind, ratio) for ratio in ratios]
        means = np.array([np.mean(one) for one in draws])
        bars = [means - [min(one) for one in draws], [max(one) for one in draws] - means]
        axes.errorbar(ratios, means, np.maximum(bars, 0), fmt="o-", label=f"{label} (bars: all draws)")
    axes.axhline(_chance(rows), color="grey", lw=0.7, ls=":", label="chance")
    axes.axvline(1, color="grey", lw=0.7, ls=":")
    axes.set(xscale="log", xlabel="p / (nd)", ylabel="‖x − x̂‖/√d after matching", ylim=(-0.03, 1.45))
    axes.set_title(f"Reconstruction of the training points, n={settings['n']}, d={settings['d']}, ReLU random features")
    axes.legend()
    shown = settings["pictures"]
    originals = np.array(shown["originals"])
    found = [next(np.array(r["points"]) for r in rows if r["training"] == kind)
             for kind in ("pictures", "pictures, private")]  # fmt: skip
    for i, column in enumerate(bottom.subplots(3, len(originals)).T):
        low, high = originals[i].min(), originals[i].max()
        for axis, row in zip(column, (originals[i], *(points[i] for points in found)), strict=True):
            axis.imshow(np.clip((row.reshape(shown["shape"]) - low) / (high - low), 0, 1).squeeze(), cmap="gray")
            axis.set_axis_off()
    bottom.suptitle(f"{shown['source']}: originals; reconstructions; reconstructions from private training, ε = 8")
