"""S1: the ladder of composition theorems — the noise that each needs for the same (ε, δ) after T releases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gratis.accounting import noise_for_composition
from gratis_papers.registry import Claim, PaperResult

__all__ = ["composition_ladder"]

_RULES = ("naive", "advanced", "moments", "zcdp", "exact")


def composition_ladder(scale: str, rng: np.random.Generator) -> PaperResult:
    """Compare naive, advanced, moments, zCDP and exact composition from T = 1 to 10⁵; closed forms, no chance."""
    del rng
    epsilon, delta = 1.0, 1e-5
    steps = [int(t) for t in np.unique(np.logspace(0, 5, 6 if scale == "smoke" else 41).round())]
    rows = [row._asdict() for row in noise_for_composition(epsilon=epsilon, delta=delta, steps=steps)]
    found = {(row["steps"], row["rule"]): row["noise_multiplier"] for row in rows}
    table = np.array([[found[t, rule] for rule in _RULES] for t in steps])
    many = np.array(steps) >= 100
    gaps = np.diff(np.log(table[many]), axis=1)
    claims = [
        Claim("for T ≥ 100: naive > advanced > moments > zCDP > exact", bool((gaps < 0).all()), float(gaps.max()),
              exact=True),
        Claim("at T = 1 naive equals exact", math.isclose(table[0, 0], table[0, 4]), table[0, 0] / table[0, 4],
              exact=True),
        Claim("at T = 1 advanced is the worst", int(np.argmax(table[0])) == 1, table[0, 1] / table[0, 4], exact=True),
        Claim("naive needs over 100 times the exact noise at T = 10⁵", table[-1, 0] > 100 * table[-1, 4],
              table[-1, 0] / table[-1, 4], exact=True),
    ]  # fmt: skip

    def draw_figure(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for k, rule in enumerate(_RULES):
            left.plot(steps, table[:, k], label={"zcdp": "zCDP"}.get(rule, rule))
            right.plot(steps, table[:, k] / table[:, 4], label={"zcdp": "zCDP"}.get(rule, rule))
        left.set(xscale="log", yscale="log", xlabel="releases T", ylabel="noise std / sensitivity of one release")
        right.set(xscale="log", yscale="log", xlabel="releases T", ylabel="relative to exact")
        left.legend()
        figure.suptitle(f"Noise for ({epsilon:g}, {delta:g})-DP after T Gaussian releases")

    return PaperResult({"epsilon": epsilon, "delta": delta, "steps": steps}, rows, claims, draw_figure)
