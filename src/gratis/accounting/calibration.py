"""Calibration: budget → μ → noise or steps. Noise rounds up, μ and steps round down."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from gratis.accounting.composition import account
from gratis.accounting.gdp import gdp_epsilon_upper_bound, gdp_mu_lower_bound
from gratis.accounting.subsampling import pld_epsilon_upper_bound
from gratis.numerics.outward import round_down, round_up
from gratis.records.budget import Budget
from gratis.records.checks import check_count, check_delta, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import Event, FullBatchDescent, PoissonSubsampledGaussian
from gratis.records.guarantees import GDPGuarantee, GDPWithFailureGuarantee
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs

__all__ = [
    "calibrate_descent_noise",
    "calibrate_mu",
    "calibrate_noise_std",
    "calibrate_subsampled_noise_multiplier",
    "remaining_budget",
    "share_of_budget",
    "split_mu",
    "unit_descent_event",
]


@lru_cache(maxsize=256)
def calibrate_mu(budget: Budget) -> float:
    """Largest Gaussian-DP parameter inside the budget; rounded down.

    >>> f"{calibrate_mu(Budget(epsilon=1.0, delta=1e-5)):.5f}"
    '0.26805'
    """
    if budget.mu is not None:
        return budget.mu
    assert budget.epsilon is not None
    assert budget.delta is not None
    mu = gdp_mu_lower_bound(epsilon=budget.epsilon, delta=budget.delta)
    if mu <= 0:
        raise GratisError("this budget is too small to spend anything")
    return mu


def remaining_budget(budget: Budget, spent: Event) -> Budget:
    """Return the largest (ε′, δ′) such that a Gaussian event within it, after `spent`, stays within the budget.

    δ′ is δ less the failures of `spent`; ε′ is that of √(μ² − μ₁²) at δ′, with μ what (ε, δ′) allows. All that the rest
    may depend on `spent` for is covered by composition: its μ is fixed before.
    """
    before = account(spent)
    if (
        budget.epsilon is None
        or budget.delta is None
        or not isinstance(before, (GDPGuarantee, GDPWithFailureGuarantee))
    ):
        raise GratisError("what is left is known for budgets in epsilon and delta and Gaussian events")
    failure = before.failure if isinstance(before, GDPWithFailureGuarantee) else 0.0
    delta = round_down(budget.delta - failure, ulps=2)
    mu = gdp_mu_lower_bound(epsilon=budget.epsilon, delta=delta) if delta > 0 else 0.0
    if before.mu >= mu:
        raise GratisError("nothing of this budget is left")
    rest = round_down(math.sqrt((mu - before.mu) * (mu + before.mu)), ulps=16)
    epsilon = gdp_epsilon_upper_bound(mu=rest, delta=delta)
    # The search for ε rounds up: step down until what it allows is not more than the rest.
    while epsilon > 0 and gdp_mu_lower_bound(epsilon=epsilon, delta=delta) > rest:
        epsilon *= 1 - 1e-12
    return replace(budget, epsilon=epsilon, delta=delta)


def share_of_budget(budget: Budget, share: float) -> Budget:
    """Return the budget at the same δ whose μ² is at most that share of the budget's; its ε rounds down.

    >>> part = share_of_budget(Budget(epsilon=1.0, delta=1e-5), 0.25)
    >>> round(calibrate_mu(part) / calibrate_mu(Budget(epsilon=1.0, delta=1e-5)), 9)
    0.5
    """
    if budget.delta is None or not 0 < share <= 1:
        raise GratisError("a share between 0 and 1 is taken of budgets in epsilon and delta")
    # A little less: the sum of the shares is rounded up when it is accounted.
    most = calibrate_mu(budget) * math.sqrt(share) * (1 - 1e-12)
    epsilon = gdp_epsilon_upper_bound(mu=most, delta=budget.delta)
    while epsilon > 0 and gdp_mu_lower_bound(epsilon=epsilon, delta=budget.delta) > most:
        epsilon *= 1 - 1e-12
    return replace(budget, epsilon=epsilon)


def split_mu(mu: float, shares: list[float]) -> list[float]:
    """Split μ into stages with the given shares of μ²; their composition is at most μ.

    >>> [round(part, 4) for part in split_mu(1.0, [0.36, 0.64])]
    [0.6, 0.8]
    """
    mu = check_positive("mu", mu)
    parts = [check_positive("a share", share) for share in shares]
    total = math.fsum(parts)
    return [round_down(mu * math.sqrt(part / total), ulps=64 + 4 * len(parts)) for part in parts]


def calibrate_noise_std(*, mu: float, sensitivity: float, count: int = 1) -> float:
    """Least noise std with which `count` releases of that sensitivity are μ-GDP; rounded up."""
    mu = check_positive("mu", mu)
    sensitivity = check_non_negative("sensitivity", sensitivity)
    count = check_count("count", count)
    return 0.0 if sensitivity == 0 else round_up(sensitivity * math.sqrt(count) / mu, ulps=64)


def calibrate_descent_noise(
    *,
    mu: float,
    steps: int,
    learning_rate: float,
    clip_norm: float,
    n_records: int,
    neighbouring: Neighbouring,
    rounding_inflation: float = 1.0,
) -> float:
    """Noise std s a step with which T full-batch steps are μ-GDP: s = √T·κηC/(nμ); rounded up."""
    per_record = neighbouring.sensitivity_factor * check_positive("clip_norm", clip_norm)
    sensitivity = check_positive("learning_rate", learning_rate) * per_record * rounding_inflation
    return calibrate_noise_std(mu=mu, sensitivity=sensitivity / check_count("n_records", n_records), count=steps)


def unit_descent_event(
    n_records: int, steps: int, *, mu: float, neighbouring: Neighbouring, rounding_inflation: float, label: str
) -> FullBatchDescent:
    """Return the event of T full-batch steps at μ-GDP in units of learning rate × clip norm, known before any data.

    Every step releases (1/n)Σ clip₁(gᵢ/C) + s·N(0, I) with s = κr√T/(nμ), r the rounding inflation. Learning rate and
    clip norm only rescale what is released, so they may be chosen later from earlier releases.

    **Guarantee**: at most μ-GDP under `neighbouring` (the noise is rounded up).
    """
    steps, n_records = check_count("steps", steps), check_count("n_records", n_records)
    noise_std = calibrate_descent_noise(
        mu=mu,
        steps=steps,
        learning_rate=1.0,
        clip_norm=1.0,
        n_records=n_records,
        neighbouring=neighbouring,
        rounding_inflation=rounding_inflation,
    )
    return FullBatchDescent(
        learning_rates=Runs.constant(1.0, steps),
        noise_stds=Runs.constant(noise_std, steps),
        clip_norm=1.0,
        n_records=n_records,
        rounding_inflation=rounding_inflation,
        neighbouring=neighbouring,
        label=f"{label}, in units of learning rate × clip norm",
    )


def calibrate_subsampled_noise_multiplier(
    *, epsilon: float, delta: float, sampling_rate: float, steps: int, neighbouring: Neighbouring
) -> float:
    """Least noise multiplier (to .01 %) whose Poisson-subsampled training stays within (ε, δ); the upper end."""
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)

    def spent(multiplier: float) -> float:
        event = PoissonSubsampledGaussian(
            sampling_rate=sampling_rate, noise_multiplier=multiplier, steps=steps, neighbouring=neighbouring
        )
        return pld_epsilon_upper_bound(event, delta=delta)

    high = 1.0
    while spent(high) > epsilon:
        high *= 2
        if high > 1e6:
            raise GratisError("no noise multiplier below a million meets this budget")
    low = high / 2
    while low > 1e-2 and spent(low) <= epsilon:
        low, high = low / 2, low
    while high - low > 1e-4 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high
