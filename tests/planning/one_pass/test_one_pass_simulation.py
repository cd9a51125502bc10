"""The prediction against the algorithm itself (clipped, capped, noised), the SDE, and the bounding ODEs."""

import numba
import numpy as np
import pytest

from gratis.planning.one_pass.clipping_factors import clipping_factors
from gratis.planning.one_pass.prediction import OnePassProblem, predict_one_pass
from gratis.planning.one_pass.schedules import FreeFormWithClip, Harmonic, Polynomial, StepwiseSchedule
from gratis.planning.one_pass.spectra import ExplicitSpectrum, IsotropicSpectrum, PowerLawSpectrum
from gratis.planning.one_pass.time_grid import graded_edges
from gratis.planning.one_pass_limits import predict_lower_bound, predict_upper_bound

SCHEDULES = [
    Polynomial(0.5, 8.0, 0.4),
    Harmonic(3.0, 0.4, 0.3),
    FreeFormWithClip((0.0, 0.5, 1.0), (2.0, 1.5, 0.6), (5.0, 6.0, 1.5)),
]


@numba.njit
def descend(x, y, steps, clips, noise_stds, normals):
    theta = np.zeros(x.shape[1])
    for k in range(x.shape[0]):
        row = x[k]
        residual = row @ theta - y[k]
        norm = np.sqrt(row @ row)
        factor = residual * min(1.0, clips[k] / (abs(residual) * norm)) * min(steps[k], 2.0 / norm**2)
        theta -= factor * row
        if noise_stds[k] > 0:
            theta += noise_stds[k] * normals[k]
    return theta


def simulated_risks(problem, schedule, dimension, runs, rng):
    n = round(dimension / problem.gamma)
    blocks = schedule.sequences(n, dimension=dimension)
    steps, clips, products = (
        np.repeat(v, blocks.lengths) for v in (blocks.step_sizes, blocks.clip_norms, blocks.products)
    )
    drops = np.maximum(products**2 - np.append(products[1:], 0.0) ** 2, 0.0)
    stds = problem.neighbouring.sensitivity_factor / problem.rho * np.sqrt(drops)
    eigenvalues = problem.spectrum.eigenvalues(dimension)
    target = np.sqrt(problem.signal_variance * problem.spectrum.signal_energies(dimension))
    risks = []
    for _ in range(runs):
        x = rng.standard_normal((n, dimension)) * np.sqrt(eigenvalues)
        y = x @ target + np.sqrt(problem.label_noise_variance) * rng.standard_normal(n)
        theta = descend(x, y, steps, clips, stds, rng.standard_normal((n, dimension)))
        risks.append(0.5 * eigenvalues @ (theta - target) ** 2)
    return np.array(risks), StepwiseSchedule.from_blocks(blocks)


@pytest.mark.slow(but=["harmonic-isotropic"])
@pytest.mark.parametrize("spectrum", [IsotropicSpectrum(), PowerLawSpectrum(0.3)], ids=lambda s: s.label)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.label)
def test_algorithm_follows_the_prediction(schedule, spectrum):
    problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25, spectrum=spectrum)
    risks, blocks = simulated_risks(problem, schedule, 200, 12, np.random.default_rng(3))
    predicted = predict_one_pass(problem, blocks).final_excess_risk
    error = risks.std(ddof=1) / np.sqrt(risks.size)
    assert abs(risks.mean() - predicted) < max(3 * error, 0.03 * predicted)
    # The same runs can tell a wrong equation: half the private noise is far outside.
    wrong = predict_one_pass(
        OnePassProblem(gamma=0.1, rho=2.0, label_noise_variance=0.25, spectrum=spectrum), blocks
    ).final_excess_risk
    assert abs(risks.mean() - wrong) > 5 * error


