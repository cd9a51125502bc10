import math

import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages.full_batch import descend, descend_many, descent_event

RELATIONS = list(Neighbouring)


class Silent:
    """A noise source without noise: shows what the descent computes."""

    def release(self, values, std):
        return values


@pytest.mark.parametrize("relation", RELATIONS)
def test_event_spends_exactly_mu(relation):
    event = descent_event(1000, 10, 3, 50, mu=0.3, neighbouring=relation)
    step = relation.sensitivity_factor * event.rounding_inflation * event.clip_norm / event.n_records
    assert math.sqrt(event.steps) * step / event.noise_stds.values[0] == pytest.approx(0.3, rel=1e-12)
    assert event.steps == 50
    assert 1 < event.rounding_inflation < 1 + 1e-9


@pytest.mark.parametrize(("average", "rate"), [(True, 0.5), (False, 0.5), (True, np.linspace(0.5, 0.1, 6))])
def test_follows_the_recursion(average, rate):
    rng = np.random.default_rng(0)
    X, y, clip = rng.standard_normal((40, 3)), rng.standard_normal(40), 0.8
    theta, iterates = np.zeros(3), []
    for step in range(6):
        gradients = X * (X @ theta - y)[:, None]
        gradients *= np.minimum(1, clip / np.linalg.norm(gradients, axis=1))[:, None]
        theta = theta - np.broadcast_to(rate, 6)[step] * gradients.mean(axis=0)
        iterates.append(theta)
    expected = np.mean(iterates[3:], axis=0) if average else theta
    run = descend(
        Rows.held(X, y),
        LinearModel(),
        steps=6,
        clip_norm=clip,
        learning_rate=rate,
        mu=1.0,
        neighbouring=Neighbouring.ZERO_OUT,
        noise=Silent(),
        average=average,
    )
    np.testing.assert_allclose(run.parameters[:, 0], expected, rtol=1e-10)


def test_reaches_least_squares_when_privacy_is_cheap():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((5000, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * rng.standard_normal(5000)
    run = descend(
        Rows.held(X, y),
        LinearModel(),
        steps=60,
        clip_norm=20.0,
        learning_rate=0.5,
        mu=50.0,
        neighbouring=Neighbouring.REPLACE_ONE,
        noise=NoiseSource.insecure(0),
    )
    np.testing.assert_allclose(run.parameters[:, 0], [1.0, -2.0, 0.5, 0.0], atol=0.02)


def test_softmax_learns_classes():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 3000)
    X = rng.standard_normal((3000, 4)) + 3 * np.eye(4)[labels]
    run = descend(
        Rows.held(X, labels),
        SoftmaxModel(3),
        steps=50,
        clip_norm=2.0,
        learning_rate=0.5,
        mu=5.0,
        neighbouring=Neighbouring.REPLACE_ONE,
        noise=NoiseSource.insecure(0),
    )
    assert ((X @ run.parameters).argmax(axis=1) == labels).mean() > 0.9


def test_noise_law_of_a_step():
    """On a table of zeros the result is noise alone: std η·C·s, and a halved noise would be seen."""
    X, eta, clip = np.zeros((50, 400)), 0.5, 3.0
    run = descend(
        Rows.held(X, np.zeros(50)),
        LinearModel(),
        steps=1,
        clip_norm=clip,
        learning_rate=eta,
        mu=0.7,
        neighbouring=Neighbouring.REPLACE_ONE,
        noise=NoiseSource.insecure(3),
    )
    expected = eta * clip * 2 / (50 * 0.7)
    ratio = run.parameters.std() / expected
    assert 0.9 < ratio < 1.1
    assert not 0.9 < ratio / 2 < 1.1


def test_batched_runs_equal_single_ones():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    clips, rates = np.array([0.3, 2.0]), np.array([[0.2, 0.9]])
    mean, last = descend_many(
        Rows.one_chunk(X, y[:, :, None]),
        lambda u: u,
        steps=5,
        outputs=1,
        clip_norms=clips,
        learning_rates=rates,
        add_noise=lambda g: g,
    )
    for b in range(2):
        one = descend_many(
            Rows.one_chunk(X, y[:, b : b + 1, None]),
            lambda u: u,
            steps=5,
            outputs=1,
            clip_norms=clips[b : b + 1],
            learning_rates=rates[:, b : b + 1],
            add_noise=lambda g: g,
        )
        np.testing.assert_allclose(mean[:, b], one[0][:, 0])
        np.testing.assert_allclose(last[:, b], one[1][:, 0])


def test_non_finite_records_never_raise_or_spread():
    X, y = np.ones((10, 2)), np.ones(10)
    X[0, 0], X[1], y[2], y[3] = np.nan, 1e308, np.inf, np.nan
    run = descend(
        Rows.held(X, y),
        LinearModel(),
        steps=5,
        clip_norm=1.0,
        learning_rate=0.1,
        mu=1.0,
        neighbouring=Neighbouring.REPLACE_ONE,
        noise=NoiseSource.insecure(0),
    )
    assert np.isfinite(run.parameters).all()


@pytest.mark.parametrize(
    ("change", "word"), [({"steps": 0}, "steps"), ({"clip_norm": 0.0}, "clip_norm"), ({"mu": math.inf}, "mu")]
)
def test_bad_parameters(change, word):
    settings = {"steps": 2, "clip_norm": 1.0, "learning_rate": 0.1, "mu": 1.0} | change
    with pytest.raises(GratisError, match=word):
        descend(
            Rows.held(np.ones((3, 1)), np.ones(3)),
            LinearModel(),
            **settings,
            neighbouring=Neighbouring.ZERO_OUT,
            noise=NoiseSource.insecure(0),
        )


def test_bad_shape():
    with pytest.raises(GratisError, match="matrix"):
        descend(
            Rows.held(np.ones(3), np.ones(3)),
            LinearModel(),
            steps=1,
            clip_norm=1.0,
            learning_rate=0.1,
            mu=1.0,
            neighbouring=Neighbouring.ZERO_OUT,
            noise=NoiseSource.insecure(0),
        )
