"""Random features in their Gaussian form: where it must agree with itself, and with true features."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.models.random_features import TANH
from gratis.planning.twins.random_features_twin import draw_sign_twin
from gratis_papers.gaussian_features import GaussianFeatures

SECOND_MOMENT = 0.3942944  # E tanh(G)²


def test_descent_without_noise_or_clipping_ends_at_the_interpolant() -> None:
    n, d, p = 60, 20, 3600
    data = GaussianFeatures.draw(n, d, p, np.random.default_rng(0))
    flows = np.array([400.0 * n / p])
    found = data.private_losses(np.array([1e9]), flows, np.zeros(1), np.random.default_rng(1))
    assert found[0] == pytest.approx(data.interpolant_loss(), rel=1e-3)


def test_noise_alone_adds_its_variance_times_the_features_norm() -> None:
    n, d, p, total = 200, 100, 40_000, 0.005
    data = GaussianFeatures.draw(n, d, p, np.random.default_rng(0))
    found = data.private_losses(np.full(20, 1e-12), np.full(20, 1e-3), np.full(20, total), np.random.default_rng(1))
    # ‖b‖² is a χ² of d degrees and 2μ₁m·uᵀb is normal: 20 copies leave 5 standard errors of about .17 and .1.
    assert found.mean() - 1 == pytest.approx(p * total**2 * SECOND_MOMENT, abs=5 * (0.15 * 0.39 + 0.97) / np.sqrt(20))
    assert found.shape == (20,)


@pytest.mark.slow
def test_the_interpolant_is_that_of_true_features() -> None:
    n, d, p = 150, 40, 22_500
    form = [GaussianFeatures.draw(n, d, p, np.random.default_rng(k)).interpolant_loss() for k in range(12)]
    true = [
        draw_sign_twin(n, d, p, TANH, rng=np.random.default_rng(k), n_test=1000, widest=10**9).interpolant_loss
        for k in range(3)
    ]
    # Draws vary by about .03; 15 % is far from either form without its nonlinear part (loss above 1).
    assert np.mean(form) == pytest.approx(np.mean(true), rel=0.15)


def test_the_unclipped_path_is_that_of_an_infinite_clip_norm() -> None:
    n, d, p = 120, 40, 14_400
    data = GaussianFeatures.draw(n, d, p, np.random.default_rng(2))
    flow = 5 * d / p
    # Without noise the flow contracts residuals of ±1: none grows, and all are 1 at the start.
    sizes, added, clipped, at_once = data.unclipped_path(1e9, flow, np.array([0.0, 1e-4]), np.random.default_rng(0))
    assert sizes[0] == pytest.approx(1.0, abs=0.3)
    assert added[0] == 0
    assert 0 < added[1] < 0.1
    assert (clipped == 0).all()
    assert at_once == 0
    # A first gradient of 2‖φ‖ is above ½√p, and with so small a clip norm every record counts as clipped.
    *_, clipped, at_once = data.unclipped_path(0.5 * math.sqrt(p), flow, np.array([0.0]), np.random.default_rng(0))
    assert (clipped == 1).all()
    assert at_once == 1
    # Noise without drift would have this size at the end; the drift only takes away.
    total = 0.01
    _, added, _, _ = data.unclipped_path(1e9, flow, np.array([0.0, total]), np.random.default_rng(1))
    assert 0.5 * total * math.sqrt(0.4 * p) < added[1] < 6 * total * math.sqrt(0.4 * p)
