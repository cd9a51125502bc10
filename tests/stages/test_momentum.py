"""Momentum combines the same noisy gradients: weights are those of the recursion, and both engines have one law."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.models.logistic import SoftmaxModel
from gratis.models.random_features import RandomFeatures
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages.constant_feature import WithConstant
from gratis.stages.feature_descent import Engine, descend_features, dual_obstacle, feature_descent_event
from gratis.stages.feature_mean import CentredFeatures
from gratis.stages.primal_features import averaging_weights
from gratis.stages.row_space import OWN_COORDINATE

STEPS, MOMENTUM = 9, 0.7


@pytest.mark.parametrize("average", [True, False])
def test_weights_are_those_of_the_recursion(average):
    weights = averaging_weights(STEPS, average=average, momentum=MOMENTUM)
    for t in range(STEPS):
        place, velocity, path = 0.0, 0.0, []
        for step in np.eye(STEPS)[t]:
            velocity = MOMENTUM * velocity + step
            place += velocity
            path.append(place)
        kept = path[-((STEPS + 1) // 2) :] if average else path[-1:]
        assert weights[t] == pytest.approx(np.mean(kept), rel=1e-12)
    assert weights.max() <= 1 / (1 - MOMENTUM)


def unit_features(n, d=4, p=40):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    base = RandomFeatures(n_inputs=d, n_features=p, seed=1)
    return WithConstant(CentredFeatures(base, np.zeros(p), row_norm=1.0)), X, np.arange(n) % 3


@pytest.mark.statistical(failure=5e-3)
@pytest.mark.slow
def test_the_dual_has_the_law_of_the_primal():
    """Means and variances of θ over many draws, the primal on features with the records' own coordinates."""
    features, X, y = unit_features(12)
    model, runs, clip, rate, mu = SoftmaxModel(3, [0.5, 0.3, 0.2]), 600, 0.4, 1.5, 3.0
    how = {
        "steps": STEPS, "clip_norm": clip, "learning_rate": rate, "mu": mu, "momentum": MOMENTUM, "average": True,
        "neighbouring": Neighbouring.REPLACE_ONE, "noise": NoiseSource.insecure(2),
    }  # fmt: skip
    dual = np.array(
        [descend_features(features, X, y, model, engine=Engine.DUAL, **how).parameters for _ in range(runs)]
    )
    own = np.sqrt(OWN_COORDINATE * features.typical_square_norm) * np.eye(len(X))
    phi = np.hstack([*(values for _, values in features.blocks(X)), own]).astype(float)
    std = feature_descent_event(len(X), 41, 3, STEPS, mu=mu, neighbouring=Neighbouring.REPLACE_ONE).noise_stds.values[0]

    def primal(momentum):
        rng, targets = np.random.default_rng(3), model.targets(y)[:, 0]
        place, velocity = np.zeros((2, runs, phi.shape[1], 3))
        total = np.zeros_like(place)
        for t in range(STEPS):
            factors = model.mean(np.einsum("ip,rpk->rik", phi, place + momentum * velocity)) - targets
            sizes = np.linalg.norm(factors, axis=2, keepdims=True) * np.linalg.norm(phi, axis=1)[:, None]
            gradient = np.einsum("ip,rik->rpk", phi, factors / np.maximum(1, sizes / clip)) / len(phi)
            velocity = momentum * velocity - rate * (gradient + clip * std * rng.standard_normal(place.shape))
            place = place + velocity
            total += place * (t >= STEPS // 2)
        return total[:, :41] / (STEPS - STEPS // 2)

    def differences(other):
        spread = (dual.var(axis=0) + other.var(axis=0)) / 2
        means = np.abs(dual.mean(axis=0) - other.mean(axis=0)) / np.sqrt(2 * spread / runs)
        return means.max(), (np.abs(np.log(dual.var(axis=0) / other.var(axis=0))) / np.sqrt(4 / runs)).max()

    assert max(differences(primal(MOMENTUM))) < 4.5
    assert max(differences(primal(MOMENTUM - 0.15))) > 6  # another momentum is noticed


def test_momentum_is_in_the_bound_on_rounding():
    features, _, _ = unit_features(12, p=2000)
    event = feature_descent_event(1000, 2001, 2, 100, mu=1.0, neighbouring=Neighbouring.REPLACE_ONE)
    rates = np.full(100, 1.0)
    assert dual_obstacle(features, event, 2, 0.3, rates, 1.0) is None
    assert dual_obstacle(features, event, 2, 0.3, rates, 1.0, momentum=0.9999) is not None


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_bad_momentum_is_refused(momentum):
    features, X, y = unit_features(6)
    with pytest.raises(GratisError, match="momentum"):
        descend_features(
            features, X, y, SoftmaxModel(3), steps=2, clip_norm=1.0, learning_rate=1.0, mu=1.0, momentum=momentum,
            neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0),
        )  # fmt: skip
