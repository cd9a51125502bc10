import numpy as np
import pytest
from scipy.stats import norm

from gratis.planning.one_pass.clipping_factors import clipped_moments, clipping_factors
from gratis.records.errors import GratisError


def by_quadrature(risk: float, clip: float) -> tuple[float, float]:
    """E[r·clip(r)]/2P and E[clip(r)²]/2P by a trapezoidal rule on each smooth piece."""
    std = np.sqrt(2 * risk)
    total = np.zeros(2)
    for low, high in ((0.0, min(clip, 12 * std)), (min(clip, 12 * std), 12 * std)):
        r, step = np.linspace(low, high, 200_001, retstep=True)
        clipped = np.minimum(r, clip)
        density = 2 * norm.pdf(r, scale=std)
        for i, values in enumerate((r * clipped * density, clipped**2 * density)):
            total[i] += step * (values.sum() - 0.5 * (values[0] + values[-1]))
    return total[0] / (2 * risk), total[1] / (2 * risk)


@pytest.mark.parametrize("risk", [0.02, 0.5, 7.0])
@pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0, 2.5, 8.0])
def test_factors_are_the_moments_of_a_clipped_gaussian(risk, ratio):
    clip = ratio * np.sqrt(2 * risk)
    mu, nu = clipping_factors(risk, clip)
    expected = by_quadrature(risk, clip)
    assert mu == pytest.approx(expected[0], rel=1e-7)
    assert nu == pytest.approx(expected[1], rel=1e-7)


def test_tiny_and_huge_ratios_keep_their_digits():
    ratios = np.array([1e-150, 1e-12, 1e-6, 1e-3, 0.0499999, 0.0500001])
    mu, nu = clipping_factors(0.5, ratios)
    k = np.sqrt(2 / np.pi)
    # Leading terms: μ ≈ ku(1 − u²/6), ν ≈ u² − (2/3)ku³.
    np.testing.assert_allclose(mu, k * ratios * (1 - ratios**2 / 6), rtol=1e-6)
    np.testing.assert_allclose(nu, ratios**2 * (1 - 2 * k * ratios / 3), rtol=1e-5)
    assert mu[5] == pytest.approx(mu[4] * (1 + 4e-6), rel=1e-7)
    mu, nu = clipping_factors(0.5, np.array([10.0, 39.0, 1e300, np.inf]))
    np.testing.assert_allclose([mu, nu], 1.0, rtol=1e-12)
    mu, nu = clipping_factors([0.0, 0.0, 1e-300, 1e300], [1.0, 0.0, 1.0, 1e-300])
    np.testing.assert_allclose(mu, [1, 0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(nu, [1, 0, 1, 0], atol=1e-12)


def test_factors_rise_from_zero_to_one():
    mu, nu = clipping_factors(0.3, np.geomspace(1e-6, 50, 400))
    assert np.all(np.diff(mu) >= 0)
    assert np.all(np.diff(nu) >= -1e-15)
    assert np.all((mu >= 0) & (mu <= 1) & (nu >= 0) & (nu <= 1 + 1e-15))


@pytest.mark.parametrize(("risk", "clip"), [(0.3, 0.01), (0.3, 0.5), (2.0, 3.0)])
def test_derivatives(risk, clip):
    _, _, mu_risk, w_risk, mu_clip, w_clip = clipped_moments(risk, clip)
    step = 1e-6
    by_risk = [(clipped_moments(risk + step, clip)[i] - clipped_moments(risk - step, clip)[i]) / 2e-6 for i in (0, 1)]
    by_clip = [(clipped_moments(risk, clip + step)[i] - clipped_moments(risk, clip - step)[i]) / 2e-6 for i in (0, 1)]
    np.testing.assert_allclose([mu_risk, w_risk], by_risk, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose([mu_clip, w_clip], by_clip, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("risk", "clip"), [(-1.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0)])
def test_bad_input(risk, clip):
    with pytest.raises(GratisError, match="finite risk"):
        clipping_factors(risk, clip)
