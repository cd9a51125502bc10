"""SST-2 sentences: found through GRATIS_DATA, then the user's cache, then downloaded; checked against known sums."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import urllib.request
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gratis.records.errors import GratisError

__all__ = ["Sentences", "load_sst2"]

_SOURCE = "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip"
# Of the lines in sorted order: copies differ in the order of the training sentences.
_SUMS = {
    "train": "1fda74b71a1dc15cc729bb61b54b21055a522f75f80474a2be984a82835e21bf",
    "dev": "2610f92499d6e1a4478b8a0ac2b53bbd1f84d35353a6cc91c69fd084208e1552",
}


class Sentences(NamedTuple):
    """Sentences and labels (0 negative, 1 positive), in an order drawn from a public seed."""

    train: list[str]
    y_train: NDArray[np.int64]
    dev: list[str]
    y_dev: NDArray[np.int64]


def load_sst2(*, seed: int = 0) -> Sentences:
    """Return 67,349 training and 872 development sentences; the training ones are shuffled (files are partly sorted).

    Looked for in $GRATIS_DATA/sst2, then in the cache ($XDG_CACHE_HOME/gratis/sst2), then downloaded to it.
    """
    train, y_train = _split("train")
    dev, y_dev = _split("dev")
    order = np.random.default_rng(seed).permutation(len(train))
    return Sentences([train[i] for i in order], y_train[order], dev, y_dev)


def _split(kind: str) -> tuple[list[str], NDArray[np.int64]]:
    # Sorted first: a copy's own order must not matter.
    lines = sorted(_lines(kind))
    pairs = [line.rsplit("\t", 1) for line in lines]
    return [text.strip() for text, _ in pairs], np.array([int(label) for _, label in pairs], dtype=np.int64)


def _lines(kind: str) -> list[str]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gratis" / "sst2"
    given = os.environ.get("GRATIS_DATA")
    for folder in ([Path(given) / "sst2"] if given else []) + [cache]:
        path = folder / f"{kind}.tsv.gz"
        if path.is_file():
            try:
                return _checked(kind, gzip.decompress(path.read_bytes()), str(path))
            except (OSError, EOFError):
                raise GratisError(f"{path} is damaged; remove it and try again") from None
    try:
        with urllib.request.urlopen(_SOURCE, timeout=120) as answer:
            archive = zipfile.ZipFile(io.BytesIO(answer.read()))
        content = archive.read(f"SST-2/{kind}.tsv")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise GratisError(
            f"SST-2 was not found in GRATIS_DATA or {cache}, and the download failed ({error}); put {kind}.tsv.gz there"
        ) from None
    lines = _checked(kind, content, _SOURCE)
    cache.mkdir(parents=True, exist_ok=True)
    partial = cache / f"{kind}.{os.getpid()}.partial"
    partial.write_bytes(gzip.compress(content))
    partial.replace(cache / f"{kind}.tsv.gz")
    return lines


def _checked(kind: str, content: bytes, where: str) -> list[str]:
    lines = content.decode("utf-8", errors="replace").splitlines()[1:]
    if hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest() != _SUMS[kind]:
        raise GratisError(f"{where} does not hold the known SST-2 sentences (their SHA-256 differs); remove it")
    return lines
