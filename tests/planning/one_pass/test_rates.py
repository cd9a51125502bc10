import math

import numpy as np
import pytest

from gratis.planning.one_pass.rates import harmonic_rate, minimax_rate, polynomial_rate, scaling_exponent
from gratis.records.errors import GratisError


def test_polynomial_rate_approaches_the_minimax_rate_as_alpha_grows():
    rates = [polynomial_rate(1e-3, alpha=a, rho=0.1) for a in (0.0, 0.5, 2.0, 10.0, 1e6)]
    assert np.all(np.diff(rates) < 0)
    assert rates[-1] == pytest.approx(minimax_rate(1e-3, rho=0.1), rel=1e-4)
    log = math.log(1000)
    assert rates[0] == pytest.approx(1e-3 * log + (1e-3 * log / 0.1) ** 2)


def test_large_clipping_multiplies_the_private_term():
    assert harmonic_rate(0.1, rho=1.0, clip_level=3.0) == pytest.approx(0.1 + 9 * 0.01)
    assert harmonic_rate(0.1, rho=1.0, clip_level=0.1) == harmonic_rate(0.1, rho=1.0)
    assert harmonic_rate(0.1, rho=math.inf) == 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda: polynomial_rate(1.0, alpha=0.0, rho=1.0),
        lambda: polynomial_rate(0.1, alpha=-1.0, rho=1.0),
        lambda: harmonic_rate(0.1, rho=0.0),
        lambda: harmonic_rate(-0.1, rho=1.0),
        lambda: scaling_exponent(alpha=1.0, beta=1.0),
        lambda: scaling_exponent(alpha=1.0, beta=0.5, source_exponent=0.5),
        lambda: scaling_exponent(alpha=1.0, privacy_exponent=1.0),
        lambda: scaling_exponent(alpha=-1.0),
    ],
)
def test_bad_input(call):
    with pytest.raises(GratisError):
        call()
