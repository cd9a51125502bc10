import math

import numpy as np
import pytest

from gratis.mechanisms.column_shapes import LOWEST, _top, magnitudes, middle, spread
from gratis.mechanisms.location_scale import plan_standardisation, release_location_scale
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.records.neighbouring import Neighbouring

OCTAVES = 72  # zeros, and 71 octaves


def noisy(counts, std, seed):
    return np.asarray(counts, dtype=float) + std * np.random.default_rng(seed).standard_normal(np.shape(counts))


def histogram(values, size=OCTAVES):
    """Octave counts of one column."""
    exponents = np.clip(np.floor(np.log2(np.maximum(np.abs(values), 2.0 ** (LOWEST - 1)))) - LOWEST + 1, 0, size - 1)
    return np.bincount(exponents.astype(int), minlength=size).astype(float)


def half_range(*counts, **options):
    return magnitudes(*counts, **options)[0]


def released(X, mu, seed, **options):
    plan = plan_standardisation(*X.shape, mu=mu, neighbouring=Neighbouring.REPLACE_ONE, **options)
    return release_location_scale(Rows.held(X), plan, noise=NoiseSource.insecure(seed))


def test_long_runs_do_not_carry_empty_bins_along():
    counts = np.zeros((1, 40))
    counts[0, [10, 11]] = [5000.0, 70.0]
    start = np.array([10])
    assert _top(counts, 10.0, start).tolist() == [11]
    counts[0, [12, 13, 14]] = 13.0  # one or two stay below 2√m deviations, three do not
    assert _top(counts, 10.0, start).tolist() == [14]
    counts[0, 30] = 50.0
    assert _top(counts, 10.0, start).tolist() == [30]
    assert _top(counts, 10.0, start, far=5.5).tolist() == [14]


def test_knees_are_of_columns_with_most_values_far_below_their_range():
    rng, n = np.random.default_rng(3), 20_000
    laws = {
        "normal": rng.normal(size=n),
        "far": 1000 + rng.normal(size=n),
        "exponential": rng.exponential(size=n),
        "uniform": rng.uniform(size=n),
        "binary": (rng.random(n) < 0.05).astype(float),
        "zeros": np.zeros(n),
        "lognormal 1": np.exp(rng.normal(size=n)),
        "lognormal 2": np.exp(2 * rng.normal(size=n)),
        "spiked": np.exp(2 * rng.normal(size=n)) * (rng.random(n) < 0.4),
    }
    counts = np.array([histogram(values) for values in laws.values()])
    for std, seed in ((5.0, 0), (50.0, 1)):
        half, knee = magnitudes(noisy(counts, std, seed), std, n, tail=0.01)
        heavy = dict(zip(laws, np.isfinite(knee), strict=True))
        assert [name for name, found in heavy.items() if found] == ["lognormal 2", "spiked"]
        assert ((0.1 < knee[-2:]) & (knee[-2:] < 0.5)).all()  # a quarter of the median of what is not zero, 1
        assert (half[-2:] >= 64).all()
    assert not np.isfinite(magnitudes(noisy(counts, 5000.0, 2), 5000.0, n, tail=0.01)[1]).any()  # nothing is known


def test_a_column_spread_over_octaves_is_found_by_their_run():
    """Five octaves of 80 at noise 40: the largest of 71 bins is often noise, their run is not."""
    counts = np.zeros(OCTAVES)
    counts[40:45] = 80.0
    lost_by_mode = lost = 0
    for seed in range(200):
        seen = noisy(counts, 40.0, seed)
        lost_by_mode += not 40 <= seen.argmax() < 45
        lost += abs(math.log2(half_range(seen[None], 40.0, 400, tail=0.01)[0]) - (44 + LOWEST)) > 5
    assert lost_by_mode > 15
    assert lost < lost_by_mode / 3


