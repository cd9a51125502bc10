import math

import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner, release_second_moments
from gratis.records.neighbouring import Neighbouring
from gratis.stages.evidence import kept_by_evidence, level_event, release_level


def each(residuals):
    return Rows.one_chunk(np.asarray(residuals)[:, None]).mapped(lambda r: (r[:, 0],))


RELATIONS = list(Neighbouring)


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


TRAVEL, DEVIATION, RECORDS = 6.0, 0.05, 500


def released_basis(n=4000):
    X = np.column_stack([np.random.default_rng(3).choice([-1.0, 1.0], (n, 8)), np.ones(n)])  # none is clipped
    moved, _ = release_second_moments(
        Rows.held(X, X[:, 0]), mu=50.0, neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0)
    )
    return moved


def kept(parameters, moved, centre_error=1.0):
    noise = np.full(len(parameters), DEVIATION**2)
    return kept_by_evidence(
        parameters, moved, noise, travel=TRAVEL, n_records=RECORDS, centre_error=centre_error
    )  # fmt: skip


def fits(moved, signal, seed):
    """Slopes as a descent ends with them: a part of the truth that the spectrum says, and noise of every direction."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((9, 1))
    truth[:8, 0] = rng.choice([-1.0, 1.0], 8) * math.sqrt(signal / 8)
    reached = -np.expm1(-TRAVEL * moved.spectrum)[:, None]
    found = reached * moved.coordinates(truth) + DEVIATION * rng.standard_normal((9, 1))
    return truth, moved.restore(found)


@pytest.mark.parametrize("signal", [0.0, 0.02, 0.1, 0.6])
def test_a_fit_is_never_much_worse_for_being_shrunk_and_noise_is_taken_back(signal):
    """E(xᵀθ − xᵀθ*)² of 200 fits: without a signal most of the noise goes, with a strong one nothing is lost."""
    moved = released_basis()
    errors = {"as found": [], "kept": []}
    for seed in range(200):
        truth, found = fits(moved, signal, seed)
        for name, slopes in (("as found", found), ("kept", kept(found, moved))):
            errors[name].append(float(np.square(slopes - truth)[:-1].sum()))
    ratio = np.mean(errors["kept"]) / np.mean(errors["as found"])
    assert ratio < {0.0: 0.15, 0.02: 1.0, 0.1: 1.02, 0.6: 1.02}[signal]


def test_predictions_do_not_vary_more_than_any_target_could():
    moved = released_basis()
    slopes = np.ones((9, 1)) * 10.0
    left = moved.coordinates(np.vstack([kept(slopes, moved)[:-1], [[0.0]]]))[:, 0]
    assert float(moved.spectrum @ np.square(left)) == pytest.approx(3.0, rel=1e-6)


def test_the_intercept_has_no_part_in_what_slopes_keep_and_is_shrunk_by_what_was_known():
    moved = released_basis()
    _, found = fits(moved, 0.1, 0)
    shifted = found.copy()
    shifted[-1] += 2.0
    np.testing.assert_allclose(kept(found, moved)[:-1], kept(shifted, moved)[:-1], rtol=1e-9)
    assert kept(shifted, moved)[-1, 0] == pytest.approx(shifted[-1, 0], rel=0.02)
    assert abs(kept(shifted, moved, centre_error=0.01)[-1, 0]) < 0.1 * abs(shifted[-1, 0])


def test_plain_descent_knows_no_spectrum_and_keeps_what_it_found():
    parameters = np.ones((9, 1))
    assert kept(parameters, Preconditioner.identity(9)) is parameters
