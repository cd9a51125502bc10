"""The noise source: the only randomness that a release may use.

Three things make a textbook Gaussian unsafe in floating point (docs/theory/conventions.md, statement 8), and each has
its answer here:

* a predictable seed undoes all privacy → the key of the ChaCha20 stream comes from the operating system; a seed
  is refused unless the caller says `insecure_reproducible=True`, and the certificate then says so;
* low-order bits of `value + noise` tell which value was hidden (Mironov 2012) → every normal is a sum of
  `DRAWS` independent draws (Holohan & Braghin 2021), and releases are rounded to a public grid, `GRID_BITS`
  below the noise, which no low-order bit survives;
* a generator copied by fork or pickle would use the same noise twice → a source refuses both.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.certificates import Randomness
from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError
from gratis.records.progress import released

__all__ = ["DRAWS", "GRID_BITS", "NoiseSource", "noise_source", "snap"]

DRAWS = 2
GRID_BITS = 20
_WORTH_A_THREAD = 2**16
_TEST_NOISE = "GRATIS_TEST_NOISE"  # set by this project's tests for the programs that they start
_of_the_test: Counter[str] = Counter()


class NoiseSource:
    """Independent Gaussian noise for releases, from ChaCha20.

    **Guarantee**: outputs of `release` are a function of (value + noise) on a grid that depends on the public
    `std` alone, so rounding is post-processing. What is idealised: the ziggurat sampler of 52-bit precision
    stands for the real Gaussian. After rounding, the law of one coordinate differs from that of the ideal grid
    Gaussian by a relative error of about 2^(GRID_BITS − 52) for each cell; the certificate states this.

    >>> NoiseSource.insecure(seed=1).normal(1.0, 3).shape
    (3,)
    """

    __slots__ = ("_generators", "_pid", "_secure")

    def __init__(self, key: int, *, secure: bool) -> None:
        from randomgen import ChaCha

        # One stream for each draw: distant parts of the cipher's counter under one key.
        self._generators = [np.random.Generator(ChaCha(key=key, counter=k << 64, rounds=20)) for k in range(DRAWS)]
        self._secure = secure
        self._pid = os.getpid()

    @classmethod
    def secure(cls) -> NoiseSource:
        """Return a source keyed with 256 bits from the operating system.

        A program that a test of this project has started takes its key from the test's name instead, and then says
        in every certificate that its noise is insecure. Outside of a test that is refused.
        """
        test = os.environ.get(_TEST_NOISE)
        return cls(secrets.randbits(256), secure=True) if test is None else cls(_key_of_a_test(test), secure=False)

    @classmethod
    def insecure(cls, seed: int) -> NoiseSource:
        """Return a reproducible source. Whoever knows or guesses the seed can subtract the noise."""
        return cls(check_count("noise_seed", seed, minimum=0) % 2**256, secure=False)

    @property
    def is_secure(self) -> bool:
        """Whether the key came from the operating system."""
        return self._secure

    @property
    def generator(self) -> np.random.Generator:
        """The underlying generator, for compiled loops whose result is released through `release`."""
        self._refuse_fork()
        return self._generators[0]

    def normal(self, std: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Draw i.i.d. N(0, std²) as sums of independent draws; large ones in a thread for each draw."""
        std = check_non_negative("std", std)
        self._refuse_fork()
        first, *others = self._generators
        if np.prod(shape) < _WORTH_A_THREAD:
            total = np.asarray(first.standard_normal(shape))
            rest = [other.standard_normal(shape) for other in others]
        else:
            # numpy lets go of the interpreter's lock while it draws.
            with ThreadPoolExecutor(max_workers=len(others)) as pool:
                drawing = [pool.submit(other.standard_normal, shape) for other in others]
                total = first.standard_normal(shape)
            rest = [drawn.result() for drawn in drawing]
        for draw in rest:
            total += draw
        total *= std / math.sqrt(DRAWS)
        return total

    def perturb(self, values: ArrayLike, std: float) -> NDArray[np.float64]:
        """Return values + N(0, std²), not rounded: for sums that are snapped once, later (`snap`), before they leave.

        Whoever adds noise to a private value does it here or in `release`, and not with `normal`: then an audit that
        stands in for the source sees every value before its noise (`gratis.audits.replay`). Non-finite values count
        as 0: a release must not fail, or answer NaN, because of one record.
        """
        exact = np.asarray(values, dtype=np.float64)
        noised = self.normal(std, exact.shape)
        np.add(noised, exact, out=noised, where=np.isfinite(exact))
        released()
        return noised

    def release(self, values: ArrayLike, std: float) -> NDArray[np.float64]:
        """Return values + N(0, std²), rounded to the public grid of `std`; non-finite values count as 0."""
        return _snapped(self.perturb(values, std), std)

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            raise GratisError("a noise source must not be used in a forked process: its noise would repeat")

    def describe(self) -> Randomness:
        """Return what the certificate says about randomness."""
        return {
            "generator": "ChaCha20 (randomgen)",
            "key": "256 bits from the operating system" if self._secure else "user's seed (insecure, reproducible)",
            "secure": self._secure,
            "hardening": f"each normal is a sum of {DRAWS} draws; "
            f"releases are rounded to a grid 2^-{GRID_BITS} below the noise",
            "protected": "prediction of the noise, repeated noise after fork or pickling, inspection of low-order bits",
            "not_protected": "timing; the 52-bit ziggurat sampler stands for the real Gaussian (relative error about "
            f"2^-{52 - GRID_BITS} for each grid cell)",
        }

    def __reduce__(self) -> Any:
        raise GratisError("a noise source cannot be copied or pickled: its noise would repeat")

    def __repr__(self) -> str:
        return f"NoiseSource({'secure' if self._secure else 'INSECURE, reproducible'})"


