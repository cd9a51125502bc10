"""Sessions on worst-case neighbours: every bound holds under both relations, and its absence is noticed."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from gratis.accounting import account
from gratis.audits.hostile import HostilePersons, HostileTables, Table
from gratis.audits.replay import Fitted, ReplayAudit
from gratis.audits.trainings import audit_tables
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.person_rows import PersonRows
from gratis.mechanisms.rows import Rows
from gratis.private import session
from gratis.private.bounds import Bound, ball, cube, one_hot, outer
from gratis.private.session import Session, plan, run
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.rows.person_ids import number_persons, person_names

RELATIONS = list(Neighbouring)
MU = 0.7


def of_mean(bound: Bound, contribution: Callable[..., Any], s: Session) -> Any:
    return s.mean(contribution, bound, s.split(MU, it=1.0)["it"], "it")[0]


def of_gradient(s: Session) -> Any:
    """Two steps of least squares with a clip norm that depends on the first."""
    part, theta = s.split(MU, descent=1.0)["descent"], np.zeros((2, 1))
    for _ in range(2):
        clip = 1.0 + abs(theta[0, 0])
        g, _ = s.gradient(
            s.rows, lambda Z, t, at=theta: Z @ at - t[:, None], part.over(2), "descent", clip_norm=float(clip)
        )
        theta = theta - 0.3 * g
    return theta


def of_scales(s: Session) -> Any:
    return s.standardise(s.rows, s.split(MU, scales=1.0)["scales"], "features")[0]


MODELS = {
    "ball": partial(of_mean, ball(2), lambda X, y: X),
    "outer": partial(of_mean, outer(3), lambda X, y: np.column_stack([X, y])),
    "one-hot": partial(of_mean, one_hot(2, 3), lambda X, y: np.clip(np.floor(X), -1, 1) + 1),
    "cube": partial(of_mean, cube(2), lambda X, y: X + 0.5),
    "gradient": of_gradient,
}


def persons_of(table: Table) -> PersonRows:
    names, count = number_persons(person_names(table.groups))
    return PersonRows.of(table.X, np.asarray(table.y, dtype=float), names, count)


def audited(model: Any, relation: Neighbouring, *, pairs: int = 120, persons: bool = False) -> ReplayAudit:
    def training(table: Table) -> Any:
        def train(tap: Any) -> Fitted:
            rows = persons_of(table) if persons else Rows.held(table.X, table.y)
            planned = plan(model, rows.n_rows, rows.n_features, relation)
            return Fitted(planned.event, run(model, rows, relation, tap(NoiseSource.secure()), planned=planned))

        return train

    records = HostileTables(n=20, d=2, invalid=True)
    tables = HostilePersons(records) if persons else records
    return audit_tables(training, tables, relation, pairs=pairs, rng=np.random.default_rng(0))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_no_neighbour_moves_a_release_by_more_than_is_paid_for(name: str, relation: Neighbouring) -> None:
    audit = audited(MODELS[name], relation)
    assert not audit.alarm, audit.verdict
    assert audit.largest_ratio > 0.7, "the neighbours come close, else this shows nothing"


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", ["ball", "cube", "gradient"])
def test_nor_does_a_person_with_many_rows(name: str, relation: Neighbouring) -> None:
    audit = audited(MODELS[name], relation, pairs=60, persons=True)
    assert not audit.alarm, audit.verdict
    assert audit.largest_ratio > 0.4


@pytest.mark.parametrize("relation", RELATIONS)
def test_scales_are_released_within_their_share(relation: Neighbouring) -> None:
    audit = audited(of_scales, relation, pairs=80)
    assert not audit.alarm, audit.verdict
    assert audit.largest_ratio > 0.7


def test_features_without_a_target_would_be_noticed_in_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_without_null_records", lambda *chunk: chunk)
    assert audited(of_scales, Neighbouring.ZERO_OUT, pairs=80).alarm


def _no_bound(rows: Any, present: Any, shape: tuple[int, ...]) -> Any:
    clean = np.where(present[:, None] & np.isfinite(rows), np.clip(rows, -10, 10), 0.0)
    return clean.T @ clean if len(shape) == 2 else clean.sum(axis=0)


def _no_clip(X: Any, norms: Any, factors: Any, clip_norm: float, each: int = 1) -> Any:
    return np.clip(X, -10, 10).T @ np.clip(np.nan_to_num(factors), -10, 10) / clip_norm


def sabotaged(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model with its bound taken away; of a histogram, with a smaller sensitivity stated."""
    if name == "gradient":
        monkeypatch.setattr(session, "clipped_outer_sum", _no_clip)
        return of_gradient
    bound, contribution = MODELS[name].args
    changed = {"longest": 0.9, "diameter": 0.9} if name == "one-hot" else {"add": _no_bound}
    return partial(of_mean, dataclasses.replace(bound, **changed), contribution)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_a_bound_that_is_taken_away_is_noticed(
    name: str, relation: Neighbouring, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audited(sabotaged(name, monkeypatch), relation, pairs=60).largest_ratio > 1.2


@pytest.mark.parametrize("name", ["ball", "one-hot", "cube"])
def test_features_of_a_record_without_a_target_add_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    empty, null = np.full((50, 2), np.nan), np.full(50, np.nan)

    def released(rows: Any, targets: Any) -> Any:
        planned = plan(MODELS[name], 50, 2, Neighbouring.ZERO_OUT)
        noise = NoiseSource.insecure(1)
        return run(MODELS[name], Rows.held(rows, targets), Neighbouring.ZERO_OUT, noise, planned=planned)

    np.testing.assert_array_equal(released(X, null), released(empty, null))
    monkeypatch.setattr(session, "_present", lambda chunk: np.ones(len(chunk[0]), dtype=bool))
    assert (released(X, null) != released(empty, null)).any(), "negative control"


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("bound", [ball(4), outer(4), one_hot(4, 5), cube(4)])
def test_sensitivities_are_those_of_the_farthest_contributions(bound: Bound, relation: Neighbouring) -> None:
    """Against extreme points of each set: attained, and never exceeded by random ones."""
    rng, n = np.random.default_rng(0), 10
    here = np.ones(1, dtype=bool)
    extremes = {
        ball(4): (np.eye(4)[0], -np.eye(4)[0]),
        outer(4): (np.eye(4)[0], np.eye(4)[1]),
        one_hot(4, 5): (np.zeros(4), np.ones(4)),
        cube(4): (np.ones(4), np.zeros(4)),
    }[bound]
    stated = n * bound.sensitivity(n, relation)

    def moved(a: Any, b: Any) -> float:
        first = bound.total(a[None], here)
        second = bound.total(b[None], here if relation is Neighbouring.REPLACE_ONE else ~here)
        return float(np.linalg.norm(first - second))

    assert moved(*extremes) == pytest.approx(stated, rel=1e-9)
    for _ in range(300):
        a, b = (rng.choice([-9.0, -1.0, 0.0, 0.3, 1.0, 1e200, np.inf, np.nan], 4) for _ in range(2))
        with np.errstate(all="ignore"):
            assert moved(a, b) <= stated


def test_rounding_is_inflated_in_units_of_the_longest_contribution() -> None:
    """√B of a histogram of B blocks: one unit would understate the roundings of its sums by √B."""
    n = 10**9
    one, many = (
        n * b.sensitivity(n, Neighbouring.ZERO_OUT) / math.sqrt(b.size) - 1 for b in (one_hot(1, 2), one_hot(10_000, 2))
    )
    assert many == pytest.approx(one, rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_batches_of_a_file_give_the_bits_of_an_array(name: str) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(9000, 2)), rng.normal(size=9000)
    y[::7] = np.nan
    planned = plan(MODELS[name], 9000, 2, Neighbouring.REPLACE_ONE)
    batched = Rows(lambda: ((X[i : i + 777], y[i : i + 777]) for i in range(0, 9000, 777)), 9000, 2)
    found = [
        run(MODELS[name], rows, Neighbouring.REPLACE_ONE, NoiseSource.insecure(5), planned=planned)
        for rows in (Rows.held(X, y), batched)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_a_plan_costs_what_was_split_whatever_n_is(name: str, relation: Neighbouring) -> None:
    for n in (2, 10**3, 10**12):
        tracemalloc.start()
        event = plan(MODELS[name], n, 2, relation).event
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert MU * (1 - 1e-9) < account(event).mu <= MU
        assert peak < 10**6


def test_equal_releases_in_turn_are_one_event() -> None:
    leaves = plan(of_gradient, 100, 2, Neighbouring.ZERO_OUT).event.leaves()
    assert [(leaf.kind, leaf.steps, leaf.n_records) for leaf in leaves] == [("full-batch-descent", 2, 100)]


def test_what_has_another_width_than_its_bound_is_refused_when_it_is_planned() -> None:
    with pytest.raises(GratisError, match="3 entries for each record"):
        plan(partial(of_mean, ball(3), lambda X, y: X), 10, 2, Neighbouring.ZERO_OUT)
