from __future__ import annotations

import numpy as np
import pytest

from gratis.models.kernels import infinite_width_diagonal, infinite_width_kernel
from gratis.models.random_features import Activation, RandomFeatures
from gratis.planning.twins.random_features_twin import SignTwin, draw_sign_twin, gaussian_gram
from gratis.stages.gram import Gram, accumulate_gram, decompose


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_gaussian_features_stand_for_random_ones(name: str) -> None:
    """The interpolant, which feels the width most, and private training: paired draws at p = 5n."""
    n, d, p, m = 200, 15, 1000, 1500
    activation = Activation.parse(name)
    losses = []
    for draw in range(12):
        rng = np.random.default_rng(draw)
        direction = rng.standard_normal(d)
        X, X_test = rng.standard_normal((n, d)), rng.standard_normal((m, d))
        kernel = Gram(
            infinite_width_kernel(X, X, activation),
            infinite_width_kernel(X_test, X, activation),
            infinite_width_diagonal(X_test, activation),
        )
        random = RandomFeatures(n_inputs=d, n_features=p, activation=activation, seed=draw)
        grams = (
            accumulate_gram(random, X, X_test),
            gaussian_gram(kernel, p, rng=rng),
            Gram(p * kernel.train, p * kernel.cross, p * kernel.test_diagonal),
        )
        for gram in grams:
            twin = SignTwin(d, p, gram, decompose(gram.train), np.sign(X @ direction), np.sign(X_test @ direction))
            flow, clip = 4 * d / p, np.sqrt(p)
            private = twin.losses(
                steps=50,
                learning_rates=np.array([flow / 50]),
                clip_norms=np.array([clip]),
                noise_stds=np.array([2 * flow * clip / (n * np.sqrt(50))]),
                n_seeds=8,
                rng=np.random.default_rng(1),
            )
            losses.append((twin.interpolant_loss, private.mean()))
    true, gaussian, infinite = np.array(losses).reshape(12, 3, 2).transpose(1, 0, 2)
    error = (gaussian - true).std(axis=0) / np.sqrt(12)
    assert (np.abs((gaussian - true).mean(axis=0)) < 4 * error).all()
    assert (error < [0.02, 0.01]).all()
    # The p = ∞ kernel, which has no width, is caught.
    assert (infinite - true).mean(axis=0)[0] < -4 * error[0]


@pytest.mark.slow
def test_gaussian_features_have_the_moments_of_a_wishart_matrix() -> None:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    covariance, p, draws = root @ root.T, 7, 20_000
    kernel = Gram(covariance[:3, :3], covariance[3:, :3], np.diag(covariance)[3:])
    found = np.empty((draws, 2, 3))
    diagonals = np.empty((draws, 2))
    trains = np.empty((draws, 3, 3))
    for i in range(draws):
        gram = gaussian_gram(kernel, p, rng=rng)
        trains[i], found[i], diagonals[i] = gram.train, gram.cross, gram.test_diagonal
    assert trains.mean(axis=0) == pytest.approx(p * covariance[:3, :3], rel=0.05, abs=0.3)
    assert found.mean(axis=0) == pytest.approx(p * covariance[3:, :3], rel=0.05, abs=0.3)
    # Var(W_ij) = p(c_ij² + c_ii·c_jj)
    variance = p * (covariance**2 + np.outer(np.diag(covariance), np.diag(covariance)))
    assert trains.var(axis=0) == pytest.approx(variance[:3, :3], rel=0.1)
    assert found.var(axis=0) == pytest.approx(variance[3:, :3], rel=0.1)
    assert diagonals.var(axis=0) == pytest.approx(np.diag(variance)[3:], rel=0.1)


def test_few_features_are_never_gaussian() -> None:
    """Bartlett's matrix needs p ≥ n, and narrow features are cheap anyway."""
    rng = np.random.default_rng(0)
    assert not draw_sign_twin(60, 5, 40, Activation.parse("tanh"), rng=rng, n_test=20, widest=10).gaussian
    assert draw_sign_twin(60, 5, 400, Activation.parse("tanh"), rng=rng, n_test=20, widest=10).gaussian
