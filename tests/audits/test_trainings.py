"""Replay audits of whole estimators, of the held-out score, and of subsampled networks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from gratis import DPLinearRegression, DPLogisticRegression, DPRandomFeaturesRegressor
from gratis.audits.hostile import HostileTables, Table
from gratis.audits.replay import Fitted, record
from gratis.audits.trainings import (
    audit_tables,
    estimator_training,
    held_out_training,
    replay_audit,
    subsampled_training,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.records.budget import Budget
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring

REPLACE, ZERO_OUT = Neighbouring.REPLACE_ONE, Neighbouring.ZERO_OUT


@pytest.mark.slow(but=["full-batch-zero"])
@pytest.mark.parametrize("on_invalid", ["raise", "zero"])
@pytest.mark.parametrize("algorithm", ["full-batch", "one-pass"])
def test_linear_regression_is_consistent(on_invalid, algorithm):
    model = DPLinearRegression(4.0, 1e-3, on_invalid=on_invalid, algorithm=algorithm)
    found = replay_audit(model, 10**6, 200, "regression", pairs=12)
    assert not found.alarm, found.verdict
    assert found.pairs == 12
    assert found.largest_ratio > 0.3
    assert bool(found.limits) == (algorithm == "one-pass")


@pytest.mark.slow
def test_options_are_kept_and_the_data_s_are_left_out(tmp_path):
    model = DPRandomFeaturesRegressor(
        4.0, 1e-3, n_features=10**6, neighbouring="zero-out", ledger=str(tmp_path / "none"), dataset="a"
    )
    # Targets beyond what a square holds are a difference of their own: see the results page.
    found = replay_audit(model, 5000, 30, "regression", pairs=4)
    assert found.mu == pytest.approx(record_mu(model), rel=1e-6)
    assert not (tmp_path / "none").exists()


def record_mu(model):
    from gratis.accounting import calibrate_mu

    return calibrate_mu(Budget(epsilon=model.epsilon, delta=model.delta, neighbouring=ZERO_OUT))


@pytest.mark.slow
def test_a_removed_record_is_one_step_and_an_exchanged_one_two(monkeypatch):
    """With the null record as neighbour the bound is mu itself, and full-batch descent attains it."""
    create = partial(DPLinearRegression, 4.0, 1e-3, on_invalid="zero", neighbouring="zero-out", preprocessing="none")
    tables = HostileTables(n=24, d=2, invalid=True)
    found = audit_tables(
        partial(estimator_training, create), tables, ZERO_OUT, pairs=24, rng=np.random.default_rng(5), per_recording=6
    )
    assert not found.alarm, found.verdict
    assert found.largest_ratio > 0.6  # of 60 random pairs; the worst reach 1
    assert "null record" in found.worst_pair


@pytest.mark.slow(but=["replace-one-None"])
@pytest.mark.parametrize("classes", [None, (0, 1)])
@pytest.mark.parametrize("relation", [REPLACE, ZERO_OUT])
def test_the_score_on_held_out_rows(classes, relation):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    cls, y = (DPLinearRegression, X[:, 0]) if classes is None else (DPLogisticRegression, (X[:, 0] > 0).astype(int))
    extra = {} if classes is None else {"classes": list(classes)}
    model = cls(4.0, 1e-3, on_invalid="impute", **extra).fit(X, y)
    budget = Budget(epsilon=2.0, delta=1e-3, neighbouring=relation)
    tables = HostileTables(n=30, d=2, classes=classes, invalid=True)
    found = audit_tables(
        partial(held_out_training, model, budget), tables, relation, pairs=60, rng=np.random.default_rng(1)
    )
    assert not found.alarm, (found.verdict, found.differences)
    assert found.largest_ratio > (0.6 if relation is REPLACE or classes is not None else 0.4)


@pytest.mark.parametrize("relation", [REPLACE, ZERO_OUT])
def test_subsampled_networks(relation):
    pytest.importorskip("torch")
    from gratis.records.events import PoissonSubsampledGaussian
    from gratis.stages.poisson_sampling import PoissonSampling

    event = PoissonSubsampledGaussian(sampling_rate=0.5, noise_multiplier=1.0, steps=4, neighbouring=relation)
    tables = HostileTables(n=20, d=2, classes=(0, 1), invalid=True, outside=False)
    found = audit_tables(
        partial(subsampled_training, PoissonSampling(20, event), 2), tables, relation, pairs=24,
        rng=np.random.default_rng(2),
    )  # fmt: skip
    assert not found.alarm, (found.verdict, found.differences)
    assert found.largest_ratio > 0.3


def test_the_estimator_s_own_source_is_recorded():
    """Not one that the audit brings along: a fault of the source must be seen."""
    X = np.random.default_rng(0).standard_normal((20, 2))
    create = partial(DPLinearRegression, 4.0, 1e-3, noise_seed=5, insecure_reproducible=True, preprocessing="none")
    recording = record(estimator_training(create, Table("plain", X, X[:, 0], 0)))
    plain = create().fit(X, X[:, 0])
    np.testing.assert_array_equal(recording.fitted.published["coef_"], plain.coef_)
    assert set(recording.fitted.published) >= {"coef_", "intercept_", "plan_", "prediction_", "certificate_", "fit_"}


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("classes", [2, 4])
def test_classifiers_are_consistent(relation, classes):
    """Class counts, the accelerated descent and the calibration are among what is replayed."""
    model = DPLogisticRegression(4.0, 1e-3, on_invalid="zero", neighbouring=relation)
    found = replay_audit(model, 10**6, 200, "classification", classes, pairs=12)
    assert not found.alarm, (found.verdict, found.differences)
    assert found.pairs == 12
    assert found.largest_ratio > 0.3


@pytest.mark.parametrize("listens", [True, False])
def test_a_step_that_counts_records_without_a_target_is_noticed(listens):
    """A null record has no target, but it may have features: a signed sum that takes these moves by 2, not by 1."""
    event = GaussianRelease(sensitivity=1.0, noise_std=2.0, neighbouring=ZERO_OUT, label="signs of a column")

    def signs(X, y):
        counted = np.isfinite(X[:, :1]) & (np.isfinite(y)[:, None] | (not listens))
        return np.where(counted, np.sign(X[:, :1]), 0.0).sum(axis=0)

    def training(table):
        def train(tap):
            total = Rows.held(table.X, table.y).total(signs)
            return Fitted(event, tap(NoiseSource.secure()).release(total, event.noise_std))

        return train

    tables = HostileTables(n=20, d=2, invalid=True)
    found = audit_tables(training, tables, ZERO_OUT, pairs=200, rng=np.random.default_rng(0))
    assert found.alarm == (not listens), found.verdict
    assert found.largest_ratio == pytest.approx(1.0 if listens else 2.0)
