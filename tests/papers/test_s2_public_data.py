"""Public tables for S2's figures, and the passes over them."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.accounting import least_noise
from gratis.mechanisms.noise import NoiseSource
from gratis.records.events import OnePassIteration
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs
from gratis.stages.one_pass import OnePassLoss, OnePassTrainer
from gratis_papers.s2_public_data import load_task, run_passes


def test_tables_are_split_without_overlap_and_scaled_by_public_rows_alone() -> None:
    task = load_task("housing", shipped=True)
    assert np.allclose(task.public_rows.mean(axis=0), 0)
    assert np.allclose(task.public_rows.std(axis=0), 1)
    assert not np.allclose(task.X.mean(axis=0), 0)
    parts = [task.public_rows, task.X, task.X_validation, task.X_test]
    rows = {tuple(row) for part in parts for row in part.round(9)}
    assert len(rows) == sum(map(len, parts)) == 442


def test_passes_are_those_of_the_trainer() -> None:
    rng = np.random.default_rng(0)
    n, d = 60, 5
    X, y = rng.normal(size=(n, d)) * 3, rng.normal(size=n) * 4
    shape = np.sqrt(1 - np.arange(1, n + 1) / n) + 0.1
    rates, clips = np.array([0.5, 200.0]), np.array([2.0, 0.3])
    found = run_passes(
        X, y, shapes=shape[None], which=np.zeros(2, dtype=np.int64), rates=rates, clip_levels=clips, rho=1e12,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    order = np.random.default_rng(1).permutation(n)
    for theta, rate, clip in zip(found, rates, clips, strict=True):
        event = OnePassIteration(
            step_sizes=Runs.of(rate * shape / n),
            clip_norms=Runs.constant(clip * np.sqrt(d), n),
            noise_stds=Runs.of(np.full(n, 1e-9)),
            rounding_inflation=1.5,
            neighbouring="replace-one",
        )
        trainer = OnePassTrainer(event, OnePassLoss.SQUARED, n_features=d, noise=NoiseSource.insecure(0))
        trainer.consume(X[order], y[order])
        assert np.allclose(theta, trainer.release(), atol=1e-4, rtol=1e-4)


def test_noise_of_the_passes_has_the_size_that_the_budget_asks_for() -> None:
    # Rows of zeros move nothing: what is left is the noise, whose variance adds up to (κ·a₁/ρ)² for any shape.
    n, d, rho = 40, 4001, 0.7
    shapes = np.stack([np.ones(n), 1 - np.arange(n) / n])
    rates, clips = np.array([3.0, 3.0]), np.array([0.2, 0.2])
    found = run_passes(
        np.zeros((n, d)), np.zeros(n), shapes=shapes, which=np.array([0, 1]), rates=rates, clip_levels=clips, rho=rho,
        rng=np.random.default_rng(2),
    )  # fmt: skip
    expected = 2 * 3.0 * 0.2 * np.sqrt(d) / n / rho
    assert np.allclose(found.std(axis=1), expected, rtol=0.05)
    whole = least_noise(shapes[1] * 3.0 * 0.2 * np.sqrt(d) / n, rho=rho, neighbouring=Neighbouring.REPLACE_ONE)
    assert np.sqrt(np.sum(whole**2)) == pytest.approx(expected)
