"""The tangent kernel against explicit Jacobians and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.records.errors import GratisError
from gratis_papers.tangent_kernel import (
    FullyConnected,
    Smooth,
    law_of_robustness,
    linear_regime_losses,
    random_features_sensitivity,
    tangent_features_sensitivity,
    tangent_kernel,
)

NAMES = ["relu", "tanh", "softplus", "square", "cosine"]


def numerical_jacobian(network, X, step=1e-6):
    columns = []
    for layer, weight in enumerate(network.weights):
        for index in np.ndindex(weight.shape):
            values = []
            for sign in (1, -1):
                moved = [w.copy() for w in network.weights]
                moved[layer][index] += sign * step
                values.append(FullyConnected(tuple(moved), network.activation).outputs(X))
            columns.append((values[0] - values[1]) / (2 * step))
    return np.array(columns).T


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    kind, z, h = Smooth.parse(name), np.array([-1.3, -0.2, 0.4, 2.1]), 1e-5
    assert kind.first(z) == pytest.approx((kind.function(z + h) - kind.function(z - h)) / (2 * h), abs=1e-8)
    assert kind.second(z) == pytest.approx((kind.first(z + h) - kind.first(z - h)) / (2 * h), abs=1e-8)


@pytest.mark.parametrize("widths", [[4], [4, 6], [4, 6, 5], [4, 3, 5, 3]])
@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_hadamard_formula_at_every_depth(widths, name):
    rng = np.random.default_rng(1)
    network, X = FullyConnected.random(widths, name, rng), rng.standard_normal((7, 4))
    phi = numerical_jacobian(network, X)
    assert phi.shape[1] == network.n_parameters
    assert tangent_kernel(network, X) == pytest.approx(phi @ phi.T, abs=1e-6)
    assert network.jacobian(X) == pytest.approx(phi, abs=1e-6)


def test_input_gradients():
    rng = np.random.default_rng(2)
    network, x, h = FullyConnected.random([5, 8, 6], "tanh", rng), rng.standard_normal((1, 5)), 1e-6
    steps = [(network.outputs(x + h * e) - network.outputs(x - h * e))[0] / (2 * h) for e in np.eye(5)]
    assert network.input_gradients(x)[0] == pytest.approx(steps, abs=1e-7)


def test_smallest_eigenvalue_turns_positive_where_parameters_reach_the_number_of_points():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 10))
    smallest = {}
    for width in (2, 5, 60):
        network = FullyConnected.random([10, width], "tanh", rng)
        smallest[network.n_parameters] = np.linalg.eigvalsh(tangent_kernel(network, X))[0]
    few, about, many = (smallest[p] for p in sorted(smallest))
    assert few < 1e-10
    assert about < many
    assert many > 1e-2


def test_descent_in_the_linear_regime_follows_the_prediction():
    """A network whose output is halved between two copies starts at zero and stays lazy when it is wide."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((12, 8))
    X *= math.sqrt(8) / np.linalg.norm(X, axis=1, keepdims=True)
    network = FullyConnected.random([8, 4000], "tanh", rng)
    scaled = FullyConnected((network.weights[0], network.weights[1] * math.sqrt(4000)), network.activation)
    start = scaled.outputs(X)
    y = start + rng.standard_normal(12)
    kernel = tangent_kernel(scaled, X)
    eta = 1 / np.linalg.eigvalsh(kernel)[-1]
    measured = scaled.descend(X, y, step_size=eta, steps=60)
    predicted = linear_regime_losses(kernel, start - y, step_size=eta, steps=60)
    assert measured == pytest.approx(predicted, rel=0.05)
    rate = (1 - eta * np.linalg.eigvalsh(kernel)[0] / 2) ** np.arange(61)
    assert np.all(measured <= rate * measured[0] * (1 + 1e-9))


def minimum_norm(features, y):
    return features.T @ np.linalg.solve(features @ features.T, y)


def test_sensitivity_of_random_features_by_finite_differences():
    rng = np.random.default_rng(5)
    X, y, V = rng.standard_normal((6, 4)), rng.standard_normal(6), rng.standard_normal((40, 4)) / 2
    theta, x, h = minimum_norm(np.tanh(X @ V.T), y), rng.standard_normal(4), 1e-6
    gradient = [(np.tanh((x + h * e) @ V.T) - np.tanh((x - h * e) @ V.T)) @ theta / (2 * h) for e in np.eye(4)]
    expected = np.linalg.norm(x) * np.linalg.norm(gradient)
    assert random_features_sensitivity(X, y, x[None], V, "tanh")[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["softplus", "cosine"])
def test_sensitivity_of_tangent_features_by_finite_differences(name):
    """The features are written out here, ±φ′(Wx) ⊗ x."""
    rng = np.random.default_rng(6)
    X, y, W = rng.standard_normal((6, 4)), rng.standard_normal(6), rng.standard_normal((9, 4)) / 2
    first = Smooth.parse(name).first

    def features(x):
        part = np.ravel(np.outer(first(W @ x), x))
        return np.concatenate([part, -part])

    theta = minimum_norm(np.array([features(x) for x in X]), y)
    x, h = rng.standard_normal(4), 1e-6
    gradient = [(features(x + h * e) - features(x - h * e)) @ theta / (2 * h) for e in np.eye(4)]
    expected = np.linalg.norm(x) * np.linalg.norm(gradient)
    assert tangent_features_sensitivity(X, y, x[None], W, name)[0] == pytest.approx(expected, rel=1e-5)


def test_bad_input():
    with pytest.raises(GratisError, match="p ≥ n"):
        random_features_sensitivity(np.eye(3), np.ones(3), np.eye(3), np.ones((2, 3)), "tanh")
    with pytest.raises(GratisError, match="unknown activation"):
        Smooth.parse("sine")
    assert law_of_robustness(4, 4, 16) == 1.0


def test_output_weights_have_order_one_where_the_theorems_ask_for_it() -> None:
    for unit, std in ((True, 1.0), (False, 1 / math.sqrt(8000))):
        network = FullyConnected.random([6, 50, 8000], "relu", np.random.default_rng(4), unit_output=unit)
        assert network.weights[-1].std() == pytest.approx(std, rel=0.05)
        assert network.weights[1].std() == pytest.approx(1 / math.sqrt(50), rel=0.05)
