"""CIFAR-10 airplanes and automobiles: found through GRATIS_DATA, then the user's cache, then downloaded; checked."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.errors import GratisError
from gratis_papers.images import Images, standardise_images

__all__ = ["load_cifar_pair"]

_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
_SOURCE_SUM = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
_NAME = "cifar10_airplane_automobile.npz"
# Of the images' and labels' bytes, in the order of the original files: containers differ from copy to copy.
_SUM = "04d6724b2af167adcb4ba7c25fb5a6ee83c152eb7e9820994fbaddd065bdfe77"


def load_cifar_pair(*, standardise: bool = True) -> Images:
    """Return airplanes (0) and automobiles (1): 10,000 training and 2,000 test images, (n, 3072), each standardised.

    Looked for in $GRATIS_DATA/cifar10, then in the cache ($XDG_CACHE_HOME/gratis/cifar10), then downloaded to it.
    Standardising gives every image mean 0 and norm √d, a map of each record alone.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gratis" / "cifar10"
    given = os.environ.get("GRATIS_DATA")
    for folder in ([Path(given) / "cifar10"] if given else []) + [cache]:
        if (folder / _NAME).is_file():
            return _images(_read(folder / _NAME), str(folder / _NAME), standardise)
    parts = _download(cache)
    found = _images(parts, _SOURCE, standardise)
    cache.mkdir(parents=True, exist_ok=True)
    partial = cache / f"{_NAME}.{os.getpid()}.partial"
    with partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **parts)
    partial.replace(cache / _NAME)
    return found


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    except (OSError, KeyError, ValueError):
        raise GratisError(f"{path} is not the known CIFAR file; remove it and try again") from None


def _images(parts: dict[str, NDArray[Any]], where: str, standardise: bool) -> Images:
    digest = hashlib.sha256()
    for name in ("x_train", "y_train", "x_test", "y_test"):
        digest.update(np.ascontiguousarray(parts[name], dtype=np.uint8).tobytes())
    if digest.hexdigest() != _SUM:
        raise GratisError(f"{where} does not hold the known CIFAR images (their SHA-256 differs); remove it")
    x_train, x_test = (
        standardise_images(parts[name]) if standardise else parts[name].reshape(len(parts[name]), -1)
        for name in ("x_train", "x_test")
    )
    return Images(x_train, parts["y_train"].astype(np.int64), x_test, parts["y_test"].astype(np.int64))


def _download(cache: Path) -> dict[str, NDArray[Any]]:
    try:
        with urllib.request.urlopen(_SOURCE, timeout=120) as answer:
            packed = answer.read()
    except OSError as error:
        raise GratisError(
            f"CIFAR-10 was not found in GRATIS_DATA or {cache}, and the download failed ({error}); put {_NAME} there"
        ) from None
    # Unpickling runs code: only bytes of the published sum are read.
    if hashlib.sha256(packed).hexdigest() != _SOURCE_SUM:
        raise GratisError(f"{_SOURCE} did not bring the known CIFAR-10 archive (its SHA-256 differs)")
    parts: dict[str, list[NDArray[Any]]] = {"x_train": [], "y_train": [], "x_test": [], "y_test": []}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for kind, names in (("train", [f"data_batch_{i}" for i in range(1, 6)]), ("test", ["test_batch"])):
            for name in names:
                member = archive.extractfile(f"cifar-10-batches-py/{name}")
                assert member is not None
                batch = pickle.load(member, encoding="bytes")
                labels = np.array(batch[b"labels"])
                kept = labels < 2
                images = batch[b"data"][kept].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
                parts[f"x_{kind}"].append(images)
                parts[f"y_{kind}"].append(labels[kept].astype(np.uint8))
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}
