"""Scores on held-out rows: bounded by every record, close to the truth, and paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gratis import Budget, DPLinearRegression, DPLogisticRegression
from gratis.accounting import leaf_mu, verify_certificate
from gratis.estimators.evaluation import _hits, _squares, evaluate_privately, evaluation_event
from gratis.estimators.private_fit import Release
from gratis.mechanisms.noise import NoiseSource
from gratis.records.neighbouring import Neighbouring

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 3))
Y = X @ [1.0, 2.0, 0.0] + RNG.normal(size=3000)
SEEDED: dict[str, Any] = {"noise_seed": 3, "insecure_reproducible": True}
LINEAR = DPLinearRegression(4.0, 1e-5, **SEEDED).fit(X[:2000], Y[:2000])
CLASSES = (Y > 0).astype(float)
LOGISTIC = DPLogisticRegression(4.0, 1e-5, classes=[0, 1], **SEEDED).fit(X[:2000], CLASSES[:2000])


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_sensitivity_on_neighbours(relation: Neighbouring, kind: str) -> None:
    """Whatever a record is exchanged for, the sums move by at most the stated sensitivity, and almost that far."""
    regression = kind == "regression"
    event = evaluation_event(50, Budget(mu=1.0, neighbouring=relation), regression=regression)
    rows, target = X[2000:2050].copy(), (Y if regression else CLASSES)[2000:2050].copy()
    total = (lambda r, t: _squares(LINEAR, r, t)) if regression else (lambda r, t: _hits(LOGISTIC, r, t))
    worst = 0.0
    for first in (0.0, 1.0, 5.0, 1e9, -1e9, np.nan):
        for second in (1.0, -3.0, 1e300, np.nan):
            for value in (-1e6, 0.0, 1e6):
                one, other = target.copy(), target.copy()
                changed = rows.copy()
                changed[0] = value
                one[0], other[0] = (first, second) if regression else (first % 2, second % 2)
                if relation is Neighbouring.ZERO_OUT:
                    other[0] = np.nan  # contributes nothing
                moved = total(rows, one).sum(axis=0) - total(changed, other).sum(axis=0)
                worst = max(worst, float(np.linalg.norm(moved)))
    assert worst <= event.sensitivity
    assert worst > 0.9 * event.sensitivity


def test_labels_outside_the_classes_are_misses() -> None:
    """They must neither raise, which would tell of a record, nor be counted as another class."""
    rows, labels = X[2000:2004], np.array([-1.0, 2.0, np.nan, 1e300])
    assert not _hits(LOGISTIC, rows, labels).any()
    assert _hits(LOGISTIC, rows, LOGISTIC.predict(rows).astype(float)).all()


def test_negative_control_without_the_clip_the_bound_breaks() -> None:
    event = evaluation_event(50, Budget(mu=1.0), regression=True)
    target = LINEAR.fit_.target
    far = np.square((1e6 - target.centre[0]) / target.scale[0])
    assert far > event.sensitivity


def score(model: Any, target: Any, budget: Budget) -> Any:
    event = evaluation_event(1000, budget, regression=model is LINEAR)
    with Release(event, budget, NoiseSource.insecure(1)) as release:
        found = evaluate_privately(model, X[2000:], target[2000:], release)
    assert verify_certificate(release.certificate) == []
    assert leaf_mu(event) <= budget.mu
    return found


def test_scores_are_near_the_truth_and_their_range_covers_it() -> None:
    for model, target in ((LINEAR, Y), (LOGISTIC, CLASSES)):
        truth = model.score(X[2000:], target[2000:])
        found = score(model, target, Budget(mu=1.0))
        assert found.low <= truth <= found.high
        assert abs(found.value - truth) < 0.1
        assert found.high - found.low < 0.4


def test_the_noise_has_the_stated_size() -> None:
    """Repeated releases vary as planned; half of the noise would be noticed."""
    budget = Budget(mu=0.2)
    event = evaluation_event(1000, budget, regression=False)
    values = []
    for seed in range(250):
        with Release(event, budget, NoiseSource.insecure(seed)) as release:
            values.append(evaluate_privately(LOGISTIC, X[2000:], CLASSES[2000:], release).value)
    ratio = np.std(values) * 1000 / event.noise_std
    assert 0.85 < ratio < 1.15
    assert not 0.85 < 0.5 * ratio < 1.15


def test_too_little_budget_says_so() -> None:
    found = score(LINEAR, Y, Budget(mu=0.01))
    assert found.high - found.low > 1.0


@pytest.mark.parametrize(("model", "target"), [(LINEAR, Y), (LOGISTIC, CLASSES)], ids=["regression", "classes"])
def test_a_missing_feature_stops_no_evaluation_and_its_record_counts_nothing(model: Any, target: Any) -> None:
    """The budget is spent by then: a refusal would be lost money, and would tell of a record."""
    holes = X[2000:2050].copy()
    holes[3, 1] = np.nan
    entries = _squares if model is LINEAR else _hits
    found = entries(model, holes, target[2000:2050])
    whole = entries(model, X[2000:2050], target[2000:2050])
    assert not found[3].any()
    np.testing.assert_array_equal(np.delete(found, 3, axis=0), np.delete(whole, 3, axis=0))
