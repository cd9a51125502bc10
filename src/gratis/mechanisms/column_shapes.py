"""What noisy histograms of columns say: all of it post-processing of released counts.

Columns that are too noisy to be read alone are read together. Every histogram is taken for a draw from a mixture of
simple shapes whose weights all columns teach (empirical Bayes by EM), plus a misfit whose size they teach too. The mean
of D separate histograms has exactly the noise of a pooled one, so nothing is lost by asking apart; with little noise
a column's own counts decide, with much noise those of the others, and a single column is a mixture of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = [
    "BEYOND_DOUBT",
    "HIGHEST",
    "LOWEST",
    "USUAL",
    "ZOOM_BINS",
    "magnitudes",
    "middle",
    "octave_shapes",
    "present",
    "spread",
    "upper_edges",
]

Array = NDArray[np.float64]

LOWEST, HIGHEST = -30, 40  # octaves of |x| told apart; smaller counts as zero, larger as the highest
ZOOM_BINS = 24  # half octaves below twice the half-range
_ROUNDS = 10
_AT_ONCE, _TELLING = 2**18, 1024  # entries of columns × shapes, and columns from which common shapes are learnt
USUAL = 5.0  # prior belief that matters where noise is all there is: e-fold in octaves away from 1
_WIDEST, _USUAL_WINDOW = 10.0, 4.0  # of the scale: the window at most, and where a column is not known (recipe F)
_NOT_ZERO = (1.0, 0.5, 0.2)  # parts of a column that shapes have apart from its zeros, or from its centre
_RUNS = (1, 2, 3, 4)
# Noise deviations: for runs next to what is accepted, for runs anywhere, and anywhere among all octaves, where the
# noise of one of several hundred runs could widen a column by a factor of a million.
_CLEAR, _CERTAIN, BEYOND_DOUBT = 2.0, 4.5, 5.5
_FEWER = 3.0  # for a histogram that holds fewer values than there are records
# Octaves from the typical magnitude to the range: 2 of normal columns around zero, 3 of exponential ones, 3 to 4 of
# lognormal ones with a deviation of 1 and from 5 on with one of 1.5 (4 and 5 were tried: docs/results/additive.md).
# How far below the typical magnitude a logarithm begins, and deviations of the noise in six bins that values other than
# zero must exceed for their median to mean something.
_HEAVY, _BELOW, _TYPICAL = 5, 2.0, 4.0
_LARGE, _MOST = 0.1, 0.8  # shares of the values, and of those beyond a window that make a level of a bin


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shares of bins (K, B), where each shape lies (K,), how usual it is (K,), and its log size (K,)."""

    shares: Array
    places: NDArray[np.int64]
    usual: Array
    sizes: Array


@dataclass(frozen=True, slots=True)
class Denoised:
    """Histograms with the noise that the shapes leave; the likeliest place of each, and its expected log size.

    `own` is the part of what is special about a column that is believed.
    """

    counts: Array
    noise_std: float
    place: NDArray[np.int64]
    size: Array
    own: float


def magnitudes(counts: Array, noise_std: float, n_records: int, *, tail: float) -> tuple[Array, Array]:
    """Return 2^k above all but `tail` of the magnitudes, from noisy octave counts (bin 0 holds the zeros), and knees.

    A column whose typical magnitude is far below its range has most of its values in a few equal bins; beyond its knee
    a logarithm tells them apart. The knee of other columns is infinite.
    """
    found = _denoised(counts, noise_std, n_records, octave_shapes(counts.shape[1]))
    octaves = found.counts[:, 1:]
    top = _top(octaves, found.noise_std, found.place - 1, clear=_clear(noise_std, n_records), far=BEYOND_DOUBT)
    edge = np.maximum(_edge(octaves, found.noise_std, top, tail), found.place - 1)
    not_zero = octaves.sum(axis=1)
    from_here = octaves[:, ::-1].cumsum(axis=1)[:, ::-1]
    typical = (from_here >= 0.5 * not_zero[:, None]).sum(axis=1) - 1
    heavy = (edge - typical >= _HEAVY) & (not_zero > _TYPICAL * math.sqrt(_HEAVY + 1) * found.noise_std)
    knee = np.where(heavy, np.exp2(typical + 0.5 - _BELOW + LOWEST), np.inf)
    return np.exp2(edge + 1.0 + LOWEST), knee


