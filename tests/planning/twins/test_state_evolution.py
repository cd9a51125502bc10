"""The recursion against simulated twins, and its limits."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.planning.twins import twin_risks
from gratis.planning.twins.problems import Member
from gratis.planning.twins.twin_risks import evolved_risks
from gratis.records.neighbouring import Neighbouring

STEPS, TAIL = 32, 0.4
RELATION = Neighbouring.ZERO_OUT


def both(spectrum: np.ndarray, n: int, mu: float, grid: np.ndarray, members: tuple[Member, ...], draws: int):
    weights = np.ones(spectrum.size)
    std = RELATION.sensitivity_factor * np.sqrt(STEPS) / (n * mu)
    evolved, _ = evolved_risks(spectrum, weights, n, std, STEPS, grid, members, tail=TAIL)
    size = twin_risks.TwinSize(spectrum, n, mu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(twin_risks, "_RECORDS_A_DIRECTION", np.inf)
        rng = np.random.default_rng(0)
        runs = [twin_risks._regression_risks(size, weights, RELATION, STEPS, grid, members, rng) for _ in range(draws)]
    return evolved, np.array([risk for risk, _ in runs])


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_the_recursion_is_the_mean_of_simulations(decay: float) -> None:
    spectrum = 0.9 * np.arange(1.0, 31.0) ** -decay
    grid = np.array([(c, t) for c in (0.3, 1.2) for t in (1.0, 4.0, 16.0)])
    members = (Member(0.1, 0.9), Member(0.6, 0.4), Member(0.9, 0.1))
    evolved, runs = both(spectrum, 1500, 0.1, grid, members, 6)
    # A run deviates by the draw of 30 coefficients and of skewed labels; the mean of six by less, and by no more than
    # a quarter: what the choice among settings, whose risks differ by factors, can bear.
    mean, error = runs.mean(axis=0), runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    assert (np.abs(evolved - mean) < 4 * error + 0.25 * mean).all()
    # Few directions of a decaying spectrum: the share of the first is that of the mean draw, not the mean share.
    assert np.abs(np.log(evolved / mean)).mean() < 0.25


def test_without_noise_and_clipping_it_is_gradient_descent() -> None:
    """S and all errors in closed form: δ_t = (1 − ηs)^t θ*, with the sampling error of least squares at the end."""
    spectrum, n = np.full(4, 0.8), 10**9
    grid = np.array([(1e6, 1e6 * 2.0)])  # C so large that nothing is clipped; η = τ/(cT)
    risk, null = evolved_risks(spectrum, np.ones(4), n, 0.0, STEPS, grid, (Member(1.0, 0.1),), tail=0.0)
    gain = (1 - 2.0 / STEPS * 0.8) ** np.arange(STEPS // 2 + 1, STEPS + 1)
    assert null == pytest.approx([1.0])
    assert risk[0, 0] == pytest.approx(gain.mean() ** 2, rel=1e-3)


def test_more_noise_is_worse_and_more_records_are_better() -> None:
    grid = np.array([(1.2, 8.0)])
    member = (Member(0.6, 0.4),)
    risks = [
        evolved_risks(np.full(20, 0.9), np.ones(20), n, std, STEPS, grid, member, tail=TAIL)[0][0, 0]
        for n, std in ((5000, 0.0), (5000, 0.01), (5000, 0.03), (50_000, 0.0))
    ]
    assert risks[3] < risks[0] < risks[1] < risks[2]
