"""The floor below all algorithms: its limits, and ridge regression that stands on it."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.planning.assumptions import aligned
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.schedule_optimisation import Family, optimise_schedule
from gratis.planning.one_pass.spectra import PowerLawSpectrum
from gratis.planning.one_pass_limits import bayes_excess_risk


@pytest.mark.parametrize(("alignment", "gamma"), [(0.0, 0.2), (1.0, 0.2), (0.0, 2.0)])
def test_the_posterior_mean_reaches_it(alignment: float, gamma: float) -> None:
    d, noise, runs = 120, 0.3, 40
    spectrum = aligned(PowerLawSpectrum(0.5), alignment)
    problem = OnePassProblem(gamma=gamma, rho=1.0, label_noise_variance=noise, spectrum=spectrum)
    values, energies = spectrum.eigenvalues(d), spectrum.signal_energies(d)
    rng, n, risks = np.random.default_rng(0), round(d / gamma), []
    for _ in range(runs):
        truth = rng.standard_normal(d) * np.sqrt(energies)
        X = rng.standard_normal((n, d)) * np.sqrt(values)
        y = X @ truth + np.sqrt(noise) * rng.standard_normal(n)
        mean = np.linalg.solve(X.T @ X / noise + np.diag(1 / energies), X.T @ y / noise)
        risks.append(0.5 * values @ np.square(mean - truth))
    # Finite d moves it by a few per cent at most; 6 standard errors are left to chance.
    error = 6 * np.std(risks) / np.sqrt(runs)
    assert bayes_excess_risk(problem) == pytest.approx(np.mean(risks), abs=0.05 * np.mean(risks) + error)


def test_limits() -> None:
    plain = {"gamma": 0.1, "rho": 1.0}
    assert bayes_excess_risk(OnePassProblem(label_noise_variance=0.0, **plain)) < 1e-8
    assert bayes_excess_risk(OnePassProblem(label_noise_variance=1.0, signal_variance=0.0, **plain)) == 0
    hopeless = OnePassProblem(label_noise_variance=1e6, **plain)
    assert bayes_excess_risk(hopeless) == pytest.approx(hopeless.initial_risk, rel=1e-4)


@pytest.mark.parametrize("signal", [1e-12, 1e-15, 1e-30, 1e-300, 1e-310])
def test_signals_that_nobody_can_see(signal: float) -> None:
    """1/(λv) − 1 cancels there; and where rows are plenty for a column, even a weak signal is learnt."""
    weak = OnePassProblem(gamma=1e-3, rho=1.0, label_noise_variance=1.0, signal_variance=signal)
    assert bayes_excess_risk(weak) == pytest.approx(weak.initial_risk, rel=1e-6)
    if signal < 1e-16:
        return
    # Σ = I and γ → 0: a signal of variance S a column under noise ζ²γ leaves S/(1 + S/(γζ²)) of it.
    rich = OnePassProblem(gamma=signal, rho=1.0, label_noise_variance=1.0, signal_variance=signal)
    assert bayes_excess_risk(rich) == pytest.approx(rich.initial_risk / 2, rel=1e-6)


@pytest.mark.parametrize("gamma", [1e-300, 1e-12, 1e6])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_any_number_of_rows_a_column(gamma: float, noise: float) -> None:
    problem = OnePassProblem(gamma=gamma, rho=1.0, label_noise_variance=noise)
    assert 0 <= bayes_excess_risk(problem) <= problem.initial_risk


@pytest.mark.parametrize("rho", [0.3, 1e6])
def test_no_schedule_is_below_it(rho: float) -> None:
    problem = OnePassProblem(gamma=0.05, rho=rho, label_noise_variance=0.25, spectrum=PowerLawSpectrum(0.3))
    assert optimise_schedule(problem, Family.parse("harmonic")).excess_risk > bayes_excess_risk(problem)
