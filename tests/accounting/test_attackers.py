"""What an attacker can tell: against the best test, by sampling and by numerical integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from gratis.accounting.attackers import attacker_bounds
from gratis.records.errors import GratisError
from gratis.records.guarantees import GDPWithFailureGuarantee
from gratis.records.neighbouring import Neighbouring


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


@pytest.mark.parametrize(("mu", "failure"), [(0.24, 1e-7), (0.5, 0.02), (2.0, 0.3)])
def test_with_a_failure_the_best_test_reaches_the_curve_and_none_beats_it(mu: float, failure: float) -> None:
    """Numerically, on the pair itself: an outcome of each side's own with the failure's probability, else normals."""
    edges = np.linspace(-9, 9 + mu, 20001)
    cells_in = np.concatenate([[failure, 0.0], (1 - failure) * np.diff(norm.cdf(edges - mu))])
    cells_out = np.concatenate([[0.0, failure], (1 - failure) * np.diff(norm.cdf(edges))])
    with np.errstate(divide="ignore"):
        order = np.argsort(-cells_in / np.maximum(cells_out, 1e-300))  # Neyman–Pearson
    hits, alarms = np.cumsum(cells_in[order]), np.cumsum(cells_out[order])
    guarantee = GDPWithFailureGuarantee(mu=mu, failure=failure, neighbouring=Neighbouring.REPLACE_ONE)
    for share in (0.001, 0.01, 0.2, 0.6):
        bound = attacker_bounds(guarantee, false_alarms=share)
        best = float(np.interp(share, alarms, hits))
        assert best <= bound.detection + 1e-9
        assert best == pytest.approx(bound.detection, rel=2e-3)
        assert ((hits + 1 - alarms) / 2).max() <= bound.accuracy
        assert ((hits + 1 - alarms) / 2).max() == pytest.approx(bound.accuracy, abs=1e-4)
    assert attacker_bounds(guarantee, false_alarms=1 - failure / 2).detection == 1.0
