"""Numbers of docs/theory and of other libraries, with provenance."""

from __future__ import annotations

import math

import pytest

from gratis.accounting import (
    gdp_delta_upper_bound,
    gdp_epsilon_upper_bound,
    gdp_mu_lower_bound,
    noise_for_composition,
    s0_noise_multiplier,
    zcdp_epsilon_upper_bound_simple,
)


def test_reference_values_of_the_theory() -> None:
    # docs/theory/gaussian-dp.md, statement 1.
    assert gdp_epsilon_upper_bound(mu=1.0, delta=1e-5) == pytest.approx(4.3772, abs=5e-5)
    assert gdp_mu_lower_bound(epsilon=4.0, delta=5e-4) == pytest.approx(1.15534, abs=5e-6)
    assert gdp_mu_lower_bound(epsilon=1.0, delta=5e-4) == pytest.approx(0.36145, abs=5e-6)
    assert gdp_mu_lower_bound(epsilon=math.log(3), delta=1e-5) == pytest.approx(0.29200, abs=5e-6)
    assert gdp_epsilon_upper_bound(mu=0.5, delta=1e-5) == pytest.approx(1.99309, abs=5e-6)
    assert zcdp_epsilon_upper_bound_simple(rho=0.125, delta=1e-5) == pytest.approx(2.52426, abs=5e-6)


@pytest.mark.parametrize(("epsilon", "ratio"), [(0.5, 3.11), (1.0, 2.82), (2.0, 2.54), (4.0, 2.25), (8.0, 1.95)])
def test_what_exactness_buys_over_s0(epsilon: float, ratio: float) -> None:
    # docs/theory/full-batch.md, statement 3, at delta = 1/2000.
    exact = 1 / gdp_mu_lower_bound(epsilon=epsilon, delta=1 / 2000)
    assert s0_noise_multiplier(epsilon=epsilon, delta=1 / 2000) / exact == pytest.approx(ratio, abs=0.006)


@pytest.mark.parametrize("steps", [100, 1000, 10**5])
def test_order_of_the_ladder(steps: int) -> None:
    rows = noise_for_composition(epsilon=1.0, delta=1e-5, steps=[steps])
    noise = {row.rule: row.noise_multiplier for row in rows}
    assert noise["naive"] > noise["advanced"] > noise["moments"] > noise["zcdp"] > noise["exact"]


def test_ladder_at_one_release() -> None:
    noise = {row.rule: row.noise_multiplier for row in noise_for_composition(epsilon=1.0, delta=1e-5, steps=[1])}
    assert noise["naive"] == pytest.approx(noise["exact"])
    assert noise["advanced"] == max(noise.values())


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_agreement_with_dp_accounting(mu: float, delta: float) -> None:
    """dp-accounting's closed form for one Gaussian release, which it solves to its own tolerance."""
    from dp_accounting.pld import common, privacy_loss_mechanism

    theirs = privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu)
    ours = gdp_epsilon_upper_bound(mu=mu, delta=delta)
    assert theirs.get_delta_for_epsilon(ours) == pytest.approx(delta, rel=1e-6)
    assert gdp_delta_upper_bound(mu=mu, epsilon=1.0) == pytest.approx(theirs.get_delta_for_epsilon(1.0), rel=1e-7)
    found = privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(
        common.DifferentialPrivacyParameters(1.0, delta)
    )
    assert 1 / found.standard_deviation == pytest.approx(gdp_mu_lower_bound(epsilon=1.0, delta=delta), rel=1e-3)
