"""The released score of a fit: bounded on hostile rows, honest about fresh ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.fit_score import ReleasedScore, expected_accuracy, expected_r_squared, plan_score, release_score
from gratis.numerics.rounding import ROWS_PER_CHUNK
from gratis.records.neighbouring import Neighbouring

N = 40
TARGET = Standardiser(np.zeros(1), np.ones(1), np.full(1, 8.0))


class Tape:
    def release(self, values: Any, std: float) -> Any:
        self.values = np.array(values)
        return self.values


def squares(X: Any, y: Any) -> Any:
    return np.square(np.column_stack([y - X[:, 0], y]))


def released(X: Any, y: Any) -> Any:
    event = plan_score(N, 2, mu=1.0, neighbouring=Neighbouring.ZERO_OUT)
    tape = Tape()
    release_score(Rows.held(X, y), squares, np.array([2.0, 8.0]), N, event, noise=tape)  # type: ignore[arg-type]
    return tape.values


HOSTILE = [(1e308, -1e308), (np.nan, 3.0), (0.0, np.nan), (np.inf, 1.0), (-1e200, 1e200), (0.0, 0.0)]


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_one_record_moves_the_score_by_no_more_than_planned(relation: Neighbouring) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 1)), rng.normal(size=N)
    event = plan_score(N, 2, mu=0.5, neighbouring=relation)
    assert event.noise_std == pytest.approx(event.sensitivity / 0.5)
    found = []
    for record in HOSTILE:
        A, a = X.copy(), y.copy()
        A[3], a[3] = record
        found.append(released(A, a))
    gaps = [np.linalg.norm(p - q) for p in found for q in found]
    assert max(gaps) <= event.sensitivity
    assert max(gaps) > 0.9 * event.sensitivity  # the bound is reached


@pytest.mark.parametrize("parts", [1, 2])
def test_the_plan_covers_roundings_of_vectors_as_long_as_the_cube_s_diagonal(parts: int) -> None:
    """Records of norm √parts: the bound of docs/proofs/rounding.md with C = √parts, κ′ = 1."""
    n = 50_000_000
    event = plan_score(n, parts, mu=1.0, neighbouring=Neighbouring.REPLACE_ONE)
    chain = (ROWS_PER_CHUNK + -(-n // ROWS_PER_CHUNK) + 2) * 2.0**-53
    assert event.sensitivity * n >= np.sqrt(parts) * (1 + 2 * chain * n)


def test_ranges_hold_as_often_as_they_say() -> None:
    """Linear truths of random strength; fits are the truth, so that the score is known."""
    rng = np.random.default_rng(1)
    inside, n, mu = [], 2000, 0.3
    event = plan_score(n, 2, mu=mu, neighbouring=Neighbouring.ZERO_OUT)
    for seed in range(150):
        strength = rng.uniform(0.0, 0.9)
        X = rng.normal(size=(n + n // 4, 1)) * np.sqrt(strength)
        y = X[:, 0] + np.sqrt(1 - strength) * rng.normal(size=len(X))
        score = release_score(
            Rows.held(X[:n], y[:n]), squares, np.full(2, 8.0), n, event,
            noise=NoiseSource.insecure(seed),
        )  # fmt: skip
        expected = expected_r_squared(score, TARGET, n, n * mu, 0.0)
        fresh = 1 - np.mean((y[n:] - X[n:, 0]) ** 2) / y[n:].var()
        inside.append(expected.low <= fresh <= expected.high)
    assert 0.7 < np.mean(inside) < 0.97


def test_a_score_of_pure_noise_says_little_and_stays_in_bounds() -> None:
    wild = ReleasedScore(np.array([-5.0, -3.0]), np.array([4.0, 4.0]))
    found = expected_r_squared(wild, TARGET, 50, 10.0, 5.0)
    assert -0.5 <= found.low < found.value < found.high <= 1
    sure = expected_accuracy(ReleasedScore(np.array([0.9]), np.array([0.001])), 10_000, 1000.0, 0.5)
    assert sure.low < 0.9 < sure.high < 0.94


def test_a_target_whose_spread_could_not_be_told_is_named() -> None:
    """Its scale is then far too wide: squares of the standardised target are nothing beside their noise."""
    far = replace(TARGET, centre=np.full(1, 500.0))

    def named(mean: float, noise: float, target: Standardiser) -> bool:
        score = ReleasedScore(np.array([0.02, mean]), np.full(2, noise))
        return "subtract a public number" in expected_r_squared(score, target, 3000, 400.0, 4.0).source

    assert named(0.1, 0.08, far)
    assert not named(1.0, 0.08, far)  # found
    assert not named(0.1, 0.4, far)  # too noisy to say
    assert not named(0.1, 0.08, TARGET)  # near zero: heavy tails


@pytest.mark.slow(but=["DPAdditiveRegressor"])
@pytest.mark.parametrize("model", ["DPLinearRegression", "DPAdditiveRegressor"])
def test_fits_of_a_target_far_from_zero_say_that_they_may_be_off(model: str) -> None:
    import gratis

    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = X @ [0.8, 0.6] + 0.3 * rng.normal(size=3000)
    said = []
    for target in (y, y + 30.0, y + 1e6, 1e18 * (y + 2.0)):
        fit = getattr(gratis, model)(1.0, 1e-5, noise_seed=1, insecure_reproducible=True).fit(X, target)
        said.append("public number" in fit.expected_score_.source)
    assert said == [False, False, True, True]
