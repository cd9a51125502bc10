"""MNIST: found through GRATIS_DATA, then the user's cache, then downloaded; checked against known sums."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gratis.records.errors import GratisError

__all__ = ["Images", "load_mnist", "standardise_images"]

_SOURCE = "https://storage.googleapis.com/cvdf-datasets/mnist/"
# Of the unzipped content: compression differs from copy to copy.
_SUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


class Images(NamedTuple):
    """Images as (n, 784) float32 or (n, 28, 28) uint8, labels as int64."""

    x_train: NDArray[Any]
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]


def standardise_images(images: NDArray[Any]) -> NDArray[np.float32]:
    """Give every image mean 0 and standard deviation 1 over its own pixels; a constant image becomes 0.

    A map of each record alone, so it is public preprocessing.

    >>> standardise_images(np.array([[0, 2], [5, 5]], dtype=np.uint8)).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    flat = np.asarray(images, dtype=np.float32).reshape(len(images), -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)


def load_mnist(*, standardise: bool = True) -> Images:
    """Return MNIST, 60,000 training and 10,000 test images, standardised one by one (or raw uint8).

    Looked for in $GRATIS_DATA/mnist, then in the cache ($XDG_CACHE_HOME/gratis/mnist), then downloaded to it.
    """
    raw = {name: _content(name) for name in _SUMS}
    parts: list[NDArray[Any]] = []
    for kind in ("train", "t10k"):
        images = np.frombuffer(raw[f"{kind}-images-idx3-ubyte"], dtype=np.uint8, offset=16).reshape(-1, 28, 28)
        labels = np.frombuffer(raw[f"{kind}-labels-idx1-ubyte"], dtype=np.uint8, offset=8)
        parts += [standardise_images(images) if standardise else images, labels.astype(np.int64)]
    return Images(*parts)


def _content(name: str) -> bytes:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gratis" / "mnist"
    given = os.environ.get("GRATIS_DATA")
    for folder in ([Path(given) / "mnist"] if given else []) + [cache]:
        path = folder / f"{name}.gz"
        if path.is_file():
            return _checked(name, path.read_bytes(), str(path))
    address = f"{_SOURCE}{name}.gz"
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            packed = answer.read()
    except OSError as error:
        raise GratisError(
            f"MNIST was not found in GRATIS_DATA or {cache}, and the download failed ({error}); put {name}.gz there"
        ) from None
    content = _checked(name, packed, address)
    cache.mkdir(parents=True, exist_ok=True)
    partial = cache / f"{name}.{os.getpid()}.partial"
    partial.write_bytes(packed)
    partial.replace(cache / f"{name}.gz")
    return content


def _checked(name: str, packed: bytes, where: str) -> bytes:
    try:
        content = gzip.decompress(packed)
    except (OSError, EOFError):
        content = b""
    if hashlib.sha256(content).hexdigest() != _SUMS[name]:
        raise GratisError(f"{where} is not the known MNIST file (its SHA-256 differs); remove it and try again")
    return content
