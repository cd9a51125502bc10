"""Fits whose unit of privacy is a person with all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gratis
from gratis.accounting import PERSON_UNIT, verify_certificate
from gratis.audits.estimators import audit, make_estimator
from gratis.audits.hostile import HostilePersons, HostileTables
from gratis.audits.replay import Fitted
from gratis.audits.trainings import audit_tables
from gratis.estimators.evaluation import evaluate_privately, evaluation_event
from gratis.estimators.release import Release
from gratis.mechanisms.clipped_gradient import clipped_mean_sum
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.person_rows import PersonRows
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.rows.person_ids import NamedIds, number_persons, person_names

SEEDED = {"noise_seed": 3, "insecure_reproducible": True}


def panel(persons=300, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(persons), rng.integers(1, 6, persons))
    X = rng.standard_normal((len(ids), 3))
    y = X @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(persons)[ids] + 0.3 * rng.standard_normal(len(ids))
    return X, y, ids


@pytest.mark.slow(but=["additive-classifier-options3"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", {"on_invalid": "impute", "neighbouring": "replace-one"}),
        ("logistic", {"on_invalid": "zero", "neighbouring": "zero-out"}),
        ("additive-regressor", {"on_invalid": "zero", "neighbouring": "replace-one"}),
        ("additive-classifier", {"on_invalid": "impute", "neighbouring": "zero-out"}),
    ],
)
def test_replayed_on_neighbours_that_differ_in_a_whole_person(name, options):
    found = audit(make_estimator(name, {"epsilon": 2.0, **options}), pairs=6, persons=True)
    assert not found.alarm, found.verdict
    assert found.largest_ratio > 0.4


@pytest.mark.slow
def test_a_fit_that_counts_rows_is_noticed(monkeypatch):
    """The negative control of the audit above: a person enters every sum once for every row."""
    monkeypatch.setattr("gratis.mechanisms.person_rows.person_weight", lambda rows: 1.0)
    monkeypatch.setattr(PersonRows, "clipped_total", PersonRows.total)
    assert audit(make_estimator("linear", {"epsilon": 2.0}), pairs=4, persons=True).largest_ratio > 1.5


@pytest.mark.slow
def test_a_fitted_model_is_audited_by_its_unit():
    X, y, ids = panel(40)
    model = gratis.DPLinearRegression(epsilon=2.0, delta=1e-5).fit(X, y, groups=ids)
    found = audit(model, pairs=2)
    assert "rows" in found.worst_pair.split("→")[1]  # pairs of persons say how many rows they have
    assert not found.alarm


def test_the_certificate_is_about_persons_and_says_what_that_rests_on():
    X, y, ids = panel()
    certificate = gratis.DPLinearRegression(epsilon=2.0, delta=1e-5).fit(X, y, groups=ids).certificate_
    assert certificate.unit == PERSON_UNIT
    assert "persons" in certificate.assumptions
    assert verify_certificate(certificate) == []
    kept = tuple(name for name in certificate.assumptions if name != "persons")
    assert any("same id" in words for words in verify_certificate(replace(certificate, assumptions=kept)))
    assert verify_certificate(replace(certificate, unit="one household"))
    # The event is the one of as many rows as there are persons: how many rows they have is told nowhere.
    assert certificate.event == gratis.DPLinearRegression(epsilon=2.0, delta=1e-5).plan(300, 3).event
    assert str(len(y)) not in str(certificate.to_json())


@pytest.mark.parametrize("kind", [gratis.DPLinearRegression, gratis.DPAdditiveRegressor])
def test_one_row_a_person_is_a_fit_on_rows(kind):
    X, y, _ = panel(500)
    X, y = X[:500], y[:500]
    plain = kind(epsilon=8.0, delta=1e-5, **SEEDED).fit(X, y)
    persons = kind(epsilon=8.0, delta=1e-5, **SEEDED).fit(X, y, groups=np.arange(500))
    np.testing.assert_allclose(persons.predict(X), plain.predict(X), rtol=1e-6, atol=1e-6)


@pytest.mark.slow(but=["DPLinearRegression"])
@pytest.mark.parametrize("kind", [gratis.DPLinearRegression, gratis.DPLogisticRegression, gratis.DPAdditiveRegressor])
def test_rows_repeated_and_in_another_order_change_nothing(kind):
    X, y, ids = panel()
    y = (y > 0).astype(float) if kind is gratis.DPLogisticRegression else y
    more = {"classes": [0.0, 1.0]} if kind is gratis.DPLogisticRegression else {}
    first = kind(epsilon=8.0, delta=1e-5, **SEEDED, **more).fit(X, y, groups=ids)
    times = np.random.default_rng(1).integers(1, 4, 300)[ids]
    times = np.repeat(np.arange(len(y)), np.array([times[ids == i][0] for i in ids]))
    order = np.random.default_rng(2).permutation(times)
    second = kind(epsilon=8.0, delta=1e-5, **SEEDED, **more).fit(
        X[order], y[order], groups=[f"p{i}" for i in ids[order]]
    )
    predict = (lambda m: m.predict_proba(X)) if more else (lambda m: m.predict(X))
    np.testing.assert_allclose(predict(second), predict(first), rtol=1e-6, atol=1e-6)


def test_it_is_the_model_of_the_average_person_and_not_of_the_average_row():
    """Persons with many rows have another slope: as epsilon grows, rows weigh one over their person's number."""
    rng = np.random.default_rng(4)
    ids = np.repeat(np.arange(3000), np.where(np.arange(3000) < 300, 30, 1))
    X = rng.standard_normal((len(ids), 1))
    y = X[:, 0] * np.where(ids < 300, 3.0, 1.0) + 0.1 * rng.standard_normal(len(ids))
    model = gratis.DPLinearRegression(epsilon=200.0, delta=1e-5, **SEEDED)
    assert abs(model.fit(X, y, groups=ids).coef_[0] - 1.2) < 0.12  # 90 % of persons have slope 1
    assert model.fit(X, y).coef_[0] > 2  # 77 % of rows have slope 3