def middle(counts: Array, noise_std: float, n_records: int) -> Array:
    """Return the middle, in [−1, 1], of the shortest interval of bins that holds half of the values.

    Narrow columns far from zero keep their position to one bin, where a mean would err by the whole range.
    """
    mass = present(counts, noise_std, n_records)
    counts = _denoised(counts, noise_std, n_records, _intervals(counts.shape[1])).counts
    columns, size = counts.shape
    sums = np.pad(counts.cumsum(axis=1), ((0, 0), (1, 0)))
    found = np.zeros(columns)
    open_ = np.ones(columns, dtype=bool)
    for length in range(1, size + 1):
        inside = sums[:, length:] - sums[:, :-length]
        holds = open_ & (inside.max(axis=1) >= 0.5 * mass)
        found[holds] = (2 * inside[holds].argmax(axis=1) + length) / size - 1
        open_ &= ~holds
    return found


def spread(counts: Array, noise_std: float, n_records: int, *, tail: float) -> tuple[Array, Array]:
    """Return (window, root mean square below it) in units of the half-range, from noisy half-octave counts.

    The window leaves out `tail` of a tail that runs out, but not a level that stands apart: a rare 0/1 column keeps
    both, or its slope would be that of another column. And it stays open while all that lies beyond it, together, is
    more than noise: what is spread thinly above a spike can be most of the variance.
    """
    size = counts.shape[1]
    upper = upper_edges(size)
    clear = _clear(noise_std, n_records)
    found = _denoised(counts, noise_std, n_records, _distances(size))
    counts, noise_std = found.counts, found.noise_std
    bins = np.arange(size)
    top = _top(counts, noise_std, counts.argmax(axis=1), clear=clear)
    total = np.maximum(np.where(bins <= top[:, None], counts, 0.0).sum(axis=1), noise_std)
    beyond = counts[:, ::-1].cumsum(axis=1)[:, ::-1] - counts
    unclear = tail * total[:, None] + noise_std * np.sqrt((bins + 1) * (size - 1 - bins) / size)
    open_until = (beyond > unclear).argmin(axis=1)
    edge = np.maximum(_edge(counts, noise_std, top, tail), open_until)
    top = np.maximum(top, edge)
    kept = np.where(bins <= top[:, None], counts, 0.0)
    total = np.maximum(kept.sum(axis=1), noise_std)
    square = kept @ (0.75 * np.square(upper)) / total
    scale = np.sqrt(np.clip(square, np.square(upper[0]), np.square(upper[top])))
    window = np.minimum(upper[edge], _WIDEST * scale)
    if len(counts) > 1:
        # Columns that are too noisy to be believed alone get a size between what they and all others say.
        alike = np.exp(found.size)
        scale = scale**found.own * alike ** (1 - found.own)
        window = window**found.own * np.minimum(_USUAL_WINDOW * alike, upper[-1]) ** (1 - found.own)
    return np.maximum(window, upper[_level(counts, noise_std, edge)]), scale


def present(counts: Array, noise_std: float, n_records: int) -> Array:
    """Return how many values each histogram holds: n, which is public, unless they are clearly fewer.

    Records may be left out, and entries may be missing.
    """
    total = counts.sum(axis=1)
    fewer = n_records - total > _FEWER * noise_std * math.sqrt(counts.shape[1])
    return np.where(fewer, np.maximum(total, 0.1 * n_records), float(n_records))


