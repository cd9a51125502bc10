from __future__ import annotations

import numpy as np
import pytest

from gratis.models.scattering import ScatteringFeatures, _filters, _low_pass_matrix
from gratis.specs.errors import GratisError


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


@pytest.mark.parametrize("change", [{"side": 30}, {"groups": 5}, {"row_norm": 0.0}, {"scales": 0}])
def test_bad_parameters_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(GratisError):
        ScatteringFeatures(**change)  # type: ignore[arg-type]


def test_wrong_length_is_refused() -> None:
    with pytest.raises(GratisError, match="pixels"):
        ScatteringFeatures().transform(np.zeros((2, 100)))
