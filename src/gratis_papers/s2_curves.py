"""S2, Figure 9 and the supplement's Figures 10 to 13: curves that need no run.

Figure 9 draws what clipping leaves of descent and of the gradients' variance. The supplement's pictures show how the
best exponent of the rate is found in the proof of Theorem 4: the text says of them only that one exponent rises and the
others fall with the exponent a of η₀c ≍ γ^{−a}; the four cases drawn here are those of the proof.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gratis.planning.one_pass.clipping_factors import clipping_factors
from gratis.planning.one_pass.rates import scaling_exponent
from gratis_papers.registry import Claim, PaperResult

__all__ = ["clipping_curves", "exponents_of_the_proof"]

_RISKS = (0.125, 0.5, 2.0)
# α, β, δ′, r: who meets the rising line first, gradient variance or private noise; with 2/A or β in the latter.
_CASES = {
    "variance decides": (0.5, 0.0, 0.0, 0.0),
    "noise decides, β ≤ 2/A": (0.5, 0.0, 0.0, 0.6),
    "noise decides, β > 2/A": (6.0, 0.5, 0.0, 0.6),
    "variance decides, β > 2/A": (6.0, 0.5, 0.0, 0.0),
}


def clipping_curves(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figure 9: μ_c and ν_c against c at several risks, and by Monte-Carlo."""
    clips = np.linspace(0, 8, 161)
    curves = {risk: clipping_factors(risk, clips) for risk in _RISKS}
    draws = rng.standard_normal(400_000 if scale == "full" else 40_000)
    seen, distances = clips[10::10], []
    for risk in _RISKS:
        residuals = np.sqrt(2 * risk) * draws
        for c, mu, nu in zip(seen, *clipping_factors(risk, seen), strict=True):
            clipped = np.clip(residuals, -c, c)
            for values, exact in ((residuals * clipped, mu), (clipped**2, nu)):
                error = values.std() / np.sqrt(len(values)) / (2 * risk)
                distances.append(abs(float(values.mean()) / (2 * risk) - exact) / max(error, 1e-12))
    both = np.array([factor for pair in curves.values() for factor in pair])
    steps = np.diff(both, axis=1)
    unclipped = float(min(np.min(clipping_factors(risk, 100.0)) for risk in _RISKS))
    claims = [
        Claim("μ_c and ν_c rise with c at every risk", bool((steps >= 0).all()), float(steps.min()), exact=True,
              words="monotonically increasing"),
        Claim("both are 0 at c = 0 and 1 within 10⁻⁶ at c = 100",
              bool((both[:, 0] == 0).all()) and unclipped > 1 - 1e-6, unclipped, exact=True,
              words="going from … (as c → 0) to … (as c → ∞)"),
        Claim("ν_c ≤ μ_c ≤ 1 at every c and risk", all(bool((nu <= mu + 1e-12).all()) for mu, nu in curves.values()),
              float(max((nu - mu).max() for mu, nu in curves.values())), exact=True),
        Claim("E[r·clip_c(r)]/2P and E[clip_c(r)²]/2P of drawn residuals within 5 standard errors", max(distances) < 5,
              max(distances)),
    ]  # fmt: skip

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for colour, (risk, factors) in enumerate(curves.items()):
            for axes, values in zip(panels, factors, strict=True):
                axes.plot(clips, values, color=f"C{colour}", label=f"R + ζ²/2 = {risk:g}")
        for axes, name in zip(panels, ("μ_c: descent left", "ν_c: gradient variance left"), strict=True):
            axes.set(xlabel="clip level c", title=name, ylim=(0, 1.05))
            axes.grid(True, alpha=0.2)
        panels[1].legend(loc="lower right")

    rows = [
        {"risk": risk, "clip": float(c), "mu": float(mu), "nu": float(nu)}
        for risk, factors in curves.items()
        for c, mu, nu in zip(clips, *factors, strict=True)
    ]
    return PaperResult({"risks": list(_RISKS), "draws": len(draws)}, rows, claims, draw)


def _lines(alpha: float, beta: float, source: float, privacy: float, a: Any) -> dict[str, Any]:
    q, order = 2 - beta - source, alpha + 1
    return {
        "bias, a·q": a * q,
        "gradient variance, 1 − a/A": 1 - a / order,
        "private noise, 2 − 2r − a·max(2/A, β)": 2 - 2 * privacy - a * max(2 / order, beta),
    }


def exponents_of_the_proof(scale: str, rng: np.random.Generator) -> PaperResult:
    """Figures 10 to 13: one rising and two falling lines; ξ is the highest point below all of them."""
    a = np.linspace(0, 2, 2001 if scale == "full" else 401)
    rows: list[dict[str, Any]] = []
    claims = []
    for name, (alpha, beta, source, privacy) in _CASES.items():
        lines = _lines(alpha, beta, source, privacy, a)
        least = np.minimum.reduce(list(lines.values()))
        xi = scaling_exponent(alpha=alpha, beta=beta, source_exponent=source, privacy_exponent=privacy)
        gap = float(abs(least.max() - xi))
        rising, *falling = lines.values()
        shape = bool((np.diff(rising) > 0).all() and all((np.diff(line) <= 0).all() for line in falling))
        rows.append({"case": name, "alpha": alpha, "beta": beta, "source": source, "privacy": privacy, "xi": xi,
                     "found": float(least.max()), "at": float(a[least.argmax()])})  # fmt: skip
        claims += [
            Claim(f"{name}: one exponent rises and the others fall with a", shape, float(np.diff(rising).min()),
                  exact=True, words="monotonically decreasing … increasing"),
            Claim(f"{name}: the highest point below all lines is Theorem 4's ξ, within a step of the grid",
                  gap < 2.5 * (a[1] - a[0]), gap, exact=True, words="gives the optimal choice"),
        ]  # fmt: skip

    def draw(figure: Any) -> None:
        figure.set_size_inches(9.5, 6.6)
        panels = figure.subplots(2, 2, sharex=True).ravel()
        for axes, row, case in zip(panels, rows, _CASES.values(), strict=True):
            for label, line in _lines(*case, a).items():
                axes.plot(a, line, label=label)
            axes.plot(row["at"], row["found"], "k*", ms=12, label="ξ")
            axes.set(ylim=(0, 2), title=f"{row['case']}: ξ = {row['xi']:.3f}", xlabel="a, where η₀c is of order γ^(−a)")
        figure.legend(*panels[0].get_legend_handles_labels(), ncols=4,
                      loc="outside lower center")  # fmt: skip

    notes = ("drawn from the proof's text: the pictures and captions of the supplement are not in it",)
    return PaperResult({"grid": len(a), "cases": {k: list(v) for k, v in _CASES.items()}}, rows, claims, draw, notes)
