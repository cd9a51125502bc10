"""Mean and deviation of a single column from few records: one posterior given all of its noisy histograms.

Each histogram alone says little where records are few. Under a hypothesis (mean, deviation, shape) all of them have
known expectations, so one posterior reads them together: what the octaves say of the magnitude helps to place the
centre, and the distances from there correct both. All of it post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gratis.mechanisms.column_shapes import (
    BEYOND_DOUBT,
    HIGHEST,
    LOWEST,
    USUAL,
    ZOOM_BINS,
    octave_shapes,
    present,
    upper_edges,
)

__all__ = ["Hypotheses", "believed_half_range", "coarse_distances", "coarse_octaves", "farthest_clump"]

Array = NDArray[np.float64]
Law = Callable[[Array], Array]

# All of these, and the weights of the laws below, were chosen on twenty kinds of synthetic targets and on validation
# parts of small tables (docs/results/small.md), not derived.
_PER_BIN = 2  # octaves and half octaves taken together: energy of the signal in a bin counts, not resolution
_DEEP = 16  # octaves below the range that are told apart; what is smaller counts as zero
_LIKELY = 0.9  # of the belief that the range must hold: one that is too wide costs resolution, a narrow one the values
_HELD, _NORMAL_RADIUS = 0.8, 1.28  # of the belief, and the deviations of a normal law that hold as much
_MISFIT = 0.35  # deviations by which the mean of a column that follows none of the laws may be off
_NARROWER = 0.5  # of log deviations: values beyond a clip cost what they are worth, one too wide costs noise
_EDGE = 1e-7  # atoms at an edge belong above it; far below the finest deviation, 2^-9, and far above rounding


def _spiked(share: float) -> tuple[Law, float]:
    """A share at one value, the rest exponential above it; and how many deviations the mean lies above that value."""
    rest = 1 - share
    deviation = math.sqrt(2 * rest - rest**2)

    def law(z: Array) -> Array:
        above = deviation * z + rest
        return np.where(above <= 0, 0.0, 1 - rest * np.exp(-np.maximum(above, 0.0)))

    return law, rest / deviation


def _two_valued(share: float) -> tuple[Law, float]:
    deviation = math.sqrt(share * (1 - share))
    low, high = -share / deviation, (1 - share) / deviation
    return (lambda z: np.where(z <= low, 0.0, np.where(z <= high, 1 - share, 1.0))), -low


def _normal(z: Array) -> Array:
    return np.asarray(ndtr(z))


def _uniform(z: Array) -> Array:
    return np.clip(0.5 + z / math.sqrt(12), 0.0, 1.0)


def _rising(z: Array) -> Array:
    return 1 - np.exp(-np.maximum(z + 1, 0.0))


def _falling(z: Array) -> Array:
    return np.exp(-np.maximum(1 - z, 0.0))


def _laplace(z: Array) -> Array:
    half = 0.5 * np.exp(-math.sqrt(2) * np.abs(z))
    return np.where(z < 0, half, 1 - half)


def _peaked(z: Array) -> Array:
    """Half of the values at the mean, the others on both sides of it."""
    outer = 0.25 * np.exp(-np.abs(z))
    return np.where(z <= 0, outer, 1 - outer)


def _three_valued(z: Array) -> Array:
    """Half of the values at the mean, a quarter at one value on either side."""
    return np.where(z <= -math.sqrt(2), 0.0, np.where(z <= 0, 0.25, np.where(z <= math.sqrt(2), 0.75, 1.0)))


# Distribution functions P(x < z) of mean 0 and variance 1, their prior weights, and for laws with an atom where it
# lies: then the atom may be 0 itself.
_LAWS: tuple[tuple[Law, float, float | None], ...] = (
    (_normal, 4.0, None),
    (_uniform, 2.0, None),
    (_rising, 2.0, None),
    (_falling, 1.0, None),
    (_laplace, 1.0, None),
    (_peaked, 1.0, 0.0),
    (_three_valued, 0.5, 0.0),
    *((law, 1.0, atom) for law, atom in (_spiked(0.5), _spiked(0.8))),
    *((law, 0.5, atom) for law, atom in (_two_valued(0.3), _two_valued(0.5), _two_valued(0.7))),
)


@lru_cache(maxsize=2)
def _merging(size: int, kept: int) -> Array:
    """The matrix that adds up `_PER_BIN` bins each, all but the first `kept`."""
    places = np.concatenate([np.arange(kept), kept + np.arange(size - kept) // _PER_BIN])
    return np.asarray(np.eye(int(places[-1]) + 1)[places])


def coarse_octaves(counts: Array) -> Array:
    """Counts of zeros and of pairs of octaves: a coarser grid, so a record still adds 1 to one bin."""
    return np.asarray(counts @ _merging(HIGHEST - LOWEST + 2, 1))


def coarse_distances(counts: Array) -> Array:
    """Counts of pairs of half octaves."""
    return np.asarray(counts @ _merging(ZOOM_BINS, 0))


def believed_half_range(counts: Array, noise_std: float, n_records: int) -> float:
    """Return 2^k above which the column hardly reaches, from noisy coarse octaves (B,).

    Shapes are single runs of octaves; where values lie in several clumps, none that is beyond doubt may be left out.
    """
    size = HIGHEST - LOWEST + 2
    shapes, mass = octave_shapes(size), present(counts[None], noise_std, n_records)[0]
    counts = counts + (mass - counts.sum()) / len(counts)
    shares = shapes.shares @ _merging(size, 1)
    evidence = (mass * (shares @ counts) - mass**2 * np.square(shares).sum(axis=1) / 2) / noise_std**2
    evidence -= np.abs(shapes.places - (1 - LOWEST)) / USUAL
    belief = np.bincount(shapes.places, np.exp(evidence - evidence.max()), minlength=size)
    likeliest = int(belief.argmax())
    place = int(np.searchsorted(belief.cumsum(), _LIKELY * belief.sum()))
    place = min(max(place, likeliest), likeliest + _PER_BIN + 1)
    clump = _PER_BIN * int(np.flatnonzero(counts > BEYOND_DOUBT * noise_std).max(initial=0))
    return 2.0 ** ((place if clump - _PER_BIN < place else clump) + LOWEST)


def farthest_clump(counts: Array, noise_std: float, n_records: int) -> tuple[float, float]:
    """How far away the farthest values begin that are beyond doubt, and the deviation that they alone would make.

    From noisy coarse distances that are not explained otherwise, in units of the half-range; (0, 0) where none are.

    >>> counts = np.array([50.0] + [0.0] * 9 + [10.0, 0.0])
    >>> [round(part, 2) for part in farthest_clump(counts, 1.0, 60)], farthest_clump(counts, 9.5, 60)
    ([0.5, 0.31], (0.0, 0.0))
    """
    certain = np.flatnonzero(counts > BEYOND_DOUBT * noise_std)
    if not len(certain) or certain[-1] == 0:
        return 0.0, 0.0
    upper = upper_edges(ZOOM_BINS)[1::2]
    begin, end = float(upper[certain[-1] - 1]), float(upper[certain[-1]])
    share = min(float(counts[certain[-1]]) / n_records, 1.0)
    return begin, math.sqrt(share * (begin**2 + begin * end + end**2) / 3)


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """(law, mean, deviation) in units of the half-range, with the log of what is believed of each."""

    laws: NDArray[np.int64]
    means: Array
    deviations: Array
    belief: Array

    @classmethod
    def around(cls, centre: float) -> Hypotheses:
        """Before any count: means near `centre` finely, elsewhere in the range coarsely; deviations of all sizes."""
        steps = np.exp2(-np.arange(1, 17) / 2)
        means = np.unique(
            np.round(np.concatenate([np.linspace(-1, 1, 33), [centre], centre + steps, centre - steps]), 7)
        )
        means = means[np.abs(means) <= 1]
        deviations = np.exp2(-np.arange(-2, 19) / 2)
        m, s = (part.ravel() for part in np.meshgrid(means, deviations, indexing="ij"))
        cell = np.repeat(np.log(np.gradient(means)), len(deviations)) - np.log(s + np.abs(m))
        fine = np.exp2(-np.arange(-4, 37) / 4)
        parts = []
        for k, (_, weight, atom) in enumerate(_LAWS):
            belief = cell - math.log(np.exp(cell).sum()) + math.log(weight if atom is None else weight / 2)
            parts.append((np.full(len(m), k), m, s, belief))
            if atom is not None:
                at_zero = np.full(len(fine), math.log(weight / 2 / len(fine)))
                parts.append((np.full(len(fine), k), atom * fine, fine, at_zero))
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _below(self, edges: Array) -> Array:
        """P(x < edge) for every hypothesis: (hypotheses, edges)."""
        found = np.empty((len(self.laws), len(edges)))
        for k, (law, _, _) in enumerate(_LAWS):
            own = self.laws == k
            found[own] = law((edges - self.means[own, None]) / self.deviations[own, None])
        return found

    def positions(self, size: int) -> Array:
        """Expected shares of `size` equal bins of [−1, 1]; what lies outside counts at the ends."""
        inner = self._below(np.linspace(-1, 1, size + 1)[1:-1] - _EDGE)
        return np.diff(inner, axis=1, prepend=0.0, append=1.0)

    def distances(self, centre: float, upper: Array) -> Array:
        """Expected shares of |x − centre| below upper[0], between the others in turn, and beyond the last but one."""
        inner = self._below(centre + upper[:-1] - _EDGE * upper[:-1]) - self._below(centre - upper[:-1])
        return np.diff(inner, axis=1, prepend=0.0, append=1.0)

    def octaves(self, size: int, half: float) -> Array:
        """Expected shares of the `size` coarse octaves of |x|, where the half-range is `half`."""
        edges = np.exp2(LOWEST + _PER_BIN * np.arange(size - 1.0)) / half
        near = (edges > 2.0**-_DEEP) & (edges < 8)
        upper = np.concatenate([[2.0**-_DEEP], edges[near], [8.0]])
        shares = np.zeros((len(self.laws), size))
        found = self.distances(0.0, upper)
        first = int(near.argmax())
        shares[:, first : first + found.shape[1] - 1] = found[:, 1:]
        shares[:, 0] += found[:, 0]  # of small units the lowest octaves are zeros, too
        return shares

    def given(self, counts: Array, noise_std: float, n_records: int, shares: Array) -> Hypotheses:
        """The belief once noisy `counts` with these expected shares are known."""
        mass = present(counts[None], noise_std, n_records)[0]
        counts = counts + (mass - counts.sum()) / len(counts)
        said = (mass * (shares @ counts) - mass**2 * np.square(shares).sum(axis=1) / 2) / noise_std**2
        return Hypotheses(self.laws, self.means, self.deviations, self.belief + said)

    def mean(self, shares: Array) -> Array:
        """The mean of what hypotheses (H, B) say, by what is believed of each."""
        weights = np.exp(self.belief - self.belief.max())
        return np.asarray(weights @ shares / weights.sum())

    def summary(self) -> tuple[float, float, float]:
        """Return the mean that costs least R² on average, a deviation rather below than above, and the mean's error.

        The error is the radius that holds `_HELD` of the belief, over that of a normal law; and no law is exact.
        """
        weights = np.exp(self.belief - self.belief.max())
        weights /= weights.sum()
        logs = np.log(self.deviations)
        middle = float(weights @ logs)
        deviation = math.exp(middle - _NARROWER * math.sqrt(float(weights @ np.square(logs - middle))))
        priced = weights / np.square(self.deviations)
        mean = float(priced @ self.means / priced.sum())
        away = np.abs(self.means - mean)
        order = np.argsort(away)
        radius = float(away[order][np.searchsorted(weights[order].cumsum(), _HELD * weights.sum())])
        return mean, deviation, math.hypot(radius / _NORMAL_RADIUS, _MISFIT * deviation)
