"""What an attacker can tell at most, in numbers that need no theory: right guesses, and recognised members."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtr

from gratis.accounting.gdp import gdp_detection_upper_bound
from gratis.records.certificates import StatedGuarantee
from gratis.records.errors import GratisError
from gratis.records.guarantees import GDPGuarantee, GDPWithFailureGuarantee, Guarantee

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


def attacker_bounds(guarantee: StatedGuarantee | Guarantee, *, false_alarms: float = 0.01) -> AttackerBounds:
    """Return the bounds that a guarantee proves, as accounting gives it or as a certificate states it.

    **Guarantee**: with μ, the exact trade-off of N(0, 1) against N(μ, 1) (Dong, Roth & Su 2022, theorem 2.7): accuracy
    Φ(μ/2), detection Φ(μ + Φ⁻¹(α)). Without, the best of (ε, δ)-DP's region over the stated curve (Kairouz, Oh &
    Viswanath 2015, theorem 2.1). Of f_{0,a} ⊗ G_μ (a certificate with levels that were found privately) the exact
    trade-off too: its worst pair tells everything with probability a, each side by outcomes of its own, and is the
    Gaussian one otherwise (docs/proofs/private-levels.md). Outcomes of the other side cost no alarm, so detection is
    a + (1 − a)·Φ(μ + Φ⁻¹(α/(1 − a))), and accuracy a + (1 − a)·Φ(μ/2).

    >>> found = attacker_bounds({"mu": 0.268})
    >>> f"{found.accuracy:.4f} {found.detection:.4f}"
    '0.5533 0.0198'
    """
    if isinstance(guarantee, GDPGuarantee):
        return _gaussian(guarantee.mu, 0.0, false_alarms)
    if isinstance(guarantee, GDPWithFailureGuarantee):
        return _gaussian(guarantee.mu, guarantee.failure, false_alarms)
    if not isinstance(guarantee, dict):
        raise GratisError(f"no attack is bounded by a guarantee of the kind {guarantee.kind!r} alone")
    if guarantee.get("mu") is not None:
        return _gaussian(float(guarantee["mu"]), 0.0, false_alarms)
    points = [(float(point["epsilon"]), float(point["delta"])) for point in guarantee.get("curve", [])]
    if "epsilon" in guarantee and "delta" in guarantee:
        points.append((float(guarantee["epsilon"]), float(guarantee["delta"])))
    if not points:
        raise GratisError("the guarantee states neither mu nor a curve")
    accuracy = min(_accuracy(*point) for point in points)
    return AttackerBounds(accuracy, min(_detection(*point, false_alarms) for point in points), false_alarms)


def _gaussian(mu: float, failure: float, false_alarms: float) -> AttackerBounds:
    """The exact trade-off of f_{0,failure} ⊗ G_μ, rounded up."""
    if failure + false_alarms >= 1:
        return AttackerBounds(1.0, 1.0, false_alarms)
    rest, up = 1 - failure, 1 + 1e-12
    beside = false_alarms if failure == 0 else false_alarms / rest * up
    accuracy = min(1.0, float(ndtr(mu / 2)) * up)
    detection = gdp_detection_upper_bound(mu=mu, false_alarms=min(beside, 1 - 1e-15))
    if failure:
        accuracy = min(1.0, (failure + rest * accuracy) * up)
        detection = min(1.0, (failure + rest * detection) * up)
    return AttackerBounds(accuracy, detection, false_alarms)


def _accuracy(epsilon: float, delta: float) -> float:
    odds = math.exp(-epsilon)
    return min(1.0, (1 + delta * odds) / (1 + odds) * (1 + 1e-12))


def _detection(epsilon: float, delta: float, alpha: float) -> float:
    beside = delta + math.exp(min(epsilon, 700.0)) * alpha
    above = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - alpha)
    return min(1.0, min(beside, above) * (1 + 1e-12))
