from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from gratis.records.errors import GratisError
from gratis_papers.cifar import load_cifar_pair
from gratis_papers.sst2 import load_sst2

FOLDER = Path(os.environ.get("GRATIS_DATA", "/nonexistent"))
needs_cifar = pytest.mark.skipif(
    not (FOLDER / "cifar10" / "cifar10_airplane_automobile.npz").is_file(), reason="CIFAR-10 is not in GRATIS_DATA"
)
needs_sst2 = pytest.mark.skipif(not (FOLDER / "sst2" / "dev.tsv.gz").is_file(), reason="SST-2 is not in GRATIS_DATA")


@pytest.mark.slow
@pytest.mark.data
@needs_cifar
def test_cifar_pair_is_standardised_image_by_image() -> None:
    images = load_cifar_pair()
    assert images.x_train.shape == (10_000, 3072)
    assert images.x_test.shape == (2000, 3072)
    assert np.bincount(images.y_train).tolist() == [5000, 5000]
    np.testing.assert_allclose(np.linalg.norm(images.x_train[:50], axis=1), np.sqrt(3072), rtol=1e-4)
    raw = load_cifar_pair(standardise=False)
    assert raw.x_test.dtype == np.uint8


@pytest.mark.slow
@pytest.mark.data
@needs_sst2
def test_sst2_is_shuffled_by_a_public_seed() -> None:
    first, again, other = load_sst2(seed=1), load_sst2(seed=1), load_sst2(seed=2)
    assert (len(first.train), len(first.dev)) == (67_349, 872)
    assert first.train[:5] == again.train[:5] != other.train[:5]
    assert set(first.y_train) == {0, 1}
    # Shuffled: labels of the first thousand are mixed.
    assert 0.4 < first.y_train[:1000].mean() < 0.7


def test_damaged_copies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRATIS_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    path = tmp_path / "cifar10" / "cifar10_airplane_automobile.npz"
    path.write_bytes(b"not an archive")
    with pytest.raises(GratisError, match="remove it"):
        load_cifar_pair()
    zeros = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    np.savez(path, x_train=zeros, y_train=np.zeros(4), x_test=zeros, y_test=np.zeros(4))
    with pytest.raises(GratisError, match="SHA-256"):
        load_cifar_pair()
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\nfine\t1\n"))
    with pytest.raises(GratisError, match="SHA-256"):
        load_sst2()
    (tmp_path / "sst2" / "train.tsv.gz").write_bytes(b"not gzip")
    with pytest.raises(GratisError, match="damaged"):
        load_sst2()


def test_failed_download_says_where_to_put_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.delenv("GRATIS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    for load in (load_cifar_pair, load_sst2):
        with pytest.raises(GratisError, match=r"put .* there"):
            load()
