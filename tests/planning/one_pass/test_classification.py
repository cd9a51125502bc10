"""One-pass logistic regression: its moments, its equation against the linear one and against runs, its schedules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from gratis.planning.assumptions import LinearFacts
from gratis.planning.one_pass.classification import (
    ClassificationProblem,
    optimise_classification,
    predict_classification,
    run_glm,
)
from gratis.planning.one_pass.clipping_factors import clipping_factors
from gratis.planning.one_pass.deterministic_equivalent import atom_tables
from gratis.planning.one_pass.logistic_moments import logistic_moments, logistic_risk
from gratis.planning.one_pass.prediction import OnePassProblem, predict_one_pass
from gratis.planning.one_pass.schedules import Harmonic, Polynomial, Schedule, StepwiseSchedule
from gratis.planning.one_pass.spectra import ExplicitSpectrum, IsotropicSpectrum, PowerLawSpectrum
from gratis.planning.one_pass.time_grid import graded_edges
from gratis.planning.one_pass_classification import plan_classification
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis_papers.one_pass_classification_runs import simulate_classification
from gratis_papers.s2_trajectories import pass_event


@pytest.mark.parametrize(
    ("Q", "M", "S", "clip"), [(0.5, 0.4, 1.0, 0.3), (4.0, 3.0, 4.0, 0.2), (2.0, -1.0, 3.0, 0.8), (9.0, 10.0, 16.0, 2.0)]
)
def test_moments_are_those_of_the_definition(Q: float, M: float, S: float, clip: float) -> None:
    along, rest = M / math.sqrt(Q), math.sqrt(S - M * M / Q)
    z, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()

    def mean(inside, kinks):  # over t, of inside(u, E[σ(u*)|u], E[σ′(u*)|u])
        def at(t):
            odds = expit(along * t + rest * z)
            bell = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
            return bell * inside(math.sqrt(Q) * t, weights @ odds, weights @ (odds * (1 - odds)))

        return quad(at, -9, 9, points=kinks, limit=400, epsabs=1e-11)[0]

    def over_labels(f):  # E over y of f(yu)
        return lambda u, p, _: p * f(u) + (1 - p) * f(-u)

    kinks = [s * math.log((1 - clip) / clip) / math.sqrt(Q) for s in (1, -1)] if clip < 1 else [0.0]
    a, b, v = logistic_moments(Q, M, S, clip)
    slope = mean(over_labels(lambda w: expit(w) * expit(-w) if expit(-w) < clip else 0.0), kinks)
    # h averaged over y is −σ(u*)·min(σ(−u), c) + σ(−u*)·min(σ(u), c); its slope in u* has σ′(u*) alone.
    towards = mean(lambda u, _, p: p * (min(expit(-u), clip) + min(expit(u), clip)), kinks)
    square = mean(over_labels(lambda w: min(expit(-w), clip) ** 2), kinks)
    assert (a, b, v) == pytest.approx((slope, towards, square), rel=1e-7)
    loss = mean(over_labels(lambda w: np.logaddexp(0, -w)), [0.0])
    errors = mean(over_labels(lambda w: float(w < 0)), [0.0])
    assert logistic_risk(Q, M, S) == pytest.approx((loss, errors), rel=1e-7)


def test_at_the_start_everything_is_known() -> None:
    a, b, v = logistic_moments(0.0, 0.0, 4.0, 0.3)
    odds = 2 * np.polynomial.hermite_e.hermegauss(150)[0]
    weights = np.polynomial.hermite_e.hermegauss(150)[1] / math.sqrt(2 * math.pi)
    assert a == 0  # all gradients have slope ½ and are clipped
    assert b == pytest.approx(2 * 0.3 * weights @ (expit(odds) * expit(-odds)), rel=1e-6)
    assert v == pytest.approx(0.09, rel=1e-12)
    assert logistic_risk(0.0, 0.0, 4.0) == pytest.approx((math.log(2), 0.5), rel=1e-12)


def test_with_gaussian_responses_the_equation_is_that_of_linear_regression() -> None:
    """a = b = μ_c and v = 2ν_cP: ½(S − 2M + Q) must be the excess risk of S2's equation."""
    gamma, rho, noise, clip = 0.1, 0.7, 0.25, 0.5
    problem = OnePassProblem(
        gamma=gamma, rho=rho, label_noise_variance=noise, signal_variance=1.3, spectrum=PowerLawSpectrum(0.3, -1.0)
    )
    schedule = Polynomial(0.5, 4.0, clip)

    def moments(Q: float, M: float, S: float, c: float) -> tuple[float, float, float]:
        total = 0.5 * (S - 2 * M + Q + noise)
        mu, nu = clipping_factors(total, c)
        return float(mu), float(mu), float(2 * nu * total)

    edges = graded_edges(400, gamma, np.empty(0))
    middle = (edges[1:] + edges[:-1]) / 2
    path = run_glm(
        moments,
        lengths=np.diff(edges),
        rates=schedule.rate(middle),
        clips=schedule.clip(middle),
        noise=-np.diff(schedule.product(edges) ** 2) * 2 * problem.noise_scale,
        gamma=gamma,
        signal_variance=1.3,
        atoms=atom_tables([problem], 30)[0],
    )
    found = predict_one_pass(problem, schedule, tolerance=1e-8)
    assert 0.5 * (1.3 - 2 * path[1, -1] + path[0, -1]) == pytest.approx(found.final_excess_risk, rel=1e-4)


