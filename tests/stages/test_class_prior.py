import itertools
import math

import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.records.neighbouring import Neighbouring
from gratis.stages.class_prior import class_counts_event, release_class_prior


def labelled(y):
    return Rows.held(np.zeros((len(y), 1)), np.asarray(y, dtype=float))


LABELS = (0.0, 1.0, 2.0, 7.0, -1.0, 0.5, np.nan, np.inf)


class Watched(NoiseSource):
    """Notes what is about to be released."""

    def __init__(self):
        super().__init__(1, secure=False)
        self.seen = []

    def perturb(self, values, std):
        self.seen.append(np.array(values))
        return super().perturb(values, std)


def counts(y):
    watched = Watched()
    event = class_counts_event(mu=1.0, neighbouring=Neighbouring.ZERO_OUT)
    release_class_prior(labelled(y), 3, event, noise=watched)
    return watched.seen[0]


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_no_exchange_moves_the_counts_by_more_than_the_event_says(relation):
    """All pairs of labels, valid or not; under zero-out the second is the null record's."""
    event = class_counts_event(mu=0.5, neighbouring=relation)
    others = (0.0, 1.0, 1.0, 2.0)
    seconds = LABELS if relation is Neighbouring.REPLACE_ONE else (np.nan,)
    moves = [
        np.linalg.norm(counts((*others, first)) - counts((*others, second)))
        for first, second in itertools.product(LABELS, seconds)
    ]
    assert max(moves) <= event.sensitivity
    assert max(moves) == pytest.approx(event.sensitivity)
    assert event.sensitivity / event.noise_std == pytest.approx(0.5)


@pytest.mark.statistical(failure=2e-4)
@pytest.mark.slow
def test_the_noise_has_the_deviation_that_the_event_states():
    event = class_counts_event(mu=0.1, neighbouring=Neighbouring.REPLACE_ONE)
    y, n = np.repeat([0.0, 1.0], [30_000, 70_000]), 400
    shares = np.array([release_class_prior(labelled(y), 2, event, noise=NoiseSource.insecure(i))[0] for i in range(n)])
    # share = c₀/(c₀ + c₁), so its deviation is √(.7² + .3²) of the noise of a count over n, to first order
    expected = math.hypot(0.7, 0.3) * event.noise_std / len(y)
    assert shares.mean() == pytest.approx(0.3, abs=4 * expected / math.sqrt(n))
    assert shares.std() == pytest.approx(expected, rel=4 / math.sqrt(2 * n))


def test_rare_and_absent_classes_keep_a_share():
    event = class_counts_event(mu=0.1, neighbouring=Neighbouring.REPLACE_ONE)
    for seed in range(20):
        prior = release_class_prior(labelled(np.zeros(50)), 4, event, noise=NoiseSource.insecure(seed))
        assert prior.sum() == pytest.approx(1)
        assert np.isfinite(np.log(prior)).all()
