"""Every release lies on the public grid of its noise, whichever way it was computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from gratis.mechanisms.noise import GRID_BITS, NoiseSource, snap
from gratis.mechanisms.rows import Rows
from gratis.models.random_features import RandomFeatures, SquaredErrorModel, StoredFeatures
from gratis.planning.one_pass.schedules import Polynomial
from gratis.planning.one_pass_event import one_pass_event
from gratis.records.neighbouring import Neighbouring
from gratis.stages.feature_descent import Engine, descend_features, feature_descent_event
from gratis.stages.feature_mean import CentredFeatures, release_feature_mean
from gratis.stages.one_pass import OnePassLoss, OnePassTrainer

RELATION = Neighbouring.REPLACE_ONE


RATE, CLIP, STEPS, MU = 1.7e-5, 25.0, 50, 0.268  # what is planned for n=100, d=50, p=5000, ε=1, δ=1e−5


def lattice_points(parameters: np.ndarray) -> float:
    """The likelihood-ratio statistic of the primal's lattice against no lattice: points of it in the cells released.

    Sums of noisy gradients are whole multiples of (rate × clip × grid of a step's noise), finer than the last grid by
    a factor that is not whole: a cell holds one point more or less.
    """
    event = feature_descent_event(100, 5000, 1, STEPS, mu=MU, neighbouring=RELATION)
    std = event.noise_stds.values[0]
    fine = RATE * CLIP * 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
    cell = 2.0 ** (math.floor(math.log2(RATE * CLIP * std * math.sqrt(STEPS))) - GRID_BITS)
    low, high = np.ceil((parameters - cell / 2) / fine), np.floor((parameters + cell / 2) / fine)
    return float((high - low + 1).mean() - cell / fine)


def released(phi: np.ndarray, y: np.ndarray, engine: Engine) -> np.ndarray:
    stored = StoredFeatures(5000, exact_gram=True, largest_square_norm=5000.0, typical_square_norm=5000 * 0.394)
    return descend_features(
        stored, phi, y, SquaredErrorModel(), steps=STEPS, clip_norm=CLIP, learning_rate=RATE, mu=MU,
        neighbouring=RELATION, noise=NoiseSource.secure(), engine=engine,
    ).parameters  # fmt: skip


@pytest.mark.statistical(failure=2e-4)
@pytest.mark.slow
def test_the_attack_by_lattice_points_tells_nothing() -> None:
    """Issue 13, A1: row 0 replaced by nearly row 1, at n=100, d=50, p=5000; 0 of 300 against 300 of 300 before.

    The engine depended on the private Gram matrix, and the primal's lattice showed through the last rounding. The
    control restores that fall-back and is caught by the same statistic in a tenth of the runs.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 50))
    near, y = X.copy(), np.sign(X[:, 2])
    near[0] = near[1] + 1e-9
    features = RandomFeatures(n_inputs=50, n_features=5000)
    X, near = features.transform(X), features.transform(near)
    sides = [[lattice_points(released(phi, y, Engine.DUAL)) for _ in range(200)] for phi in (X, near)]
    assert ks_2samp(*sides).pvalue > 1e-4
    total_std = RATE * CLIP * math.sqrt(STEPS)
    total_std *= feature_descent_event(100, 5000, 1, STEPS, mu=MU, neighbouring=RELATION).noise_stds.values[0]
    fallen_back = [lattice_points(snap(released(near, y, Engine.PRIMAL), total_std)) for _ in range(20)]
    assert min(fallen_back) > max(max(side) for side in sides)


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
        release_feature_mean(unit, Rows.held(rows, X[:, 0]), 1.0, mu=1e9, neighbouring=RELATION, noise=quiet)[0]
        for rows in (X, other)
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