@pytest.mark.parametrize("schedule", [Polynomial(0.5, 20.0, 0.2), Harmonic(8.0, 0.3, 0.5)], ids=["poly", "harmonic"])
@pytest.mark.parametrize("spectrum", [IsotropicSpectrum(), PowerLawSpectrum(0.3)], ids=["isotropic", "power"])
def test_runs_reach_what_is_predicted(schedule: Schedule, spectrum: object) -> None:
    d, n, S, repetitions = 150, 1500, 4.0, 60
    eigenvalues, energies = spectrum.eigenvalues(d), spectrum.signal_energies(d)
    problem = ClassificationProblem(
        gamma=d / n, rho=1.0, signal_variance=S, spectrum=ExplicitSpectrum(tuple(eigenvalues), tuple(energies))
    )
    found = predict_classification(problem, schedule)
    losses, errors = simulate_classification(
        pass_event(schedule, n, d, problem, max_blocks=n), eigenvalues=eigenvalues, target=np.sqrt(S * energies),
        repetitions=repetitions, record_steps=[n // 2, n], rng=np.random.default_rng(5),
    )  # fmt: skip
    root = math.sqrt(repetitions)
    excess, middle = losses[:, 1] - problem.least_loss, losses[:, 0] - problem.least_loss
    assert abs(excess.mean() - found.final_excess_loss) < 4 * excess.std(ddof=1) / root + 0.01 * found.final_excess_loss
    assert abs(errors[:, 1].mean() - found.final_error_rate) < 4 * errors[:, 1].std(ddof=1) / root + 0.002
    halfway = np.interp(0.5, found.times, found.excess_loss)
    assert abs(middle.mean() - halfway) < 4 * middle.std(ddof=1) / root + 0.02 * halfway
    # The control: without the private noise, or with that of the other relation, the prediction is elsewhere.
    for other in (
        ClassificationProblem(gamma=d / n, rho=1e9, signal_variance=S, spectrum=problem.spectrum),
        ClassificationProblem(
            gamma=d / n, rho=1.0, signal_variance=S, spectrum=problem.spectrum, neighbouring=Neighbouring.ZERO_OUT
        ),
    ):
        wrong = predict_classification(other, schedule).final_excess_loss
        assert abs(excess.mean() - wrong) > 6 * excess.std(ddof=1) / root


def test_a_vanishing_clip_is_the_mean_of_y_times_x() -> None:
    """Statement 5: with c → 0 and a = η̃c held, w = κ₁aλ and r = a²(γλ + κ²γ²/ρ²), whatever the loss does."""
    eigenvalues, energies = np.array([0.5, 1.0, 1.5]), np.array([2.0, 1.0, 0.5])
    gamma, rho, product, S = 0.1, 1.0, 1.5, 4.0
    problem = ClassificationProblem(
        gamma=gamma, rho=rho, signal_variance=S, spectrum=ExplicitSpectrum(tuple(eigenvalues), tuple(energies))
    )
    signal = energies * S / np.mean(eigenvalues * energies)
    points, weights = np.polynomial.hermite_e.hermegauss(150)
    odds = expit(math.sqrt(S) * points)
    first = 2 * weights @ (odds * (1 - odds)) / weights.sum()
    w = first * product * eigenvalues
    r = product**2 * (gamma * eigenvalues + 4 * gamma**2 / rho**2)
    Q, M = np.mean(eigenvalues * (signal * w**2 + r)), np.mean(eigenvalues * signal * w)
    clip = product / (0.5 * problem.rate_cap)
    found = predict_classification(problem, Polynomial(0.0, product / clip, clip))
    loss, errors = logistic_risk(Q, M, S)
    assert found.final_excess_loss == pytest.approx(loss - problem.least_loss, rel=0.03)
    assert found.final_error_rate == pytest.approx(errors, rel=0.01)


def test_the_solver_keeps_its_tolerance() -> None:
    problem = ClassificationProblem(gamma=0.05, rho=1.0, signal_variance=4.0, spectrum=PowerLawSpectrum(0.3))
    schedule = Harmonic(5.0, 0.2, 0.4)
    fine = predict_classification(problem, schedule, tolerance=1e-8).final_excess_loss
    rough = predict_classification(problem, schedule, tolerance=1e-4)
    assert rough.final_excess_loss == pytest.approx(fine, rel=2e-4)
    assert rough.excess_loss[0] == pytest.approx(problem.initial_excess_loss)
    # What a trainer runs, constant on blocks, tends to the same.
    edges = np.linspace(0, 1, 401)
    middle = (edges[1:] + edges[:-1]) / 2
    steps = StepwiseSchedule(
        tuple(edges), tuple(schedule.rate(middle).tolist()), tuple(schedule.clip(middle).tolist())
    )  # fmt: skip
    assert predict_classification(problem, steps, tolerance=1e-4).final_excess_loss == pytest.approx(fine, rel=0.01)


def test_schedules_are_best_and_wider_families_are_no_worse() -> None:
    problem = ClassificationProblem(gamma=0.02, rho=1.0, signal_variance=4.0, spectrum=PowerLawSpectrum(0.3))
    found = optimise_classification(problem, ("poly:0", "harmonic"))
    constant, harmonic = found["poly:0"], found["harmonic"]
    assert harmonic.excess_loss <= constant.excess_loss * (1 + 1e-4)
    for rate, clip in ((1.2, 1.0), (1 / 1.2, 1.0), (1.0, 1.2), (1.0, 1 / 1.2)):
        moved = Polynomial(0.0, constant.schedule.initial_rate * rate, constant.schedule.clip_level * clip)
        assert predict_classification(problem, moved).final_excess_loss > constant.excess_loss * (1 - 1e-5)
    assert constant.excess_loss < 0.5 * problem.initial_excess_loss
    assert float(harmonic.schedule.rate(0.0)) <= 0.5 * problem.rate_cap


def test_more_privacy_never_helps_and_hopeless_budgets_stand_still() -> None:
    losses = []
    for rho in (5.0, 1.0, 0.2, 1e-4):
        problem = ClassificationProblem(gamma=0.1, rho=rho, signal_variance=1.0)
        losses.append(optimise_classification(problem, ("poly:0",))["poly:0"].excess_loss)
    assert losses == sorted(losses)
    assert losses[-1] == pytest.approx(problem.initial_excess_loss, rel=1e-3)


def test_a_plan_says_what_it_assumes_and_pays_what_was_asked() -> None:
    facts = LinearFacts(n_records=4000, n_features=40, budget=Budget(mu=0.5), signal_variance=4.0)
    plan = plan_classification(facts, schedule="poly:0")
    assert len(plan.problems) == 3  # isotropic, and a power law with θ* spread or along large eigenvalues
    assert plan.family == "poly:0"
    assert plan.accuracy < plan.best_accuracy
    assert any("not proved" in words for words in plan.assumptions)
    given = plan_classification(facts, given=Polynomial(1.0, 5.0, 0.3))
    assert given.excess_loss > plan.excess_loss
    with pytest.raises(GratisError, match="label noise"):
        plan_classification(LinearFacts(n_records=40, n_features=4, budget=Budget(mu=1.0), label_noise_variance=0.1))
