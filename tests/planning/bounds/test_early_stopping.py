"""The closed form against a simulation that shares no code with it, and against its own limit."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.planning.bounds.early_stopping import EarlyStopping
from gratis.records.errors import GratisError

N, P, M = 10, 30, 7


def problem() -> tuple[EarlyStopping, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    phi, phi_test = rng.standard_normal((N, P)), rng.standard_normal((M, P))
    y, y_test = rng.standard_normal(N), rng.standard_normal(M)
    values, vectors = np.linalg.eigh(phi @ phi.T)
    closed = EarlyStopping(
        n_records=N,
        eigenvalues=values,
        modes=vectors.T @ y,
        projections=phi_test @ phi.T @ vectors / np.sqrt(values),
        test_diagonal=np.square(phi_test).sum(axis=1),
        test_targets=y_test,
    )
    return closed, phi, phi_test, y, y_test


def test_mean_and_noise_match_noisy_descent() -> None:
    closed, phi, phi_test, y, y_test = problem()
    rng, runs, steps, rate, std = np.random.default_rng(1), 20_000, 9, 0.02, 0.05
    theta = np.zeros((P, runs))
    for _ in range(steps):
        theta += -rate * 2 / N * phi.T @ (phi @ theta - y[:, None]) + std * rng.standard_normal(theta.shape)
    loss = np.square(phi_test @ theta - y_test[:, None]).mean(axis=0)
    terms = closed.predict_steps(steps, learning_rates=rate, total_noise_variances=steps * std**2)
    assert abs(loss.mean() - terms.total) < 4 * loss.std() / np.sqrt(runs)
    wrong = closed.predict_steps(steps, learning_rates=rate, total_noise_variances=1.1 * steps * std**2)
    assert abs(loss.mean() - wrong.total) > 4 * loss.std() / np.sqrt(runs)


def test_interpolant_is_the_limit_and_the_pseudo_inverse() -> None:
    closed, phi, phi_test, y, y_test = problem()
    star = np.square(phi_test @ np.linalg.pinv(phi) @ y - y_test).mean()
    rate = 0.5 * closed.largest_learning_rate
    terms = closed.predict_steps([1, 100_000], learning_rates=rate, total_noise_variances=0.0)
    assert terms.interpolant == pytest.approx(star)
    assert terms.total[1] == pytest.approx(star)
    assert terms.distance[1] < 1e-12 < terms.distance[0]


def test_discrete_recursion_tends_to_the_flow() -> None:
    closed, *_ = problem()
    time = 0.2
    flow = closed.predict_flow(time, total_noise_variances=0.3).total
    gaps = [
        abs(closed.predict_steps(t, learning_rates=time / t, total_noise_variances=0.3).total - flow)
        for t in (100, 200, 400)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=0.1)


def test_unstable_rates_are_refused() -> None:
    closed, *_ = problem()
    with pytest.raises(GratisError, match="stable"):
        closed.predict_steps(5, learning_rates=1.01 * closed.largest_learning_rate, total_noise_variances=0.0)