def test_columns_that_cannot_be_read_alone_are_read_together():
    """Three families of columns at n/σ = 2: alone most are lost, together few; a clear column keeps its own place."""
    truth = np.repeat([35, 35, 41], 40)
    counts = np.zeros((len(truth), OCTAVES))
    counts[np.arange(len(truth)), truth] = 60.0
    counts[np.arange(len(truth)), truth - 1] = 40.0
    seen = noisy(counts, 50.0, 1)
    together = np.log2(half_range(seen, 50.0, 100, tail=0.01)) - LOWEST
    alone = np.log2(np.concatenate([half_range(row[None], 50.0, 100, tail=0.01) for row in seen])) - LOWEST
    assert (np.abs(together - truth) > 6).mean() < 0.1
    assert (np.abs(alone - truth) > 6).mean() > 0.3
    counts[0] = 0.0
    counts[0, 60] = 1000.0
    clear = noisy(counts, 5.0, 2)
    assert half_range(clear, 5.0, 1000, tail=0.01)[0] == 2.0 ** (60 + LOWEST)


def test_noise_of_one_column_does_not_make_a_shape_common():
    # With its own word counted, 33 of these 2160 columns of 0 and 1 were off by more than a factor of 50.
    std, alike = 270.0, np.zeros((180, OCTAVES))
    alike[:, [0, 1 - LOWEST]] = 1875.0, 625.0
    found = np.concatenate([half_range(noisy(alike, std, seed), std, 2500, tail=0.01) for seed in range(12)])
    assert ((found < 0.04) | (found > 100)).sum() <= 12
    assert (found == 2.0).mean() > 0.95


def test_one_in_several_thousand_columns_is_judged_by_the_others_as_well():
    counts = np.zeros((3000, OCTAVES))
    counts[:, 1 - LOWEST] = 2500.0
    counts[[0, 1, 2999], 1 - LOWEST] = 0.0
    counts[[0, 1, 2999], 11 - LOWEST] = 2500.0  # every third column tells what is common: of these the first alone
    found = half_range(noisy(counts, 50.0, 0), 50.0, 2500, tail=0.01)
    assert (found[[0, 1, 2999]] == 2.0**11).all()
    assert (np.delete(found, [0, 1, 2999]) == 2.0).all()


def test_with_little_noise_a_columns_own_counts_decide():
    """The mixture of shapes must not round a column to one of its shapes."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(50_000) < 0.7, rng.lognormal(0, 0.3, 50_000), rng.lognormal(9, 0.3, 50_000))
    found = half_range(noisy(histogram(values)[None], 5.0, 0), 5.0, 50_000, tail=0.01)[0]
    assert np.quantile(values, 0.99) / 2 < found < 4 * np.quantile(values, 0.99)


def test_middle_of_shared_positions_and_of_single_ones():
    counts = np.zeros((60, 8))
    counts[:, 6] = 50.0
    assert np.abs(middle(noisy(counts, 40.0, 3), 40.0, 50) - 0.625).mean() < 0.15
    counts[:] = 0.0
    counts[np.arange(60), np.arange(60) % 8] = 5000.0
    np.testing.assert_allclose(middle(noisy(counts, 5.0, 4), 5.0, 5000), (np.arange(60) % 8 + 0.5) / 4 - 1)


@pytest.mark.slow
def test_a_zero_inflated_target_keeps_what_lies_beyond_the_spike():
    """Half of the target is one value. n is public, so what the spike lacks must be somewhere."""
    closed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        y = np.where(rng.random(413) < 0.5, 0.0, rng.lognormal(0.5, 0.8, 413))[:, None] - 1.1
        found = released(y, 0.12, seed, tail=0.002, headroom=2.0)
        closed += found.window[0] < y.std() or found.scale[0] < 0.1 * y.std()
    assert closed <= 1  # 13 of 60 before the counts had to sum to n


def test_a_spike_is_not_widened_by_noise_alone():
    rng = np.random.default_rng(1)
    y = rng.normal(5.0, 1.0, (2000, 1))
    widths = [released(y, 0.2, seed, tail=0.002, headroom=2.0).window[0] for seed in range(40)]
    assert np.median(widths) < 10
    assert np.mean(np.array(widths) > 17) < 0.1


def test_records_that_are_left_out_open_no_window():
    """Counts then sum to less than n; what lacks is nowhere."""
    rng = np.random.default_rng(2)
    y = rng.normal(size=(20_000, 1))
    y[:3000] = np.nan
    found = released(y, 0.5, 0, tail=0.002, headroom=2.0)
    assert found.window[0] < 12
    assert 0.7 < found.scale[0] < 1.5


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.99])
def test_a_0_1_column_keeps_both_levels(share):
    """Else the slope in original units is that of another column (it was off by a factor of 12)."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.random(20_000) < share, rng.normal(size=20_000)]).astype(float)
    for seed in range(10):
        found = released(X, 0.4, seed)
        levels = found.transform(np.array([[0.0, 0.0], [1.0, 0.0]]))[:, 0] * found.scale[0]
        assert levels[1] - levels[0] == pytest.approx(1.0, abs=0.1)


