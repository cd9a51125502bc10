"""Releases of the one-step estimator: how far a hostile record moves them, and least squares where noise is nil."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner
from gratis.planning.interval_width import predict_width
from gratis.records.neighbouring import Neighbouring
from gratis.stages.one_step import (
    EDGES,
    BoundedRows,
    OneStepPlan,
    ReleasedStep,
    ResidualSizes,
    plan_one_step,
    release_mean_residual,
    release_residual_sizes,
    release_step,
)
from gratis.stages.sandwich import Clips, choose_clips, combined, solve_step

N, D = 30, 3
THETA = np.array([0.3, -0.2, 0.1])
BASIS = Preconditioner(np.linalg.qr(np.random.default_rng(1).standard_normal((D, D)))[0], np.ones(D))


def predicted(record):
    """What THETA predicts: such a record is inside the clip, however long it is."""
    return float(BASIS.transform(np.append(record, 1.0)[None])[0] @ THETA)


HOSTILE = [
    *(
        (record, predicted(record) + near)
        for record in (np.array([1e3, 0.0]), np.array([0.0, 1e3]))
        for near in (0, 0.6)
    ),
    (np.array([1.0, 0.0]), 1e9),
    (np.array([1.0, 0.0]), -1e9),
    (np.array([0.0, 1.0]), 1e9),
    (np.array([1e3, 1e3]), 1e5),
    (np.array([1e155, -1e155]), 1.0),
    (np.array([1.7e308, 0.0]), -1.7e308),
    (np.array([5e-324, 0.0]), 5e-324),
    (np.array([0.5, 0.5]), 0.0),
    (np.array([np.nan, 0.0]), 0.0),
    (np.array([0.0, 0.0]), np.nan),
    (np.array([np.inf, 0.0]), 0.0),
]


class Spy(NoiseSource):
    """Keeps what is released, and adds nothing."""

    def __init__(self):
        super().__init__(0, secure=False)
        self.values = []

    def release(self, values, std):
        self.values.append(np.array(values))
        return np.array(values, dtype=float)


def table(record, answer):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, D - 1)), rng.standard_normal(N)
    X[0], y[0] = record, answer
    return Rows.held(X, y)


def planned(relation, residuals=0.5):
    mus = dict.fromkeys(("jacobian", "gradient", "squares", "level"), 0.5)
    return plan_one_step(N, D, residuals=residuals, **mus, neighbouring=relation)


def released(rows, plan: OneStepPlan, radius=1.5, read=None):
    read = read or BoundedRows(Standardiser.identity(D - 1), Standardiser.identity(1), BASIS, radius)
    theta, spy = THETA, Spy()
    with np.errstate(all="ignore"):
        release_residual_sizes(rows, read, theta, plan, noise=spy)
        release_step(rows, read, theta, 0.7, plan, noise=spy)
        release_mean_residual(rows, read, theta, 2.0, plan, noise=spy)
    return spy.values


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_winsorised_columns_are_bounded_too(relation):
    narrow = Standardiser(np.zeros(D - 1), np.ones(D - 1), np.full(D - 1, 2.0))
    read = BoundedRows(narrow, Standardiser.identity(1), BASIS, 1.5, winsorised=True)
    plan = planned(relation)
    null = released(table(np.full(D - 1, np.nan), np.nan), plan, read=read)
    for record in HOSTILE:
        values = released(table(*record), plan, read=read)
        assert all(np.isfinite(value).all() for value in values)
        for event, value, other in zip(plan.events, values, null, strict=True):
            assert np.linalg.norm(value - other) <= event.sensitivity


@pytest.mark.parametrize("residuals", [0.5, 50.0], ids=["clipped mean", "octaves"])
@pytest.mark.parametrize("relation", list(Neighbouring))
def test_no_hostile_record_moves_a_release_by_more_than_its_sensitivity(relation, residuals):
    plan = planned(relation, residuals)
    assert plan.in_octaves == (residuals > 1)
    null = released(table(np.full(D - 1, np.nan), np.nan), plan)
    every = [released(table(*record), plan) for record in HOSTILE]
    assert all(np.isfinite(value).all() for values in every for value in values)
    largest = np.zeros(len(plan.events))
    for values in every:
        for other in every if relation is Neighbouring.REPLACE_ONE else [null]:
            moved = [np.linalg.norm(a - b) for a, b in zip(values, other, strict=True)]
            largest = np.maximum(largest, moved)
    bounds = np.array([event.sensitivity for event in plan.events])
    assert (largest <= bounds).all(), largest / bounds
    assert (largest[[0, 1, 2, 4]] > 0.9 * bounds[[0, 1, 2, 4]]).all(), largest / bounds
    assert (largest > 0.6 * bounds).all(), largest / bounds  # outer squares need orthogonal ones, pulled to the clip


class Unweighted(BoundedRows):
    """Sabotage: rows are scaled by K but never shortened to it."""

    def __call__(self, X, y, parameters):
        bounded, factors, residuals, usable = super().__call__(X, y, parameters)
        return bounded / np.where(usable, factors, 1.0)[:, None], factors, residuals, usable


def test_a_row_that_is_not_shortened_is_noticed():
    plan = planned(Neighbouring.ZERO_OUT)
    read = Unweighted(Standardiser.identity(D - 1), Standardiser.identity(1), BASIS, 1.5)
    null = released(table(np.full(D - 1, np.nan), np.nan), plan, read=read)
    found = released(table(*HOSTILE[0]), plan, read=read)
    assert np.linalg.norm(found[1] - null[1]) > 100 * plan.jacobian.sensitivity


def test_without_noise_and_bounds_it_is_least_squares_with_its_robust_covariance():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 2))
    y = X @ [1.0, -2.0] + 0.5 + rng.standard_normal(400) * (0.3 + np.abs(X[:, 0]))
    plan = plan_one_step(
        400, 3, residuals=1e6, jacobian=1e9, gradient=1e9, squares=1e9, level=1e9, neighbouring=Neighbouring.ZERO_OUT
    )
    identity = Preconditioner(np.eye(3), np.ones(3))
    read = BoundedRows(Standardiser.identity(2), Standardiser.identity(1), identity, 30.0)
    start = np.array([0.8, -1.5, 0.0])
    step = release_step(Rows.held(X, y), read, start, 30.0, plan, noise=NoiseSource.insecure(0))
    solved = solve_step(step, Clips(1e-3, 1.0, 1.0, 3.0), 3.0)
    Z = np.column_stack([X, np.ones(400)])
    ols = np.linalg.lstsq(Z, y, rcond=None)[0]
    assert start + solved.move == pytest.approx(ols, abs=1e-6)
    bread = np.linalg.inv(Z.T @ Z)
    pulls = Z * (y - Z @ start)[:, None]
    robust = bread @ pulls.T @ pulls @ bread
    assert solved.sampling(solved.inverse, 400) == pytest.approx(robust, rel=1e-5, abs=1e-9)
    assert np.trace(solved.move_noise()) < 1e-8
    assert solved.trusted


def noisy_squares(true, noise, seed):
    size = len(true)
    drawn = np.random.default_rng(seed).standard_normal((size, size))
    return ReleasedStep(
        jacobian=np.eye(size), gradient=np.zeros(size), squares=np.diag(true) + noise * (drawn + drawn.T) / 2,
        jacobian_noise=0.01, gradient_noise=0.01, squares_noise=noise,
    )  # fmt: skip


def test_noise_of_the_squares_does_not_widen_intervals():
    widths, released = [], []
    for seed in range(40):
        step = noisy_squares(np.ones(41), 0.5, seed)
        assert np.linalg.eigvalsh(step.squares)[0] < -1  # raised to a quarter one by one, they would add half
        solved = solve_step(step, Clips(2.0, 1.0, 1.0, 3.0), 41.0)
        assert np.trace(solved.squares) == pytest.approx(np.trace(step.squares))
        assert np.linalg.eigvalsh(solved.squares)[0] >= 0.25 * np.trace(step.squares) / 41 - 1e-9
        found = np.diag(solved.sampling(np.eye(41), 1))
        noise = step.squares_noise + 1e-9
        assert (np.abs(found - np.diag(step.squares))[found > 0.3] <= noise).all()
        widths.append(found)
        released.append(np.diag(step.squares))
    assert np.mean(widths) == pytest.approx(1.0, abs=0.03)
    assert np.std(widths) < 0.5 * np.std(released)


def test_unequal_variances_along_a_coefficient_are_kept_where_they_stand_out():
    true = np.ones(41)
    true[0] = 4.0
    found = [
        np.diag(solve_step(noisy_squares(true, 0.5, seed), Clips(2.0, 1.0, 1.0, 3.0), 41.0).sampling(np.eye(41), 1))
        for seed in range(40)
    ]
    assert np.mean(found, axis=0)[0] > 3.3
    assert np.mean(found, axis=0)[1:].mean() == pytest.approx(1.0, abs=0.1)


def test_what_noise_hides_is_not_trusted_and_a_far_step_moves_no_prediction():
    plan = planned(Neighbouring.REPLACE_ONE)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 2))
    identity = Preconditioner(np.eye(D), np.ones(D))
    read = BoundedRows(Standardiser.identity(2), Standardiser.identity(1), identity, 1.5)
    step = release_step(Rows.held(X, X[:, 0]), read, np.zeros(3), 1.0, plan, noise=NoiseSource.insecure(0))
    solved = solve_step(step, Clips(1.0, 0.9, 0.8, 3.0), 3.0)
    assert not solved.trusted
    far = replace(solved, move=1e6 * solved.move)
    assert np.linalg.norm(combined(far, 0.1)[0]) < 1e-4 * np.linalg.norm(far.move)


def test_predicted_width_falls_with_rows_to_what_clips_and_weights_cost():
    def width(n):
        mu = 0.25
        plan = plan_one_step(
            n, 4, residuals=0.14 * mu, jacobian=0.41 * mu, gradient=0.6 * mu, squares=0.17 * mu, level=0.22 * mu,
            neighbouring=Neighbouring.REPLACE_ONE,
        )  # fmt: skip
        return predict_width(plan, 0.01)

    found = [width(n) for n in (1000, 5000, 20_000, 100_000)]
    widths = [one.value for one in found]
    assert (np.diff(widths) < 0).all()
    assert widths[0] > 2
    assert 1.0 < widths[-1] < 1.2
    assert all(one.low <= one.value <= one.high for one in found)
    # The cheaper noise is, the nearer to plain least squares.
    assert (np.diff([one.radius for one in found]) >= 0).all()


def test_clips_are_wider_where_noise_is_cheap_or_tails_are_long():
    def clip(n, law):
        plan = plan_one_step(
            n, 4, residuals=0.5, jacobian=0.5, gradient=0.5, squares=0.5, level=0.5, neighbouring=Neighbouring.ZERO_OUT
        )
        return choose_clips(ResidualSizes(0.5, law), 2.0, plan).residual

    normal = np.diff(np.vectorize(math.erf)(np.append(0.0, EDGES) / 0.5 / math.sqrt(math.pi)))
    few, many = clip(500, None), clip(10**7, None)
    assert few == 2.4 * 0.5 < many
    heavy = 0.97 * normal
    heavy[np.searchsorted(EDGES, 4.0)] += 0.03
    assert clip(20_000, heavy) > clip(20_000, normal)


def test_sizes_of_normal_residuals_agree_with_the_formulas():
    normal = np.diff(np.vectorize(math.erf)(np.append(0.0, EDGES) / 0.5 / math.sqrt(math.pi)))
    counted, known = ResidualSizes(0.5, normal), ResidualSizes(0.5)
    for at in (1.2, 1.5, 2.5):
        assert counted.clipped(at)[0] == pytest.approx(known.clipped(at)[0], abs=0.03)
        assert counted.clipped(at)[1] == pytest.approx(known.clipped(at)[1], rel=0.1)
    sizes, shares = counted.law()
    assert np.exp(np.interp(0.95, shares, np.log(sizes))) == pytest.approx(1.96 * 0.5 * 1.2533, rel=0.08)
    # What is not known, or drowns, is taken to have long tails: such intervals of observations hold more normal errors.
    for drowned in (known, ResidualSizes(0.5, normal, 1.0)):
        further, larger = drowned.law()
        assert (np.diff(larger) >= 0).all()
        assert 1.1 < np.exp(np.interp(0.95, larger, np.log(further))) / (1.96 * 0.5 * 1.2533) < 1.25
