"""S0, Theorem 2: the price of privacy R_P of random features falls to 0 as n grows, with p = n² and d = n^0.7.

R_P is the test loss of the private θᵖ minus that of the interpolant θ* of the same rows. True features reach n = 250
here; their Gaussian form (`GaussianFeatures`), compared with them there, goes on to n = 16,000.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu, s0_noise_multiplier
from gratis.models.random_features import TANH
from gratis.planning.random_features import plan_random_features, theorem_2_terms
from gratis.planning.twins.random_features_twin import SignTwin, draw_sign_twin
from gratis.records.budget import Budget
from gratis_papers.gaussian_features import GaussianFeatures
from gratis_papers.house_style import SMALLEST
from gratis_papers.registry import Claim, PaperResult
from gratis_papers.s2_drawing import plain_logarithms
from gratis_papers.sweeps import sweep

__all__ = ["BUDGETS", "FEATURES", "INPUTS", "choices", "price_against_records"]

Array = NDArray[np.float64]
Row = dict[str, Any]

# d ≪ n ≪ d^{3/2} is 2/3 < b < 1, n = O(√p) is a ≥ 2.
INPUTS, FEATURES = 0.7, 2
# ε = n^{−1/10} is o(1), and far above d/n = n^{−3/10} as (7) asks.
BUDGETS = {"ε = 4": (4.0, 0.0), "ε = 1": (1.0, 0.0), "ε = n^(−1/10)": (1.0, 0.1)}
CHOICES = {
    "planned": "planned by Gratis, exact noise",
    "scaled-exact": "C = ½√p, ηT = 5d/p, exact noise",
    "scaled-paper": "C = ½√p, ηT = 5d/p, paper's noise",
    "eq8": "(8) as printed, paper's noise",
}
_WORDS = "|R_P| = Õ(d/(nε) + √(d/n) + √(n/d^{3/2})) = o(1)"
_WORDS_OF = {"ε = n^(−1/10)": "vanishing excess population risk, even with a strong privacy requirement ε = o(1)"}
_MOST_LITERAL = 4000  # rows up to which the long paths of (8) are run


@cache
def choices(n: int, d: int, p: int, budget: str) -> dict[str, tuple[float, float, float]]:
    """Return clip norm, ηT and √T·s = (2ηTC/n)·multiplier of every choice. Plans see twins drawn apart."""
    first, power = BUDGETS[budget]
    stated = Budget(epsilon=first * n**-power, delta=1 / n)
    exact = 1 / calibrate_mu(stated)
    paper = s0_noise_multiplier(epsilon=first * n**-power, delta=1 / n)
    squared = math.log(n) ** 2
    settings: Any = plan_random_features(n, d, p, stated, twins=1, twin_records=1000).settings
    found = {
        "planned": (settings.clip_norm, settings.learning_rate * settings.steps, exact),
        "scaled-exact": (0.5 * math.sqrt(p), 5 * d / p, exact),
        "scaled-paper": (0.5 * math.sqrt(p), 5 * d / p, paper),
        "eq8": (math.sqrt(p) * squared, d / p * squared, paper),
    }
    return {name: (clip, flow, 2 * flow * clip / n * noise) for name, (clip, flow, noise) in found.items()}


def one_draw(n: int, draw: int, true_features: bool, rng: np.random.Generator) -> Row:
    """Test loss of θ* and R_P of every budget and choice on one draw."""
    d, p = round(n**INPUTS), n**FEATURES
    if true_features:
        twin = draw_sign_twin(n, d, p, TANH, rng=rng, n_test=2000, widest=10**9, dtype=np.float32)
        star = twin.interpolant_loss
    else:
        data = GaussianFeatures.draw(n, d, p, rng)
        star = data.interpolant_loss()
    gaps: dict[str, dict[str, float]] = {budget: {} for budget in BUDGETS}
    # (8) asks for long paths: it is run apart, so that the others need not be as long.
    for printed in (False, True) if n <= _MOST_LITERAL else (False,):
        chosen = {
            (budget, name): one
            for budget in BUDGETS
            for name, one in choices(n, d, p, budget).items()
            if (name == "eq8") == printed
        }
        clips, flows, totals = np.array(list(chosen.values())).T
        losses = (
            _twin_losses(twin, clips, flows, totals, rng)
            if true_features
            else data.private_losses(clips, flows, totals, rng)
        )
        for (budget, name), loss in zip(chosen, losses, strict=True):
            gaps[budget][name] = float(loss) - star
    return {"d": d, "p": p, "star": star, "gaps": gaps}


def _twin_losses(twin: SignTwin, clips: Array, flows: Array, totals: Array, rng: np.random.Generator) -> Array:
    # 2ηλ_max/n ≤ ¼: near the flow η → 0 that the theorem is about.
    steps = max(50, math.ceil(8 * float(flows.max()) * twin.largest_eigenvalue / len(twin.y)))
    found = twin.losses(steps=steps, learning_rates=flows / steps, clip_norms=clips,
                        noise_stds=totals / math.sqrt(steps), n_seeds=1, rng=rng)  # fmt: skip
    return np.asarray(found[:, 0])


def price_against_records(scale: str, rng: np.random.Generator) -> PaperResult:
    """R_P against n for fixed and vanishing ε, by (8), by its scalings and as planned."""
    if scale == "full":
        draws, true_draws = {250: 12, 1000: 8, 4000: 6, 16_000: 3}, {250: 6}
    else:
        draws, true_draws = {60: 3, 240: 3}, {60: 3}
    settings = [
        {"n": n, "draw": k, "true_features": true}
        for true, counts in ((False, draws), (True, true_draws))
        for n, count in counts.items()
        for k in range(count)
    ]
    found = sweep(one_draw, settings, seed=int(rng.integers(2**62)))
    rows = [setting | result for setting, result in zip(settings, found, strict=True)]
    sizes = np.array(list(draws))
    bounds = {budget: _bound(sizes, budget) for budget in BUDGETS}
    claims: list[Claim] = []
    for budget in BUDGETS:
        words = _WORDS_OF.get(budget, _WORDS)
        for name in CHOICES:
            means, errors = _prices(rows, [n for n in draws if name != "eq8" or n <= _MOST_LITERAL], budget, name)
            ratio = abs(means[-1]) / abs(means[0])
            falls = bool((np.diff(np.abs(means)) < 2 * np.hypot(errors[1:], errors[:-1])).all())
            claims.append(
                Claim(f"{budget}: |R_P| falls with every n up to two standard errors, and by half at least over all of "
                      f"them ({CHOICES[name]})", falls and ratio < 0.5, ratio, words=words)
            )  # fmt: skip
        means, _ = _prices(rows, list(draws), budget, "planned")
        share = float((np.abs(means) / bounds[budget]).max())
        claims.append(
            Claim(f"{budget}: as planned, |R_P| lies below the three terms of Theorem 2 with constant 1 and no "
                  "logarithms at every n", share < 1, share, words=words)
        )  # fmt: skip
    claims.append(_agreement(rows, true_draws))

    shown = {
        "inputs": f"d = n^{INPUTS}", "features": f"p = n^{FEATURES}", "draws": {str(n): k for n, k in draws.items()},
        "draws_of_true_features": {str(n): k for n, k in true_draws.items()}, "activation": "tanh",
        "target": "sign(uᵀx)", "budgets": {name: list(one) for name, one in BUDGETS.items()}, "delta": "1/n",
        "neighbouring": "replace-one",
    }  # fmt: skip
    notes = (
        "R_P = test loss of θᵖ − test loss of θ*; error bars: standard errors over draws of rows, features, noise",
        "lines: features in their Gaussian form, φ(Vx) = μ₁Vx + μ_>g with rows of length √d; crosses: true features",
        "planned: `gratis plan`'s clip and time for these n, d, p and ε, from twins of at most 1000 rows drawn apart",
        f"(8) as printed is run up to n = {_MOST_LITERAL}: its paths are ln²n long and its noise carries ln⁴n, so that "
        f"the bound's first term, d·ln⁵n/(nε), rises until n = e^{5 / (1 - INPUTS):.1f} at fixed ε",
    )
    return PaperResult(shown, rows, claims, lambda figure: draw_prices(figure, shown, rows), notes)


def draw_prices(figure: Any, _: Row, rows: list[Row]) -> None:
    """Losses as planned, R_P of all choices but (8), and (8)."""
    draws, true = (sorted({row["n"] for row in rows if row["true_features"] == kind}) for kind in (False, True))
    sizes = np.array(draws)
    literal = [n for n in draws if n <= _MOST_LITERAL]
    figure.set_size_inches(13, 4.8)
    left, middle, right = figure.subplots(1, 3)
    left.errorbar(sizes, *_summary(rows, draws, lambda row: row["star"]), fmt="k.-", label="θ*, not private")
    styles = {"planned": "o-", "scaled-exact": "s--", "scaled-paper": "^:", "eq8": "D-"}
    for colour, budget in enumerate(BUDGETS):
        look = {"color": f"C{colour}", "ms": 4, "capsize": 2}
        losses = _summary(rows, draws, lambda row, budget=budget: row["star"] + row["gaps"][budget]["planned"])
        left.errorbar(sizes, *losses, fmt="o-", label=f"θᵖ, {budget}", **look)
        middle.plot(sizes, _bound(sizes, budget), color=f"C{colour}", lw=0.8, alpha=0.6)
        for name in CHOICES:
            axes = right if name == "eq8" else middle
            some = literal if name == "eq8" else draws
            axes.errorbar(some, *_prices(rows, some, budget, name), fmt=styles[name], **look,
                          label=budget if name == "eq8" else CHOICES[name] if colour == 0 else None)  # fmt: skip
        middle.errorbar(true, *_prices(rows, true, budget, "planned", true_features=True), fmt="x", ms=8,
                        color=f"C{colour}", label="as planned, true features" if colour == 0 else None)  # fmt: skip
    left.axhline(1 - 2 / math.pi, color="grey", lw=0.7, ls=":")
    left.text(sizes[0], 1 - 2 / math.pi + 0.005, "best linear function", size=SMALLEST, color="grey")
    left.set(xscale="log", ylim=(0.3, 1), xlabel="n", ylabel="test loss", title="Test loss as planned")
    middle.set(xscale="log", yscale="log", xlabel="n", ylabel="R_P", title="Price of privacy (thin: three terms)")
    right.set(xscale="log", yscale="log", xlabel="n", title="(8) with its logarithms")
    middle.set_ylim(bottom=0.004)  # room for the legend
    for axes, place in ((left, "upper right"), (middle, "lower left"), (right, "upper left")):
        axes.legend(loc=place)
        plain_logarithms(axes, "x", dense=axes is right)
    figure.suptitle("Random features, p = n², d = n^0.7, δ = 1/n, replace-one")


def _bound(sizes: Array, budget: str) -> Array:
    first, power = BUDGETS[budget]
    return np.array(
        [
            sum(theorem_2_terms(int(n), round(float(n) ** INPUTS), epsilon=first * float(n) ** -power).values())
            for n in sizes
        ]
    )


def _summary(rows: list[Row], sizes: Any, read: Any, *, true_features: bool = False) -> tuple[Array, Array]:
    """Means and standard errors for each n."""
    values = [np.array([read(row) for row in rows if row["n"] == n and row["true_features"] == true_features])
              for n in sizes]  # fmt: skip
    return (
        np.array([one.mean() for one in values]),
        np.array([one.std(ddof=1) / math.sqrt(len(one)) for one in values]),
    )


def _prices(rows: list[Row], sizes: Any, budget: str, name: str, *, true_features: bool = False) -> tuple[Array, Array]:
    return _summary(rows, sizes, lambda row: row["gaps"][budget][name], true_features=true_features)


def _agreement(rows: list[Row], sizes: dict[int, int]) -> Claim:
    worst = 0.0
    for budget in BUDGETS:
        for name in CHOICES:
            true, error = _prices(rows, sizes, budget, name, true_features=True)
            form, other = _prices(rows, sizes, budget, name)
            worst = max(worst, float((np.abs(form - true) / (0.15 * np.abs(true) + 3 * np.hypot(error, other))).max()))
    words = "ours: the Gaussian form gives R_P of true features within 15 % and three standard errors"
    return Claim(f"{words} at n = {', '.join(map(str, sizes))}, all budgets and choices", worst < 1, worst)
