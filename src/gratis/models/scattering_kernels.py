"""Compiled inner loops of the scattering transform."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["filtered", "modulus"]

Array = NDArray[Any]


@numba.njit(cache=True, fastmath=True)
def filtered(spectra: Array, filters: Array, factor: int) -> Array:  # pragma: no cover - compiled
    """Return the folded products of every spectrum (b, c, S, S) with every real filter (k, S, S)."""
    batch, channels, size, _ = spectra.shape
    small = size // factor
    scale = np.float32(1.0 / (factor * factor))
    output = np.zeros((batch, channels, len(filters), small, small), dtype=np.complex64)
    for b in range(batch):
        for c in range(channels):
            for k in range(len(filters)):
                for x in range(size):
                    row = output[b, c, k, x % small]
                    for start in range(0, size, small):
                        for y in range(small):
                            row[y] += spectra[b, c, x, start + y] * (filters[k, x, start + y] * scale)
    return output


@numba.njit(cache=True, fastmath=True)
def modulus(values: Array) -> Array:  # pragma: no cover - compiled
    """Return |values| in float32, without the care for overflow that makes numpy's slow."""
    flat = values.ravel()
    output = np.empty(flat.size, dtype=np.float32)
    for i in range(flat.size):
        output[i] = np.sqrt(flat[i].real * flat[i].real + flat[i].imag * flat[i].imag)
    return output.reshape(values.shape)