def _denoised(counts: Array, noise_std: float, n_records: int, shapes: Shapes) -> Denoised:
    """Return the posterior means of histograms under a mixture of shapes and a misfit, given how many values there are.

    Counts that must sum to n tell about the bins beyond a spike twice: by these bins, and by what the others lack.
    """
    columns, size = counts.shape
    mass = present(counts, noise_std, n_records)[:, None]
    counts = counts + (mass - counts.sum(axis=1, keepdims=True)) / size
    lengths = np.square(shapes.shares).sum(axis=1)
    step = max(1, _AT_ONCE // len(lengths))

    def evidence(part: slice) -> Array:
        said = counts[part] @ (shapes.shares.T / noise_std**2)
        said *= mass[part]
        said -= np.square(mass[part] / noise_std) * (lengths / 2)
        return np.asarray(said)

    # Which shapes are common is learnt from some hundred columns: they say it as well as ten thousand would.
    every = -(-columns // _TELLING)
    telling = evidence(slice(None, None, every))
    # From what all columns together would say if they were alike: single steps of EM would take D rounds to get there.
    together = telling.sum(axis=0) + np.log(shapes.usual)
    weights = 0.5 * _softmax(together[None])[0] + 0.5 * shapes.usual
    # A column is judged by what the others say is common. By its own word a shape that nobody else has would be as
    # common as one column in D, and of thousands of shapes the noise of some hundred columns would pick a few.
    # In place, because columns × shapes are 10 MB.
    asked, others = len(telling) + 1, np.repeat(weights[None], len(telling), axis=0)
    for _ in range(_ROUNDS):
        np.log(others, out=others)
        others += telling
        said = _softmax(others)
        weights = (said.sum(axis=0) + shapes.usual) / asked
        if columns > 1:
            said /= asked
            np.maximum(np.subtract(weights, said, out=others), shapes.usual / asked, out=others)
        else:
            others = weights[None].copy()
    fit, place, log_size = np.empty_like(counts), np.empty(columns, dtype=np.int64), np.empty(columns)
    at = np.zeros((len(lengths), int(shapes.places.max()) + 1))
    at[np.arange(len(lengths)), shapes.places] = 1.0
    for part in (slice(start, start + step) for start in range(0, columns, step)):
        common = np.repeat(weights[None], len(counts[part]), axis=0)
        common[-part.start % every :: every] = others[-(-part.start // every) : -(-part.stop // every)]
        posterior = _softmax(evidence(part) + np.log(common))
        place[part] = (posterior @ at).argmax(axis=1)
        log_size[part] = posterior @ shapes.sizes
        # One place: a mean over several would be wide where a column is merely unclear.
        posterior *= at[:, place[part]].T
        fit[part] = mass[part] * (posterior @ shapes.shares) / posterior.sum(axis=1, keepdims=True)
    misfit = max(float(np.square(counts - fit).mean()) - noise_std**2, 0.0)
    own = misfit / (misfit + noise_std**2)
    own = max(own, 1e-3)  # thresholds in units of the noise left need some
    return Denoised(fit + own * (counts - fit), own * noise_std, place, log_size, own)


def _softmax(scores: Array) -> Array:
    """Rows that sum to one, in place of the scores."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


@lru_cache(maxsize=4)
def octave_shapes(size: int) -> Shapes:
    """Runs of one to five octaves, of all values or of the half that is not zero; and nothing but zeros.

    A column in which nothing but zeros is seen is taken for an indicator: its rare values are ones.
    """
    ones = -LOWEST + 1
    shares, places = [np.eye(size)[0]], [ones]
    for top in range(1, size):
        for profile in (
            (1.0,),
            (0.6, 0.4),
            (0.25, 0.4, 0.35),
            (0.05, 0.27, 0.30, 0.19, 0.10, 0.05, 0.04),  # normal around zero
            (0.5, 0.25, 0.13, 0.07, 0.05),
            (0.2, 0.2, 0.2, 0.2, 0.2),
        ):
            for share in _NOT_ZERO:
                shape = np.zeros(size)
                shape[0] = 1 - share
                for back, part in enumerate(profile):
                    shape[max(top - back, 0)] += share * part
                shares.append(shape)
                places.append(top)
    usual = np.exp(-np.abs(np.array(places) - ones) / USUAL)
    return Shapes(np.array(shares), np.array(places), usual / usual.sum(), np.zeros(len(places)))


@lru_cache(maxsize=8)
def _intervals(size: int) -> Shapes:
    """Intervals of 1, 2, 4, … equal bins."""
    shares, places, length = [], [], 1
    while length <= size:
        for start in range(0, size - length + 1, max(1, length // 4)):
            shape = np.zeros(size)
            shape[start : start + length] = 1 / length
            shares.append(shape)
            places.append(start + length // 2)
        length *= 2
    return Shapes(np.array(shares), np.array(places), np.full(len(shares), 1 / len(shares)), np.zeros(len(shares)))


@lru_cache(maxsize=8)
def _distances(size: int) -> Shapes:
    """Distances from the centre: normal, uniform, exponential, two-valued, and each with half of them at the centre."""
    upper = upper_edges(size)
    shares, places, sizes = [], [], []
    for step, scale in enumerate(upper[0] * np.exp2(np.arange(-1, 2 * size) / 4.0)):
        laws = (
            2 * ndtr(upper / scale) - 1,
            np.minimum(1.0, upper / (scale * math.sqrt(3))),
            1 - np.exp(-upper * math.sqrt(2) / scale),
            (upper >= scale).astype(np.float64),
        )
        for law in laws:
            for share in _NOT_ZERO:
                below = 1 - share + share * law
                below[-1] = 1.0
                shares.append(np.diff(below, prepend=0.0))
                places.append(step // 2)
                sizes.append(math.log(scale * math.sqrt(share)))
    return Shapes(np.array(shares), np.array(places), np.full(len(shares), 1 / len(shares)), np.array(sizes))


def upper_edges(size: int) -> Array:
    """Upper edges of half octaves, in units of the half-range; the last but two is 1."""
    return np.asarray(np.exp2((np.arange(size) - (size - 3)) / 2.0))


def _clear(noise_std: float, n_records: int) -> float:
    """Deviations that let a run next to accepted bins count: more where they would be a large part of all values."""
    return _CLEAR * (1 + min(1.0, noise_std / (_LARGE * n_records)))


def _top(
    counts: Array, noise_std: float, start: NDArray[np.int64], *, clear: float = _CLEAR, far: float = _CERTAIN
) -> NDArray[np.int64]:
    """Return the highest bin that ends a run of bins standing out of the noise, and at least `start`.

    A run of m bins counts above clear·√m deviations when it adjoins bins already accepted, and above far·√m anywhere:
    heavy tails spread over many bins that are nothing each and much together. Shortest runs come first, and hold
    only bins not accepted yet, so that a longer one does not carry empty bins along.
    """
    columns, size = counts.shape
    sums = np.pad(counts.cumsum(axis=1), ((0, 0), (1, 0)))
    rows, bins = np.arange(columns), np.arange(size)
    top = start
    for length in _RUNS:
        run = np.full((columns, size), -np.inf)
        run[:, length - 1 :] = (sums[:, length:] - sums[:, :-length]) / (noise_std * math.sqrt(length))
        fresh = bins - length >= top[:, None]
        top = np.maximum(top, np.where(fresh & (run > far), bins, 0).max(axis=1))
    for _ in range(size):
        before = top
        for length in reversed(_RUNS):
            last = np.minimum(before + length, size - 1)
            run_sum = sums[rows, last + 1] - sums[rows, before + 1]
            top = np.where(run_sum > clear * noise_std * math.sqrt(length), last, top)
        if (top == before).all():
            break
    return np.asarray(top)


def _edge(counts: Array, noise_std: float, top: NDArray[np.int64], tail: float) -> NDArray[np.int64]:
    """Return the bin at or below `top` above which at most `tail` of the clear counts lie."""
    kept = np.where((np.arange(counts.shape[1]) <= top[:, None]) & (counts > noise_std), counts, 0.0)
    mass = kept.sum(axis=1, keepdims=True)
    edge = (mass - kept.cumsum(axis=1) > tail * mass).sum(axis=1)
    return np.where(mass[:, 0] > 0, edge, top)


def _level(counts: Array, noise_std: float, edge: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin above `edge` that certainly holds a level by itself (no tail leads there), or `edge`.

    A tail that runs out has as much in the half octaves before as in any one of its own, and a heavy one is spread
    over several: a level holds nearly all that lies beyond the edge.
    """
    size = counts.shape[1]
    above = np.arange(size) > edge[:, None]
    beyond = np.where(above, counts, 0.0).sum(axis=1, keepdims=True)
    before = np.maximum(counts[:, 1:-1], counts[:, :-2])
    apart = np.zeros(counts.shape, dtype=bool)
    apart[:, 2:] = (counts[:, 2:] > _CERTAIN * noise_std) & (before < 0.2 * counts[:, 2:])
    apart &= above & (counts > _MOST * beyond - noise_std * math.sqrt(size))
    return np.where(apart.any(axis=1), size - 1 - apart[:, ::-1].argmax(axis=1), edge)
