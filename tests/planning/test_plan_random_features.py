from __future__ import annotations

import numpy as np
import pytest

from gratis.accounting import account, calibrate_mu
from gratis.mechanisms.noise import NoiseSource
from gratis.models.random_features import RandomFeatures, SquaredErrorModel
from gratis.planning.feature_classifier import FeatureFlow, feature_flow, longest_flow, plan_feature_classifier
from gratis.planning.random_features import plan_random_features
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.records.settings import Descent
from gratis.stages.feature_descent import descend_features, feature_descent_event


@pytest.mark.slow
def test_plan_predicts_what_training_gives() -> None:
    budget = Budget(epsilon=4.0, delta=1 / 400)
    n, d, p = 400, 20, 3000
    plan = plan_random_features(n, d, p, budget)
    settings = plan.settings
    rng = np.random.default_rng(5)
    losses, interpolants = [], []
    for seed in range(4):
        direction = rng.standard_normal(d)
        X, X_test = rng.standard_normal((n, d)), rng.standard_normal((1000, d))
        features = RandomFeatures(n_inputs=d, n_features=p, seed=seed)
        run = descend_features(
            features, X, np.sign(X @ direction), SquaredErrorModel(), steps=settings.steps,
            clip_norm=settings.clip_norm, learning_rate=settings.learning_rate, mu=calibrate_mu(budget),
            neighbouring=budget.neighbouring, noise=NoiseSource.insecure(seed),
        )  # fmt: skip
        assert run.event == plan.event  # what the ledger reserved is what was spent
        assert str(run.choice.engine) == settings.engine
        phi, phi_test = features.transform(X).astype(float), features.transform(X_test).astype(float)
        for theta, found in (
            (run.parameters[:, 0], losses),
            (np.linalg.pinv(phi) @ np.sign(X @ direction), interpolants),
        ):
            found.append(np.square(phi_test @ theta - np.sign(X_test @ direction)).mean())
    assert abs(np.mean(losses) - plan.prediction.value) < 0.05
    assert plan.prediction.value < 0.7  # the trivial predictor has loss 1
    details = plan.prediction.details
    assert abs(np.mean(interpolants) - details["predicted_nonprivate_loss"]) < 0.05
    assert set(details["theorem_2"]) == {"noise", "early_stopping", "plateau"}
    assert account(plan.event).mu <= calibrate_mu(budget)


def test_regime_is_checked() -> None:
    small = Budget(epsilon=4.0, delta=0.01)
    inside = plan_random_features(150, 60, 3000, small, twins=1)
    outside = plan_random_features(150, 5, 3000, small, twins=1)
    assert inside.prediction.details["regime"]["inside"]
    assert not outside.prediction.details["regime"]["inside"]
    assert "miss" in outside.explain()


