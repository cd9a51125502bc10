from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.accounting import account
from gratis.mechanisms.noise import NoiseSource
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis_papers.geometric_median import geometric_median, mean_distance, mean_unit_vector

RELATION = Neighbouring.REPLACE_ONE
SETTINGS = {"steps": 60, "learning_rate": 0.3, "mu": 1.0, "neighbouring": RELATION}


def test_event_spends_exactly_the_budget() -> None:
    X = np.random.default_rng(0).normal(size=(500, 4))
    run = geometric_median(X, np.ones(4), noise=NoiseSource.insecure(0), **SETTINGS)
    assert account(run.event).mu == pytest.approx(1.0, rel=1e-9)
    assert account(run.event).mu <= 1.0 + 1e-12


@pytest.mark.parametrize("bad", [1e300, -1e200, np.nan, np.inf, 0.0])
def test_sensitivity_on_real_neighbours_whatever_the_record(bad: float) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 6))
    other = X.copy()
    other[7] = bad
    roots = np.sqrt(np.arange(1.0, 9) ** -0.5)
    point = rng.normal(size=8)
    difference = mean_unit_vector(X, point, roots) - mean_unit_vector(other, point, roots)
    assert np.linalg.norm(difference) <= 2 / 40 * (1 + 1e-12)


def test_opposite_records_reach_the_sensitivity_and_unclipped_ones_would_exceed_it() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 3))
    other = X.copy()
    X[0], other[0] = (1e6, 0, 0), (-1e6, 0, 0)
    roots, point = np.ones(3), np.zeros(3)
    difference = mean_unit_vector(X, point, roots) - mean_unit_vector(other, point, roots)
    assert np.linalg.norm(difference) == pytest.approx(2 / 30, rel=1e-9)
    # Negative control: without the division by the norm the same pair moves the sum far beyond 2/n.
    assert np.linalg.norm((X - other).mean(axis=0)) > 1000 * 2 / 30


def test_leading_columns_stand_for_zero_padded_rows() -> None:
    rng = np.random.default_rng(3)
    X, matrix = rng.normal(1, 1, (200, 3)), np.arange(1.0, 11) ** -0.5
    padded = np.hstack([X, np.zeros((200, 7))])
    short = geometric_median(X, matrix, noise=NoiseSource.insecure(4), regularisation=0.1, **SETTINGS)
    full = geometric_median(padded, matrix, noise=NoiseSource.insecure(4), regularisation=0.1, **SETTINGS)
    np.testing.assert_allclose(short.last, full.last, atol=1e-6)
    np.testing.assert_allclose(short.mean, full.mean, atol=1e-6)
    assert mean_distance(X, full.last, matrix) == pytest.approx(mean_distance(padded, full.last, matrix))


def test_full_matrix_is_the_rotated_problem() -> None:
    rng = np.random.default_rng(5)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    matrix = rotation @ np.diag([1.0, 0.5, 0.2, 0.1]) @ rotation.T
    X = rng.normal(2, 1, (3000, 4))
    run = geometric_median(X, matrix, noise=NoiseSource.insecure(0), **(SETTINGS | {"mu": 50.0, "steps": 400}))
    # Weiszfeld by hand.
    point = X.mean(axis=0)
    for _ in range(100):
        gaps = X - point
        weights = 1 / np.sqrt(np.einsum("ij,jk,ik->i", gaps, matrix, gaps))
        point = weights @ X / weights.sum()
    np.testing.assert_allclose(run.last, point, atol=0.05)


def test_matched_noise_has_the_law_it_claims() -> None:
    """With a vanishing learning signal the iterate is pure noise of covariance η²T·s²·A (matched) or λ₁·s²·I."""
    X, matrix = np.zeros((50, 1)), np.array([4.0, 1.0, 0.04])
    draws = {
        matched: np.array(
            [
                geometric_median(
                    X, matrix, steps=1, learning_rate=1.0, mu=1.0, neighbouring=RELATION,
                    noise=NoiseSource.insecure(seed), matched_noise=matched,
                ).last
                for seed in range(1500)
            ]
        )
        for matched in (False, True)
    }  # fmt: skip
    s = 2 / 50
    np.testing.assert_allclose(draws[True].std(axis=0), s * np.sqrt(matrix), rtol=0.08)
    np.testing.assert_allclose(draws[False].std(axis=0), np.full(3, 2 * s), rtol=0.08)


def test_mean_is_over_the_iterates_before_each_step() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    run = geometric_median(X, np.ones(2), noise=NoiseSource.insecure(0), **(SETTINGS | {"steps": 1}))
    assert run.mean.tolist() == [0.0, 0.0], "x⁽⁰⁾ is the only iterate of T = 1"
    assert math.isfinite(float(run.last.sum()))


def test_non_finite_rows_add_nothing_and_raise_nothing() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    kept = np.delete(X, 3, axis=0)
    X[3, 1] = np.nan
    point, roots = np.array([0.3, -0.2]), np.ones(2)
    expected = mean_unit_vector(kept, point, roots) * 19 / 20
    np.testing.assert_allclose(mean_unit_vector(X, point, roots), expected, rtol=1e-12)
    for matrix in (np.ones(2), np.array([[2.0, 1.0], [1.0, 2.0]])):
        assert np.isfinite(geometric_median(X, matrix, noise=NoiseSource.insecure(0), **SETTINGS).last).all()


@pytest.mark.parametrize(
    ("X", "matrix", "extra"),
    [
        (np.zeros((3, 4)), np.ones(3), {}),
        (np.zeros(3), np.ones(3), {}),
        (np.zeros((3, 2)), [[1.0, 0.5], [0.0, 1.0]], {}),
        (np.zeros((3, 2)), [1.0, -1.0], {}),
        (np.zeros((3, 2)), [1.0, np.nan], {}),
        (np.zeros((3, 1)), np.array([[2.0, 1.0], [1.0, 2.0]]), {}),
        (np.zeros((3, 2)), np.ones(2), {"learning_rate": 0.0}),
        (np.zeros((3, 2)), np.ones(2), {"steps": 0}),
        (np.zeros((3, 2)), np.ones(2), {"mu": 0.0}),
    ],
)
def test_bad_input_is_refused(X: object, matrix: object, extra: dict[str, float]) -> None:
    with pytest.raises(GratisError):
        geometric_median(X, matrix, noise=NoiseSource.insecure(0), **(SETTINGS | extra))
