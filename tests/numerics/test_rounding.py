import math
from fractions import Fraction

import numpy as np
import pytest

from gratis.numerics.rounding import rounding_inflation


def test_grows_with_rows_and_columns_and_stays_small():
    small, large = rounding_inflation(1000, 10), rounding_inflation(10_000_000, 10)
    assert 1 < small < large < 1 + 1e-4
    assert rounding_inflation(1000, 10_000) > small


def test_chunks_keep_the_bound_small_for_many_rows():
    n = 10_000_000
    assert rounding_inflation(n, 10) - 1 < (rounding_inflation(n, 10, rows_per_chunk=n) - 1) / 100


@pytest.mark.parametrize("n", [100, 5000])
def test_bound_covers_the_error_of_float_sums(n):
    rng = np.random.default_rng(n)
    values = rng.uniform(0.5, 1, n)
    exact = sum(Fraction(v) for v in values)
    computed = 0.0
    for v in values:
        computed += v
    error = abs(Fraction(computed) - exact)
    assert 0 < error <= rounding_inflation(n, 1, rows_per_chunk=n) - 1


def test_scaled_rows_exceed_the_clip_by_less_than_the_bound():
    rng = np.random.default_rng(0)
    worst = Fraction(0)
    for _ in range(200):
        row = rng.standard_normal(20) * 10.0 ** rng.integers(-5, 6)
        clipped = row * min(1.0, 1.0 / math.sqrt(float(row @ row)))
        worst = max(worst, sum(Fraction(v) ** 2 for v in clipped))
    assert worst > 1  # rounding does push norms above the clip
    assert worst <= Fraction(rounding_inflation(1, 20)) ** 2


def test_bad_parameters():
    for bad in [(0, 1), (1, 0)]:
        with pytest.raises(ValueError, match="positive"):
            rounding_inflation(*bad)
    with pytest.raises(ValueError, match="positive"):
        rounding_inflation(1, 1, sensitivity=0)
