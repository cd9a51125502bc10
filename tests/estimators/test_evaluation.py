"""Scores on held-out rows: bounded by every record, close to the truth, and paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from gratis import Budget, DPLinearRegression, DPLogisticRegression
from gratis.accounting import leaf_mu, verify_certificate
from gratis.audits.hostile import HostileTables
from gratis.audits.trainings import audit_tables, held_out_training
from gratis.estimators.evaluation import evaluate_privately, evaluation_event
from gratis.estimators.release import Release
from gratis.mechanisms.noise import NoiseSource
from gratis.records.neighbouring import Neighbouring
from gratis.stages import held_out_scores

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 3))
Y = X @ [1.0, 2.0, 0.0] + RNG.normal(size=3000)
SEEDED: dict[str, Any] = {"noise_seed": 3, "insecure_reproducible": True}
LINEAR = DPLinearRegression(4.0, 1e-5, **SEEDED).fit(X[:2000], Y[:2000])
CLASSES = (Y > 0).astype(float)
LOGISTIC = DPLogisticRegression(4.0, 1e-5, classes=[0, 1], **SEEDED).fit(X[:2000], CLASSES[:2000])


FOUR = np.clip(np.round(1.2 * X[:, 0] + 1.5), 0, 3)
SOFTMAX = DPLogisticRegression(4.0, 1e-5, classes=list(range(4)), **SEEDED).fit(X[:2000], FOUR[:2000])
MODELS = {"regression": (LINEAR, Y), "two classes": (LOGISTIC, CLASSES), "four classes": (SOFTMAX, FOUR)}
VALUES = (0.0, 1.0, 3.0, 5.0, 1e9, -1e9, 1e300, np.nan, np.inf, 0.5)


def event_of(model: Any, rows: int, budget: Budget) -> Any:
    classes = len(model.classes_) if hasattr(model, "classes_") else None
    return evaluation_event(rows, budget, classes=classes)


def total(model: Any, rows: Any, target: Any) -> Any:
    """What is summed before the noise."""
    budget, seen = Budget(mu=1.0), []

    class Watched(NoiseSource):
        def perturb(self, values: Any, std: float) -> Any:
            seen.append(np.array(values))
            return super().perturb(values, std)

    with Release(event_of(model, len(target), budget), budget, Watched(1, secure=False)) as release:
        evaluate_privately(model, rows, target, release)
    return seen[0]


def moves(model: Any, target: Any, relation: Neighbouring) -> float:
    """The largest distance between neighbours, over hostile first records."""
    rows, target = X[2000:2010].copy(), target[2000:2010].copy()
    contributions = []
    for label in VALUES:
        for value in (-1e6, 0.0, 1e6, 1e300):
            changed, labels = rows.copy(), target.copy()
            changed[0], labels[0] = value, label
            contributions.append(total(model, changed, labels))
    target[0] = np.nan  # contributes nothing
    others = contributions if relation is Neighbouring.REPLACE_ONE else [total(model, rows, target)]
    return max(float(np.linalg.norm(one - other)) for one in contributions for other in others)


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("kind", list(MODELS))
def test_sensitivity_on_neighbours(relation: Neighbouring, kind: str) -> None:
    """Whatever a record is exchanged for, the sums move by at most the stated sensitivity, and almost that far."""
    event = event_of(MODELS[kind][0], 10, Budget(mu=1.0, neighbouring=relation))
    worst = moves(*MODELS[kind], relation)
    assert worst <= event.sensitivity
    assert worst > 0.85 * event.sensitivity  # several classes: two records have some scores in the same bins


@pytest.mark.slow(but=["regression-replace-one", "regression-zero-out", "two classes-zero-out"])
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("kind", list(MODELS))
def test_replayed_on_hostile_neighbours(relation: Neighbouring, kind: str) -> None:
    model, _ = MODELS[kind]
    k = len(getattr(model, "classes_", ())) or None
    tables = HostileTables(n=30, d=3, invalid=True, classes=None if k is None else list(range(k)))
    budget = Budget(mu=1.0, neighbouring=relation)
    audit = audit_tables(
        lambda table: held_out_training(model, budget, table), tables, relation, pairs=80, rng=np.random.default_rng(0)
    )
    assert not audit.alarm, audit.verdict
    assert audit.largest_ratio > 0.6


@pytest.mark.parametrize("kind", list(MODELS))
def test_negative_control_without_the_bound_it_breaks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "regression":
        monkeypatch.setattr(held_out_scores, "_WIDEST", 1e9)
        monkeypatch.setattr(held_out_scores, "_ERRORS", 1e9**2 * held_out_scores._ERRORS)
    else:
        whole = held_out_scores.ClassSums.entries  # every cell counted three times
        monkeypatch.setattr(held_out_scores.ClassSums, "entries", lambda self, s, y: 3 * whole(self, s, y))
    event = event_of(MODELS[kind][0], 10, Budget(mu=1.0))
    assert moves(*MODELS[kind], Neighbouring.REPLACE_ONE) > event.sensitivity


def test_labels_outside_the_classes_count_nothing() -> None:
    """They must neither raise, which would tell of a record, nor be counted as another class."""
    rows, labels = X[2000:2006], np.array([-1.0, 2.0, np.nan, 1e300, 0.5, np.inf])
    assert not total(LOGISTIC, rows, labels).any()
    assert total(LOGISTIC, rows, LOGISTIC.predict(rows).astype(float)).any()


def score(model: Any, target: Any, budget: Budget, seed: int = 1) -> dict[str, Any]:
    event = event_of(model, 1000, budget)
    with Release(event, budget, NoiseSource.insecure(seed)) as release:
        found = evaluate_privately(model, X[2000:], target[2000:], release)
    assert verify_certificate(release.certificate) == []
    assert leaf_mu(event) <= budget.mu
    return {one.quantity: one for one in found}


def truths(model: Any, target: Any) -> dict[str, float]:
    """The same scores by scikit-learn."""
    rows, target = X[2000:], target[2000:]
    if model is LINEAR:
        return {
            "r_squared": model.score(rows, target),
            "mean_absolute_error": metrics.mean_absolute_error(target, model.predict(rows)),
            "base_mean_absolute_error": float(np.abs(target - model.fit_.target.centre[0]).mean()),
        }
    chances = model.predict_proba(rows)
    counts = np.bincount(target.astype(int)) / len(target)
    return {
        "accuracy": model.score(rows, target),
        "balanced_accuracy": metrics.balanced_accuracy_score(target, model.predict(rows)),
        "auc": metrics.roc_auc_score(target, chances[:, 1] if len(counts) == 2 else chances, multi_class="ovr"),
        "log_loss": metrics.log_loss(target, chances),
        "base_rate": counts.max(),
        "base_log_loss": float(-(counts * np.log(counts)).sum()),
    }


@pytest.mark.parametrize("kind", list(MODELS))
def test_with_little_noise_they_are_the_scores_of_scikit_learn(kind: str) -> None:
    found, known = score(*MODELS[kind], Budget(mu=1e5)), truths(*MODELS[kind])
    assert found.keys() == known.keys()
    for name, value in known.items():
        # Bins cost the AUC a little, the clip at three scales R² and at log K + 3 the loss.
        assert found[name].value == pytest.approx(value, abs=0.015), name


@pytest.mark.parametrize("kind", list(MODELS))
def test_ranges_cover_the_truth(kind: str) -> None:
    known = truths(*MODELS[kind])
    draws = [score(*MODELS[kind], Budget(mu=0.5), seed) for seed in range(12)]
    for name, value in known.items():
        held = sum(one[name].low <= value <= one[name].high for one in draws)
        assert held >= 9, name  # 95 % and more, as the rows are the same: fewer than 9 of 12 is one in 5000
        assert all(one[name].low <= one[name].value <= one[name].high for one in draws)
        assert not all(one[name].high - one[name].low > 0.9 for one in draws), name


def test_the_noise_has_the_stated_size() -> None:
    """Repeated releases vary as planned; half of the noise would be noticed."""
    budget = Budget(mu=0.2)
    event = event_of(LINEAR, 1000, budget)
    values = [score(LINEAR, Y, budget, seed)["mean_absolute_error"].value for seed in range(250)]
    unit = 3 * LINEAR.fit_.target.scale[0] / 1000 / np.sqrt(0.2)
    ratio = np.std(values) / (unit * event.noise_std)
    assert 0.85 < ratio < 1.15
    assert not 0.85 < 0.5 * ratio < 1.15


@pytest.mark.parametrize("kind", list(MODELS))
def test_too_little_budget_says_so(kind: str) -> None:
    found = next(iter(score(*MODELS[kind], Budget(mu=0.001)).values()))
    assert found.high - found.low > 0.9


@pytest.mark.parametrize("kind", list(MODELS))
def test_a_missing_feature_stops_no_evaluation_and_its_record_counts_nothing(kind: str) -> None:
    """The budget is spent by then: a refusal would be lost money, and would tell of a record."""
    model, target = MODELS[kind]
    holes, without = X[2000:2050].copy(), target[2000:2050].copy()
    holes[3, 1], without[3] = np.nan, np.nan
    np.testing.assert_array_equal(total(model, holes, target[2000:2050]), total(model, X[2000:2050], without))