def test_rows_without_an_id_are_refused_or_contribute_nothing():
    X, y, ids = panel()
    unknown = [None if place % 7 == 0 else int(name) for place, name in enumerate(ids)]
    kept = np.array([name is not None for name in unknown])
    with pytest.raises(GratisError, match="no id in groups"):
        gratis.DPLinearRegression(epsilon=2.0, delta=1e-5).fit(X, y, groups=unknown)
    first = gratis.DPLinearRegression(epsilon=8.0, delta=1e-5, on_invalid="zero", **SEEDED).fit(X, y, groups=unknown)
    second = gratis.DPLinearRegression(epsilon=8.0, delta=1e-5, on_invalid="zero", **SEEDED)
    second.fit(X[kept], y[kept], groups=ids[kept])
    np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-6)


def test_what_cannot_keep_a_persons_rows_together_is_refused_before_anything_is_spent(tmp_path):
    X, y, ids = panel(60)
    book = gratis.Ledger.create(tmp_path / "ledger.jsonl", {"panel": Budget(epsilon=10.0, delta=1e-4)})
    given = {"epsilon": 1.0, "delta": 1e-5, "ledger": book, "dataset": "panel"}
    for model, target in (
        (gratis.DPLinearRegression(algorithm="one-pass", **given), y),
        (gratis.DPRandomFeaturesRegressor(**given), y),
        (gratis.DPMLPClassifier(classes=[0, 1], **given), (y > 0).astype(int)),
    ):
        with pytest.raises(GratisError, match="a person with many would count as many"):
            model.fit(X, target, groups=ids)
    for groups, words in ((ids[:-1], "one id for each of the"), (np.zeros(len(y)), "fewer than two persons")):
        with pytest.raises(GratisError, match=words):
            gratis.DPLinearRegression(**given).fit(X, y, groups=groups)
    assert book.status("panel").spent_mu == 0.0


