from __future__ import annotations

import numpy as np

from gratis.accounting import account
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.random_features import RandomFeatures, StoredFeatures
from gratis.records.neighbouring import Neighbouring
from gratis.stages.feature_mean import CentredFeatures, release_feature_mean


class Silent:
    def release(self, values: np.ndarray, std: float) -> np.ndarray:
        return values


def mean_of(X: np.ndarray, bound: float) -> np.ndarray:
    return release_feature_mean(
        StoredFeatures(X.shape[1]),
        Rows.held(X, np.zeros(len(X))),
        bound,
        mu=1.0,
        neighbouring=Neighbouring.REPLACE_ONE,
        noise=Silent(),  # type: ignore[arg-type]
    )[0]


def test_one_record_moves_the_mean_by_the_sensitivity_at_most() -> None:
    X = np.random.default_rng(0).standard_normal((20, 5)) * 100
    other = X.copy()
    other[4] = -7 * X[4]
    moved = np.linalg.norm(mean_of(X, 2.0) - mean_of(other, 2.0))
    assert 0.99 * 2 * 2.0 / 20 < moved <= 2 * 2.0 / 20 * (1 + 1e-9)
    assert np.linalg.norm(mean_of(X, 1e9) - mean_of(other, 1e9)) > 1  # without the bound it moves far


def test_event_pays_and_noise_is_added() -> None:
    features = RandomFeatures(n_inputs=3, n_features=2000, seed=2)
    X = np.random.default_rng(1).standard_normal((50, 3))
    mean, event = release_feature_mean(
        features, Rows.held(X, X[:, 0]), 60.0, mu=0.5, neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(3)
    )
    assert 0.4999 < account(event).mu <= 0.5
    error = mean - features.transform(X).astype(float).mean(axis=0)
    assert abs(error.std() / event.noise_std - 1) < 0.1


def test_centring_is_what_it_says() -> None:
    features = RandomFeatures(n_inputs=3, n_features=1500, seed=2)
    X = np.random.default_rng(1).standard_normal((6, 3))
    mean = features.transform(X).mean(axis=0).astype(float)
    centred = np.hstack([values for _, values in CentredFeatures(features, mean, row_norm=3.0).blocks(X)])
    expected = features.transform(X) - mean
    expected *= 3 / np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(centred, expected, atol=1e-5)
