"""Rehearsals: the noise of many rows on few, and what it says of widths."""

import numpy as np
import pytest

from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.second_moments import Preconditioner
from gratis.planning.interval_width import predict_logistic_width, predict_width
from gratis.planning.rehearsal import rehearse, rehearsed_rows
from gratis.recipes.linear_inference import LinearInference, _within_windows
from gratis.recipes.logistic_inference import LogisticInference
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring


def recipe(relation, rows=4000, **more):
    budget = Budget(epsilon=1.0, delta=1e-6, neighbouring=relation)
    kind = LogisticInference if more else LinearInference
    return kind(Facts(rows=rows, columns=3, **more), budget, Reading())


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("more", [{}, {"classes": 2}])
def test_few_rows_have_the_noise_of_many(relation, more):
    made = recipe(relation, **more)
    few = made._rehearsal()
    whole = (made.start.stages if more else made.stages).event.leaves()
    assert few.n_records == rehearsed_rows(3)
    for small, large in zip(few.event.leaves(), whole, strict=True):
        if not hasattr(large, "noise_std"):
            continue  # the descent is not rehearsed
        counts = large.sensitivity > 0.1
        ratio = small.noise_std / large.noise_std
        assert ratio == pytest.approx(few.n_records / 4000 if counts else 1.0, rel=1e-6), large.label


@pytest.mark.parametrize("more", [{}, {"classes": 2}])
def test_columns_that_noise_treats_worse_widen_the_range_and_not_the_point(more):
    made = recipe(Neighbouring.REPLACE_ONE, **more)
    alone, step = made.width, made.step
    if more:
        found = predict_logistic_width(step, made._rehearsal())
    else:
        found = predict_width(step, 2 * made._prediction().value, made._rehearsal())
    assert (found.value, found.radius) == (alone.value, alone.radius)
    assert found.family.keys() > alone.family.keys()
    assert found.low < found.value < found.high
    assert found.high > alone.high
    assert made.plan.prediction.details["interval_width_range"] == [found.low, found.high]


def test_tables_of_one_plan_are_kept_and_no_more():
    rehearse.cache_clear()
    for rows in (4000, 5000):
        few = recipe(Neighbouring.ZERO_OUT, rows=rows)._rehearsal()
        for _ in range(2):
            for law in ("mixed", "correlated", "0/1"):
                rehearse(few, law)
    kept = rehearse.cache_info()
    assert (kept.hits, kept.currsize) == (6, 3)


def test_everybody_rehearses_the_same():
    few = recipe(Neighbouring.ZERO_OUT)._rehearsal()
    first = rehearse(few, "mixed")
    rehearse.cache_clear()
    for one, other in zip(first, rehearse(few, "mixed"), strict=True):
        assert (one.rows == other.rows).all()


def test_rows_that_cannot_be_do_not_widen_winsorised_intervals():
    """A column at its end while its near copy stays in the middle is so long that noise would hide all intervals."""
    windows = Standardiser(np.zeros(2), np.ones(2), np.full(2, 2.5))
    apart = Preconditioner(np.eye(3), np.ones(3))
    assert _within_windows(apart, windows) == pytest.approx(np.sqrt(3 + 2.5**2))
    values, vectors = np.linalg.eigh(np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    alike = Preconditioner(vectors.T / np.sqrt(values)[:, None], np.ones(3))
    assert _within_windows(alike, windows) == pytest.approx(np.sqrt(8 * 3))
