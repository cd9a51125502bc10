"""One-run canaries, membership inference and tracing: below the proof when honest, alarmed by too little noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, nct, norm

from gratis.audits.distinguishing import binomial_upper_bound, normal_shift_lower_bound
from gratis.audits.membership import infer_membership
from gratis.audits.one_run import (
    audit_one_run,
    guess_membership,
    one_run_epsilon_lower_bound,
    one_run_p_value,
)
from gratis.audits.tracing import audit_tracing
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.records.errors import GratisError
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.full_batch import descend, descent_event

ZERO_OUT, REPLACE_ONE = Neighbouring.ZERO_OUT, Neighbouring.REPLACE_ONE


class FifthOfTheNoise(NoiseSource):
    def normal(self, std, shape):
        return super().normal(std / 5, shape)


def canary_trainer(m, mu, source=NoiseSource):
    """Full-batch descent on m orthogonal records whose clipped gradients are full: the worst case for one run."""

    def train(coins, i=0):
        X, y = np.eye(m) * coins[:, None], np.full(m, 1e6)
        return descend(
            Rows.held(X, y),
            LinearModel(),
            steps=4,
            clip_norm=1.0,
            learning_rate=1.0,
            mu=mu,
            neighbouring=ZERO_OUT,
            noise=source.insecure(i),
            average=False,
        ).parameters[:, 0]

    return train, descent_event(m, m, 1, 4, mu=mu, neighbouring=ZERO_OUT)


def test_one_run_bound_is_positive_and_below_the_proof():
    train, event = canary_trainer(300, 3.0)
    audit = audit_one_run(train, lambda theta: theta, 300, event, rng=np.random.default_rng(0))
    assert not audit.alarm
    assert 1 < audit.epsilon.low <= audit.proved_epsilon
    assert "consistent" in audit.verdict


def test_one_run_notices_missing_noise():
    train, event = canary_trainer(300, 0.5, FifthOfTheNoise)
    audit = audit_one_run(train, lambda theta: theta, 300, event, rng=np.random.default_rng(0))
    assert audit.alarm
    assert audit.to_json()["verdict"].startswith("ALARM")


def test_one_run_p_value_against_randomised_response():
    """For randomised response the number of right guesses is binomial: the p-value is its exact tail."""
    chance = math.exp(1) / (1 + math.exp(1))
    for correct in (50, 73, 90):
        expected = binom.sf(correct - 1, 100, chance)
        assert one_run_p_value(100, 100, correct, epsilon=1.0, delta=0.0) == pytest.approx(expected, rel=1e-9)
    # δ only weakens the claim; a slow sum of the same formula agrees.
    slow = max(sum(binom.pmf(90 - j, 100, chance) for j in range(1, i + 1)) / i for i in range(1, 91))
    expected = binom.sf(89, 100, chance) + 2 * 100 * 1e-5 * slow
    assert one_run_p_value(100, 100, 90, epsilon=1.0, delta=1e-5) == pytest.approx(expected, rel=1e-9)
    assert one_run_epsilon_lower_bound(100, 100, 60, delta=1e-2, confidence=0.95) == 0.0


def test_one_run_coverage_under_randomised_response():
    rng, above = np.random.default_rng(1), 0
    for _ in range(100):
        correct = rng.binomial(200, math.exp(1) / (1 + math.exp(1)))
        above += one_run_epsilon_lower_bound(200, 200, correct, delta=0.0, confidence=0.9) > 1
    assert above <= 18


def test_guesses_take_both_ends():
    assert guess_membership(np.array([3.0, 1.0, 2.0, 5.0]), 2).tolist() == [0, -1, 0, 1]


def test_one_run_refuses_nonsense():
    event = GaussianRelease(sensitivity=1, noise_std=1, neighbouring=ZERO_OUT)
    with pytest.raises(GratisError, match="one number"):
        audit_one_run(lambda c: c, lambda c: np.zeros(3), 20, event, rng=np.random.default_rng(0))
    with pytest.raises(GratisError, match="cannot exceed"):
        one_run_epsilon_lower_bound(10, 11, 3, delta=0.0, confidence=0.9)


def test_membership_inference_follows_the_gaussian_curve():
    train, event = canary_trainer(60, 1.5)
    found = infer_membership(
        train, lambda theta: theta, 60, event, rng=np.random.default_rng(2), shadows=40, targets=30
    )
    assert not found.alarm
    # Each record is one N(0,1) against N(1.5,1) test: the area is Φ(μ/√2), and no power exceeds the curve.
    # What is missing is the error of calibrating on 40 shadows.
    best = norm.cdf(1.5 / math.sqrt(2))
    assert found.area.low < best < found.area.high + 0.02
    rate = found.true_positive_rates[0.1]
    assert rate.low <= norm.cdf(norm.ppf(0.1) + 1.5) <= rate.high + 0.03
    assert found.to_json()["area"]["confidence"] == 0.95


def test_membership_inference_notices_missing_noise():
    train, event = canary_trainer(60, 0.5, FifthOfTheNoise)
    found = infer_membership(
        train, lambda theta: theta, 60, event, rng=np.random.default_rng(3), shadows=20, targets=20
    )
    assert found.alarm


def tracing(mu, source, runs=300):
    n, d, rng = 30, 20, np.random.default_rng(4)
    truth = rng.standard_normal(d) / math.sqrt(d)

    def draw(rng, count):
        X = rng.standard_normal((count, d))
        return X, X @ truth + 0.5 * rng.standard_normal(count)

    def train(X, y, i):
        return descend(
            Rows.held(X, y),
            LinearModel(),
            steps=20,
            clip_norm=2.0,
            learning_rate=0.3,
            mu=mu,
            neighbouring=REPLACE_ONE,
            noise=source.insecure(i),
            average=False,
        ).parameters[:, 0]

    event = descent_event(n, d, 1, 20, mu=mu, neighbouring=REPLACE_ONE)
    return audit_tracing(train, draw, truth, event, n_records=n, rng=rng, runs=runs)


def test_tracing_sees_members_without_noise_and_not_with_it():
    open_book = tracing(1e4, NoiseSource)
    assert open_book.members.low > open_book.fresh.high
    assert open_book.audit.mu.low > 0.3
    assert not open_book.alarm
    private = tracing(0.5, NoiseSource)
    assert not private.alarm
    assert private.audit.mu.low < 0.3
    assert private.fresh.low < 0 < private.fresh.high


def test_tracing_alarms_when_the_noise_is_missing():
    class NoNoise(NoiseSource):
        def normal(self, std, shape):
            return super().normal(std / 1e4, shape)

    assert tracing(0.2, NoNoise).alarm


def test_bounds():
    assert binomial_upper_bound(10, 10, confidence=0.9) == 1.0
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal(50), 0.7 + rng.standard_normal(50)
    estimate, low = normal_shift_lower_bound(first, second, 0.95)
    assert nct.sf(estimate * 5, 98, low * 5) == pytest.approx(0.05, rel=1e-6)
    assert normal_shift_lower_bound(second, first, 0.95) == (0.0, 0.0)
    above = sum(
        normal_shift_lower_bound(rng.standard_normal(40), 1 + rng.standard_normal(40), 0.95)[1] > 1 for _ in range(100)
    )
    assert above <= 12
