"""The exact conversions against 50-digit mpmath: never on the wrong side, and never loose by more than 1e−9."""

from __future__ import annotations

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest

from gratis.accounting import gdp_delta_upper_bound, gdp_epsilon_upper_bound, gdp_mu_lower_bound
from gratis.numerics.gaussian_tradeoff import log_delta

MUS = [
    1e-12,
    1e-9,
    1e-6,
    1e-4,
    1e-3,
    1e-2,
    0.03,
    0.1,
    0.268,
    0.5,
    1.0,
    1.7,
    2.0,
    3.0,
    5.0,
    8.0,
    13.0,
    25.0,
    50.0,
]
EPSILONS = [
    0.0,
    1e-13,
    1e-11,
    1e-8,
    1e-5,
    1e-3,
    0.01,
    0.1,
    0.5,
    1.0,
    math.log(3),
    2.0,
    4.0,
    8.0,
    20.0,
    60.0,
    200.0,
    500.0,
]
DELTAS = [
    1e-300,
    1e-200,
    1e-100,
    1e-50,
    1e-30,
    1e-20,
    1e-12,
    1e-9,
    1e-6,
    1e-5,
    5e-4,
    1e-2,
    0.1,
    0.3,
    0.38,
    0.5,
]
TOLERANCE = 1e-9


def _delta(epsilon: mp.mpf, mu: mp.mpf) -> mp.mpf:
    """The textbook form with enough digits that its cancellation does not matter."""
    return mp.ncdf(-epsilon / mu + mu / 2) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)


@cache
def _reference_delta(epsilon: float, mu: float) -> mp.mpf:
    # Cancellation loses about log10(1/μ) digits, and ncdf of a far tail needs its own.
    with mp.workdps(110):
        z = mp.mpf(epsilon) / mp.mpf(mu)
        if z > 60:
            return mp.mpf(0)
        return _delta(mp.mpf(epsilon), mp.mpf(mu))


@pytest.mark.parametrize("mu", MUS)
def test_delta_is_never_below_the_truth_and_tight(mu: float) -> None:
    checked = 0
    for epsilon in EPSILONS:
        truth = _reference_delta(epsilon, mu)
        got = gdp_delta_upper_bound(mu=mu, epsilon=epsilon)
        assert mp.mpf(got) >= truth
        if truth > mp.mpf("1e-300"):
            assert (mp.mpf(got) - truth) / truth < TOLERANCE
            checked += 1
    assert checked > 0


@pytest.mark.parametrize("mu", MUS)
def test_error_bound_of_log_delta_holds(mu: float) -> None:
    for epsilon in EPSILONS:
        truth = _reference_delta(epsilon, mu)
        if truth > mp.mpf("1e-300"):
            value, error = log_delta(epsilon, mu)
            with mp.workdps(60):
                assert abs(mp.mpf(value) - mp.log(truth)) <= error


@pytest.mark.parametrize("mu", MUS)
def test_epsilon_is_never_below_the_truth_and_tight(mu: float) -> None:
    for delta in DELTAS:
        got = gdp_epsilon_upper_bound(mu=mu, delta=delta)
        with mp.workdps(110):
            exact_mu, exact_delta = mp.mpf(mu), mp.mpf(delta)
            if _delta(mp.mpf(0), exact_mu) <= exact_delta:
                assert got == 0.0
                continue
            # δ(ε) decreases, so the side and the excess are both statements about δ at two points.
            assert got > 0
            assert _delta(mp.mpf(got), exact_mu) <= exact_delta
            assert _delta(mp.mpf(got) / (1 + mp.mpf(TOLERANCE)), exact_mu) > exact_delta


@pytest.mark.slow(but=["4.0"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_is_never_above_the_truth_and_tight(epsilon: float) -> None:
    for delta in DELTAS:
        got = gdp_mu_lower_bound(epsilon=epsilon, delta=delta)
        assert got > 0
        # At ε = 0 and δ = 1e−300, μ is 2.5e−300: the textbook form then loses 300 digits.
        with mp.workdps(110 + int(max(0.0, -math.log10(got)))):
            if mp.mpf(epsilon) / mp.mpf(got) < 60:
                assert _delta(mp.mpf(epsilon), mp.mpf(got)) <= mp.mpf(delta)
            assert _delta(mp.mpf(epsilon), mp.mpf(got) * (1 + mp.mpf(TOLERANCE))) > mp.mpf(delta)


def test_random_points_between_the_grid() -> None:
    rng = np.random.default_rng(20261115)
    for _ in range(150):
        mu = float(np.exp(rng.uniform(math.log(1e-12), math.log(50))))
        delta = float(np.exp(rng.uniform(math.log(1e-300), math.log(0.5))))
        got = gdp_epsilon_upper_bound(mu=mu, delta=delta)
        with mp.workdps(110):
            if got == 0:
                assert _delta(mp.mpf(0), mp.mpf(mu)) <= mp.mpf(delta)
            else:
                assert _delta(mp.mpf(got), mp.mpf(mu)) <= mp.mpf(delta)
                assert _delta(mp.mpf(got) / (1 + mp.mpf(TOLERANCE)), mp.mpf(mu)) > mp.mpf(delta)


def test_the_textbook_form_in_float64_would_fail() -> None:
    """Negative control: what this test guards against does happen with Φ(a) − e^ε Φ(b) in float64."""
    from scipy.special import ndtr

    mu, epsilon = 1e-9, 1e-9
    naive = ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)
    truth = _reference_delta(epsilon, mu)
    assert abs(mp.mpf(float(naive)) - truth) / truth > 1e-8
