"""ρ = max_k κa_k/√(Σ_{j≥k}s_j²) against laws that are known exactly: Gaussian in closed form, or on a fine grid.

Nothing of the trainer or the accountant is used to work out the laws.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from gratis.accounting.iteration import amplification_by_iteration
from gratis.records.events import OnePassIteration
from gratis.records.sequences import Runs


def rho_written_out(a, s, kappa):
    return max(kappa * a[k] / math.sqrt(math.fsum(v * v for v in s[k:])) for k in range(len(a)) if a[k] > 0)


def accounted(eta, clip, s, relation="replace-one"):
    event = OnePassIteration(
        step_sizes=Runs.of(eta), clip_norms=Runs.of(clip), noise_stds=Runs.of(s), neighbouring=relation
    )
    return amplification_by_iteration(event)


def schedules():
    rng = np.random.default_rng(0)
    n = 12
    k = np.arange(n)
    for a in (np.full(n, 0.3), 0.4 * np.sqrt(1 - k / n), 0.5 / (1 + k), np.repeat([0.6, 0.3, 0.2], 4)):
        yield a, np.sqrt((2 * a) ** 2 - np.append(2 * a[1:], 0) ** 2)  # least noise at ρ = 1
    for _ in range(6):
        noise = rng.uniform(0.1, 1, n) * (rng.uniform(size=n) < 0.6)
        noise[-1] = 0.3
        yield rng.uniform(0.05, 0.5, n), noise  # not monotone, noise missing at some steps


def exact_mu(a, s, factors, k):
    """Linear maps θ → q_jθ + c_j: two Gaussians; record k shifts the mean by 2a_k, all noise adds up contracted."""
    mean, variance = 0.0, 0.0
    for j in range(len(a)):
        mean = mean * factors[j] + (2 * a[j] if j == k else 0.0)
        variance = variance * factors[j] ** 2 + s[j] ** 2
    return abs(mean) / math.sqrt(variance)


def test_accountant_is_the_formula_rounded_up():
    for a, s in schedules():
        for relation, kappa in (("replace-one", 2), ("zero-out", 1)):
            expected = rho_written_out(a, s, kappa)
            got = accounted(a, np.ones_like(a), s, relation)
            assert expected <= got <= expected * (1 + 1e-12)


def test_linear_maps_never_exceed_rho_and_attain_it_without_contraction():
    rng = np.random.default_rng(1)
    for a, s in schedules():
        rho = rho_written_out(a, s, 2)
        for k in range(len(a)):
            for _ in range(20):
                factors = rng.uniform(-1, 1, len(a))  # 1 − η̄x² under the cap
                factors[k] = 1.0  # a clipped record: constant gradient
                assert exact_mu(a, s, factors, k) <= rho * (1 + 1e-12)
            # Earlier noise wiped out by one full contraction, no contraction afterwards.
            factors = np.ones(len(a))
            if k:
                factors[k - 1] = 0.0
            if k == 0 or s[k - 1] == 0:
                tight = 2 * a[k] / math.sqrt(math.fsum(v * v for v in s[k:]))
                assert exact_mu(a, s, factors, k) == pytest.approx(tight, rel=1e-12)


def test_least_noise_is_attained_at_every_block_start():
    a = np.repeat([0.6, 0.3, 0.2], 4)
    s = np.sqrt((2 * a) ** 2 - np.append(2 * a[1:], 0) ** 2)
    assert rho_written_out(a, s, 2) == pytest.approx(1.0, rel=1e-12)
    assert exact_mu(a, s, np.ones(12), 0) == pytest.approx(1.0, rel=1e-12)
    wiped = np.ones(12)
    wiped[4] = 0.0  # a row inside block 2 forgets block 1, and the noise there is 0: the next record is exposed in full
    assert exact_mu(a, s, wiped, 5) == pytest.approx(1.0, rel=1e-12)


def test_an_expanding_map_breaks_the_bound():
    """Negative control: 1 − ηx² = −2, as a missing cap allows, after the differing record."""
    a = np.full(12, 0.3)
    s = np.append(np.zeros(11), 0.6)
    factors = np.ones(12)
    factors[5] = -2.0
    assert exact_mu(a, s, factors, 0) > 1.9 * rho_written_out(a, s, 2)


GRID = np.linspace(-7, 7, 701)


def clipped_map(theta, x, y, eta, clip):
    """One record of squared loss in one dimension, under the cap; rows with x = 0 are the identity."""
    step = min(eta, 2 / (x * x)) if x != 0 else eta
    return theta - step * np.clip((x * theta - y) * x, -clip, clip)


def output_density(records, eta, clip, s):
    """The density of θ_n on the grid: maps composed, each noise a Gaussian kernel on the grid."""
    atoms, weights = np.zeros(1), np.ones(1)
    width = GRID[1] - GRID[0]
    for (x, y), e, c, std in zip(records, eta, clip, s, strict=True):
        atoms = clipped_map(atoms, x, y, e, c)
        if std > 0:
            weights = (norm.pdf(GRID[:, None], atoms[None, :], std) * width) @ weights
            atoms = GRID
    assert abs(weights.sum() - 1) < 1e-6
    return weights / width


def excess_over_gdp(first, second, rho):
    """max over ε of δ(ε) of the two laws minus δ(ε) of ρ-GDP, both directions."""
    width, worst = GRID[1] - GRID[0], -1.0
    for epsilon in np.linspace(0, 3, 13):
        allowed = norm.cdf(-epsilon / rho + rho / 2) - math.exp(epsilon) * norm.cdf(-epsilon / rho - rho / 2)
        for p, q in ((first, second), (second, first)):
            worst = max(worst, width * np.maximum(p - math.exp(epsilon) * q, 0).sum() - allowed)
    return worst


@pytest.mark.slow(but=["2"])
@pytest.mark.parametrize("seed", range(4))
def test_clipped_nonlinear_passes_stay_below_the_gdp_curve(seed):
    rng = np.random.default_rng(seed)
    n = 6
    eta, clip = rng.uniform(0.2, 0.8, n), rng.uniform(0.3, 1.0, n)
    s = np.where(rng.uniform(size=n) < 0.5, rng.uniform(0.2, 0.6, n), 0.0)
    s[-1] = 0.4
    rho = rho_written_out(eta * clip, s, 2)
    records = np.column_stack([rng.standard_normal(n) * 10.0 ** rng.uniform(-0.5, 1, n), rng.standard_normal(n)])
    largest = 0.0
    for k in range(n):
        pair = []
        for sign in (1, -1):
            changed = records.copy()
            changed[k] = 0.5, 50.0 * sign  # pulled a full clipped step up, or down
            pair.append(output_density(changed, eta, clip, s))
        assert excess_over_gdp(*pair, rho) < 2e-4
        largest = max(largest, 0.5 * np.abs(pair[0] - pair[1]).sum() * (GRID[1] - GRID[0]))
    assert largest > 0.05


def test_half_the_noise_crosses_the_gdp_curve():
    """Negative control of the comparison on the grid: a falling schedule, a kink after the differing record."""
    eta, clip, s = np.array([0.5, 0.5, 0.4]), np.full(3, 1.0), np.array([0.0, 0.6, 0.8])
    rho = rho_written_out(eta * clip, s, 2)
    records = [[(0.5, 50.0 * sign), (0.3, 0.1), (0.0, 0.0)] for sign in (1, -1)]
    assert excess_over_gdp(*(output_density(r, eta, clip, s) for r in records), rho) < 2e-4
    assert excess_over_gdp(*(output_density(r, eta, clip, s / 2) for r in records), rho) > 0.05
