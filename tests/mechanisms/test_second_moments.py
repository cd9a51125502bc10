import math

import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import (
    Preconditioner,
    cleaned_eigenvalues,
    clipped_outer_products,
    release_second_moments,
    second_moment_event,
)
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

RELATIONS = list(Neighbouring)


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_on_neighbours(relation):
    rng = np.random.default_rng(0)
    n, columns, worst = 8, 3, 0.0
    bound = second_moment_event(n, columns, mu=1.0, neighbouring=relation).sensitivity
    for trial in range(2000):
        X = rng.standard_normal((n, columns)) * 10.0 ** rng.integers(-2, 3)
        X2 = X.copy()
        X2[0] = 0 if relation is Neighbouring.ZERO_OUT else rng.standard_normal(columns) * 1e3
        if trial % 5 == 0 and relation is Neighbouring.REPLACE_ONE:
            X2[0] = rng.choice([np.nan, np.inf, 1e200, 1e-200, 0.0], columns)
        if trial % 3 == 0:
            X[0], X2[0, :2] = [1e4, 0, 0], [0, 1e4 * (relation is Neighbouring.REPLACE_ONE)]
            X2[0, 2] = 0
        worst = max(worst, float(np.linalg.norm(clipped_outer_products(X) - clipped_outer_products(X2)) / 8))
    assert 0.99 * bound < worst <= bound


def test_negative_control_unclipped_rows_break_the_bound():
    X = np.full((8, 3), 5.0)
    X2 = X.copy()
    X2[0] = 0
    bound = second_moment_event(8, 3, mu=1.0, neighbouring=Neighbouring.ZERO_OUT).sensitivity
    assert np.linalg.norm(X.T @ X - X2.T @ X2) / 8 > bound
    assert np.linalg.norm(clipped_outer_products(X) - clipped_outer_products(X2)) / 8 <= bound


@pytest.mark.parametrize("relation", RELATIONS)
def test_event_spends_exactly_its_share(relation):
    event = second_moment_event(1000, 7, mu=0.1, neighbouring=relation)
    assert event.sensitivity / event.noise_std == pytest.approx(0.1, rel=1e-12)
    assert event.sensitivity == pytest.approx((1 if relation is Neighbouring.ZERO_OUT else math.sqrt(2)) * 7 / 1000)


def test_noise_law_on_a_table_of_zeros():
    """With X = 0 the released matrix is pure noise: recover it from the preconditioner of many releases."""
    stds = []
    for seed in range(200):
        event = second_moment_event(100, 2, mu=0.5, neighbouring=Neighbouring.ZERO_OUT)
        released = NoiseSource.insecure(seed).release(clipped_outer_products(np.zeros((100, 2))), event.noise_std)
        stds.append(released.ravel())
    assert np.std(stds) == pytest.approx(2 / 100 / 0.5, rel=0.06)
    assert np.std(stds) != pytest.approx(2 / 100 / 0.5 / 2, rel=0.06)  # halved noise would be seen


def test_whitens_when_noise_is_small_and_maps_parameters_back():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((20_000, 3)) @ np.array([[1, 0.5, 0], [0, 0.3, 0], [0, 0, 1.2]])
    found, _ = release_second_moments(
        Rows.held(X, X[:, 0]), mu=100.0, neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0)
    )
    Z = found.transform(X)
    moments = Z.T @ Z / len(Z)
    assert np.abs(moments - np.diag(np.diag(moments))).max() < 0.02
    # Rows were clipped for the release, so the moments of whole rows are larger, but by a factor only.
    assert ((np.diag(moments) > 0.9) & (np.diag(moments) < 2)).all()
    phi = rng.standard_normal((3, 2))
    np.testing.assert_allclose(X @ found.restore(phi), Z @ phi, atol=1e-9)
    assert 1 <= found.effective_dimension <= 3


def test_cleaned_eigenvalues_are_the_true_moments_along_the_noisy_eigenvectors():
    rng = np.random.default_rng(4)
    truth, size, spread = np.concatenate([[60.0, 40.0, 20.0], np.full(97, 0.3)]), 100, 5.0
    error = {"noisy": 0.0, "cleaned": 0.0}
    for _ in range(10):
        turned = np.linalg.qr(rng.standard_normal((size, size)))[0]
        matrix = (turned * truth) @ turned.T
        drawn = rng.standard_normal((size, size)) * spread / np.sqrt(size / 2)
        noisy, vectors = np.linalg.eigh(matrix + (drawn + drawn.T) / 2)
        along = np.einsum("ji,jk,ki->i", vectors, matrix, vectors)
        error["noisy"] += np.abs(np.maximum(noisy, 0) - along).sum()
        error["cleaned"] += np.abs(cleaned_eigenvalues(noisy, spread) - along).sum()
    assert error["cleaned"] < 0.3 * error["noisy"]
    np.testing.assert_allclose(cleaned_eigenvalues(truth, 0.0), np.sort(truth))


def test_noise_alone_is_not_taken_for_directions():
    X = np.full((500, 60), 1e-3)
    found, _ = release_second_moments(
        Rows.held(X, X[:, 0]), mu=0.05, neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(3)
    )
    assert found.effective_dimension < 6  # about 16 before the eigenvalues were cleaned


def test_degenerate_tables_do_not_fail():
    for X in (np.zeros((5, 3)), np.full((5, 3), np.nan), np.full((1, 1), 1e308)):
        found, _ = release_second_moments(
            Rows.held(X, X[:, 0]), mu=0.1, neighbouring=Neighbouring.REPLACE_ONE, noise=NoiseSource.insecure(1)
        )
        assert np.isfinite(found.basis).all()
        assert ((found.spectrum >= 0) & (found.spectrum < 1)).all()


def test_the_identity_is_not_stored():
    plain, X = Preconditioner.identity(10**6), np.zeros((1, 10**6))
    assert plain.basis is None
    assert plain.effective_dimension == 10**6
    assert plain.transform(X) is X
    assert plain.restore(X) is X


def test_bad_parameters():
    with pytest.raises(GratisError, match="mu"):
        second_moment_event(10, 2, mu=0.0, neighbouring=Neighbouring.ZERO_OUT)
    with pytest.raises(GratisError, match="n_columns"):
        second_moment_event(10, 0, mu=1.0, neighbouring=Neighbouring.ZERO_OUT)


@pytest.mark.filterwarnings("error")
def test_a_huge_record_raises_no_warning():
    """A warning on the screen would tell that such a record is there."""
    basis = Preconditioner(np.full((2, 2), 2.0), np.ones(2))
    assert np.isinf(basis.transform(np.full((1, 2), 1e308))).all()
    with pytest.raises(RuntimeWarning):
        np.full((1, 2), 1e308) @ basis.basis.T  # negative control
