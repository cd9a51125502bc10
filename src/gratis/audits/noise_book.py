"""Whether noise was used twice, or was smaller than stated, over all recordings of an audit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr

from gratis.audits.recordings import Recording

__all__ = ["NoiseBook"]

Array = NDArray[Any]
_IMPROBABLE = 1e-12  # χ² level below which recorded noise counts as too small


class NoiseBook:
    """Remembers the noise of all recordings of an audit: no two releases may share it, and none may be too small.

    Noise is output − value in units of the stated deviation. A key that was used twice makes two calls of one book
    begin with the same four numbers, which chance does once in 10²⁰ comparisons.
    """

    _PREFIX = 4

    def __init__(self) -> None:
        self._seen: dict[bytes, Array] = {}
        self._square, self._count = 0.0, 0

    def check(self, recording: Recording) -> list[str]:
        """Return what is wrong with the noise of one more recording, and of all so far together."""
        found, square, count = [], 0.0, 0
        for call in recording.calls:
            noise = call.noise
            square, count = square + float(np.square(noise).sum()), count + noise.size
            if noise.size < self._PREFIX:
                continue
            start = noise[: self._PREFIX]
            # Coarse key, fine test: rounding to the grid moves a release by 2^-21 of its deviation.
            key = np.rint(start * 2.0**8).astype(np.int32).tobytes()
            known = self._seen.setdefault(key, start)
            if known is not start and np.abs(known - start).max() <= 2.0**-18:
                found.append(f"two calls to the noise source gave the same noise: {call.describe()}")
        self._square, self._count = self._square + square, self._count + count
        if count and min(chdtr(count, square), chdtr(self._count, self._square)) < _IMPROBABLE:
            found.append("the noise that was added is smaller than its stated deviation")
        return found
