"""The distinguishing audit on mechanisms whose μ is known: below the proof, close to it, and alarmed by sabotage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta as beta_law

from gratis.audits.distinguishing import audit_scores, audit_trainer, binomial_upper_bound
from gratis.records.errors import GratisError
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring

EVENT = GaussianRelease(sensitivity=1.0, noise_std=1.0, neighbouring=Neighbouring.REPLACE_ONE)


def trainer(shift: float, noise: float, seed: int):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    return lambda _: np.array([shift, 0.0, 0.0]) + noise * rng.standard_normal(3)


@pytest.mark.parametrize("seed", range(5))
def test_honest_mechanism_is_consistent_and_nearly_tight(seed: int) -> None:
    audit = audit_trainer(trainer(0.0, 1.0, seed), trainer(1.0, 1.0, seed + 100), EVENT, runs=3000)
    assert not audit.alarm
    assert 0.6 < audit.mu.low <= 1.0
    assert audit.epsilon.low <= audit.proved_epsilon
    assert "consistent" in audit.verdict


@pytest.mark.parametrize("seed", range(5))
def test_half_the_noise_raises_the_alarm(seed: int) -> None:
    audit = audit_trainer(trainer(0.0, 0.5, seed), trainer(1.0, 0.5, seed + 100), EVENT, runs=1500)
    assert audit.alarm
    assert "ALARM" in audit.verdict


def test_coverage_of_the_lower_bound() -> None:
    """At 95 % confidence the bound may exceed the truth in one run of twenty, not in one of five."""
    rng = np.random.default_rng(5)
    above = sum(
        audit_scores(rng.standard_normal(400), 1 + rng.standard_normal(400), proved_mu=1.0).alarm for _ in range(200)
    )
    assert above <= 20


def test_clopper_pearson_against_its_definition() -> None:
    for k, n in [(0, 10), (3, 50), (49, 50)]:
        assert binomial_upper_bound(k, n, confidence=0.9) == pytest.approx(beta_law.ppf(0.9, k + 1, n - k))
    assert binomial_upper_bound(50, 50, confidence=0.9) == 1.0


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(GratisError, match="too few"):
        audit_scores(np.zeros(5), np.ones(5), proved_mu=1.0)
    with pytest.raises(GratisError, match="confidence"):
        audit_scores(np.zeros(500), np.ones(500), proved_mu=1.0, confidence=1.0)


def test_degenerate_outputs_do_not_crash() -> None:
    audit = audit_scores(np.zeros(100), np.zeros(100), proved_mu=0.5)
    assert audit.mu.low == 0.0
    assert audit_scores(np.zeros(300), np.ones(300), proved_mu=0.5).alarm
