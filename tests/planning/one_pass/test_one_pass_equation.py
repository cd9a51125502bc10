"""The deterministic equivalent against scipy's solve_ivp on S2's (4.7) written down once more."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import erf, erfc

from gratis.planning.one_pass.prediction import OnePassProblem, predict_final_risks, predict_one_pass
from gratis.planning.one_pass.schedules import (
    FreeForm,
    FreeFormWithClip,
    Harmonic,
    Polynomial,
    Schedule,
    StepwiseSchedule,
)
from gratis.planning.one_pass.spectra import ExplicitSpectrum, PowerLawSpectrum
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

EIGENVALUES = tuple(np.random.default_rng(0).chisquare(3, 60).tolist())
ENERGIES = tuple(np.random.default_rng(1).chisquare(1, 60).tolist())


def square_slope(schedule: Schedule, t: float) -> float:
    """d(a²)/dt by a complex-free central difference inside (0, 1)."""
    step = 1e-6 * min(t, 1 - t)
    high, low = schedule.product(t + step), schedule.product(t - step)
    return float((high**2 - low**2) / (2 * step)) if step > 0 else 0.0


def reference(problem: OnePassProblem, schedule: Schedule, breaks: tuple[float, ...] = ()) -> float:
    dimension = 60 if isinstance(problem.spectrum, ExplicitSpectrum) else 1
    lam = problem.spectrum.eigenvalues(dimension)
    state = 0.5 * problem.signal_variance * dimension * problem.spectrum.signal_energies(dimension)
    kappa = 2 if problem.neighbouring is Neighbouring.REPLACE_ONE else 1
    scale = kappa**2 / 2 * problem.gamma**2 / problem.rho**2

    def slope(t, d):
        p = max(float(np.mean(lam * d)), 0.0) + problem.label_noise_variance / 2
        rate = min(float(schedule.rate(t)), 2 / problem.gamma)
        u = float(schedule.clip(t)) / math.sqrt(2 * p)
        mu = erf(u / math.sqrt(2))
        nu = mu - math.sqrt(2 / math.pi) * u * math.exp(-u * u / 2) + u * u * erfc(u / math.sqrt(2))
        return -2 * lam * rate * mu * d + problem.gamma * lam * rate**2 * nu * p - scale * square_slope(schedule, t)

    ends = sorted({1e-9, 1 - 1e-9, *breaks, *(1 - 10.0 ** -np.arange(1, 9))})
    for low, high in pairwise(ends):
        solution = solve_ivp(slope, (low + 1e-12, high - 1e-12), state, method="LSODA", rtol=1e-9, atol=1e-12)
        state = solution.y[:, -1]
    return float(np.mean(lam * state)) + scale * float(schedule.product(1.0)) ** 2


CASES = [
    ({"gamma": 0.1, "rho": 0.5, "label_noise_variance": 0.25}, Polynomial(0.0, 3.0, 0.3), ()),
    ({"gamma": 0.02, "rho": 0.5, "label_noise_variance": 0.25}, Polynomial(0.5, 10.0, 0.3), ()),
    ({"gamma": 0.02, "rho": 1.0, "label_noise_variance": 1e-4}, Harmonic(2.0, 0.05, 0.1), ()),
    # Stiff: rates near the cap, and above it.
    ({"gamma": 0.005, "rho": 5.0, "label_noise_variance": 0.1}, Polynomial(2.0, 380.0, 0.5), ()),
    ({"gamma": 0.1, "rho": 5.0, "label_noise_variance": 0.1}, Polynomial(1.0, 40.0, 0.5), (0.5,)),
    (
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": 0.0, "signal_variance": 3.0, "neighbouring": "zero-out"},
        FreeForm((0.0, 0.1, 0.5, 1.0), (3.0, 2.0, 2.0, 0.1), 0.4),
        (0.1, 0.5),
    ),
    (
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": 0.5},
        FreeFormWithClip((0.0, 0.3, 1.0), (3.0, 2.0, 0.5), (5.0, 8.0, 1.0)),
        (0.3,),
    ),
    (
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": 0.3, "spectrum": ExplicitSpectrum(EIGENVALUES, ENERGIES)},
        Polynomial(1.0, 9.0, 0.6),
        (),
    ),
]


@pytest.mark.parametrize(("facts", "schedule", "breaks"), CASES)
def test_against_solve_ivp(facts, schedule, breaks):
    problem = OnePassProblem(**facts)
    expected = reference(problem, schedule, breaks)
    found = predict_one_pass(problem, schedule)
    assert found.final_excess_risk == pytest.approx(expected, rel=5e-6)
    assert found.relative_error < 1e-6
    assert found.excess_risk[0] == pytest.approx(problem.initial_risk)
    assert predict_final_risks([problem], [schedule], tolerance=1e-4)[0, 0] == pytest.approx(expected, rel=1e-4)


def test_quantised_spectrum_equals_all_eigenvalues():
    eigenvalues = PowerLawSpectrum(0.3).eigenvalues(400)
    problem = OnePassProblem(
        gamma=0.02, rho=1.0, label_noise_variance=0.25, spectrum=ExplicitSpectrum(tuple(eigenvalues))
    )
    schedules = [Polynomial(a, r, 0.4) for a in (0.0, 1.0) for r in (2.0, 90.0)]
    full = predict_final_risks([problem], schedules, atoms=400)
    np.testing.assert_allclose(predict_final_risks([problem], schedules, tolerance=1e-4), full, rtol=2e-4)
    np.testing.assert_allclose(predict_final_risks([problem], schedules, tolerance=1e-6), full, rtol=2e-5)


def test_batch_over_problems_and_schedules_equals_single_calls():
    problems = [
        OnePassProblem(gamma=0.1, rho=0.5, label_noise_variance=0.25),
        OnePassProblem(gamma=0.1, rho=2.0, label_noise_variance=0.5, signal_variance=0.5, neighbouring="zero-out"),
        OnePassProblem(gamma=0.1, rho=2.0, label_noise_variance=0.5, spectrum=PowerLawSpectrum(0.5, 0.3)),
    ]
    schedules = [
        Polynomial(0.5, 5.0, 0.3),
        FreeForm((0.0, 0.2, 1.0), (2.0, 1.0, 0.2), 0.5),
        Harmonic(2.0, 0.3, 0.5),
        Polynomial(0.0, 0.0, 1.0),
        Polynomial(2.0, 15.0, 0.3),
    ]
    batch = predict_final_risks(problems, schedules, tolerance=1e-6)
    for i, problem in enumerate(problems):
        for j, schedule in enumerate(schedules):
            assert batch[i, j] == pytest.approx(predict_one_pass(problem, schedule).final_excess_risk, rel=2e-6)
    np.testing.assert_allclose(batch[:, 3], [p.initial_risk for p in problems])
    assert predict_final_risks([], schedules).shape == (0, 5)


def test_a_large_batch_split_over_threads_is_the_same():
    problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25, spectrum=PowerLawSpectrum(0.3))
    schedules = [
        Polynomial(0.5, float(r), float(c)) for r in np.geomspace(0.1, 20, 30) for c in np.geomspace(0.02, 2, 30)
    ]
    batch = predict_final_risks([problem], schedules, tolerance=1e-4)
    few = [0, 450, 899]
    np.testing.assert_array_equal(
        batch[:, few], predict_final_risks([problem], [schedules[i] for i in few], tolerance=1e-4)
    )


def test_a_jump_of_the_product_is_one_lump_of_noise():
    """With a vanishing descent afterwards, the whole noise κ²γ²a(0)²/2ρ² must arrive, wherever the jump is."""
    problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25)
    for jump in (0.1, 0.337, 0.9):
        schedule = StepwiseSchedule((0.0, jump, 1.0), (1e-6, 1e-12), (1e6, 1e6))
        risk = predict_one_pass(problem, schedule).final_excess_risk
        assert risk == pytest.approx(0.5 + problem.noise_scale, rel=1e-5)


def test_stepwise_schedule_converges_to_its_curve():
    problem = OnePassProblem(gamma=0.05, rho=0.7, label_noise_variance=0.25)
    for schedule in (Polynomial(1.0, 15.0, 0.3), Harmonic(3.0, 0.1, 0.3)):
        blocks = StepwiseSchedule.from_blocks(schedule.sequences(20_000, dimension=1000))
        expected = predict_one_pass(problem, schedule).final_excess_risk
        assert predict_one_pass(problem, blocks).final_excess_risk == pytest.approx(expected, rel=6e-3)


def test_stepwise_noise_arrives_at_block_ends():
    """Two blocks, no clipping, no label noise: each block is a linear equation solved by hand."""
    problem = OnePassProblem(gamma=0.1, rho=100.0, label_noise_variance=0.0)
    schedule = StepwiseSchedule((0.0, 0.4, 1.0), (2.0, 1.0), (50.0, 20.0))
    found = predict_one_pass(problem, schedule)
    squares, risk = np.array([100.0**2, 20.0**2, 0.0]), 0.5
    for rate, length, lump in zip((2.0, 1.0), (0.4, 0.6), -np.diff(squares), strict=True):
        risk = risk * np.exp((-2 * rate + 0.1 * rate**2) * length) + problem.noise_scale * lump
    assert found.final_excess_risk == pytest.approx(risk, rel=1e-5)


def test_kappa_and_rho_enter_only_through_their_ratio():
    facts = {"gamma": 0.1, "label_noise_variance": 0.25}
    schedule = Polynomial(0.5, 5.0, 0.3)
    replace = predict_one_pass(OnePassProblem(rho=1.0, **facts), schedule).final_excess_risk
    zero_out = predict_one_pass(OnePassProblem(rho=0.5, neighbouring="zero-out", **facts), schedule).final_excess_risk
    assert replace == pytest.approx(zero_out, rel=1e-12)
    assert replace > predict_one_pass(OnePassProblem(rho=math.inf, **facts), schedule).final_excess_risk


def test_scale_of_the_labels_is_free():
    """Multiplying y by s scales risks by s² when the clip is scaled by s."""
    small = predict_one_pass(OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.25), Polynomial(1.0, 5.0, 0.3))
    large = predict_one_pass(
        OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=25.0, signal_variance=100.0), Polynomial(1.0, 5.0, 3.0)
    )
    np.testing.assert_allclose(large.excess_risk, 100 * small.excess_risk, rtol=1e-9)


def test_rates_above_the_cap_only_add_noise():
    problem = OnePassProblem(gamma=0.5, rho=1.0, label_noise_variance=0.25)
    at_cap, above = (predict_one_pass(problem, Polynomial(0.0, r, 0.1)).final_excess_risk for r in (4.0, 8.0))
    assert above - at_cap == pytest.approx(problem.noise_scale * 0.01 * (64 - 16), rel=1e-6)


@pytest.mark.parametrize(
    "facts",
    [
        {"gamma": 0.0, "rho": 1.0, "label_noise_variance": 0.1},
        {"gamma": 0.1, "rho": 0.0, "label_noise_variance": 0.1},
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": -0.1},
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": 0.1, "signal_variance": -1.0},
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": float("nan")},
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": 0.1, "spectrum": "isotropic"},
        {"gamma": 0.1, "rho": 1.0, "label_noise_variance": 0.1, "neighbouring": "other"},
    ],
)
def test_bad_problems(facts):
    with pytest.raises(GratisError):
        OnePassProblem(**facts)


def test_an_increasing_schedule_is_refused():
    class Rising(Polynomial):
        def rate(self, time):
            return 1.0 + np.asarray(time)

    problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=0.1)
    with pytest.raises(GratisError, match="must not increase"):
        predict_one_pass(problem, Rising(0.0, 1.0, 1.0))
    with pytest.raises(GratisError, match="tolerance"):
        predict_one_pass(problem, Polynomial(0.0, 1.0, 1.0), tolerance=0.0)
