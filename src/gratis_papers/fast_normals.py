"""Normals and χ² for compiled simulations: a counter-based generator whose loops become vector instructions.

Public simulation only: whoever knows the seed knows the numbers. Releases use `mechanisms.noise`.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["fill_chi_squares", "fill_normals"]

_FAST: Any = {"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"}
_single, _word = np.float32, np.int32
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@numba.njit(cache=True, fastmath=_FAST)
def fill_normals(
    counter: np.uint64, high: NDArray[np.int32], low: NDArray[np.int32], out: NDArray[np.float32]
) -> np.uint64:
    """Fill `out` (twice as long as `high` and `low`) with N(0, 1) and return the counter for the next call.

    SplitMix64 (Steele, Lea & Flood 2014) gives 64 bits for each pair: 31 for the radius √(−2 ln u), 32 for the angle
    (30 within ±π/4, 2 for the quadrant). ln, sin and cos are Cephes' single-precision polynomials, written out
    because the compiler turns them, unlike library calls, into vector instructions. Tails end at 6.6.
    """
    half = high.shape[0]
    for i in range(half):
        z = counter + np.uint64(i) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        high[i] = _word(z >> np.uint64(33))
        low[i] = _word(z & np.uint64(0xFFFFFFFF))
    bits = out.view(np.int32)
    for i in range(half):
        out[i] = (_single(high[i]) + _single(0.5)) * _single(2.0**-31)
    for i in range(half):
        # u = 2^e·m with m in [√½, √2), read off the bits.
        exponent = _word(bits[i] - _word(0x3F3504F3)) >> _word(23)
        bits[half + i] = _word(bits[i] - (_word(exponent) << _word(23)))
        high[i] = _word(exponent)
    for i in range(half):
        f = out[half + i] - _single(1)
        p = _single(7.0376836292e-2)
        p = p * f + _single(-1.1514610310e-1)
        p = p * f + _single(1.1676998740e-1)
        p = p * f + _single(-1.2420140846e-1)
        p = p * f + _single(1.4249322787e-1)
        p = p * f + _single(-1.6668057665e-1)
        p = p * f + _single(2.0000714765e-1)
        p = p * f + _single(-2.4999993993e-1)
        p = p * f + _single(3.3333331174e-1)
        f2 = f * f
        log = f - _single(0.5) * f2 + f * f2 * p + _single(high[i]) * _single(0.6931471805599453)
        radius = math.sqrt(max(_single(-2) * log, _single(0)))
        word = low[i]
        radius = radius if word >= 0 else -radius
        angle = _single(_word(word << _word(2)) >> _word(2)) * _single(math.pi / 4 * 2.0**-29)
        a2 = angle * angle
        sine = _single(8.3321608736e-3) + a2 * _single(-1.9515295891e-4)
        sine = (angle + angle * a2 * (_single(-1.6666654611e-1) + a2 * sine)) * radius
        cosine = _single(-1.388731625493765e-3) + a2 * _single(2.443315711809948e-5)
        cosine = _single(1) - _single(0.5) * a2 + a2 * a2 * (_single(4.166664568298827e-2) + a2 * cosine)
        cosine = cosine * radius
        swap = (word >> _word(30)) & _word(1)
        out[i] = sine if swap else cosine
        out[half + i] = -cosine if swap else sine
    return counter + np.uint64(half) * _GOLDEN


@numba.njit(cache=True)
def fill_chi_squares(counter: np.uint64, degrees: NDArray[np.int64], out: NDArray[np.float64]) -> np.uint64:
    """Fill every row of `out` with χ² of the given degrees of freedom; return the counter for the next call.

    Marsaglia & Tsang 2000, an exact rejection method; χ²_1 is a squared normal and χ²_0 is 0.
    """
    high, low, store = np.empty(192, np.int32), np.empty(192, np.int32), np.empty(384, np.float32)
    position = 384
    for g in range(degrees.shape[0]):
        size = 0.5 * degrees[g] - 1 / 3
        spread = 1 / math.sqrt(9 * max(size, 1e-30))
        for row in range(out.shape[0]):
            out[row, g] = 0.0
            while degrees[g] > 0:
                if position == 384:
                    counter = fill_normals(counter, high, low, store)
                    position = 0
                z, a, b = np.float64(store[position]), store[position + 1], store[position + 2]
                position += 3
                if degrees[g] == 1:
                    out[row, g] = z * z
                    break
                cube = (1 + z * spread) ** 3
                # −(a² + b²)/2 is the logarithm of a uniform number.
                if cube > 0 and -0.5 * (a * a + b * b) < 0.5 * z * z + size * (1 - cube + math.log(cube)):
                    out[row, g] = 2 * size * cube
                    break
    return counter
