"""The staircase against kernel regression itself, and its eigenvalues against a Gram matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.records.errors import GratisError
from gratis_papers.staircase import harmonic_dimension, plateau, predict_kernel_risk, spherical_kernel


def sphere(rng, n, d):
    X = rng.standard_normal((n, d))
    return X * math.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)


def target(X, energies):
    """Harmonics of degree 1, 2, 3 with unit variance on the sphere."""
    d = X.shape[1]
    quadratic = X[:, 0] * X[:, 1] * math.sqrt((d + 2) / d)
    cubic = X[:, 0] * X[:, 1] * X[:, 2] * math.sqrt((d + 2) * (d + 4) / d**2)
    return sum(math.sqrt(e) * part for e, part in zip(energies[1:], (X[:, 3], quadratic, cubic), strict=True))


@pytest.mark.parametrize("n", [10, 40, 150, 600])
def test_prediction_matches_kernel_regression(n):
    d, energies, noise = 16, np.array([0.0, 0.5, 0.3, 0.2]), 0.05
    kernel = spherical_kernel(np.exp, d)
    rng = np.random.default_rng(n)
    measured = []
    for _ in range(6):
        X, X_test = sphere(rng, n, d), sphere(rng, 1500, d)
        y = target(X, energies) + math.sqrt(noise) * rng.standard_normal(n)
        fitted = np.exp(X_test @ X.T / d) @ np.linalg.solve(np.exp(X @ X.T / d), y)
        measured.append(np.mean((fitted - target(X_test, energies)) ** 2))
    predicted = predict_kernel_risk(kernel, energies, n, label_noise_variance=noise)
    assert np.mean(measured) == pytest.approx(predicted, rel=0.12)


def test_eigenvalues_are_those_of_the_gram_matrix():
    d, n = 5, 1500
    kernel = spherical_kernel(lambda t: np.exp(2 * t), d)
    X = sphere(np.random.default_rng(0), n, d)
    found = np.linalg.eigvalsh(np.exp(2 * X @ X.T / d))[::-1] / n
    assert found[0] == pytest.approx(kernel.eigenvalues[0], rel=0.02)
    assert found[1 : 1 + d].mean() == pytest.approx(kernel.eigenvalues[1], rel=0.03)
    assert found[1 + d : 1 + d + harmonic_dimension(d, 2)].mean() == pytest.approx(kernel.eigenvalues[2], rel=0.05)


def test_levels_of_the_plateaus():
    """In high dimension the risk between the steps is what degree ℓ leaves."""
    energies = np.array([0.0, 0.5, 0.3, 0.2])
    kernel = spherical_kernel(np.exp, 2000, degrees=4)
    assert predict_kernel_risk(kernel, energies, 60_000) == pytest.approx(plateau(energies, 1), rel=0.07)
    # Well past every step the target is learnt.
    small = spherical_kernel(np.exp, 6)
    assert predict_kernel_risk(small, energies, 100_000) < 0.01


def test_multiplicities_add_up_to_polynomials():
    # Polynomials of degree ≤ l restricted to the sphere: Σ B = C(d+l−1, l) + C(d+l−2, l−1).
    for d in (3, 7, 20):
        for degree in (1, 2, 5):
            total = sum(harmonic_dimension(d, k) for k in range(degree + 1))
            assert total == math.comb(d + degree - 1, degree) + math.comb(d + degree - 2, degree - 1)


def test_bad_input():
    with pytest.raises(GratisError, match="negative eigenvalue"):
        spherical_kernel(lambda t: -t, 5)
    kernel = spherical_kernel(lambda t: t, 5, degrees=2)
    with pytest.raises(GratisError, match="degree 3"):
        predict_kernel_risk(kernel, np.ones(4), 3)
    with pytest.raises(GratisError, match="not defined"):
        predict_kernel_risk(kernel, np.ones(2), 50)