def test_a_tail_that_runs_out_is_cut_where_a_level_is_kept():
    size = 24
    upper = np.exp2((np.arange(size) - (size - 3)) / 2.0)
    tail = np.zeros((1, size))
    tail[0, 8:13] = 2000.0
    level = tail.copy()
    tail[0, 13:21] = [60, 40, 25, 15, 10, 8, 6, 6]  # under two per cent in all, from bin to bin
    level[0, 20] = 150.0
    cut, kept = (spread(noisy(c, 3.0, 5), 3.0, int(c.sum()), tail=0.02)[0][0] for c in (tail, level))
    assert cut < upper[17] < kept
    assert kept >= upper[20]


def test_heavy_tails_get_narrow_windows():
    """A window is at most ten root mean squares of what it holds, whatever the tail."""
    rng = np.random.default_rng(6)
    X = np.exp(3 * rng.normal(size=(20_000, 1)))
    found = released(X, 2.0, 0)
    assert np.abs(found.transform(X)).max() < 14
    assert found.window[0] < np.quantile(X, 0.999)


def test_all_zero_columns_are_taken_for_indicators():
    found = half_range(noisy(np.eye(OCTAVES)[[0]] * 400, 20.0, 7), 20.0, 400, tail=0.01)
    assert 0.5 <= found[0] <= 8


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_target_that_is_mostly_one_value_is_not_taken_for_it(share):
    """At N = nμ/κ = 45 the share of the target: the scale had been a billionth in half of these releases."""
    rng = np.random.default_rng(4)
    y = (rng.random((600, 1)) < share).astype(float)
    found = [released(y, 0.15, seed, tail=0.002, headroom=2.0) for seed in range(40)]
    lost = [not 0.25 < one.scale[0] / y.std() < 4 or one.window[0] < y.std() for one in found]
    assert np.mean(lost) <= 0.1


@pytest.mark.slow
def test_a_spike_beside_the_centre_is_one():
    """Half of the values lie at −1.1, which no bin of positions has in its middle: the rest counts all the same."""
    lost = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = np.where(rng.random(400) < 0.5, -1.1, rng.normal(1.0, 1.2, 400))[:, None]
        found = released(y, 0.15, seed, tail=0.002, headroom=2.0)
        lost += not 0.25 < found.scale[0] / y.std() < 4
    assert lost <= 4


def test_a_heavy_tail_is_not_a_level():
    """Single far values in empty surroundings: with little noise each stands apart, but none holds most of the tail."""
    size = 24
    counts = np.zeros((1, size))
    counts[0, 8:13] = 2000.0
    counts[0, [15, 18, 21]] = [30.0, 25.0, 20.0]
    upper = np.exp2((np.arange(size) - (size - 3)) / 2.0)
    assert spread(counts, 1.0, 10_075, tail=0.02)[0][0] < upper[15]
    counts[0, [15, 18]] = 0.0
    counts[0, 21] = 150.0  # the same, and all of it at one place
    assert spread(counts, 1.0, 10_150, tail=0.02)[0][0] >= upper[21]