def _key_of_a_test(name: str) -> int:
    if "PYTEST_CURRENT_TEST" not in os.environ:
        raise GratisError(f"{_TEST_NOISE} makes the noise predictable, for tests of Gratis alone: unset it")
    _of_the_test[name] += 1
    return int.from_bytes(hashlib.sha256(f"{name} {_of_the_test[name]}".encode()).digest(), "big")


def snap(values: NDArray[np.float64], std: float) -> NDArray[np.float64]:
    """Round to the grid of step 2^(⌊log₂ std⌋ − GRID_BITS), clamped to where the grid is exact in float64."""
    return _snapped(np.array(values, dtype=np.float64), std)


def _snapped(values: NDArray[np.float64], std: float) -> NDArray[np.float64]:
    """`snap` in place: releases of a million values every step should not wait for memory."""
    if std == 0:
        return values
    step = math.ldexp(1.0, max(math.frexp(std)[1] - 1 - GRID_BITS, -1070))
    limit = math.ldexp(step, 52) if step < 1e290 else math.inf
    # All of it depends on std alone: post-processing. np.rint(v/step) is exact below 2^52 steps.
    np.clip(values, -limit, limit, out=values)
    values /= step
    np.rint(values, out=values)
    values *= step
    return values


def noise_source(noise_seed: int | None = None, *, insecure_reproducible: bool = False) -> NoiseSource:
    """Return the source for a release; a seed is refused unless the caller accepts that it voids privacy.

    >>> noise_source(7)
    Traceback (most recent call last):
    ...
    gratis.records.errors.GratisError: a seed makes the noise predictable and voids the guarantee; ...
    """
    if noise_seed is None:
        if insecure_reproducible:
            raise GratisError("insecure_reproducible=True needs a noise_seed")
        return NoiseSource.secure()
    if not insecure_reproducible:
        raise GratisError(
            "a seed makes the noise predictable and voids the guarantee; leave noise_seed out, "
            "or pass insecure_reproducible=True for tests and simulations"
        )
    return NoiseSource.insecure(noise_seed)
