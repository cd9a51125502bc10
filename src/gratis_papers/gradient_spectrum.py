"""Spectra of the mean gradients met in private training: how many dimensions carry them (S4).

What is recorded are gradients *before* noise. The result is a diagnostic on non-private values, for public or
simulated data or for who may see the data; it carries no ε and enters no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.numerics.subspace_iteration import gram_matrix, leading_eigenpairs
from gratis.planning.bounds.gradient_spectrum import GradientSpectrum
from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = ["LABEL", "DirectionAccumulator", "GradientRecorder"]

LABEL = "diagnostic on non-private values: computed from gradients without noise, never part of a certificate"
_REPLAY_TOLERANCE = 1e-3
_GRADIENTS_AT_ONCE = 16


class GradientRecorder:
    """Keeps gradients of length p in bounded memory: whole, or as sketches of `sketch_size` numbers.

    The sketch adds the coordinates, each with a random sign, into buckets of equal size (a random permutation decides
    which): inner products keep their mean and err by at most about √(2/q)·‖g‖‖g′‖, all r singular values together by
    about √(r/q) relatively. Singular values need nothing else; directions of sketched gradients need a second pass
    (`second_pass`), because a sketch of size q knows no vector of length p.

    Parameters
    ----------
    size : int
        p.
    allow_non_private_diagnostics : bool
        Must be True: says that the caller may look at gradients before noise.
    sketch_size : int, optional
        q; gradients are kept whole (float32) when left out or not smaller than p.
    seed : int
        Of the sketch; public.

    >>> recorder = GradientRecorder(3, allow_non_private_diagnostics=True)
    >>> for row in ([3.0, 0, 0], [0, 4.0, 0]): recorder.observe(row)
    >>> recorder.spectrum(2).singular_values.round(6).tolist()
    [4.0, 3.0]
    """

    def __init__(
        self, size: int, *, allow_non_private_diagnostics: bool = False, sketch_size: int | None = None, seed: int = 0
    ) -> None:
        if allow_non_private_diagnostics is not True:
            raise GratisError(
                "recording keeps gradients before noise; pass allow_non_private_diagnostics=True only if you may see "
                "the data, and release nothing that comes of it"
            )
        self.size = check_count("size", size)
        q = self.size if sketch_size is None else min(self.size, check_count("sketch_size", sketch_size))
        self.sketch_size = q
        self._rows: list[NDArray[np.float32]] = []
        self._order: NDArray[np.int32] | None = None
        if q < self.size:
            rng = np.random.default_rng(check_count("seed", seed, minimum=0))
            self._order = rng.permutation(self.size).astype(np.int32)
            self._signs = rng.integers(0, 2, self.size, dtype=np.int8) * np.int8(2) - np.int8(1)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_exact(self) -> bool:
        """Whether gradients are kept whole."""
        return self._order is None

    def observe(self, gradient: ArrayLike) -> None:
        """Keep one gradient; one that is not finite is an error."""
        self._rows.append(self._sketched(gradient))

    def _sketched(self, gradient: ArrayLike) -> NDArray[np.float32]:
        flat = np.asarray(gradient, dtype=np.float32).reshape(-1)
        if flat.shape != (self.size,):
            raise GratisError(f"expected a gradient of {self.size} numbers, got {flat.size}")
        if not np.isfinite(flat).all():
            raise GratisError("a gradient is not finite: the spectrum of this run is not defined")
        if self._order is None:
            return flat.copy()
        mixed = np.zeros(-(-self.size // self.sketch_size) * self.sketch_size, dtype=np.float32)
        mixed[: self.size] = flat[self._order]
        mixed[: self.size] *= self._signs
        return np.asarray(mixed.reshape(-1, self.sketch_size).sum(axis=0), dtype=np.float32)

    def _leading(self, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        if not self._rows:
            raise GratisError("nothing was recorded yet")
        count = check_count("count", count)
        if count > len(self._rows):
            raise GratisError(f"at most {len(self._rows)} directions can be had of as many gradients, got {count}")
        gram = gram_matrix(np.stack(self._rows))
        values, left = leading_eigenpairs(
            lambda Q: np.asarray(gram @ Q), len(gram), count, rng=np.random.default_rng(0)
        )
        return np.sqrt(values), left, float(np.trace(gram))

    def spectrum(self, count: int) -> GradientSpectrum:
        """Return the `count` largest singular values, by orthogonal iteration on the r × r Gram matrix."""
        values, _, energy = self._leading(count)
        error = 0.0 if self.is_exact else math.sqrt(len(self) / self.sketch_size)
        return GradientSpectrum(values, energy, len(self), self.size, error, LABEL)

    def directions(self, count: int) -> NDArray[np.float32]:
        """Return the top directions as orthonormal rows (count, p); sketched gradients need `second_pass`."""
        if not self.is_exact:
            raise GratisError("sketches hold no directions; repeat the run with the same seeds into second_pass(k)")
        second = self.second_pass(count)
        for row in self._rows:
            second.observe(row)
        return second.directions()

    def second_pass(self, count: int) -> DirectionAccumulator:
        """Return an observer of the same gradients, in the same order, that adds up the top directions."""
        return DirectionAccumulator(self, self._leading(count)[1])


class DirectionAccumulator:
    """Adds up Uᵀ·H: k vectors of length p and a few gradients in memory, whatever the number of gradients."""

    def __init__(self, recorder: GradientRecorder, left: NDArray[np.float64]) -> None:
        self._recorder, self._left = recorder, left.astype(np.float32)
        self._total = np.zeros((left.shape[1], recorder.size), dtype=np.float32)
        self._waiting: list[NDArray[np.float32]] = []
        self._seen = 0

    def observe(self, gradient: ArrayLike) -> None:
        """Add one gradient; it must be the one that was recorded at this place."""
        if self._seen >= len(self._recorder):
            raise GratisError("the second pass has more gradients than were recorded")
        recorded = self._recorder._rows[self._seen]
        difference = np.linalg.norm(self._recorder._sketched(gradient) - recorded)
        if not difference <= _REPLAY_TOLERANCE * np.linalg.norm(recorded):
            raise GratisError("the second pass does not repeat the recorded run; use the same data, seeds and settings")
        self._waiting.append(np.array(gradient, dtype=np.float32).reshape(-1))
        self._seen += 1
        if len(self._waiting) == _GRADIENTS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        """Add the waiting gradients by one product: one at a time, the k × p totals would be read for each."""
        if not self._waiting:
            return
        weights = self._left[self._seen - len(self._waiting) : self._seen].T
        for columns in _blocks(self._total.shape[1]):
            self._total[:, columns] += weights @ np.stack([row[columns] for row in self._waiting])
        self._waiting.clear()

    def directions(self) -> NDArray[np.float32]:
        """Return orthonormal rows spanning the top subspace, leading ones first; those beyond the rank are zero."""
        if self._seen != len(self._recorder):
            raise GratisError(f"the second pass saw {self._seen} of {len(self._recorder)} gradients")
        self._flush()
        rows = self._total
        gram = gram_matrix(rows)
        lengths = np.sqrt(np.diag(gram))
        # What is left of a direction that adds nothing is rounding: it must not become a unit vector.
        kept = lengths > 1e-5 * max(float(lengths.max()), np.finfo(float).tiny)
        rows[~kept] = 0
        unit = gram[np.ix_(kept, kept)] / np.outer(lengths[kept], lengths[kept])
        if kept.any():
            # Rows are nearly orthogonal already, so one Cholesky factor of their Gram matrix orthonormalises them.
            change = np.linalg.inv(np.linalg.cholesky(unit)) / lengths[kept]
            for columns in _blocks(rows.shape[1]):
                rows[kept, columns] = change @ rows[kept, columns]
        return rows


def _blocks(size: int, width: int = 65536) -> Iterator[slice]:
    return (slice(start, start + width) for start in range(0, size, width))
