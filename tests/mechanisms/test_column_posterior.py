"""Expected histograms of the hypotheses, and what is believed once counts are known."""

import numpy as np
import pytest

from gratis.mechanisms.column_posterior import (
    _LAWS,
    Hypotheses,
    believed_half_range,
    coarse_distances,
    coarse_octaves,
)
from gratis.mechanisms.column_shapes import HIGHEST, LOWEST, ZOOM_BINS, upper_edges
from gratis.mechanisms.location_scale import _Block
from gratis.mechanisms.rows import Rows


@pytest.mark.parametrize("law", [law for law, _, _ in _LAWS])
def test_laws_have_mean_zero_and_variance_one(law):
    grid = np.linspace(-40, 40, 800_001)
    below = law(grid)
    assert (np.diff(below) >= 0).all()
    middle, share = (grid[1:] + grid[:-1]) / 2, np.diff(below)
    assert share.sum() == pytest.approx(1, abs=1e-6)
    assert middle @ share == pytest.approx(0, abs=1e-3)
    assert np.square(middle) @ share == pytest.approx(1, abs=1e-3)


def test_expected_shares_of_octaves_sum_to_one_in_every_unit():
    """In units below 2^-14 the octave that the half-range leaves is that of the zeros."""
    hypotheses, size = Hypotheses.around(0.0), len(coarse_octaves(np.zeros(HIGHEST - LOWEST + 2)))
    for octave in range(LOWEST + 1, HIGHEST + 2):
        shares = hypotheses.octaves(size, 2.0**octave)
        assert shares.min() > -1e-12
        np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-9, err_msg=str(octave))
    one = np.ones(1)
    two_valued = next(k for k, (_, _, atom) in enumerate(_LAWS) if atom == 1.0)  # half of the values at 0
    known = Hypotheses(np.array([two_valued]), one / 2, one / 2, 0 * one)
    assert known.octaves(size, 2.0**-22)[0, 0] == pytest.approx(0.5)


def test_expected_shares_are_those_of_large_samples():
    """50,000 values of the law itself on the grids of the releases: shares agree to five deviations of a count."""
    rng = np.random.default_rng(0)
    n, half, mean, deviation, centre = 50_000, 8.0, 2.0, 1.5, 1.0
    samples = {0: rng.standard_normal(n), 1: rng.uniform(-(3**0.5), 3**0.5, n), 2: rng.exponential(size=n) - 1}
    for law, drawn in samples.items():
        block = _Block(Rows.held((mean + deviation * drawn)[:, None]), 1)
        one = np.ones(1)
        known = Hypotheses(np.array([law]), one * mean / half, one * deviation / half, 0 * one)
        octaves = coarse_octaves(block.octaves())[0]
        pairs = (
            (octaves, known.octaves(len(octaves), half)),
            (block.positions(half * one, 15)[0], known.positions(15)),
            (
                coarse_distances(block.half_octaves(centre * one, half * one))[0],
                known.distances(centre / half, upper_edges(ZOOM_BINS)[1::2]),
            ),
        )
        for counts, shares in pairs:
            assert counts.sum() == n
            assert shares.sum() == pytest.approx(1)
            assert (np.abs(counts - n * shares[0]) <= 5 * np.sqrt(n * shares[0] * (1 - shares[0])) + 1).all()


def test_exact_counts_are_believed():
    rng = np.random.default_rng(1)
    y = 100 + 3 * rng.standard_normal((500, 1))
    block = _Block(Rows.held(y), 1)
    octaves = coarse_octaves(block.octaves())[0]
    half = believed_half_range(octaves, 5.0, 500)
    assert 100 < half <= 1024
    start = Hypotheses.around(100 / half)
    counts = coarse_distances(block.half_octaves(np.array([100.0]), np.array([half])))[0]
    shares = start.distances(100 / half, upper_edges(ZOOM_BINS)[1::2])
    mean, deviation, error = start.given(counts, 5.0, 500, shares).summary()
    assert abs(half * mean - 100) < 3
    assert 1.5 < half * deviation < 6
    assert error > 0


def test_no_evidence_is_the_prior():
    """All noise: the range stays within the grid, near 1, and nothing fails."""
    for seed in range(20):
        noise = 50 * np.random.default_rng(seed).standard_normal(1 + (HIGHEST - LOWEST + 2) // 2)
        assert 2.0**LOWEST <= believed_half_range(noise, 50.0, 20) <= 2.0**HIGHEST * 2
