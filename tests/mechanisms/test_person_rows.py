"""Sums over persons: what one person adds, however many rows there are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gratis.audits.distinguishing import audit_scores
from gratis.audits.hostile import HostilePersons, HostileTables
from gratis.audits.replay import Fitted
from gratis.audits.trainings import audit_tables
from gratis.mechanisms.clipped_gradient import clipped_gradient_sum, clipped_mean_sum, row_norms, sanitised
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.person_rows import MOST_ROWS, PersonRows, person_weight
from gratis.models.generalised_linear import LinearModel
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.rows.person_ids import number_persons, person_names
from gratis.stages.class_prior import class_counts_event, release_class_prior
from gratis.stages.full_batch import descend, descent_event

RELATIONS = (Neighbouring.REPLACE_ONE, Neighbouring.ZERO_OUT)


def persons_of(table):
    names, count = number_persons(person_names(table.groups))
    return PersonRows.of(table.X, np.asarray(table.y, dtype=float), names, count)


def test_weights_never_add_up_to_more_than_one():
    for rows in (*range(1, 3000), MOST_ROWS):
        assert Fraction(person_weight(rows)) * rows <= 1
        assert person_weight(rows) * rows > 1 - 1e-12


def test_a_total_is_the_sum_of_the_means_over_each_persons_rows():
    rng = np.random.default_rng(0)
    persons = rng.integers(0, 50, 9000)
    X, y = rng.standard_normal((9000, 3)), rng.standard_normal(9000)
    y[rng.random(9000) < 0.1] = np.nan
    expected = sum(X[(persons == k) & np.isfinite(y)].mean(axis=0) for k in range(50))
    order = rng.permutation(9000)
    for place in (np.arange(9000), order):
        rows = PersonRows.of(X[place], y[place], persons[place], 50)
        assert rows.n_rows == 50
        np.testing.assert_allclose(rows.total(lambda X, y: np.nansum(X, axis=0)), expected, rtol=1e-12)
        mapped = rows.mapped(lambda X, y: (2 * X, y)).total(lambda X, y: np.nansum(X, axis=0))
        np.testing.assert_allclose(mapped, 2 * expected, rtol=1e-12)


def test_of_many_rows_some_are_taken_at_even_distances():
    X = np.arange(3.0 * MOST_ROWS + 5)[:, None]
    rows = PersonRows.of(np.vstack([X, [[7.0]]]), np.zeros(len(X) + 1), np.append(np.zeros(len(X), int), 1), 2)
    seen = []
    rows.total(lambda X, y: seen.append(X[np.isfinite(y), 0]) or np.zeros(1))
    kept = max(seen, key=len)
    assert len(kept) == MOST_ROWS
    assert set(np.diff(kept)) <= {3.0, 4.0}


def test_nobody_and_nothing_have_the_shape_of_a_sum():
    rows = PersonRows.of(np.ones((3, 2)), np.full(3, np.nan), np.array([0, 1, -1]), 2)
    assert rows.total(lambda X, y: np.nan_to_num(X).sum(axis=0)).tolist() == [0.0, 0.0]
    with pytest.raises(GratisError, match="whose they are"):
        rows.arrays()


def test_rows_that_belong_to_nobody_count_nowhere():
    rows = PersonRows.of(np.array([[1.0], [5.0]]), np.zeros(2), np.array([0, -1]), 2)
    assert rows.total(lambda X, y: np.nansum(X, axis=0)).tolist() == [1.0]


@pytest.mark.parametrize("each", [1, 3, 64])
def test_a_persons_mean_gradient_is_clipped_and_not_its_parts(each):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((10 * each, 4))
    y = 5 * rng.standard_normal((len(X), 1, 1))
    found = clipped_gradient_sum(X, row_norms(X), y, np.zeros((4, 1, 1)), lambda u: u, np.ones(1), each=each)[:, 0, 0]
    means = (X * -y[:, 0]).reshape(10, each, 4).mean(axis=1)
    expected = sum(mean / max(1.0, np.linalg.norm(mean)) for mean in means)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_what_a_person_adds_is_bounded_whatever_the_rows_are():
    rng = np.random.default_rng(2)
    values = np.array([0.0, -0.0, 1.0, -3.0, 1e6, 1e154, -1.7e308, 5e-324, 1e-160, np.nan, np.inf, -np.inf])
    with np.errstate(all="ignore"):
        for each in (2, 7, 500):
            X, factors = (rng.choice(values, (each, width)) for width in (5, 3))
            for clean in (X, sanitised(X), np.where(np.isfinite(X), np.clip(X, -9, 9), 0)):
                added = clipped_mean_sum(clean, factors, 0.7, each)
                assert np.linalg.norm(added) <= 1 + 1e-14


def descending(relation):
    def training(table):
        def train(tap):
            rows = persons_of(table).mapped(lambda X, y: (np.where(np.isfinite(y)[:, None], X, np.nan), y))
            event = descent_event(rows.n_rows, 2, 1, 3, mu=0.5, neighbouring=relation)
            run = descend(
                rows, LinearModel(), steps=3, clip_norm=1.0, learning_rate=1.0, mu=0.5, neighbouring=relation,
                noise=tap(NoiseSource.secure()),
            )  # fmt: skip
            return Fitted(event, run.parameters)

        return train

    return training


def counting(relation):
    def training(table):
        def train(tap):
            rows = persons_of(table)
            event = class_counts_event(mu=0.5, neighbouring=relation, n_records=rows.n_rows)
            return Fitted(event, release_class_prior(rows, 2, event, noise=tap(NoiseSource.secure())))

        return train

    return training


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("step", "classes"), [(descending, None), (counting, (0, 1))])
def test_a_whole_person_moves_a_release_by_no_more_than_a_row_did(step, classes, relation):
    tables = HostilePersons(HostileTables(n=20, d=2, classes=classes, invalid=True))
    audit = audit_tables(step(relation), tables, relation, pairs=100, rng=np.random.default_rng(0))
    assert not audit.alarm, audit.verdict
    assert audit.largest_ratio > 0.6


@pytest.mark.parametrize("relation", RELATIONS)
def test_rows_bounded_one_by_one_are_noticed(monkeypatch, relation):
    """The negative control: every row is clipped and added, as if each were a person."""
    monkeypatch.setattr("gratis.mechanisms.person_rows.person_weight", lambda rows: 1.0)
    monkeypatch.setattr(PersonRows, "clipped_total", PersonRows.total)
    tables = HostilePersons(HostileTables(n=20, d=2, invalid=True))
    audit = audit_tables(descending(relation), tables, relation, pairs=20, rng=np.random.default_rng(0))
    assert audit.largest_ratio > 2


def shown(sides, runs=600, mu=2.0):
    """How much of mu a distinguishing audit of a descent shows on two tables that differ in one person."""
    descents = []
    for seed, (rows, target) in enumerate(sides):
        X = np.zeros((9 + rows, 2))
        X[9:, 0] = 0.1
        table = PersonRows.of(X, np.append(np.zeros(9), np.full(rows, target)), np.append(np.arange(9), [9] * rows), 10)
        noise = NoiseSource.insecure(seed)
        descents.append(
            [
                descend(
                    table, LinearModel(), steps=3, clip_norm=1.0, learning_rate=1.0, mu=mu,
                    neighbouring=Neighbouring.REPLACE_ONE, noise=noise, average=False,
                ).parameters[0, 0]
                for _ in range(runs)
            ]
        )  # fmt: skip
    return audit_scores(*map(np.array, descents), proved_mu=mu)


@pytest.mark.statistical(failure=0.1)
@pytest.mark.slow
def test_an_audit_shows_four_fifths_of_the_proof_on_the_worst_person(monkeypatch):
    """All rows push one way on one side and the other way on the other; how many there are makes no difference."""
    for sides in (((3, -1e6), (60, 1e6)), ((1, -1e6), (1, 1e6))):
        found = shown(sides)
        assert not found.alarm, found.verdict
        assert found.mu.low > 0.8 * found.proved_mu
    # The negative control: rows that are clipped one by one and added up.
    monkeypatch.setattr("gratis.mechanisms.person_rows.person_weight", lambda rows: 1.0)
    monkeypatch.setattr(PersonRows, "clipped_total", PersonRows.total)
    assert shown(((3, -1e6), (60, 1e6))).alarm
