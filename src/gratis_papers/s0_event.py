"""S0, event (15): is no gradient clipped on the path that Theorem 2 follows?

The proof replaces DP-GD by its unclipped form, an Ornstein–Uhlenbeck process, on the event that no record's gradient
reaches the clip norm: residuals of the flow without noise, (18), and what noise adds to them, (19), are both O(log n).
Both are measured on the unclipped process, features in their Gaussian form, p = n² and d = n^0.7 as in s0-thm2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gratis_papers.gaussian_features import GaussianFeatures
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s0_theorem2 import BUDGETS, FEATURES, INPUTS, choices
from gratis_papers.sweeps import sweep

__all__ = ["no_clipping_on_the_path"]

Row = dict[str, Any]
SHOWN = {"eq8": "(8) as printed", "scaled-exact": "C = ½√p, ηT = 5d/p, exact noise"}


def one_path(n: int, draw: int, rng: np.random.Generator) -> Row:
    """Run the unclipped process of every budget and choice, and without noise; say what would have been clipped."""
    d, p = round(n**INPUTS), n**FEATURES
    data = GaussianFeatures.draw(n, d, p, rng)
    found: Row = {"d": d, "p": p, "draw": draw, "paths": {}}
    for name in SHOWN:
        chosen = {budget: choices(n, d, p, budget)[name] for budget in BUDGETS}
        clip, flow, _ = next(iter(chosen.values()))  # of a choice only the noise depends on the budget
        noises = np.array([0.0, *(total for _, _, total in chosen.values())])
        sizes, noise_sizes, clipped, first = data.unclipped_path(clip, flow, noises, rng)
        for place, budget in enumerate(("no noise", *chosen)):
            found["paths"][f"{name}, {budget}"] = {
                "residual": float(sizes[place]),
                "noise": float(noise_sizes[place]),
                "clipped": float(clipped[place]),
                "clipped_at_once": float(first),
            }
    return found


def no_clipping_on_the_path(scale: str, rng: np.random.Generator) -> PaperResult:
    """Largest residual and noise over ln n, and the share of records clipped on the way, against n."""
    draws = {250: 6, 1000: 6, 4000: 4, 16_000: 2} if scale == "full" else {60: 2, 240: 2}
    settings = [{"n": n, "draw": k} for n, count in draws.items() for k in range(count)]
    rows = [
        setting | found
        for setting, found in zip(
            settings, sweep(one_path, settings, seed=int(rng.integers(2**62))), strict=True
        )
    ]  # fmt: skip
    shown = {
        "inputs": f"d = n^{INPUTS}", "features": f"p = n^{FEATURES}", "draws": {str(n): k for n, k in draws.items()},
        "budgets": {name: list(one) for name, one in BUDGETS.items()}, "delta": "1/n", "neighbouring": "replace-one",
    }  # fmt: skip
    notes = (
        "the unclipped process is for theory: it has no guarantee, and nothing of it is released",
        "a record counts as clipped if 2|r|·‖φ‖ reaches C at any step of the path",
        "labels are ±1 and θ starts at 0: the first gradient has norm 2‖φ‖ ≈ 1.26√p, above C = ½√p",
    )
    return PaperResult(
        shown, rows, judge_paths(shown, rows), lambda figure: draw_paths(figure, shown, rows), notes
    )  # fmt: skip


def _worst(rows: list[Row], n: int, path: str, name: str) -> float:
    return max(row["paths"][path][name] for row in rows if row["n"] == n)


def judge_paths(_: Row, rows: list[Row]) -> list[Claim]:
    """(18), (19) and (15) as printed; what clipping does in the settings that work."""
    sizes = sorted({row["n"] for row in rows})
    flow = max(_worst(rows, n, "eq8, no noise", "residual") / np.log(n) for n in sizes)
    claims = [
        Claim("(18): without noise no residual on the path of (8) exceeds ln n, at any n", flow < 1, flow,
              words="jointly for all i: sup |φ(x_i)ᵀθ̂(t) − y_i| = O(log n)"),
        Claim("(15) without noise: no gradient is clipped on the path of (8), at any n",
              max(_worst(rows, n, "eq8, no noise", "clipped") for n in sizes) == 0,
              max(_worst(rows, n, "eq8, no noise", "clipped") for n in sizes)),
    ]  # fmt: skip
    for budget in BUDGETS:
        path = f"eq8, {budget}"
        noise = [_worst(rows, n, path, "noise") / np.log(n) for n in sizes]
        claims += [
            Claim(f"(19), {budget}: what noise adds to a residual on the path of (8) stays below ln n, at any n",
                  max(noise) < 1, max(noise), words="jointly for all i: sup |φ(x_i)ᵀΘ̃(t)| = O(log n)"),
            Claim(f"(15), {budget}: no gradient is clipped on the path of (8), at any n",
                  max(_worst(rows, n, path, "clipped") for n in sizes) == 0,
                  max(_worst(rows, n, path, "clipped") for n in sizes),
                  words="by choosing the hyperparameters as in Eq. 8 …, the event in Eq. 15 happens with high "
                  "probability"),
        ]  # fmt: skip
    at_once = min(row["paths"][f"scaled-exact, {b}"]["clipped_at_once"] for row in rows for b in BUDGETS)
    claims.append(Claim("ours: with C = ½√p, which works, all records are clipped in the first step", at_once == 1,
                        at_once))  # fmt: skip
    return claims


def draw_paths(figure: Any, _: Row, rows: list[Row]) -> None:
    """Sizes over ln n, and shares of clipped records; bars from the least draw to the largest."""
    figure.set_size_inches(11, 4.6)
    sizes = sorted({row["n"] for row in rows})
    left, right = figure.subplots(1, 2)
    for style, (name, label) in zip(("o-", "s--"), SHOWN.items(), strict=True):
        for colour, budget in enumerate(("no noise", *BUDGETS)):
            path, part = f"{name}, {budget}", "residual" if budget == "no noise" else "noise"
            words = f"{label}: {'residual without noise' if part == 'residual' else f'noise, {budget}'}"
            for axes, what, unit in ((left, part, True), (right, "clipped", False)):
                values = [np.array([r["paths"][path][what] for r in rows if r["n"] == n]) / (np.log(n) if unit else 1)
                          for n in sizes]  # fmt: skip
                middle = np.array([v.mean() for v in values])
                bars = [middle - [v.min() for v in values], [v.max() for v in values] - middle]
                axes.errorbar(sizes, middle, np.maximum(bars, 0), fmt=style, ms=3.5, color=f"C{colour}",
                              label=words if unit else None)  # fmt: skip
    left.axhline(1, color="grey", lw=0.7, ls=":")
    left.set(xscale="log", yscale="log", xlabel="n", ylabel="largest on the path / ln n", title="(18) and (19)")
    right.set(xscale="log", xlabel="n", ylabel="share of records", title="clipped at some step: (15) asks for none")
    right.set_ylim(-0.03, 1.05)
    figure.legend(loc="outside lower center", ncols=2)
