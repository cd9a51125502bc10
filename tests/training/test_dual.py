"""The dual engine draws from the law of Algorithm 1: moments, noise covariance, and controls that must fail."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.accounting import account
from gratis.mechanisms.noise import NoiseSource
from gratis.models.logistic import SoftmaxModel
from gratis.models.random_features import RandomFeatures, SquaredErrorModel, StoredFeatures
from gratis.specs.errors import GratisError
from gratis.specs.neighbouring import Neighbouring
from gratis.training.dual import primal_parameters, simulate_dual
from gratis.training.feature_descent import Engine, choose_engine, descend_features, feature_descent_event
from gratis.training.gram import Spectrum, accumulate_gram, decompose

N, D, P = 12, 4, 40


def problem(seed: int = 0) -> tuple[RandomFeatures, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, X_test = rng.standard_normal((N, D)), rng.standard_normal((5, D))
    return RandomFeatures(n_inputs=D, n_features=P, seed=1), X, np.sign(X[:, 0] + 0.1), X_test


def algorithm_1(phi, y, model, steps, rate, clip, std, runs, rng):  # type: ignore[no-untyped-def]
    """S0's Algorithm 1 as printed, per-sample gradients and all, for many runs."""
    targets = model.targets(y)[:, 0, :]
    theta = np.zeros((runs, phi.shape[1], targets.shape[1]))
    for _ in range(steps):
        scores = np.einsum("ip,rpk->rik", phi, theta)
        factors = model.mean(scores) - targets
        gradients = np.einsum("ip,rik->ripk", phi, factors)
        sizes = np.sqrt(np.square(gradients).sum(axis=(2, 3), keepdims=True))
        gradients /= np.maximum(1, sizes / clip)
        theta += -rate * gradients.mean(axis=1) + std * rng.standard_normal(theta.shape)
    return theta


