"""What an attacker can tell: against the best test, by sampling and by numerical integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from gratis.accounting.attackers import attacker_bounds
from gratis.records.errors import GratisError


@pytest.mark.parametrize("mu", [0.05, 0.268, 1.0, 3.0])
def test_the_best_test_between_two_normals_reaches_them_and_none_beats_them(mu: float) -> None:
    bounds = attacker_bounds({"mu": mu})
    thresholds = np.linspace(-8, 8 + mu, 40001)
    alarms, hits = norm.sf(thresholds), norm.sf(thresholds - mu)  # Neyman–Pearson: all tests worth having
    accuracy = ((1 - alarms) + hits) / 2
    assert accuracy.max() <= bounds.accuracy
    assert accuracy.max() == pytest.approx(bounds.accuracy, abs=1e-6)
    assert np.interp(0.01, alarms[::-1], hits[::-1]) == pytest.approx(bounds.detection, rel=1e-3)
    assert bounds.advantage == pytest.approx(2 * norm.cdf(mu / 2) - 1)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 1e-5), (2.0, 0.01)])
def test_without_mu_the_region_of_epsilon_and_delta(epsilon: float, delta: float) -> None:
    """Randomised response that leaks with probability δ reaches the region's corner."""
    bounds = attacker_bounds({"curve": [{"epsilon": epsilon, "delta": delta}], "kind": "curve"})
    right = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    assert right == pytest.approx(bounds.accuracy)
    assert right <= bounds.accuracy
    assert bounds.detection == pytest.approx(math.exp(epsilon) * 0.01 + delta)


def test_no_guarantee_no_bound_and_no_privacy_no_protection() -> None:
    with pytest.raises(GratisError):
        attacker_bounds({"kind": "none"})
    found = attacker_bounds({"mu": "inf"})
    assert (found.accuracy, found.detection) == (1.0, 1.0)
