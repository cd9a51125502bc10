"""The dual engine draws from the law of Algorithm 1: moments, noise covariance, and controls that must fail."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gratis.accounting import account
from gratis.mechanisms.noise import NoiseSource
from gratis.models.logistic import SoftmaxModel
from gratis.models.random_features import Activation, RandomFeatures, SquaredErrorModel, StoredFeatures
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages import row_space
from gratis.stages.dual import simulate_dual
from gratis.stages.feature_descent import (
    DUAL_TOLERANCE,
    Engine,
    choose_engine,
    descend_features,
    feature_descent_event,
)
from gratis.stages.gram import FeatureMap, accumulate_gram, decompose
from gratis.stages.row_space import OWN_COORDINATE, row_space_excess, run_row_space

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


@pytest.mark.slow(but=["model0"])
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


@pytest.mark.slow
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
    own = np.sqrt(OWN_COORDINATE * features.typical_square_norm) * np.eye(len(X))
    phi = np.hstack([features.transform(X).astype(float), own])
    reference = algorithm_1(phi, y, model, steps, 0.4, 2.0, std, runs, np.random.default_rng(5))[:, :P]
    phi = phi[:, :P]
    means, spreads = standardised_differences(released, reference)
    assert means < 4
    assert spreads < 4
    scores = standardised_differences(released[:, :, 0] @ phi.T, reference[:, :, 0] @ phi.T)
    assert max(scores) < 4


class Given:
    """A noise source that hands out what it was given, drawn as N(0, 1) by its owner; remembers what it was asked."""

    def __init__(self, draws: dict[tuple[int, ...], list[np.ndarray]] | None = None, rng: object = None) -> None:
        self.draws, self.rng, self.asked = draws, rng, []

    def normal(self, std: float, shape: tuple[int, int]) -> np.ndarray:
        self.asked.append((std, shape))
        if self.draws is None:
            return std * self.rng.standard_normal(shape)  # type: ignore[attr-defined]
        return std * self.draws[len(self.asked) - 1]


HOSTILE = {
    "generic": lambda X: X,
    "a duplicate": lambda X: np.vstack([X[1], X[1:]]),
    "nearly a duplicate": lambda X: np.vstack([X[1] + 1e-9, X[1:]]),
    "all alike": lambda X: np.repeat(X[:1], len(X), axis=0),
    "all nearly alike": lambda X: X[:1] + 1e-7 * X,
    "zero": lambda X: np.vstack([np.zeros(D), X[1:]]),
    "all zero": lambda X: np.zeros_like(X),
    "an outlier": lambda X: np.vstack([X[:1] * 1e300, X[1:]]),
    "tiny": lambda X: np.vstack([X[:1] * 1e-310, X[1:]]),
}


def noise_covariance(features: FeatureMap, X: np.ndarray, steps: int = 3) -> np.ndarray:
    """Covariance of the released noise over its variance: the map from all normals drawn to θ, on unit vectors.

    Targets are missing, so nothing but noise moves; the last snap is far below what is tested.
    """
    n, p = len(X), features.n_features
    sizes = [n] * steps + [p, n]
    total = sum(sizes)
    draws = np.split(np.eye(total), np.cumsum(sizes)[:-1])

    class Columns:  # one output for each unit vector
        outputs = total

        def mean(self, scores: np.ndarray) -> np.ndarray:
            return scores

    columns = Given(draws)  # type: ignore[arg-type]
    theta = run_row_space(
        features, X, Columns(), np.full((n, 1, total), np.nan), clip_norm=1.0, rates=np.array([1.0, 2.0, 0.5]),
        noise_std=2.0**20, weights=np.array([1.0, 1.0, 0.5]), noise=columns,  # type: ignore[arg-type]
    )  # fmt: skip
    return theta @ theta.T / (2.0**40 * (1 + 4 + 0.0625))


@pytest.mark.parametrize("name", HOSTILE)
def test_noise_covariance_is_exact_for_every_gram_matrix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    features, X, _, _ = problem()
    rows = HOSTILE[name](X)
    assert np.allclose(noise_covariance(features, rows), np.eye(P), atol=3e-6)
    # Without the own coordinates' part the noise is short by up to a quarter: the jitter of the textbooks.
    monkeypatch.setattr(row_space, "OWN_COORDINATE", 0.5)
    assert np.allclose(noise_covariance(features, rows), np.eye(P), atol=3e-6)
    monkeypatch.setattr(Given, "normal", lambda self, std, shape, _old=Given.normal: _old(self, std, shape)
                        * (0 if len(self.asked) == 5 else 1))  # fmt: skip
    assert name == "all zero" or np.linalg.eigvalsh(noise_covariance(features, rows))[0] < 0.95


@pytest.mark.slow
def test_the_residual_of_the_factor_is_known_better_than_the_factor() -> None:
    features = problem()[0]
    rows = HOSTILE["nearly a duplicate"](np.random.default_rng(3).standard_normal((60, D)))
    gram = accumulate_gram(features, rows).train
    gram[np.diag_indices(60)] += OWN_COORDINATE * features.typical_square_norm
    R = np.linalg.cholesky(gram).T
    exact = np.array(
        [[float(sum((Fraction(a) * Fraction(b) for a, b in zip(R[:, i], R[:, j], strict=True)), -Fraction(gram[i, j])))
          for j in range(60)] for i in range(60)]
    )  # fmt: skip
    found = row_space._residual(R, gram, features.largest_square_norm + 1)
    assert np.abs(found - exact).max() < 1e-3 * np.abs(exact).max()
    assert np.abs(R.T @ R - gram - exact).max() > 0.1 * np.abs(exact).max()  # the plain product does not know it


def test_what_is_drawn_and_the_engine_are_the_same_for_every_data_set() -> None:
    features, X, y, _ = problem()
    asked, engines = set(), set()
    for change in HOSTILE.values():
        for targets in (y, np.full(N, np.nan), np.full(N, 1e308), np.where(np.arange(N) == 2, np.inf, y)):
            noise = Given(rng=np.random.default_rng(0))
            run = descend_features(
                features, change(X), targets, SquaredErrorModel(), steps=3, clip_norm=1.0, learning_rate=0.1,
                mu=0.5, neighbouring=Neighbouring.ZERO_OUT, noise=noise,  # type: ignore[arg-type]
            )  # fmt: skip
            assert np.isfinite(run.parameters).all()
            asked.add(tuple(noise.asked))
            engines.add(run.choice)
    assert len(asked) == len(engines) == 1
    assert engines.pop().engine is Engine.DUAL


@pytest.mark.parametrize("name", HOSTILE)
def test_one_exchanged_record_moves_the_dual_no_further_than_the_primal_bound(name: str) -> None:
    """With the same noise, θ of one step moves by at most κηC/n; without clipping it moves further (control)."""
    features, X, y, _ = problem()

    def theta(rows: np.ndarray, clip: float) -> np.ndarray:
        return run_row_space(
            features, rows, SquaredErrorModel(), SquaredErrorModel().targets(50 * y), clip_norm=clip,
            rates=np.array([0.7]), noise_std=0.0, weights=np.ones(1), noise=NoiseSource.insecure(1),
        )  # fmt: skip

    bound = 2 * 0.7 * 0.5 / N * (1 + DUAL_TOLERANCE)
    moved = np.linalg.norm(theta(X, 0.5) - theta(HOSTILE[name](X), 0.5))
    changed = int((HOSTILE[name](X) != X).any(axis=1).sum())
    assert moved <= bound * changed
    if name == "an outlier":
        assert np.linalg.norm(theta(X, 1e6) - theta(HOSTILE[name](X), 1e6)) > bound


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


def test_a_record_that_is_not_finite_contributes_nothing() -> None:
    features, X, y, _ = problem()
    good = {"steps": 3, "clip_norm": 1.0, "learning_rate": 0.1, "mu": 1.0, "neighbouring": Neighbouring.ZERO_OUT}
    for engine in Engine:
        results = []
        for bad, target in ((np.nan, y[0]), (np.inf, y[0]), (X[0, 0], np.nan), (X[0, 0], np.inf)):
            rows, targets = X.copy(), y.copy()
            rows[0, 0], targets[0] = bad, target
            noise = NoiseSource.insecure(0)
            run = descend_features(features, rows, targets, SquaredErrorModel(), engine=engine, noise=noise, **good)  # type: ignore[arg-type]
            results.append(run.parameters)
        assert np.array_equal(results[0], results[1])
        assert np.array_equal(results[2], results[3])
        # The dual draws in the row space, which the features of a record without a target are still part of.
        assert engine is Engine.DUAL or np.array_equal(results[0], results[2])
        labels = np.arange(N) % 3
        labels[0] = 7
        run = descend_features(
            features, X, labels, SoftmaxModel(3), engine=engine, noise=NoiseSource.insecure(0), **good
        )  # type: ignore[arg-type]
        assert np.isfinite(run.parameters).all()


def choice(n: int, p: int, *, activation: str = "tanh", mu: float = 1.0, steps: int = 500) -> Engine:
    features = RandomFeatures(n_inputs=100, n_features=p, activation=activation)  # type: ignore[arg-type]
    event = feature_descent_event(n, p, 1, steps, mu=mu, neighbouring=Neighbouring.REPLACE_ONE)
    return choose_engine(features, event, clip_norm=p**0.5 / 2, learning_rate=1 / p, mu=mu, n_inputs=100).engine


def test_engine_choice_follows_sizes() -> None:
    assert choice(2000, 1000) is Engine.PRIMAL
    assert choice(100_000, 1_000_000) is Engine.PRIMAL
    assert choice(2000, 4_000_000) is Engine.DUAL
    assert choice(2000, 40_000, mu=1e-4) is Engine.PRIMAL  # nothing is proved for so much noise
    with pytest.raises(GratisError, match="rounding"):
        descend_features(
            StoredFeatures(6), np.eye(6), np.ones(6), SquaredErrorModel(), steps=2, clip_norm=1.0, learning_rate=0.1,
            mu=1.0, neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0), engine=Engine.DUAL,
        )  # fmt: skip


def test_the_bound_on_rounding_grows_with_what_it_bounds() -> None:
    features = RandomFeatures(n_inputs=100, n_features=40_000)

    def excess(n: int = 2000, rate: float = 1e-4, mu: float = 0.5) -> float:
        return row_space_excess(
            features, n, 1, rates=np.full(200, rate), noise_std=30 / (n * mu), clip_norm=100.0, mu=mu, kappa=2.0
        )

    assert 0 < excess() < DUAL_TOLERANCE
    assert excess(n=4000) > excess() < excess(rate=2e-4)
    assert excess(mu=0.25) > excess()
    assert excess(n=10**6) == np.inf


def test_simulation_refuses_the_noise_source_of_releases() -> None:
    features, X, y, X_test = problem()
    gram = accumulate_gram(features, X, X_test)
    with pytest.raises(GratisError, match="simulated"):
        simulate_dual(
            gram, decompose(gram.train), SquaredErrorModel(), y, np.ones(5), steps=1,
            learning_rates=np.ones((1, 1)), clip_norms=np.ones(1), noise_stds=np.ones((1, 1)), n_seeds=1,
            rng=NoiseSource.insecure(0),  # type: ignore[arg-type]
        )  # fmt: skip


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_a_record_without_features_moves_nothing_whatever_its_target_is(clip: float) -> None:
    """Its factor is huge, its features 0: in the primal the quotient by C < 1 was infinite, and 0·∞ wiped out all."""
    features, X, y, _ = problem()
    with_zero, targets = X.copy(), y.copy()
    with_zero[0], targets[0] = 0.0, 8e307

    class Silent:
        def release(self, values: np.ndarray, std: float) -> np.ndarray:
            assert np.isfinite(values).all()
            return values

    def theta(rows: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return descend_features(
            features, rows, answers, SquaredErrorModel(), steps=1, clip_norm=clip, learning_rate=1.0, mu=1.0,
            neighbouring=Neighbouring.REPLACE_ONE, noise=Silent(), engine=Engine.PRIMAL,  # type: ignore[arg-type]
        ).parameters  # fmt: skip

    assert np.linalg.norm(theta(X, y) - theta(with_zero, targets)) <= 2 * clip / N * (1 + 1e-9)
    assert np.linalg.norm(theta(X, y)) > 4 * clip / N  # the others are still there


def test_grids_that_are_no_power_of_two_are_not_called_exact() -> None:
    custom = Activation("wide", np.tanh, limit=0.1)
    assert not RandomFeatures(n_inputs=3, n_features=9, activation=custom).exact_gram
    assert RandomFeatures(n_inputs=3, n_features=9, activation="relu").exact_gram  # type: ignore[arg-type]
