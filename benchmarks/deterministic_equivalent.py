"""Speed of the deterministic equivalent, as ratios measured side by side in one run.

    OMP_NUM_THREADS=1 python benchmarks/deterministic_equivalent.py

1. One isotropic trajectory after compilation (goal: under 2 ms).
2. A 40 × 40 grid of (c, η₀) on 1,000 eigenvalues against scipy's solve_ivp in a loop, both at relative accuracy
   1e−4 against the same reference (goal: 50 times faster). The loop is timed on a random subset and scaled up.
3. All schedule families of one problem (goal: a few seconds).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import erf, erfc

from gratis.planning.one_pass.prediction import OnePassProblem, predict_final_risks, predict_one_pass
from gratis.planning.one_pass.schedule_optimisation import optimise_all
from gratis.planning.one_pass.schedules import Harmonic, Polynomial
from gratis.planning.one_pass.spectra import ExplicitSpectrum, PowerLawSpectrum

REPEATS = 5
SUBSET = 24


def timed(function: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def scipy_final_risk(problem: OnePassProblem, schedule: Polynomial, eigenvalues: np.ndarray, rtol: float) -> float:
    """S2's (4.7) written down directly for α = ½, where −d(a²)/dt is the constant a(0)²."""
    label = problem.label_noise_variance / 2
    product = schedule.initial_rate * schedule.clip_level
    private = problem.noise_scale * product**2

    def slope(t: float, state: np.ndarray) -> np.ndarray:
        risk = float(eigenvalues @ state) / eigenvalues.size
        rate = min(schedule.initial_rate * math.sqrt(max(1.0 - t, 0.0)), problem.rate_cap)
        u = schedule.clip_level / math.sqrt(2 * (risk + label))
        mu = erf(u / math.sqrt(2))
        nu = mu - math.sqrt(2 / math.pi) * u * math.exp(-u * u / 2) + u * u * erfc(u / math.sqrt(2))
        drift = problem.gamma * rate**2 * nu * (risk + label)
        return eigenvalues * (drift - 2 * rate * mu * state) + private

    start = np.full(eigenvalues.size, problem.initial_risk)
    end = solve_ivp(slope, (0.0, 1.0), start, method="RK45", rtol=rtol, atol=rtol * 1e-2).y[:, -1]
    return float(eigenvalues @ end) / eigenvalues.size


def single_trajectory() -> None:
    problem = OnePassProblem(gamma=0.02, rho=0.5, label_noise_variance=0.25)
    for schedule in (Polynomial(0.5, 16.5, 0.21), Harmonic(6.87, 0.2, 0.21)):
        predict_one_pass(problem, schedule)
        seconds = [timed(lambda s=schedule: predict_one_pass(problem, s))[0] for _ in range(50)]
        print(f"one isotropic trajectory ({schedule.label}, 1e-6): median {1e3 * np.median(seconds):.3f} ms")


def grid_against_scipy(gamma: float) -> None:
    eigenvalues = PowerLawSpectrum(0.3).eigenvalues(1000)
    spectrum = ExplicitSpectrum(tuple(eigenvalues.tolist()))
    problem = OnePassProblem(gamma=gamma, rho=1.0, label_noise_variance=0.25, spectrum=spectrum)
    rates, clips = np.geomspace(0.1, problem.rate_cap, 40), np.geomspace(0.02, 2.0, 40)
    schedules = [Polynomial(0.5, float(rate), float(clip)) for rate in rates for clip in clips]
    subset = np.random.default_rng(0).choice(len(schedules), SUBSET, replace=False)
    chosen = [schedules[i] for i in subset]
    reference = predict_final_risks([problem], chosen, tolerance=1e-9, atoms=1000)[0]

    predict_final_risks([problem], schedules[:2], tolerance=1e-4)
    ratios = []
    for repeat in range(REPEATS):
        # Both sides are tried from coarse to fine and the first that keeps 1e-4 everywhere on the subset counts.
        for rtol in (1e-3, 3e-4, 1e-4, 3e-5, 1e-5):
            loop, values = timed(lambda r=rtol: [scipy_final_risk(problem, s, eigenvalues, r) for s in chosen])
            scipy_error = float(np.max(np.abs(np.array(values) / reference - 1)))
            if scipy_error <= 1e-4:
                break
        batch, all_risks = timed(lambda: predict_final_risks([problem], schedules, tolerance=1e-4))
        our_error = float(np.max(np.abs(all_risks[0, subset] / reference - 1)))
        whole_loop = loop * len(schedules) / SUBSET
        ratios.append(whole_loop / batch)
        print(
            f"gamma {gamma:g}, repeat {repeat}: solve_ivp loop {whole_loop:.1f} s (from {SUBSET}, rtol {rtol:g}, "
            f"error {scipy_error:.1e}); batch {batch:.3f} s (error {our_error:.1e}); ratio {ratios[-1]:.0f}"
        )
    full, _ = timed(lambda: predict_final_risks([problem], schedules, tolerance=1e-4, atoms=1000))
    print(f"gamma {gamma:g}: median ratio {np.median(ratios):.0f}; unquantised {whole_loop / full:.0f}")


def all_families() -> None:
    for spectrum in (None, PowerLawSpectrum(0.3)):
        extra = {} if spectrum is None else {"spectrum": spectrum}
        problem = OnePassProblem(gamma=0.02, rho=0.5, label_noise_variance=0.25, **extra)
        optimise_all(problem)
        seconds = [timed(lambda p=problem: optimise_all(p))[0] for _ in range(REPEATS)]
        print(f"all families, {problem.spectrum.label}: median {np.median(seconds):.2f} s")


if __name__ == "__main__":
    single_trajectory()
    for gamma in (0.1, 0.02):
        grid_against_scipy(gamma)
    all_families()
