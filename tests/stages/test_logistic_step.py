"""Releases of the step for two classes: how far a hostile record moves them, and maximum likelihood without noise."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner
from gratis.records.neighbouring import Neighbouring
from gratis.stages.logistic_step import (
    plan_logistic_step,
    release_approach,
    release_logistic_step,
    release_steepness,
)
from gratis.stages.one_step import BoundedRows
from gratis.stages.sandwich import solve_curved_step

N, D = 30, 3
THETA = np.array([30.0, -20.0, 10.0])
BASIS = Preconditioner(np.linalg.qr(np.random.default_rng(1).standard_normal((D, D)))[0], np.ones(D))
STEEP = BASIS.basis.T @ THETA
# Far rows at which the score is 0, rows as long as the radius of the weights, rows far out, and what is no number.
FLAT = [-STEEP[2] * STEEP[:2] / (STEEP[:2] @ STEEP[:2]) + t * np.array([-STEEP[1], STEEP[0]]) for t in (50.0, -50.0)]
ROUND = [np.sqrt(1.5**2 - 1) * np.array([np.cos(a), np.sin(a)]) for a in np.linspace(0, 2 * np.pi, 16)]
FAR = [np.array(row) for row in ([1e3, 0.0], [0.0, 1e3], [-1e3, 1e3], [0.0, 0.0])]
HOSTILE = [
    *((row, label) for row in (*FLAT, *ROUND, *FAR) for label in (0.0, 1.0)),
    (np.array([1.7e308, -1.7e308]), 1.0),
    (np.array([1e155, 1e155]), 0.0),
    (np.array([0.5, 0.5]), 1e9),
    (np.array([np.nan, 0.0]), 0.0),
    (np.array([0.0, np.inf]), 1.0),
    (np.array([0.0, 0.0]), np.nan),
]


class Spy(NoiseSource):
    """Keeps what is released, and adds nothing."""

    def __init__(self):
        super().__init__(0, secure=False)
        self.values = []

    def release(self, values, std):
        self.values.append(np.array(values))
        return np.array(values, dtype=float)


def table(record, label):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, D - 1)), (rng.random(N) < 0.5).astype(float)
    X[0], y[0] = record, label
    return Rows.held(X, y)


def planned(relation, n=N):
    mus = dict.fromkeys(("approach", "jacobian", "gradient", "squares", "steepness"), 0.5)
    return plan_logistic_step(n, D, **mus, neighbouring=relation)


def released(rows, plan, read=None):
    read = read or BoundedRows(Standardiser.identity(D - 1), Standardiser.identity(1), BASIS, 1.5)
    spy = Spy()
    with np.errstate(all="ignore"):
        release_approach(rows, read, THETA, np.full(D, 0.2), plan, noise=spy)
        release_logistic_step(rows, read, THETA, plan, noise=spy)
        release_steepness(rows, read, THETA, plan, noise=spy)
    return spy.values


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_no_hostile_record_moves_a_release_by_more_than_its_sensitivity(relation):
    plan = planned(relation)
    null = released(table(np.full(D - 1, np.nan), np.nan), plan)
    every = [released(table(*record), plan) for record in HOSTILE]
    assert all(np.isfinite(value).all() for values in every for value in values)
    largest = np.zeros(len(plan.events))
    for values in every:
        for other in every if relation is Neighbouring.REPLACE_ONE else [null]:
            largest = np.maximum(largest, [np.linalg.norm(a - b) for a, b in zip(values, other, strict=True)])
    bounds = np.array([event.sensitivity for event in plan.events])
    assert (largest <= bounds).all(), largest / bounds
    near = [0, 1, 2] if relation is Neighbouring.ZERO_OUT else [0, 2]
    assert (largest[near] > 0.85 * bounds[near]).all(), largest / bounds


class Unweighted(BoundedRows):
    """Sabotage: rows are scaled by K but never shortened to it."""

    def __call__(self, X, y, parameters):
        bounded, factors, residuals, usable = super().__call__(X, y, parameters)
        return bounded / np.where(usable, factors, 1.0)[:, None], factors, residuals, usable


def test_a_row_that_is_not_shortened_is_noticed():
    plan = planned(Neighbouring.ZERO_OUT)
    read = Unweighted(Standardiser.identity(D - 1), Standardiser.identity(1), BASIS, 1.5)
    null = released(table(np.full(D - 1, np.nan), np.nan), plan, read=read)
    found = [released(table(*record), plan, read=read) for record in HOSTILE[:2]]
    assert max(np.linalg.norm(values[1] - null[1]) for values in found) > 10 * plan.jacobian.sensitivity


def test_without_noise_and_bounds_the_step_is_newtons():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((4000, 2))
    y = (rng.random(4000) < 1 / (1 + np.exp(-(X @ [1.0, -0.5] + 0.3)))).astype(float)
    mus = dict.fromkeys(("approach", "jacobian", "gradient", "squares", "steepness"), 1e6)
    plan = plan_logistic_step(4000, 3, **mus, neighbouring=Neighbouring.ZERO_OUT)
    read = BoundedRows(Standardiser.identity(2), Standardiser.identity(1), Preconditioner(np.eye(3), np.ones(3)), 30.0)
    rows, at, noise = Rows.held(X, y), np.zeros(3), NoiseSource.insecure(0)
    for _ in range(6):
        solved = solve_curved_step(release_logistic_step(rows, read, at, plan, noise=noise))
        at = at + solved.move
    Z = np.column_stack([X, np.ones(4000)])
    p = 1 / (1 + np.exp(-Z @ at))
    assert Z.T @ (y - p) / 4000 == pytest.approx(np.zeros(3), abs=1e-5)
    steep = (Z * (p * (1 - p))[:, None]).T @ Z
    pulls = Z * (y - p)[:, None]
    robust = np.linalg.inv(steep) @ (pulls.T @ pulls) @ np.linalg.inv(steep)
    assert solved.sampling(solved.inverse, 4000) == pytest.approx(robust, rel=1e-2, abs=1e-7)
    mean, turn, _ = release_steepness(rows, read, at, plan, noise=noise)
    assert mean == pytest.approx((p * (1 - p)).mean(), rel=1e-3)
    assert turn == pytest.approx(Z.T @ (p * (1 - p) * (1 - 2 * p)) / 4000, abs=1e-4)
    nearer = release_approach(rows, read, np.zeros(3), np.full(3, 0.25), plan, noise=noise)
    assert np.linalg.norm(nearer - at) < 0.35 * np.linalg.norm(at)