def simulate_diffusion(problem, schedule, *, dimension, runs, rng, steps):
    """The SDE of one-pass private descent (one-pass paper, Theorem 1) in the eigenbasis: (times, excess risks).

        dΘ = −η̄ μ_c ∇R dt + η̄ √(2ν_c P Σ/n) dB¹ + (κ√d/n)·√(−d(η̃²c²)/dt)/ρ dB²

    Every step decays each coordinate exactly and adds the noise that a linear SDE with frozen factors would.
    """
    times = graded_edges(steps, problem.gamma, schedule.breakpoints)
    eigenvalues = problem.spectrum.eigenvalues(dimension)
    energies = problem.signal_variance * problem.spectrum.signal_energies(dimension)
    n_records = dimension / problem.gamma
    state = np.tile(np.sqrt(energies), (runs, 1))
    middles = 0.5 * (times[1:] + times[:-1])
    rates = np.minimum(schedule.rate(middles), problem.rate_cap)
    clips = schedule.clip(middles)
    squares = schedule.product(times) ** 2
    # Private noise variance for each coordinate and unit drop of a²: κ²d/(n²ρ²).
    private = (problem.neighbouring.sensitivity_factor / (n_records * problem.rho)) ** 2 * dimension
    risks = np.empty((runs, times.size))
    risks[:, 0] = 0.5 * (state**2 @ eigenvalues)
    for k, length in enumerate(np.diff(times)):
        full_risk = risks[:, k] + 0.5 * problem.label_noise_variance
        mu, nu = clipping_factors(full_risk, clips[k])
        pull = np.outer(rates[k] * mu, eigenvalues) * length
        gradient_noise = np.outer(rates[k] ** 2 * 2.0 * nu * full_risk / n_records, eigenvalues) * length
        variance = gradient_noise + private * (squares[k] - squares[k + 1])
        spread = np.where(pull > 1e-12, -np.expm1(-2.0 * pull) / np.maximum(2.0 * pull, 1e-300), 1.0)
        state = np.exp(-pull) * state + np.sqrt(variance * spread) * rng.standard_normal(state.shape)
        risks[:, k + 1] = 0.5 * (state**2 @ eigenvalues)
    state = state + np.sqrt(private * squares[-1]) * rng.standard_normal(state.shape)
    risks[:, -1] = 0.5 * (state**2 @ eigenvalues)
    return times, risks


@pytest.mark.parametrize("spectrum", [IsotropicSpectrum(), PowerLawSpectrum(0.3)], ids=lambda s: s.label)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.label)
def test_diffusion_follows_the_prediction(schedule, spectrum):
    problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25, spectrum=spectrum)
    predicted = predict_one_pass(problem, schedule)
    times, risks = simulate_diffusion(
        problem, schedule, dimension=300, runs=60, rng=np.random.default_rng(4), steps=120
    )
    error = risks[:, -1].std(ddof=1) / np.sqrt(60)
    assert abs(risks[:, -1].mean() - predicted.final_excess_risk) < max(3 * error, 0.03 * predicted.final_excess_risk)
    middle = times.size // 2
    expected = np.interp(times[middle], predicted.times, predicted.excess_risk)
    assert risks[:, middle].mean() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.label)
def test_bounds_bracket_the_prediction(schedule):
    values = tuple(np.random.default_rng(0).uniform(0.5, 2.0, 100).tolist())
    for spectrum in (ExplicitSpectrum(values), PowerLawSpectrum(0.3)):
        problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25, spectrum=spectrum)
        low, middle, high = (
            solve(problem, schedule) for solve in (predict_lower_bound, predict_one_pass, predict_upper_bound)
        )
        np.testing.assert_array_equal(low.times, high.times)
        assert np.all(low.excess_risk <= middle.excess_risk * (1 + 1e-4))
        assert np.all(middle.excess_risk <= high.excess_risk * (1 + 1e-4))
        assert low.final_excess_risk < middle.final_excess_risk < high.final_excess_risk


def test_bounds_meet_when_isotropic():
    problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25)
    values = [
        solve(problem, SCHEDULES[0]).final_excess_risk
        for solve in (predict_lower_bound, predict_one_pass, predict_upper_bound)
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-12)
