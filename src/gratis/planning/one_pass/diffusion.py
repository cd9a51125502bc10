"""The SDE of one-pass private descent, simulated in the eigenbasis for many runs at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.clipping_factors import clipping_factors
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.schedules import Schedule
from gratis.planning.one_pass.time_grid import graded_edges
from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = ["simulate_diffusion"]

Array = NDArray[np.float64]


def simulate_diffusion(
    problem: OnePassProblem,
    schedule: Schedule,
    *,
    dimension: int,
    runs: int,
    rng: np.random.Generator,
    steps: int = 200,
) -> tuple[Array, Array]:
    """Simulate Θ_t and return (times, excess risks of shape (runs, times)); the last column holds the last noise.

        dΘ = −η̄ μ_c ∇R dt + η̄ √(2ν_c P Σ/n) dB¹ + (κ√d/n)·√(−d(η̃²c²)/dt)/ρ dB²

    Every step decays each coordinate exactly and adds the noise that a linear SDE with frozen factors would.

    Parameters
    ----------
    problem:
        γ, ρ, variances, spectrum and relation.
    schedule:
        Rate and clip over the pass.
    dimension:
        d; n = d/γ.
    runs:
        Independent runs, simulated together.
    rng:
        Public randomness; this simulates nobody's data.
    steps:
        Time steps of the simulation (more where the schedule has breakpoints).

    References: S2, Remark 4.3; docs/theory/one-pass.md, statement 8.

    >>> from gratis.planning.one_pass.schedules import Polynomial
    >>> problem = OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25)
    >>> rng = np.random.default_rng(0)
    >>> times, risks = simulate_diffusion(problem, Polynomial(0.0, 3.0, 0.3), dimension=100, runs=3, rng=rng)
    >>> risks.shape, bool(np.allclose(risks[:, 0], 0.5))
    ((3, 201), True)
    """
    dimension, runs = check_count("dimension", dimension), check_count("runs", runs)
    if not schedule.is_non_increasing:
        raise GratisError("a(t) must not increase; lower the schedule's later values")
    times = graded_edges(check_count("steps", steps), problem.gamma, schedule.breakpoints)
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
