"""What an attacker can tell at most, in numbers that need no theory: right guesses, and recognised members."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtr

from gratis.accounting.gdp import gdp_detection_upper_bound
from gratis.records.certificates import StatedGuarantee
from gratis.records.errors import GratisError

__all__ = ["AttackerBounds", "attacker_bounds"]


@dataclass(frozen=True, slots=True)
class AttackerBounds:
    """Upper bounds for every attack by someone who knows all other rows, rounded up.

    `accuracy`: share of right guesses between two equally likely neighbours, ½ for a coin;
    `advantage` = 2·accuracy − 1; `detection`: share of members that are recognised where
    `false_alarms` of the others are taken for members.
    """

    accuracy: float
    detection: float
    false_alarms: float

    @property
    def advantage(self) -> float:
        """How much more often right than wrong."""
        return 2 * self.accuracy - 1


def attacker_bounds(guarantee: StatedGuarantee, *, false_alarms: float = 0.01) -> AttackerBounds:
    """Return the bounds that a certificate's guarantee proves.

    **Guarantee**: with μ, the exact trade-off of N(0, 1) against N(μ, 1) (Dong, Roth & Su 2022, theorem 2.7): accuracy
    Φ(μ/2), detection Φ(μ + Φ⁻¹(α)). Without, the best of (ε, δ)-DP's region over the stated curve (Kairouz, Oh &
    Viswanath 2015, theorem 2.1).

    >>> found = attacker_bounds({"mu": 0.268})
    >>> f"{found.accuracy:.4f} {found.detection:.4f}"
    '0.5533 0.0198'
    """
    mu = guarantee.get("mu")
    if mu is not None:
        strength = float(mu)
        accuracy = min(1.0, float(ndtr(strength / 2)) * (1 + 1e-12))
        return AttackerBounds(accuracy, gdp_detection_upper_bound(mu=strength, false_alarms=false_alarms), false_alarms)
    points = [(float(point["epsilon"]), float(point["delta"])) for point in guarantee.get("curve", [])]
    if "epsilon" in guarantee and "delta" in guarantee:
        points.append((float(guarantee["epsilon"]), float(guarantee["delta"])))
    if not points:
        raise GratisError("the guarantee states neither mu nor a curve")
    accuracy = min(_accuracy(*point) for point in points)
    return AttackerBounds(accuracy, min(_detection(*point, false_alarms) for point in points), false_alarms)


def _accuracy(epsilon: float, delta: float) -> float:
    odds = math.exp(-epsilon)
    return min(1.0, (1 + delta * odds) / (1 + odds) * (1 + 1e-12))


def _detection(epsilon: float, delta: float, alpha: float) -> float:
    beside = delta + math.exp(min(epsilon, 700.0)) * alpha
    above = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - alpha)
    return min(1.0, min(beside, above) * (1 + 1e-12))
