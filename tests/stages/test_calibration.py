import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.records.neighbouring import Neighbouring
from gratis.stages.calibration import STEPS, calibrate_scores, calibration_event


def problem(n, k, seed=0, prior=None):
    rng = np.random.default_rng(seed)
    prior = np.full(k, 1 / k) if prior is None else np.asarray(prior)
    scores = 1.5 * rng.standard_normal((n, k))
    y = (np.log(prior) + scores + rng.gumbel(size=(n, k))).argmax(axis=1).astype(float)
    return scores, y, prior


def calibrated(scores, y, prior, mu, seed=0, **options):
    event = calibration_event(*scores.shape, mu=mu, neighbouring=Neighbouring.REPLACE_ONE)
    given = {"scale": 1.5, "most": 3.0} | options
    return calibrate_scores(
        Rows.held(scores, np.asarray(y, dtype=float)), prior, event=event, noise=NoiseSource.insecure(seed), **given
    )


@pytest.mark.parametrize("k", [2, 5])
def test_factor_and_shifts_are_found(k):
    scores, y, prior = problem(20_000, k)
    wrong = prior * np.exp(np.linspace(-0.5, 0.5, k))
    factor, shift = calibrated(scores * 2, y, wrong / wrong.sum(), mu=20.0, scale=3.0)
    assert factor == pytest.approx(0.5, abs=0.06)
    np.testing.assert_allclose(shift, np.linspace(0.5, -0.5, k), atol=0.15)


def test_a_factor_is_never_more_than_is_allowed():
    scores, y, prior = problem(20_000, 3)
    assert calibrated(scores / 3, y, prior, mu=20.0, scale=0.5, most=1.2)[0] == 1.2


def test_where_noise_drowns_everything_little_is_changed():
    """Time is such that the noise alone moves a shift by .3."""
    scores, y, prior = problem(200, 3)
    shifts = np.array([calibrated(scores, y, prior, mu=0.01, seed=seed)[1] for seed in range(40)])
    assert 0.05 < np.sqrt(np.square(shifts).mean()) < 0.6


class Played(NoiseSource):
    """Releases given values whatever it is asked to release, and notes what it was asked."""

    def __init__(self, played):
        super().__init__(1, secure=False)
        self.seen, self.played = [], played

    def release(self, values, std):
        self.seen.append(np.array(values))
        return self.played[len(self.seen) - 1]


HOSTILE = ([0, 0], [1e9, -1e9], [-1e9, 1e9], [1e300, -1e300], [np.inf, 0], [np.nan, 1], [3, -3], [-40, 40])


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_no_record_moves_a_step_by_more_than_its_sensitivity(relation):
    """Same noisy past, one record exchanged for any other (or for none): no sum moves by more than κ/n."""
    n, k = 20, 2
    scores, y, prior = problem(n, k, seed=1, prior=[0.9, 0.1])
    event = calibration_event(n, k, mu=1.0, neighbouring=relation)
    rng = np.random.default_rng(2)
    played = rng.standard_normal((STEPS, k + 1)) * 0.2
    records = [(np.array(s, dtype=float), label) for s in HOSTILE for label in (0.0, 1.0)]

    def sums(record):
        changed, labels = scores.copy(), y.copy()
        changed[3], labels[3] = record
        source = Played(played)
        calibrate_scores(
            Rows.held(changed, np.asarray(labels, dtype=float)), prior, scale=1.5, most=1.6, event=event, noise=source
        )
        return np.array(source.seen)

    null = (np.zeros(k), np.nan)
    found = [sums(record) for record in records]
    pairs = (
        [(a, b) for a in found for b in found]
        if relation is Neighbouring.REPLACE_ONE
        else [(a, sums(null)) for a in found]
    )
    largest = max(np.linalg.norm(a - b, axis=1).max() for a, b in pairs)
    bound = relation.sensitivity_factor / n
    assert largest <= bound * (1 + 1e-9)
    # An error pulls the factor down whichever class it is for, so two records cannot pull in opposite directions.
    assert largest > (0.6 if relation is Neighbouring.REPLACE_ONE else 0.9) * bound
