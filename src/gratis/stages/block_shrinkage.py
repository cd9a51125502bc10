"""Noisy second moments cleaned block by block: what the histograms know is put in, the rest shrunk by its evidence."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["block_moments", "cleaned_moments", "combined", "positive", "spectral_moments"]

Array = NDArray[np.float64]


def cleaned_moments(noisy: Array, std: Array, within: list[Array]) -> tuple[Array, float]:
    """Return second moments with known diagonal blocks, and a bound on what is still unknown of them.

    Entries between two terms a, b are at most the product of their deviations. Their true size is c_ab times that, with
    c_ab² estimated by moments from the block itself, and every entry is shrunk by its share of noise. What remains
    unknown is summed over rows: 2√max of it bounds the error's spectral norm up to a constant.

    Parameters
    ----------
    noisy : (p, p)
        Released moments.
    std : (p, p)
        Deviation of their noise.
    within : list of blocks
        Known moments of each term, in order.
    """
    widths = [len(block) for block in within]
    edges = np.concatenate([[0], np.cumsum(widths)])[:-1]
    deviations = np.sqrt(np.concatenate([np.diag(block) for block in within]))
    largest = np.outer(deviations, deviations)
    prior, noise = np.square(largest), np.square(std) + 1e-300
    weights = np.square(prior / (prior + noise))
    evidence = _blocks(weights * (np.square(noisy) - noise) / np.maximum(prior, 1e-12), edges)
    share = np.clip(evidence / np.maximum(_blocks(weights, edges), 1e-12), 0.0, 1.0)
    term = np.repeat(np.arange(len(widths)), widths)
    signal = share[np.ix_(term, term)] * prior
    found = np.clip(noisy * (signal / (signal + noise)), -largest, largest)
    unknown = signal * noise / (signal + noise)
    unknown[term[:, None] == term] = 0.0
    for start, block in zip(edges, within, strict=True):
        span = slice(start, start + len(block))
        found[span, span] = block
    return positive(found), 2 * math.sqrt(float(unknown.sum(axis=1).max()))


def spectral_moments(noisy: Array, std: float, diagonal: Array) -> tuple[Array, float]:
    """Return second moments of single features, cleaned by their spectrum, and the edge of the noise's.

    Blocks of one entry say too little to be shrunk each by its own evidence, but the columns of wide tables move
    together. Symmetric noise of deviation s has eigenvalues up to 2s√p. One that stands out at w is √(w² − 4s²p) in
    the best matrix with the same vectors (of a low-rank signal; Gavish & Donoho 2017); what the known diagonal
    leaves over is spread evenly over the directions that do not stand out.
    """
    matrix = (noisy + noisy.T) / 2
    np.fill_diagonal(matrix, diagonal)
    values, vectors = np.linalg.eigh(matrix)
    edge = 2 * std * math.sqrt(len(matrix))
    hidden = values <= edge
    found = np.sqrt(np.maximum(np.square(values) - edge**2, 0.0))
    left = float(diagonal.sum() - found[~hidden].sum()) / max(int(hidden.sum()), 1)
    found[hidden] = min(max(left, 1e-6), edge)
    return np.asarray((vectors * np.maximum(found, 1e-6)) @ vectors.T), edge


def block_moments(noisy: Array, std: Array, within: list[Array]) -> list[Array]:
    """Moments inside every term: what was known `within` is the prior, within half of the deviations, but for the 1.

    Noisy histograms of many columns know less about their tails than the released moments do; what is known of pairs is
    that of independent columns.
    """
    found, start = [within[0]], 1
    for block in within[1:]:
        span = slice(start, start + len(block))
        deviations = np.sqrt(np.diag(block))
        prior = np.square(0.5 * np.outer(deviations, deviations))
        kept = prior / (prior + 2 * np.square(std[span, span]))
        found.append(positive(block + (noisy[span, span] - block) * kept))
        start = span.stop
    return found


def combined(first: Array, first_std: float, second: Array, second_std: float) -> tuple[Array, float]:
    """Two releases of the same moments, weighted by their precision."""
    a, b = 1 / first_std**2, 1 / second_std**2
    return (a * first + b * second) / (a + b), 1 / math.sqrt(a + b)


def positive(matrix: Array) -> Array:
    """The nearest symmetric matrix with eigenvalues of at least 1e−6."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 1e-6)) @ vectors.T)


def _blocks(entries: Array, edges: NDArray[np.int64]) -> Array:
    return np.asarray(np.add.reduceat(np.add.reduceat(entries, edges, axis=0), edges, axis=1))
