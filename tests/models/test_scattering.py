from __future__ import annotations

import numpy as np
import pytest

from gratis.models.scattering import ScatteringFeatures, _filters, _low_pass_matrix
from gratis.records.errors import GratisError


def images(n: int, side: int = 28) -> np.ndarray:
    return np.random.default_rng(0).random((n, side * side))


def test_sizes_and_the_public_norm_bound() -> None:
    features = ScatteringFeatures(row_norm=10.0)
    phi = features.transform(images(5))
    assert phi.shape == (5, 3969)
    assert phi.dtype == np.float32
    norms = np.linalg.norm(phi.astype(float), axis=1)
    assert (norms <= 10).all()
    assert (norms > 9.99).all()
    assert np.array_equal(features.transform(np.zeros((1, 784))), np.zeros((1, 3969), dtype=np.float32))


def test_features_of_an_image_do_not_depend_on_the_others() -> None:
    features = ScatteringFeatures()
    X = images(300)
    assert np.allclose(features.transform(X)[7], features.transform(X[7:8])[0], atol=1e-6)
    broken = X.copy()
    broken[0, 0] = np.inf
    assert np.isfinite(features.transform(broken)).all()


def test_coefficients_against_direct_convolution() -> None:
    """Order 0, 1 and 2 of one path, by full-resolution circular convolutions without any subsampling."""
    features = ScatteringFeatures()
    image = images(1).reshape(28, 28).astype(np.float32)
    padded = np.pad(image, 4, mode="reflect")
    wavelets, low = _filters(36, 2, 8)

    def convolved(signal: np.ndarray, spectrum: np.ndarray) -> np.ndarray:
        return np.fft.ifft2(np.fft.fft2(signal) * spectrum)

    def output(signal: np.ndarray) -> np.ndarray:
        return convolved(signal, low).real[4:32:4, 4:32:4].ravel()

    found = features._scatter(image[None])[0]
    first_fine, first_coarse = (np.abs(convolved(padded, wavelets[j, 3])) for j in (0, 1))
    second = np.abs(convolved(first_fine, wavelets[1, 5]))
    assert np.allclose(found[0], output(padded), atol=1e-5)
    assert np.allclose(found[1 + 3], output(first_fine), atol=1e-5)
    # Coarse paths are computed on a grid of half the resolution: small aliasing remains.
    for channel, signal in ((1 + 8 + 3, first_coarse), (17 + 3 * 8 + 5, second)):
        reference = output(signal)
        assert np.linalg.norm(found[channel] - reference) < 0.03 * np.linalg.norm(reference)
        assert np.linalg.norm(found[channel + 1] - reference) > 0.1 * np.linalg.norm(reference)


def test_low_pass_keeps_constants() -> None:
    for subsampled in (1, 2):
        matrix = _low_pass_matrix(36, 2, 8, subsampled)
        assert matrix.shape == ((36 // subsampled) ** 2, 49)
        assert np.allclose(matrix.sum(axis=0), 1, atol=1e-3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e17, 1e19, 1e20, 1e30, 1e36, 1e38, 1e300])
@pytest.mark.parametrize("kind", ["scaled", "constant", "one pixel", "signs"])
def test_an_extreme_image_warns_of_nothing_and_changes_no_other(size: float, kind: str) -> None:
    features, X = ScatteringFeatures(side=8), images(70, 8)
    expected = np.delete(features.transform(X), 3, axis=0)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], 64)
    X[3] = {"scaled": X[3], "constant": np.ones(64), "one pixel": np.eye(64)[9], "signs": signs}[kind] * size
    found = features.transform(X)
    assert np.array_equal(np.delete(found, 3, axis=0), expected)
    assert np.isfinite(found).all()
    assert (np.linalg.norm(found.astype(float), axis=1) <= 1).all()


@pytest.mark.filterwarnings("error")
def test_groups_whose_sums_overflow_are_zero() -> None:
    """Finite coefficients with an infinite mean: −∞/∞ would be NaN."""
    features = ScatteringFeatures(side=8)
    coefficients = np.full((1, features.channels, 4), 3e38, dtype=np.float32)
    with np.errstate(all="ignore"):
        assert not features._normalised(coefficients).any()


@pytest.mark.parametrize(("side", "scales", "multiple"), [(14, 2, 4), (30, 2, 4), (28, 3, 8)])
def test_a_side_that_does_not_fit_is_named(side: int, scales: int, multiple: int) -> None:
    with pytest.raises(GratisError, match=f"side is a multiple of {multiple} pixels, got side {side}"):
        ScatteringFeatures(side=side, scales=scales)


@pytest.mark.parametrize("side", [4, 8, 12, 32])
def test_every_multiple_of_four_pixels_does(side: int) -> None:
    assert (np.linalg.norm(ScatteringFeatures(side=side).transform(images(2, side)), axis=1) > 0.9).all()


@pytest.mark.parametrize("change", [{"side": 30}, {"groups": 5}, {"row_norm": 0.0}, {"scales": 0}])
def test_bad_parameters_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(GratisError):
        ScatteringFeatures(**change)  # type: ignore[arg-type]


def test_wrong_length_is_refused() -> None:
    with pytest.raises(GratisError, match="pixels"):
        ScatteringFeatures().transform(np.zeros((2, 100)))