def standardised_differences(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Largest |difference| of means and of variances over coordinates, in standard errors."""
    runs = len(left)
    variance = (left.var(axis=0) + right.var(axis=0)) / 2
    means = np.abs(left.mean(axis=0) - right.mean(axis=0)) / np.sqrt(2 * variance / runs)
    spreads = np.abs(np.log(left.var(axis=0) / right.var(axis=0))) / np.sqrt(4 / runs)
    return float(means.max()), float(spreads.max())


@pytest.mark.parametrize("model", [SquaredErrorModel(), SoftmaxModel(2)])
def test_simulated_predictions_have_the_law_of_algorithm_1(model) -> None:  # type: ignore[no-untyped-def]
    features, X, y, X_test = problem()
    labels = y if isinstance(model, SquaredErrorModel) else (y > 0).astype(int)
    gram = accumulate_gram(features, X, X_test)
    runs, steps, rate, clip, std = 3000, 6, 0.4, 2.0, 0.05
    result = simulate_dual(
        gram, decompose(gram.train), model, labels, np.ones(5), steps=steps, learning_rates=np.array([[rate]]),
        clip_norms=np.array([clip]), noise_stds=np.array([[std]]), n_seeds=runs, rng=np.random.default_rng(1),
    )  # fmt: skip
    drawn = np.random.default_rng(2).standard_normal(result.scores[:, 0].shape)
    dual = (result.scores[:, 0] + np.sqrt(result.variances[0])[:, None, None] * drawn).transpose(1, 0, 2)
    phi, phi_test = features.transform(X).astype(float), features.transform(X_test).astype(float)
    rng = np.random.default_rng(3)
    primal = np.einsum("mp,rpk->rmk", phi_test, algorithm_1(phi, labels, model, steps, rate, clip, std, runs, rng))
    means, spreads = standardised_differences(dual, primal)
    assert means < 4
    assert spreads < 4
    wrong = np.einsum("mp,rpk->rmk", phi_test, algorithm_1(phi, labels, model, steps, rate, clip, 1.2 * std, runs, rng))
    assert standardised_differences(dual, wrong)[1] > 4


def test_released_parameters_have_the_law_of_algorithm_1() -> None:
    features, X, y, _ = problem()
    X = np.vstack([X, X[:1]])  # an exact duplicate with another label
    y = np.append(y, -y[0])
    model, runs, steps = SquaredErrorModel(), 800, 5
    noise = NoiseSource.insecure(4)
    released = np.array(
        [
            descend_features(
                features, X, y, model, steps=steps, clip_norm=2.0, learning_rate=0.4, mu=3.0,
                neighbouring=Neighbouring.REPLACE_ONE, noise=noise, engine=Engine.DUAL,
            ).parameters
            for _ in range(runs)
        ]
    )  # fmt: skip
    event = feature_descent_event(len(X), P, 1, steps, mu=3.0, neighbouring=Neighbouring.REPLACE_ONE)
    std = event.noise_stds.values[0] * 0.4 * 2.0
    phi = features.transform(X).astype(float)
    reference = algorithm_1(phi, y, model, steps, 0.4, 2.0, std, runs, np.random.default_rng(5))
    means, spreads = standardised_differences(released, reference)
    assert means < 4
    assert spreads < 4
    scores = standardised_differences(released[:, :, 0] @ phi.T, reference[:, :, 0] @ phi.T)
    assert max(scores) < 4


def noise_covariance(features: RandomFeatures, X: np.ndarray, spectrum: Spectrum) -> np.ndarray:
    """MMᵀ of the linear map M from (G, z) to the noise of θ, by feeding unit vectors as outputs."""
    rank = len(spectrum.values)
    drawn = np.hstack([np.eye(rank), np.zeros((rank, P))])
    fresh = np.hstack([np.zeros((P, rank)), np.eye(P)])
    noise = primal_parameters(features, X, spectrum, np.zeros((len(X), rank + P)), drawn, fresh)
    return noise @ noise.T


def test_noise_covariance_is_exact_and_jitter_would_lose_some() -> None:
    features, X, _, _ = problem()
    K = accumulate_gram(features, X).train
    assert np.allclose(noise_covariance(features, X, decompose(K)), np.eye(P), atol=1e-9)
    # Truncation keeps the covariance, whatever the threshold is.
    assert np.allclose(noise_covariance(features, X, decompose(K, relative_threshold=0.1)), np.eye(P), atol=1e-9)
    jittered = decompose(K + np.median(np.linalg.eigvalsh(K)) * np.eye(N))
    assert np.linalg.eigvalsh(noise_covariance(features, X, jittered))[0] < 0.8


def test_both_engines_release_within_the_same_event() -> None:
    features, X, y, _ = problem()
    for engine in Engine:
        run = descend_features(
            features, X, y, SquaredErrorModel(), steps=7, clip_norm=1.0, learning_rate=0.1, mu=0.5,
            neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0), engine=engine, average=True,
        )  # fmt: skip
        guarantee = account(run.event)
        assert 0.499 < guarantee.mu <= 0.5
        assert np.isfinite(run.parameters).all()


def test_ill_conditioned_data_goes_to_the_primal_without_a_word() -> None:
    features, X, y, _ = problem()

    def parameters(rows: np.ndarray, engine: Engine) -> np.ndarray:
        run = descend_features(
            features, rows, np.resize(y, len(rows)), SquaredErrorModel(), steps=3, clip_norm=1.0, learning_rate=0.1,
            mu=0.5, neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0), engine=engine,
        )  # fmt: skip
        assert run.choice.engine is engine  # what is shown does not depend on the data
        return run.parameters

    # The same noise stream in the same order: only the primal itself gives the same numbers.
    near = np.vstack([X, X[:1] + 1e-5])
    assert np.array_equal(parameters(near, Engine.DUAL), parameters(near, Engine.PRIMAL))
    for rows in (X, np.vstack([X, X[:1]])):
        assert not np.array_equal(parameters(rows, Engine.DUAL), parameters(rows, Engine.PRIMAL))


def test_sensitivity_of_one_step_on_real_neighbours() -> None:
    """Huge residuals clip to C whatever they are; without clipping the bound fails (negative control)."""
    features = StoredFeatures(6)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 6)) * 100
    other = X.copy()
    other[3] = -5 * X[3]
    y = np.full(8, 7.0)

    class Silent:
        def release(self, values: np.ndarray, std: float) -> np.ndarray:
            return values

    def step(rows: np.ndarray, clip: float) -> np.ndarray:
        return descend_features(
            features, rows, y, SquaredErrorModel(), steps=1, clip_norm=clip, learning_rate=1.0, mu=1.0,
            neighbouring=Neighbouring.REPLACE_ONE, noise=Silent(), engine=Engine.PRIMAL,  # type: ignore[arg-type]
        ).parameters  # fmt: skip

    moved = np.linalg.norm(step(X, 0.5) - step(other, 0.5))
    assert 0.9 * 2 * 0.5 / 8 < moved <= 2 * 0.5 / 8 * (1 + 1e-9)
    assert np.linalg.norm(step(X, 1e6) - step(other, 1e6)) > 2 * 0.5 / 8


def test_early_stopping_path_equals_separate_runs() -> None:
    features, X, y, X_test = problem()
    gram = accumulate_gram(features, X, X_test)
    settings = {
        "learning_rates": np.array([[0.3, 0.5]]),
        "clip_norms": np.array([1.0, np.inf]),
        "noise_stds": np.array([[0.1, 0.0]]),
        "n_seeds": 2,
    }

    def run(steps: int, record: list[int] | None) -> np.ndarray:
        return simulate_dual(
            gram, decompose(gram.train), SquaredErrorModel(), y, np.ones(5), steps=steps, record=record,
            rng=np.random.default_rng(3), **settings,  # type: ignore[arg-type]
        ).test_losses  # fmt: skip

    path = run(32, [8, 32])
    assert path.shape == (2, 2, 2)
    assert np.allclose(path[1], run(32, None)[0])
    assert np.allclose(path[0, 1], run(8, None)[0, 1])  # without noise a prefix is a shorter run


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"steps": 0}, "steps"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"mu": 0.0}, "mu"),
    ],
)
def test_bad_parameters_are_refused(change: dict[str, float], word: str) -> None:
    features, X, y, _ = problem()
    good = {"steps": 3, "clip_norm": 1.0, "learning_rate": 0.1, "mu": 1.0}
    with pytest.raises(GratisError, match=word):
        descend_features(
            features, X, y, SquaredErrorModel(), neighbouring=Neighbouring.ZERO_OUT,
            noise=NoiseSource.insecure(0), **(good | change),  # type: ignore[arg-type]
        )  # fmt: skip


def test_bad_data_is_refused_before_anything_is_spent() -> None:
    features, X, y, _ = problem()
    good = {"steps": 3, "clip_norm": 1.0, "learning_rate": 0.1, "mu": 1.0, "noise": NoiseSource.insecure(0)}
    broken = X.copy()
    broken[0, 0] = np.nan
    with pytest.raises(GratisError, match="finite"):
        descend_features(features, broken, y, SquaredErrorModel(), neighbouring=Neighbouring.ZERO_OUT, **good)  # type: ignore[arg-type]
    with pytest.raises(GratisError, match="classes"):
        descend_features(features, X, np.full(N, 7), SoftmaxModel(3), neighbouring=Neighbouring.ZERO_OUT, **good)  # type: ignore[arg-type]


def test_engine_choice_follows_sizes() -> None:
    assert choose_engine(2000, 1000, 10).engine is Engine.PRIMAL
    assert choose_engine(100_000, 1_000_000, 10).engine is Engine.PRIMAL
    assert choose_engine(2000, 4_000_000, 500, n_inputs=100).engine is Engine.DUAL


def test_simulation_refuses_the_noise_source_of_releases() -> None:
    features, X, y, X_test = problem()
    gram = accumulate_gram(features, X, X_test)
    with pytest.raises(GratisError, match="simulated"):
        simulate_dual(
            gram, decompose(gram.train), SquaredErrorModel(), y, np.ones(5), steps=1,
            learning_rates=np.ones((1, 1)), clip_norms=np.ones(1), noise_stds=np.ones((1, 1)), n_seeds=1,
            rng=NoiseSource.insecure(0),  # type: ignore[arg-type]
        )  # fmt: skip
