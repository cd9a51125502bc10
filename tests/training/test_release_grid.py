"""Every release lies on the public grid of its noise, whichever way it was computed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.mechanisms.noise import GRID_BITS, NoiseSource
from gratis.models.random_features import RandomFeatures, SquaredErrorModel, StoredFeatures
from gratis.planner.one_pass_event import one_pass_event
from gratis.specs.neighbouring import Neighbouring
from gratis.theory.schedules import Polynomial
from gratis.training.feature_descent import Engine, descend_features
from gratis.training.feature_mean import CentredFeatures, release_feature_mean
from gratis.training.one_pass import OnePassLoss, OnePassTrainer

RELATION = Neighbouring.REPLACE_ONE


def finest_bit(values: np.ndarray) -> int:
    """The largest k such that some value is an odd multiple of 2^-k."""
    mantissas, exponents = np.frexp(values[values != 0])
    whole = (mantissas * 2.0**53).astype(np.int64)
    return int(max(53 - int(e) - int(m & -m).bit_length() + 1 for m, e in zip(whole, exponents, strict=True)))


def test_the_engine_that_ran_does_not_show() -> None:
    """A near copy of a row makes the Gram matrix singular, so the dual gives way to the primal, and nobody sees it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 10))
    near = X.copy()
    near[1] = near[0] * (1 + 1e-12)
    bits = []
    for rows in (X, near):
        run = descend_features(
            RandomFeatures(n_inputs=10, n_features=1500), rows, np.sign(X[:, 2]), SquaredErrorModel(), steps=30,
            clip_norm=15.0, learning_rate=0.01, mu=0.5, neighbouring=RELATION, noise=NoiseSource.insecure(1),
            engine=Engine.DUAL,
        )  # fmt: skip
        bits.append(finest_bit(run.parameters))
    assert bits[0] == bits[1]


def test_one_pass_with_a_silent_end_is_on_its_grid() -> None:
    event = one_pass_event(Polynomial(1.0, 3.0, 0.3), n_records=400_000, dimension=3, rho=0.3, neighbouring=RELATION)
    stds = [s for s in event.noise_stds.values if s > 0]
    assert event.noise_stds.values[-1] == 0.0
    trainer = OnePassTrainer(event, OnePassLoss.SQUARED, n_features=3, noise=NoiseSource.insecure(2), n_rows=400_000)
    rng = np.random.default_rng(1)
    for _ in range(4):
        X = rng.standard_normal((100_000, 3))
        trainer.consume(X, X[:, 0])
    step = 2.0 ** (math.floor(math.log2(stds[-1])) - GRID_BITS)
    released = trainer.release()
    np.testing.assert_array_equal(released, np.rint(released / step) * step)


@pytest.mark.parametrize("huge", [1e100, 3e38 * 10])
def test_one_record_beyond_single_precision_moves_no_more_than_its_share(huge: float) -> None:
    rng = np.random.default_rng(3)
    X = np.abs(rng.standard_normal((400, 5)))
    other = X.copy()
    other[7] = huge
    quiet = NoiseSource.insecure(0)
    unit = CentredFeatures(StoredFeatures(5), np.zeros(5), row_norm=1.0)
    means = [
        release_feature_mean(unit, rows, 1.0, mu=1e9, neighbouring=RELATION, noise=quiet)[0] for rows in (X, other)
    ]
    assert np.linalg.norm(means[0] - means[1]) <= 2 / 400 * 1.01
    runs = [
        descend_features(
            StoredFeatures(5), rows, X[:, 0], SquaredErrorModel(), steps=1, clip_norm=1.0, learning_rate=1.0,
            mu=1e9, neighbouring=RELATION, noise=quiet, engine=Engine.PRIMAL,
        ).parameters
        for rows in (X, other)
    ]  # fmt: skip
    assert np.linalg.norm(runs[0] - runs[1]) <= 2 / 400 * 1.01
