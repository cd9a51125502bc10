"""How gradients of classes answer where a fit ended, against rows and finite differences; and bands that follow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from gratis import DPAdditiveClassifier
from gratis.mechanisms.location_scale import Standardiser
from gratis.stages.class_curvature import class_responses
from gratis.stages.column_histograms import normal_shares
from gratis.stages.columns import Columns
from gratis.stages.curve_basis import CurveBasis


def _basis(d: int) -> CurveBasis:
    columns = Columns(Standardiser(np.zeros(d), np.ones(d), np.full(d, 4.0)), {})
    return CurveBasis(columns, normal_shares(columns), 4)


def _mean_gradient(basis: CurveBasis, X: np.ndarray, theta: np.ndarray, truth: np.ndarray, clip: float) -> np.ndarray:
    """Expected clipped gradient over labels drawn at `truth`."""
    rows = basis.features(basis.columns.places(X))
    p, real = expit(rows @ theta)[:, 0], expit(rows @ truth)[:, 0]
    length = np.linalg.norm(rows, axis=1)
    pulls = sum(
        share * np.clip(label - p, -clip / length, clip / length) for label, share in ((1, real), (0, 1 - real))
    )
    return np.asarray(rows.T @ pulls / len(rows))


def test_slope_is_the_derivative_of_the_clipped_gradient() -> None:
    rng = np.random.default_rng(0)
    basis = _basis(2)
    X = rng.standard_normal((60_000, 2))
    rows = basis.features(basis.columns.places(X))
    theta = 0.8 * rng.standard_normal((basis.width, 1))
    unclipped = 0.0
    for clip in (50.0, 1.2):
        [(slope, square)] = class_responses(
            basis, theta, np.zeros(1), rows.T @ rows / len(rows), inverse_root=np.eye(basis.width), clip_norm=clip
        )
        numeric = np.empty_like(slope)
        for j in range(basis.width):
            step = np.zeros_like(theta)
            step[j] = 0.02
            ends = [_mean_gradient(basis, X, theta + sign * step, theta, clip) for sign in (1, -1)]
            numeric[:, j] = (ends[1] - ends[0]) / 0.04
        assert np.abs(slope - numeric).max() < 0.06 * np.abs(numeric).max()
        if clip == 50.0:  # unclipped, the variance of a class is the slope of its probability
            np.testing.assert_allclose(square, slope, atol=1e-9)
            unclipped = float(np.trace(square))
        else:
            assert np.trace(square) < 0.9 * unclipped


@pytest.mark.statistical(failure=0.02)
@pytest.mark.slow
def test_bands_of_classes_are_as_wide_as_curves_move() -> None:
    """At the curvature of the start, as before, the ratio is about .6 here."""
    grid = np.linspace(-1.8, 1.8, 9)
    values, stated = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((4000, 2))
        y = (rng.random(4000) < expit(3 * np.sin(2 * X[:, 0]))).astype(int)
        model = DPAdditiveClassifier(
            3.0, 1e-6, classes=[0, 1], pairs=False, noise_seed=seed, insecure_reproducible=True
        ).fit(X, y)  # fmt: skip
        places = model.model_.basis.columns.places(np.column_stack([grid, grid]))
        values.append([model.model_.curves[j][places[:, j], 0] for j in range(2)])
        stated.append([model.model_.curve_deviations(j)[places[:, j], 0] for j in range(2)])
    ratio = np.sqrt(np.square(stated).mean() / np.var(values, axis=0, ddof=1).mean())
    assert 0.8 < ratio < 1.5
