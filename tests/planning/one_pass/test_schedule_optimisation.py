import numpy as np
import pytest

from gratis.planning.one_pass.prediction import OnePassProblem, predict_final_risks, predict_one_pass
from gratis.planning.one_pass.risk_gradient import RiskGradient
from gratis.planning.one_pass.schedule_optimisation import Family, FamilyKind, optimise_all, optimise_schedule
from gratis.planning.one_pass.schedule_regret import optimise_worst_regret
from gratis.planning.one_pass.schedules import Harmonic
from gratis.planning.one_pass.spectra import PowerLawSpectrum
from gratis.records.errors import GratisError

# docs/theory/one-pass.md, statement 10; Σ = I, R(0) = ½, κ = 2.
TABLE = {
    (0.1, 0.5, 0.25): (0.17490, 0.20791, 0.27009, 0.36560, 0.17490, 0.17311, 0.17310),
    (0.02, 0.5, 0.25): (0.02294, 0.01648, 0.01739, 0.02480, 0.01508, 0.01416, 0.01415),
    (0.1, 0.5, 1e-4): (0.12102, 0.14882, 0.21854, 0.33334, 0.12049, 0.11650, 0.11648),
}
LABELS = ("poly:0", "poly:0.5", "poly:1", "poly:2", "harmonic", "free", "free-clip")


@pytest.mark.parametrize("facts", TABLE)
def test_table_of_best_risks(facts):
    gamma, rho, label = facts
    problem = OnePassProblem(gamma=gamma, rho=rho, label_noise_variance=label)
    found = optimise_all(problem)
    assert tuple(found) == LABELS
    np.testing.assert_allclose([found[name].excess_risk for name in LABELS], TABLE[facts], rtol=1e-3)
    for one in found.values():
        assert one.excess_risk == pytest.approx(predict_one_pass(problem, one.schedule).final_excess_risk, rel=3e-6)


@pytest.mark.slow(but=["0.05-4.0-replace-one-2.0"])
@pytest.mark.parametrize("gamma", [0.005, 0.3, 2.0])
@pytest.mark.parametrize(
    ("rho", "label", "relation"), [(0.05, 4.0, "replace-one"), (1.0, 0.0, "zero-out"), (10.0, 1.0, "replace-one")]
)
def test_order_of_families_everywhere(gamma, rho, label, relation):
    problem = OnePassProblem(gamma=gamma, rho=rho, label_noise_variance=label, neighbouring=relation)
    found = optimise_all(problem, alphas=(0.0, 1.0))
    risk = {name: one.excess_risk for name, one in found.items()}
    assert all(np.isfinite(value) and 0 <= value <= problem.initial_risk for value in risk.values())
    assert risk["harmonic"] <= risk["poly:0"]
    assert risk["free"] <= min(risk["harmonic"], risk["poly:1"])
    assert risk["free-clip"] <= risk["free"]
    times = np.linspace(0, 1, 301)
    for one in found.values():
        products = one.schedule.product(times)
        assert np.all(np.diff(products) <= 1e-12 * products[0])
        assert np.all(one.schedule.rate(times) <= problem.rate_cap * (1 + 1e-9))


@pytest.mark.parametrize(
    "facts",
    [
        {"gamma": 0.02, "rho": 0.5, "label_noise_variance": 0.25, "spectrum": PowerLawSpectrum(0.3)},
        {"gamma": 0.1, "rho": 2.0, "label_noise_variance": 1.0, "signal_variance": 5.0},
    ],
)
def test_no_nearby_or_random_schedule_is_better(facts):
    problem = OnePassProblem(**facts)
    best = optimise_schedule(problem, Family(FamilyKind.HARMONIC))
    rng = np.random.default_rng(0)
    schedule = best.schedule
    others = []
    for width in (0.05, 0.5, 3.0):
        for factor in np.exp(width * rng.standard_normal((60, 3))):
            offset, clip = schedule.offset * factor[0], schedule.clip_level * factor[1]
            rate = min(schedule.numerator / schedule.offset * factor[2], problem.rate_cap)
            others.append(Harmonic(rate * offset, offset, clip))
    assert predict_final_risks([problem], others).min() >= best.excess_risk * (1 - 2e-5)


def test_nothing_to_learn():
    for label in (0.0, 1.0):
        problem = OnePassProblem(gamma=0.1, rho=1.0, label_noise_variance=label, signal_variance=0.0)
        for one in optimise_all(problem).values():
            assert one.excess_risk == 0
            assert predict_one_pass(problem, one.schedule).final_excess_risk == 0


def test_gradient_is_exact():
    problems = [
        OnePassProblem(gamma=0.02, rho=0.5, label_noise_variance=0.25),
        OnePassProblem(gamma=0.02, rho=0.5, label_noise_variance=0.1, spectrum=PowerLawSpectrum(0.3, 0.2)),
    ]
    start = Harmonic(2.0, 0.1, 0.3)
    for name in ("poly:0.5", "harmonic", "free", "free-clip"):
        model, edges = Family.parse(name).model(problems[0])
        point = (
            model.start(start) if hasattr(model, "start") else np.log([20.0, 0.3, 0.1])[: 2 if "poly" in name else 3]
        )
        objective = RiskGradient(problems, model, edges, 12)
        values, slopes = objective.log_risks(point)
        direct = [predict_one_pass(p, model.schedule(point)).final_excess_risk for p in problems]
        np.testing.assert_allclose(np.exp(values), direct, rtol=2e-4)
        rng = np.random.default_rng(0)
        for _ in range(3):
            direction = rng.standard_normal(point.size)
            high, low = (objective.log_risks(point + sign * 1e-5 * direction)[0] for sign in (1, -1))
            np.testing.assert_allclose(slopes @ direction, (high - low) / 2e-5, rtol=1e-5, atol=1e-8)


def test_worst_regret_beats_every_single_optimum():
    problems = [
        OnePassProblem(gamma=0.05, rho=0.7, label_noise_variance=1 - s, signal_variance=s, spectrum=spectrum)
        for s in (0.1, 0.5, 0.95)
        for spectrum in (PowerLawSpectrum(0.0), PowerLawSpectrum(0.5))
    ]
    family = Family.parse("free")
    best = [optimise_schedule(problem, family) for problem in problems]
    found = optimise_worst_regret(problems, family, best)
    risks = predict_final_risks(problems, [one.schedule for one in best])
    single = (risks - np.array([one.excess_risk for one in best])[:, None]) / 0.5
    assert found.worst_regret < 0.9 * single.max(axis=0).min()
    assert np.all(found.regrets >= -1e-4)
    with pytest.raises(GratisError, match="free"):
        optimise_worst_regret(problems, Family.parse("harmonic"), best)
    with pytest.raises(GratisError, match="same gamma"):
        optimise_worst_regret([], family)


@pytest.mark.parametrize("text", ["poly", "poly:", "poly:x", "poly:-1", "poly:nan", "free:1", "best", ""])
def test_unknown_families(text):
    with pytest.raises(GratisError):
        Family.parse(text)


@pytest.mark.parametrize("text", ["poly:0", "poly:0.5", "harmonic", "free", "free-clip"])
def test_family_labels(text):
    assert Family.parse(text).label == text
