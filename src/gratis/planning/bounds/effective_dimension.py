"""Is my problem effectively low-dimensional? One call and one picture on S4's restricted Lipschitz bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gratis.planning.bounds.restricted_lipschitz import (
    LipschitzCoefficients,
    RiskBound,
    minimised_excess_risk_upper_bound,
)
from gratis.records.checks import check_positive
from gratis.records.neighbouring import Neighbouring

__all__ = ["EffectiveDimension", "effective_dimension"]


@dataclass(frozen=True, slots=True)
class EffectiveDimension:
    """The answer to "is my problem effectively low-dimensional?", with the numbers it rests on."""

    dimension: int
    bound: RiskBound
    full_dimension_bound: float
    decay_exponent: float
    is_low_dimensional: bool
    words: str
    curve: tuple[tuple[int, float], ...]
    coefficients: LipschitzCoefficients

    def draw(self, figure: Any) -> None:
        """Draw coefficients and the bound against k into an empty matplotlib figure."""
        left, right = figure.subplots(1, 2)
        k = np.unique(np.geomspace(1, max(1, self.dimension - 1), 200).astype(np.int64))
        values = self.coefficients.at(k)
        left.plot(k[values > 0], values[values > 0], color="#2a7f9e")
        left.plot(k, self.coefficients.per_record * k**-0.5, color="#8a93a6", linestyle="--", linewidth=1)
        left.set(xscale="log", yscale="log", xlabel="k", ylabel="gradient left outside k dimensions, G_k")
        left.set_title(f"decay k^-{self.decay_exponent:.2f} (dashed: k^-1/2)", fontsize=9)
        right.plot(*zip(*self.curve, strict=True), color="#2a7f9e")
        right.plot(self.bound.k, self.bound.excess_risk, "o", color="#c8553d")
        right.set(xscale="log", yscale="log", xlabel="k", ylabel="excess-risk bound with k")
        right.set_title(f"least at k = {self.bound.k} of {self.dimension}", fontsize=9)


def effective_dimension(
    coefficients: LipschitzCoefficients,
    *,
    distance: float,
    n_records: int,
    mu: float,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
) -> EffectiveDimension:
    """Say whether private descent pays for all d dimensions or only for k of them.

    Compares the least bound over k with the one that uses all d; the problem counts as effectively low-dimensional
    when the former is at most half of the latter.

    >>> low = LipschitzCoefficients.of_matrix(np.arange(1.0, 3001) ** -4)
    >>> effective_dimension(low, distance=1.0, n_records=5000, mu=1.0).is_low_dimensional
    True
    >>> flat = LipschitzCoefficients.of_matrix(np.ones(3000))
    >>> effective_dimension(flat, distance=1.0, n_records=5000, mu=1.0).is_low_dimensional
    False
    """
    d, relation = coefficients.dimension, Neighbouring.parse(neighbouring)

    def bound(only_k: int | None) -> RiskBound:
        return minimised_excess_risk_upper_bound(
            coefficients, distance=distance, n_records=n_records, mu=mu, neighbouring=relation, only_k=only_k
        )

    found, full = bound(None), bound(d).excess_risk
    decay, low = coefficients.decay_exponent(), found.excess_risk <= 0.5 * full
    trivial = coefficients.per_record * check_positive("distance", distance)
    words = (
        f"the bound is least at k = {found.k} of {d} dimensions: {found.excess_risk:.3g}, against {full:.3g} when all "
        f"{d} are paid for; so the problem {'is' if low else 'is not shown to be'} effectively low-dimensional. "
        f"Coefficients ({coefficients.source}) decay at least like k^-{decay:.2f}; S4's dimension-free rate needs more "
        f"than 1/2"
    )
    if found.excess_risk >= trivial:
        words += f". Even the least bound is above {trivial:.3g}, the loss of not moving: it promises nothing here"
    grid = np.unique(np.geomspace(1, d, 40).astype(np.int64))
    curve = tuple((int(k), bound(int(k)).excess_risk) for k in grid)
    return EffectiveDimension(d, found, full, decay, low, words, curve, coefficients)