@pytest.mark.parametrize("change", [{"n_features": 0}, {"n_records": 0}, {"n_inputs": -1}, {"activation": "swish"}])
def test_bad_facts_are_refused(change: dict[str, object]) -> None:
    facts: dict[str, object] = {"n_records": 50, "n_inputs": 5, "n_features": 100, "budget": Budget(mu=1.0)}
    with pytest.raises(GratisError):
        plan_random_features(**(facts | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("centre", [True, False])
def test_classifier_plan_spends_the_budget_and_no_more(centre: bool) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    plan = plan_feature_classifier(10_000, 500, 10, budget, centre=centre)
    mu = calibrate_mu(budget)
    assert 0.9999 * mu < account(plan.event).mu <= mu
    settings = plan.settings
    moved = settings.learning_rate * settings.clip_norm * settings.steps
    assert 2 * moved * settings.row_norm / (10_000 * settings.descent_mu) == pytest.approx(plan.prediction.value)
    assert [leaf.label.split(",")[0] for leaf in plan.event.leaves()] == [
        *(["mean of the features"] if centre else []), "class counts", "descent on fixed features", "calibration",
    ]  # fmt: skip


def test_a_classifier_with_a_learning_rate_is_algorithm_1() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    given = Descent(steps=12, clip_norm=0.3, learning_rate=5.0)
    plan = plan_feature_classifier(10_000, 500, 10, budget, centre=False, descent=given)
    assert plan.event == feature_descent_event(
        10_000, 500, 10, 12, mu=calibrate_mu(budget) * (1 - 1e-12), neighbouring=budget.neighbouring
    )
    assert (plan.settings.clip_norm, plan.settings.learning_rate) == (0.3, 5.0)


def test_flow_time_grows_with_budget_and_rarity() -> None:
    even, rare = np.array([0.5, 0.5]), np.array([0.95, 0.05])

    def flow(prior: np.ndarray, mu: float) -> FeatureFlow:
        return feature_flow(10_000, prior, mu=mu, neighbouring=Neighbouring.REPLACE_ONE)

    flows = [flow(even, mu) for mu in (0.1, 0.3, 3.0, 30.0)]
    for values in ([one.time for one in flows], [one.clip_norm for one in flows]):
        assert values == sorted(values)
    assert flows[-1].clip_norm > 1.4  # clips next to nothing
    assert flow(rare, 0.3).time > 2 * flows[1].time
    for one, mu in ((flow(rare, 0.3), 0.3), (flow(rare, 30.0), 30.0)):
        longest = longest_flow(10_000, mu=mu, neighbouring=Neighbouring.REPLACE_ONE, clip_norm=one.clip_norm)
        assert one.time <= longest


@pytest.mark.slow
def test_steps_are_stable_where_rows_are_correlated() -> None:
    """Twins have independent inputs; one common factor makes λ_max of K a large share of its trace."""
    n, d = 1000, 60
    rng = np.random.default_rng(0)
    common, own = rng.standard_normal((n + 500, 1)), rng.standard_normal((n + 500, d))
    X = 0.9 * common + 0.19**0.5 * own
    y = np.sign(X[:, :5].sum(axis=1))
    plan = plan_random_features(n, d, 800, Budget(epsilon=8.0, delta=1e-3))
    features = RandomFeatures(n_inputs=d, n_features=800)
    phi = features.transform(X).astype(float)
    settings = plan.settings
    largest = np.linalg.eigvalsh(phi[:n].T @ phi[:n])[-1]
    assert 2 * settings.learning_rate * largest / n < 2
    losses = {}
    for steps in (settings.steps, 15):  # 15: what the twin's own spectrum would allow, about
        run = descend_features(
            features, X[:n], y[:n], SquaredErrorModel(), steps=steps, clip_norm=settings.clip_norm,
            learning_rate=settings.learning_rate * settings.steps / steps, mu=calibrate_mu(plan.budget),
            neighbouring=plan.budget.neighbouring, noise=NoiseSource.insecure(0),
        )  # fmt: skip
        losses[steps] = np.square(phi[n:] @ run.parameters[:, 0] - y[n:]).mean()
    assert losses[settings.steps] < 0.5
    assert losses[15] > 1  # too few steps are caught


def test_steps_are_stable_where_features_have_a_mean() -> None:
    """ReLU: K has an eigenvalue n·p/(2π) whatever d is, and the twin has a smaller d."""
    plan = plan_random_features(4000, 400, 2000, Budget(mu=1.0), activation="relu", twins=1, twin_records=200)
    assert 2 * plan.settings.learning_rate * 2000 / (2 * np.pi) < 2


@pytest.mark.slow
def test_twins_of_small_tables_keep_their_inputs() -> None:
    budget = Budget(epsilon=1.0, delta=1e-4)
    small = plan_random_features(800, 6, 600, budget, twin_records=200)
    whole = plan_random_features(800, 6, 600, budget, twin_records=800)
    assert small.prediction.value == pytest.approx(whole.prediction.value, abs=0.08)
    assert any("fewer rows" in words for words in small.prediction.assumptions)
    assert not any("fewer rows" in words for words in whole.prediction.assumptions)


def test_more_inputs_than_rows_cost_no_more() -> None:
    """Only inner products of rows count: 10⁹ inputs are never drawn."""
    plan = plan_random_features(60, 10**9, 10**6, Budget(mu=1.0), twins=1)
    assert 0.8 < plan.prediction.value < 1.1  # sixty rows say nothing about so many inputs


def test_a_range_is_wider_than_two_twins_that_agree() -> None:
    prediction = plan_random_features(300, 15, 1000, Budget(epsilon=2.0, delta=1e-3)).prediction
    assert prediction.high - prediction.low > 0.1 * prediction.value


@pytest.mark.parametrize("function", [lambda z: 0 * z, lambda z: z * np.nan])
def test_activations_without_a_size_are_refused(function: object) -> None:
    with pytest.raises(GratisError, match="must be finite"):
        plan_random_features(50, 5, 100, Budget(mu=1.0), activation=function)


def test_no_mean_is_paid_for_that_noise_would_swamp() -> None:
    budget = Budget(epsilon=2.0, delta=1e-5)
    few = plan_feature_classifier(2000, 500, 3, budget)
    many = plan_feature_classifier(2000, 30_000, 3, budget)
    assert few.settings.mean_mu > 0
    assert many.settings.mean_mu == 0
    assert many.event == plan_feature_classifier(2000, 30_000, 3, budget, centre=False).event
    assert "No private mean" in many.explain()


def test_every_plan_says_how_far_the_rows_could_be_read_off() -> None:
    from gratis import DPRandomFeaturesClassifier, DPRandomFeaturesRegressor

    few = DPRandomFeaturesRegressor(n_features=60, epsilon=1.0, delta=1e-4).plan(200, 5)
    many = DPRandomFeaturesClassifier(n_features=2000, epsilon=1.0, delta=1e-4).plan(200, 5, classes=2)
    assert "p/(n·d) = 0.06: too few features" in few.reasons[-1]
    assert "p/(n·d) = 2: without privacy the rows could in part" in many.reasons[-1]
