"""How much of a classifier's scores is kept: bounded on hostile rows, right where it can be seen."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.logistic import SoftmaxModel
from gratis.records.neighbouring import Neighbouring
from gratis.stages.score_shrinkage import plan_shrinkage, release_shrinkage

N, CLASSES = 40, 3
HOSTILE = [
    ((1e308, -1e308, 0.0), 1.0),
    ((1e3, 0.0, -1e3), 2.0),
    ((1e3, 0.0, -1e3), 0.0),
    ((np.nan, 0.0, 0.0), 1.0),
    ((np.inf, 0.0, 0.0), 0.0),
    ((5.0, -5.0, 0.0), np.nan),
    ((5.0, -5.0, 0.0), 7.0),
    ((0.0, 0.0, 0.0), 0.0),
    ((5e-324, 0.0, -5e-324), 1.0),
]


class Tape:
    def release(self, values: Any, std: float) -> Any:
        self.values = np.array(values)
        return self.values


def released(scores: Any, y: Any) -> Any:
    tape, event = Tape(), plan_shrinkage(N, mu=1.0, neighbouring=Neighbouring.ZERO_OUT)
    prior = np.array([0.2, 0.3, 0.5])
    release_shrinkage(Rows.held(scores, y), prior, deviation=1.0, event=event, noise=tape)  # type: ignore[arg-type]
    return tape.values


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_one_record_moves_the_slopes_by_no_more_than_planned(relation: Neighbouring) -> None:
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(N, CLASSES)), rng.integers(CLASSES, size=N).astype(float)
    event = plan_shrinkage(N, mu=0.5, neighbouring=relation)
    assert event.noise_std == pytest.approx(event.sensitivity / 0.5)
    found = {}
    for place, (record, label) in enumerate(HOSTILE):
        A, a = scores.copy(), y.copy()
        A[3], a[3] = record, label
        found[place] = released(A, a)
    null = released(np.where(np.arange(N)[:, None] == 3, 0.0, scores), np.where(np.arange(N) == 3, np.nan, y))
    pairs = itertools.product(found.values(), found.values() if relation is Neighbouring.REPLACE_ONE else [null])
    gaps = [np.linalg.norm(p - q) for p, q in pairs]
    assert max(gaps) <= event.sensitivity
    # Reached by one record alone; of two, one adds as much and the other little: no record is that surely right.
    assert max(gaps) > 0.9 * event.sensitivity / relation.sensitivity_factor


def drawn(stretch: float, n: int = 20_000) -> Any:
    """Scores whose probabilities are right, times `stretch`."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(n, CLASSES))
    chances = SoftmaxModel(CLASSES).mean(scores)
    y = (rng.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1).astype(float)
    return Rows.held(stretch * scores, np.minimum(y, CLASSES - 1))


@pytest.mark.parametrize("stretch", [2.0, 4.0, 12.0])
def test_scores_that_are_too_large_are_shrunk_to_what_they_are_worth(stretch: float) -> None:
    event = plan_shrinkage(20_000, mu=0.5, neighbouring=Neighbouring.ZERO_OUT)
    found = release_shrinkage(
        drawn(stretch), np.full(CLASSES, 1 / CLASSES), deviation=stretch, event=event, noise=NoiseSource.insecure(3)
    )
    assert 1 / stretch <= found < 1.4 / stretch + 0.03  # between two factors the slope is taken to be straight


@pytest.mark.slow(but=["0.5-0.5"])
@pytest.mark.parametrize(("stretch", "mu"), [(1.0, 0.5), (0.5, 0.5), (4.0, 1e-5)])
def test_scores_are_kept_where_they_are_right_or_nothing_can_be_seen(stretch: float, mu: float) -> None:
    event = plan_shrinkage(20_000, mu=mu, neighbouring=Neighbouring.ZERO_OUT)
    kept = [
        release_shrinkage(
            drawn(stretch), np.full(CLASSES, 1 / CLASSES), deviation=stretch, event=event,
            noise=NoiseSource.insecure(seed),
        )
        for seed in range(20)
    ]  # fmt: skip
    assert np.median(kept) > 0.9
    assert all(0 <= one <= 1 for one in kept)