def test_one_budget_has_one_unit(tmp_path):
    """A total over rows and persons, or over patients and their visits, would hold for neither."""
    X, y, ids = panel(60)
    budgets = {name: Budget(epsilon=10.0, delta=1e-4) for name in ("persons", "rows", "patients")}
    book = gratis.Ledger.create(tmp_path / "ledger", budgets)

    def fit(dataset, **groups):
        gratis.DPLinearRegression(epsilon=1.0, delta=1e-5, ledger=book, dataset=dataset).fit(X, y, **groups)

    fit("persons", groups=ids)
    fit("persons", groups=ids)
    fit("rows")
    fit("patients", groups=NamedIds(ids, "patient"))
    visits = NamedIds(np.arange(len(ids)), "visit")
    for dataset, groups in (("persons", None), ("rows", ids), ("patients", visits), ("patients", ids)):
        with pytest.raises(GratisError, match="give it a budget of its own; nothing was reserved"):
            fit(dataset, groups=groups)
    with pytest.raises(GratisError, match="a note cannot begin"):
        book.reserve(
            "rows",
            GaussianRelease(sensitivity=1.0, noise_std=100.0, neighbouring="replace-one"),
            note="unit: a person with all rows",
        )
    again = gratis.Ledger.open(tmp_path / "ledger")
    units = {one.name: one.units for one in again.statuses()}
    assert units == {
        "persons": ("a person with all rows",), "rows": ("a row",),
        "patients": ("a person with all rows, by 'patient'",),
    }  # fmt: skip
    assert again.verify().entries == 1 + 3 + 2 * 4


def test_a_release_about_persons_does_not_hold_for_rows():
    """Why totals of both do not add up: without one of its rows a person's mean gradient points the other way."""
    X, factors = np.ones((2, 1)), np.array([[100.0], [-90.0]])
    both, second = clipped_mean_sum(X, factors, 1.0, 2), clipped_mean_sum(X[1:], factors[1:], 1.0, 1)
    assert abs(both - second).item() > 1.99  # zero-out of a person moves a sum by 1


def held_out(relation):
    X, y, ids = panel()
    budget = Budget(epsilon=2.0, delta=1e-5, neighbouring=relation)
    model = gratis.DPLinearRegression(epsilon=2.0, delta=1e-5, on_invalid="zero").fit(X, y, groups=ids)

    def training(table):
        def train(tap):
            count = number_persons(person_names(table.groups))[1]
            release = Release(evaluation_event(count, budget, classes=None), budget, tap(NoiseSource.secure()))
            with release:
                found = evaluate_privately(model, table.X, table.y, release, groups=table.groups)
            return Fitted(release.certificate.event, found)

        return train

    return training


@pytest.mark.parametrize("relation", [Neighbouring.REPLACE_ONE, Neighbouring.ZERO_OUT])
def test_a_score_on_held_out_persons_is_bounded_by_person(relation):
    tables = HostilePersons(HostileTables(n=20, d=3, invalid=True))
    found = audit_tables(held_out(relation), tables, relation, pairs=24, rng=np.random.default_rng(0))
    assert not found.alarm, found.verdict
    assert found.largest_ratio > 0.5


def test_a_rows_score_does_not_depend_on_how_many_rows_others_have():
    """Products of matrices round their last rows otherwise: a crafted row would meet another clipped gradient there."""
    rng = np.random.default_rng(5)
    theta = rng.standard_normal((33, 1))

    def scores(first):
        ids = np.concatenate([np.zeros(first, int), np.repeat(np.arange(1, 1500), 3)])
        X = np.concatenate([np.zeros((first, 33)), np.random.default_rng(6).standard_normal((3 * 1499, 33))])
        X[first:, 0] += 1e6 * np.arange(3 * 1499)  # the row's name
        found = {}
        for X_part, _ in PersonRows.of(X, np.zeros(len(X)), ids, 1500)._parts:
            assert len(X_part) % 64 == 0
            assert np.isnan(X_part[-1]).all()
            found |= dict(zip(X_part[:, 0], (X_part @ theta)[:, 0], strict=True))
        return {name: score for name, score in found.items() if name > 1e5}

    known = scores(3)
    assert len(known) > 4000
    for first in (1, 2, 4, 5, 700):
        assert scores(first) == known


def test_entries_without_a_bound_are_refused():
    X, y, ids = panel()
    with pytest.raises(GratisError, match="private or public scales"):
        gratis.DPLinearRegression(1.0, 1e-5, preprocessing="none").fit(X, y, groups=ids)
