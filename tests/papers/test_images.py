"""MNIST is found, checked, and standardised image by image."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from gratis.records.errors import GratisError
from gratis_papers.images import load_mnist, standardise_images


def test_standardising_uses_each_image_alone() -> None:
    images = np.random.default_rng(0).integers(256, size=(5, 4, 4)).astype(np.uint8)
    alone = np.concatenate([standardise_images(images[i : i + 1]) for i in range(5)])
    np.testing.assert_array_equal(standardise_images(images), alone)
    np.testing.assert_allclose(alone.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(alone.std(axis=1), 1, atol=1e-6)


def test_a_wrong_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"not MNIST"))
    monkeypatch.setenv("GRATIS_DATA", str(tmp_path))
    with pytest.raises(GratisError, match="SHA-256"):
        load_mnist()


@pytest.mark.data
@pytest.mark.skipif("GRATIS_DATA" not in os.environ, reason="GRATIS_DATA is not set")
def test_mnist() -> None:
    data = load_mnist(standardise=False)
    assert data.x_train.shape == (60_000, 28, 28)
    assert data.x_test.shape == (10_000, 28, 28)
    assert np.bincount(data.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
