from __future__ import annotations

import math

import numpy as np
from scipy import stats

from gratis_papers.fast_normals import fill_chi_squares, fill_normals


def draw(pairs, seed=1):
    words = np.empty((2, pairs), np.int32)
    out = np.empty(2 * pairs, np.float32)
    fill_normals(np.uint64(seed), words[0], words[1], out)
    return out.astype(np.float64)


def test_normals_are_standard_and_independent():
    pairs = 1 << 20
    z = draw(pairs)
    count = z.size
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(np.mean(z**power) - mean) < 4 * math.sqrt(variance / count)
    assert stats.kstest(z[:500_000], "norm").pvalue > 1e-3
    for tail in (3, 4):
        expected = count * 2 * stats.norm.sf(tail)
        assert abs(np.sum(np.abs(z) > tail) - expected) < 4 * math.sqrt(expected)
    assert 4.5 < np.max(np.abs(z)) < 6.7
    for lag in (1, 2, 16, pairs):  # z[i] and z[i + pairs] share one word
        assert abs(np.mean(z[:-lag] * z[lag:])) < 4 / math.sqrt(count - lag)
    # The two of a pair are independent, also in size: their angle is uniform, their squares uncorrelated.
    first, second = z[:pairs], z[pairs:]
    assert stats.kstest(np.arctan2(second, first)[:300_000] / (2 * math.pi) + 0.5, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 4 / math.sqrt(pairs)


def test_streams_of_different_seeds_do_not_correlate():
    a, b = draw(1 << 18, seed=12345), draw(1 << 18, seed=12346)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(a.size)


def test_chi_squares_have_their_law_for_every_kind_of_degree():
    degrees, rows = np.array([0, 1, 2, 3, 10, 799]), 40_000
    out = np.empty((rows, degrees.size))
    assert fill_chi_squares(np.uint64(5), degrees, out) != 5
    assert np.all(out[:, 0] == 0)
    for column, count in zip(out.T[1:], degrees[1:], strict=True):
        assert stats.kstest(column, "chi2", args=(count,)).pvalue > 1e-3
        assert abs(np.mean(column) - count) < 4 * math.sqrt(2 * count / rows)
    assert np.all(np.abs(np.corrcoef(out[:, 1:].T) - np.eye(5)) < 4.5 / math.sqrt(rows))
    assert abs(np.corrcoef(out[1:, 4], out[:-1, 4])[0, 1]) < 4 / math.sqrt(rows)
