import math

import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner, release_second_moments
from gratis.records.neighbouring import Neighbouring
from gratis.stages.evidence import kept_by_evidence, kept_share, level_event, release_level


def each(residuals):
    return Rows.one_chunk(np.asarray(residuals)[:, None]).mapped(lambda r: (r[:, 0],))


RELATIONS = list(Neighbouring)
EVIDENCE = ((0.1, 0.0), (0.3, 0.6), (0.7, 0.9))


class Seen:
    """A noise source that keeps the value before noise."""

    def release(self, values, std):
        self.value = np.array(values)
        return self.value


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_of_the_level_on_hostile_neighbours(relation):
    n = 50
    event = level_event(n, mu=0.3, neighbouring=relation)
    rng = np.random.default_rng(0)
    worst = 0.0
    for hostile in (1e300, -1e300, np.inf, -np.inf, np.nan, 0.0, 1e-300, 5.0, -5.0):
        first = rng.standard_normal(n)
        second = first.copy()
        first[0] = 1e9
        second[0] = np.nan if relation is Neighbouring.ZERO_OUT else hostile
        seen = []
        for residuals in (first, second):
            source = Seen()
            assert math.isfinite(release_level(each(residuals), event, centre_error=0.1, noise=source))
            seen.append(source.value)
        worst = max(worst, float(np.linalg.norm(seen[0] - seen[1])))
        assert worst <= event.sensitivity
    assert worst > 0.99 * event.sensitivity
    assert event.sensitivity / event.noise_std == pytest.approx(0.3)


def test_negative_control_residuals_that_are_not_clipped_break_the_bound():
    residuals, other = np.zeros(50), np.zeros(50)
    other[0] = 1e3
    event = level_event(50, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE)
    assert abs(residuals.mean() - other.mean()) > event.sensitivity


def test_the_level_repairs_a_skewed_error_and_is_shrunk_by_its_noise():
    residuals = np.random.default_rng(1).exponential(size=20_000) - 0.7
    many = level_event(20_000, mu=0.3, neighbouring=Neighbouring.ZERO_OUT)
    found = release_level(each(residuals), many, centre_error=0.05, noise=NoiseSource.insecure(0))
    assert found == pytest.approx(residuals.mean(), abs=0.02)
    few = level_event(10, mu=0.01, neighbouring=Neighbouring.ZERO_OUT)
    levels = [
        release_level(each(residuals[:10]), few, centre_error=0.1, noise=NoiseSource.insecure(s)) for s in range(20)
    ]
    assert np.abs(levels).max() < 0.1


def test_fits_to_nothing_are_taken_back_and_strong_ones_kept():
    """500 draws of pure noise with the energy the evidence names: few survive, in part; a strong signal does."""
    rng = np.random.default_rng(2)
    noise = 0.1 * rng.chisquare(5, 500) / 5
    left = np.array([kept_share(energy, EVIDENCE, 5) for energy in noise])
    assert (left > 0).mean() < 0.2
    assert (np.square(left) * noise).mean() < 0.12 * noise.mean()
    assert kept_share(0.7, EVIDENCE, 5) == pytest.approx(0.9)
    assert kept_share(7.0, EVIDENCE, 5) ** 2 * 7.0 < 0.7, "no more energy than the strongest signal explains"


def test_slopes_are_shrunk_by_their_energy_in_the_released_basis():
    X = np.column_stack([np.random.default_rng(3).choice([-1.0, 1.0], (4000, 3)), np.ones(4000)])  # none is clipped
    moved, _ = release_second_moments(
        Rows.held(X, X[:, 0]), mu=50.0, neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0)
    )
    parameters = np.array([[0.5], [0.0], [0.0], [2.0]])
    np.testing.assert_allclose(moved.restore(moved.coordinates(parameters)), parameters, atol=1e-12)
    kept = kept_by_evidence(parameters, moved, evidence=EVIDENCE, centre_error=1.0)
    share = kept_share(0.25, EVIDENCE, moved.effective_dimension)  # the intercept has no part in it
    assert kept[0, 0] == pytest.approx(0.5 * share, rel=0.1)
    assert kept[3, 0] == pytest.approx(2.0, rel=0.05)
    plain = Preconditioner.identity(4)
    assert kept_by_evidence(parameters, plain, evidence=EVIDENCE, centre_error=1.0) is parameters
    assert kept_by_evidence(parameters, moved, evidence=(), centre_error=1.0) is parameters
