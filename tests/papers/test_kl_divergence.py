from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.records.errors import GratisError
from gratis_papers.kl_divergence import estimate_kl, explain_kl, linear_model_kl


def path_law(X: np.ndarray, y: np.ndarray, eta: float, sigma: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (w_1, …, w_T) stacked, from w_0 = 0: a route by block matrices, not by recursion."""
    p, n = X.shape[1], len(X)
    shrink = np.eye(p) - eta * X.T @ X / n
    drift = eta * X.T @ y / n
    powers = [np.linalg.matrix_power(shrink, k) for k in range(steps)]
    blocks = np.block([[powers[i - j] if j <= i else np.zeros((p, p)) for j in range(steps)] for i in range(steps)])
    return blocks @ np.tile(drift, steps), 2 * eta * sigma**2 * blocks @ blocks.T


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_linear_model_equals_the_divergence_of_the_joint_gaussians(steps: int) -> None:
    rng = np.random.default_rng(steps)
    X, y = rng.normal(size=(9, 3)), rng.normal(size=9)
    other_X, other_y = X.copy(), y.copy()
    other_X[4], other_y[4] = rng.normal(size=3), 3.0
    eta, sigma = 0.3, 0.6
    m0, S0 = path_law(X, y, eta, sigma, steps)
    m1, S1 = path_law(other_X, other_y, eta, sigma, steps)
    inverse = np.linalg.inv(S1)
    gap = m1 - m0
    exact = 0.5 * (
        np.trace(inverse @ S0) + gap @ inverse @ gap - len(m0) + np.linalg.slogdet(S1)[1] - np.linalg.slogdet(S0)[1]
    )
    formula = linear_model_kl(X, y, other_X, other_y, step_size=eta, noise_std=sigma, steps=steps)
    assert formula == pytest.approx(exact, rel=1e-6)
    # The paper's 1/(2σ²) is twice that.
    assert 2 * formula == pytest.approx(2 * exact, rel=1e-6)
    assert 2 * formula != pytest.approx(exact, rel=0.5)


def test_interval_covers_the_worst_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    means = 1 + 0.1 * rng.random(40)
    covered = 0
    for _ in range(300):
        estimate, _ = estimate_kl(means + 0.05 * rng.standard_normal((6, 40)), confidence=0.9)
        covered += estimate.low <= means.max() <= estimate.high
    assert covered >= 0.87 * 300


def test_one_run_bounds_nothing() -> None:
    estimate, worst = estimate_kl(np.array([[1.0, 3.0, 2.0]]))
    assert (estimate.low, estimate.value, estimate.high, worst) == (0.0, 3.0, math.inf, 1)


def test_meaning_names_what_kl_is_not() -> None:
    meaning = explain_kl(kl=8.0)
    assert meaning.total_variation <= 1
    assert meaning.total_variation == pytest.approx(math.sqrt(1 - math.exp(-8)))
    assert "not (ε, δ)-DP" in meaning.words


@pytest.mark.parametrize("bad", [np.zeros(3), np.array([[np.nan]]), np.zeros((0, 2))])
def test_bad_divergences_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(GratisError):
        estimate_kl(bad)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(GratisError):
        estimate_kl(np.ones((2, 2)), confidence=1.0)
    with pytest.raises(GratisError):
        linear_model_kl([[1.0]], [0.0], [[1.0, 2.0]], [0.0], step_size=0.1, noise_std=1.0, steps=1)
    with pytest.raises(GratisError):
        linear_model_kl([[1.0]], [0.0], [[1.0]], [0.0], step_size=0.1, noise_std=0.0, steps=1)
