"""S2's Theorem 4: the closed exponent against its maximisation, and against slopes of the solved equation."""

import math

import numpy as np
import pytest

from gratis.planning.one_pass.prediction import OnePassProblem
from gratis.planning.one_pass.rates import scaling_exponent
from gratis.planning.one_pass.schedule_optimisation import Family, FamilyKind, optimise_schedule
from gratis.planning.one_pass.spectra import PowerLawSpectrum


@pytest.mark.slow(but=["-0.5-0.15-0.0-6.0"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 6.0])
@pytest.mark.parametrize("beta", [-1.0, 0.0, 0.4, 0.8])
@pytest.mark.parametrize("source", [-0.5, 0.0, 0.15])
@pytest.mark.parametrize("privacy", [-0.5, 0.0, 0.5, 0.9])
def test_closed_form_is_the_maximum_over_the_rate(alpha, beta, source, privacy):
    q, order = 2 - beta - source, alpha + 1
    a = np.linspace(0, 3, 300_001)
    terms = np.minimum(a * q, 1 - a / order)
    terms = np.minimum(terms, 2 - 2 * privacy - a * max(2 / order, beta))
    found = scaling_exponent(alpha=alpha, beta=beta, source_exponent=source, privacy_exponent=privacy)
    assert found == pytest.approx(terms.max(), abs=1e-4)


def test_limits_as_alpha_grows():
    assert scaling_exponent(alpha=math.inf, beta=-0.5, privacy_exponent=0.2) == pytest.approx(1)
    assert scaling_exponent(alpha=math.inf, beta=0.5, privacy_exponent=0.6) == pytest.approx(0.8 * 1.5 / 2.0)


@pytest.mark.parametrize(
    ("alpha", "beta", "source", "privacy"),
    [
        (0.5, 0.0, 0.0, 0.0),
        (1.0, 0.0, 0.0, 0.0),
        (3.0, 0.0, 0.0, 0.0),
        (6.0, 0.0, 0.0, 0.0),
        (1.0, 0.3, 0.0, 0.0),
        (1.0, 0.3, 0.3, 0.0),
        (3.0, 0.5, 0.2, 0.0),
        (0.0, -0.5, 0.5, 0.0),
        (1.0, 0.0, 0.0, 0.5),
    ],
)
def test_slopes_of_the_best_risk(alpha, beta, source, privacy):
    gammas = np.array([1e-6, 1e-5])
    risks = []
    for gamma in gammas:
        problem = OnePassProblem(
            gamma=float(gamma),
            rho=float(gamma**privacy),
            label_noise_variance=0.25,
            spectrum=PowerLawSpectrum(beta, source),
        )
        risks.append(optimise_schedule(problem, Family(FamilyKind.POLYNOMIAL, alpha)).excess_risk)
    slope = np.log(risks[1] / risks[0]) / np.log(10)
    expected = scaling_exponent(alpha=alpha, beta=beta, source_exponent=source, privacy_exponent=privacy)
    assert slope == pytest.approx(expected, abs=0.03)
