"""The reconstruction attack: its gradient, what it finds, what privacy does to it, and clear refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.audits.reconstruction import FrozenLayer, chance_error, match_points, reconstruct, span_residual
from gratis.audits.span_projection import SpanResidual
from gratis.mechanisms.noise import NoiseSource
from gratis.models.random_features import RELU, RandomFeatures, SquaredErrorModel
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages.feature_descent import descend_features


def problem(n, d, p, seed, activation="relu", outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X *= math.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(rng.standard_normal((n, outputs)))
    layer = FrozenLayer.of(rng.standard_normal((p, d)) / math.sqrt(d), activation)
    phi = layer.function(X @ layer.weights.T.astype(np.float64))
    return X, layer, phi.T @ np.linalg.solve(phi @ phi.T, y), rng


@pytest.mark.parametrize("activation", ["tanh", "erf", "relu"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_gradient_by_finite_differences(activation, outputs):
    _, layer, theta, rng = problem(4, 6, 3000, 0, activation, outputs)
    points, direction, h = rng.standard_normal((4, 6)), rng.standard_normal((4, 6)), 3e-3
    theta = theta.astype(np.float32)
    slope = (span_residual(points + h * direction, layer, theta)[0]
             - span_residual(points - h * direction, layer, theta)[0]) / (2 * h)  # fmt: skip
    gradient = span_residual(points, layer, theta)[1]
    assert np.vdot(gradient, direction) == pytest.approx(slope, rel=0.02, abs=2e-4)


def test_what_a_point_explains_is_what_leaving_it_out_costs():
    X, layer, theta, _ = problem(5, 8, 2000, 1)
    theta = theta.astype(np.float32)
    explained = span_residual(X, layer, theta)[2]
    for i in range(5):
        assert span_residual(np.delete(X, i, axis=0), layer, theta)[0] == pytest.approx(explained[i], rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_points_are_found_beyond_the_threshold_and_not_below(seed):
    X, layer, theta, rng = problem(5, 16, 800, seed)
    assert match_points(X, reconstruct(theta, layer, 5, rng=rng).points).mean_error < 0.02
    X, layer, theta, rng = problem(5, 16, 20, seed)
    assert match_points(X, reconstruct(theta, layer, 5, rng=rng).points).mean_error > 0.7 * chance_error(X, rng)


def test_several_outputs_are_attacked_together():
    X, layer, theta, rng = problem(6, 16, 1000, 3, outputs=4)
    assert match_points(X, reconstruct(theta, layer, 6, rng=rng).points).mean_error < 0.02


def test_a_known_mean_of_the_features_is_projected_out():
    """Centred features put θ into the span of the points' features and the released mean."""
    X, layer, theta, rng = problem(4, 12, 1200, 6)
    mean = 3 * np.abs(rng.standard_normal((1200, 1)))
    shifted = theta + 0.5 * mean
    assert span_residual(X, layer, shifted.astype(np.float32))[0] > 1e-3
    residual = SpanResidual(layer, shifted, known=mean)
    assert residual(X)[0] < 1e-8
    points, direction, h = rng.standard_normal((4, 12)), rng.standard_normal((4, 12)), 3e-3
    slope = (residual(points + h * direction)[0] - residual(points - h * direction)[0]) / (2 * h)
    assert np.vdot(residual(points)[1], direction) == pytest.approx(slope, rel=0.02, abs=2e-4)
    assert match_points(X, reconstruct(shifted, layer, 4, rng=rng, known=mean).points).mean_error < 0.02


def test_the_fused_step_equals_the_plain_one():
    """ReLU is fused in place; the same function under another name takes the plain way."""
    _, layer, theta, rng = problem(5, 7, 900, 7)
    plain = FrozenLayer(layer.weights, lambda z: np.maximum(z, 0), layer.derivative)
    points = rng.standard_normal((5, 7))
    for fused, other in zip(
        SpanResidual(layer, theta)(points), SpanResidual(plain, theta)(points), strict=True
    ):  # fmt: skip
        np.testing.assert_allclose(fused, other, rtol=2e-3, atol=1e-6)


def test_odd_activation_leaves_the_sign_open():
    X, layer, theta, rng = problem(4, 12, 2000, 5, "tanh")
    # tanh(3z) is far enough from linear; the truth and its mirror images span the same space.
    layer = FrozenLayer(3 * layer.weights, layer.function, layer.derivative)
    phi = layer.function(X @ layer.weights.T.astype(np.float64))
    theta = phi.T @ np.linalg.solve(phi @ phi.T, np.ones(4))
    mirrored = X * np.array([1, -1, 1, -1])[:, None]
    assert span_residual(mirrored, layer, theta[:, None].astype(np.float32))[0] < 1e-8
    found = reconstruct(theta, layer, 4, rng=rng)
    assert match_points(X, found.points, up_to_sign=True).mean_error < 0.02


def test_private_training_keeps_the_attack_at_chance():
    X, _, _, rng = problem(5, 16, 10, 2)
    y = np.sign(rng.standard_normal(5))
    features = RandomFeatures(n_inputs=16, n_features=800, activation=RELU, seed=1)
    layer = FrozenLayer.from_features(features)
    assert np.array_equal(layer.weights[:10], features.weights(0)[:10])

    def trained(mu):
        return descend_features(
            features, X, y, SquaredErrorModel(), steps=400, clip_norm=100.0, learning_rate=2e-3, mu=mu,
            neighbouring=Neighbouring.REPLACE_ONE, noise=NoiseSource.insecure(0),
        ).parameters  # fmt: skip

    chance = chance_error(X, rng)
    private = reconstruct(trained(1.6), layer, 5, rng=rng, steps=100, hops=1)
    assert match_points(X, private.points).mean_error > 0.85 * chance
    # Negative control: with no noise to speak of, the same trainer leaks.
    assert match_points(X, reconstruct(trained(1e8), layer, 5, rng=rng).points).mean_error < 0.1 * chance


def test_matching_finds_order_and_sign():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 9))
    order, signs = rng.permutation(6), np.array([1, -1, 1, 1, -1, 1.0])
    shuffled = X[order] * signs[:, None]
    assert match_points(X, X[order]).mean_error == 0.0
    assert match_points(X, shuffled, up_to_sign=True).mean_error == 0.0
    assert np.array_equal(match_points(X, shuffled, up_to_sign=True).points, X)
    assert match_points(X, shuffled).mean_error > 0.1


def test_bad_input_is_refused():
    _, layer, theta, rng = problem(4, 6, 50, 0)
    with pytest.raises(GratisError, match="cannot hold"):
        reconstruct(theta, layer, 51, rng=rng)
    with pytest.raises(GratisError, match="features"):
        reconstruct(theta[:-1], layer, 3, rng=rng)
    with pytest.raises(GratisError, match="known directions"):
        reconstruct(theta, layer, 3, rng=rng, known=np.ones(50))
    with pytest.raises(GratisError, match="not all zero"):
        reconstruct(0 * theta, layer, 3, rng=rng)
    with pytest.raises(GratisError, match="derivative"):
        FrozenLayer.of(np.eye(3), "swish")
    with pytest.raises(GratisError, match="one shape"):
        match_points(np.eye(3), np.eye(2))
