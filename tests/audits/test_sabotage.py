"""Audits of the real trainers on worst-case neighbours: tight when honest, an alarm for every sabotage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.accounting import account
from gratis.audits.distinguishing import audit_trainer
from gratis.audits.worst_case import pushing_neighbours, tempting_neighbours
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.records.events import Composition, OnePassIteration
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs
from gratis.stages.full_batch import descend, descent_event
from gratis.stages.one_pass import OnePassLoss, OnePassTrainer, train_one_pass

N, D = 24, 3
RELATION = Neighbouring.REPLACE_ONE


def falling_event(rho=1.0, n=N):
    """Four blocks of falling step size with the least noise, worked out here."""
    products = 2 * np.repeat([1.0, 0.7, 0.5, 0.3], n // 4)
    variance = products**2 - np.append(products[1:], 0.0) ** 2
    return OnePassIteration(
        step_sizes=Runs.of(products / 2), clip_norms=Runs.constant(1.0, n),
        noise_stds=Runs.of(np.sqrt(variance) * 1.001 / rho), rounding_inflation=1.001, neighbouring=RELATION,
    )  # fmt: skip


def constant_event(n, rho=1.0):
    return OnePassIteration(
        step_sizes=Runs.constant(1.0, n), clip_norms=Runs.constant(1.0, n),
        noise_stds=Runs((0.0, 2.002 / rho), (n - 1, 1)), rounding_inflation=1.001, neighbouring=RELATION,
    )  # fmt: skip


def one_pass(event, X, y, seed, source=NoiseSource, reader=lambda X, y: (X, y)):
    def train(i):
        trainer = OnePassTrainer(event, OnePassLoss.SQUARED, n_features=X.shape[1], noise=source.insecure(seed + i))
        trainer.consume(*reader(X, y))
        return trainer.release()

    return train


def audit_one_pass(event, pair, runs, **options):
    given = {"source": NoiseSource, "reader": lambda X, y: (X, y)} | options
    return audit_trainer(
        one_pass(event, pair.X, pair.other_y, 10**6, **given), one_pass(event, pair.X, pair.y, 2 * 10**6, **given),
        event, runs=runs, direction=pair.direction,
    )  # fmt: skip


def full_batch(y, seed, *, mu=1.0, source=NoiseSource):
    X = pushing_neighbours(N, D).X

    def train(i):
        return descend(
            Rows.held(X, y), LinearModel(), steps=10, clip_norm=1.0, learning_rate=1.0, mu=mu, neighbouring=RELATION,
            noise=source.insecure(seed + i), average=False,
        ).parameters  # fmt: skip

    return train


def audit_full_batch(runs, source=NoiseSource, mu=1.0):
    pair = pushing_neighbours(N, D)
    event = descent_event(N, D, 1, 10, mu=mu, neighbouring=RELATION)
    return audit_trainer(
        full_batch(pair.other_y, 10**6, mu=mu, source=source), full_batch(pair.y, 2 * 10**6, mu=mu, source=source),
        event, runs=runs, direction=pair.direction,
    )  # fmt: skip


class HalfNoise(NoiseSource):
    def normal(self, std, shape):
        return super().normal(std / 2, shape)


def without(*, clip=True, cap=True):
    """The step of the one-pass kernel in plain Python, with a protection left out."""

    def advance(theta, pending, X, y, first_row, batch, steps, clips, *_):
        for x, label, eta, bound in zip(X, y, steps, clips, strict=True):
            norm = np.linalg.norm(x)
            slope = x @ theta - label
            if norm > 0:
                if clip:
                    slope = np.clip(slope, -bound / norm, bound / norm)
                theta -= (min(eta, 2 / norm**2) if cap else eta) * slope * x
        return len(X), 0

    return advance


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow(but=["3.0-500"])
@pytest.mark.parametrize(("rho", "runs"), [(1.0, 2000), (3.0, 500)])
def test_one_pass_is_consistent_and_tight(rho, runs):
    audit = audit_one_pass(falling_event(rho), pushing_neighbours(N, D), runs)
    assert not audit.alarm, audit.verdict
    assert audit.tightness >= 0.8
    assert audit.mu_if_normal.low >= 0.85 * audit.proved_mu


@pytest.mark.statistical(failure=0.05)
def test_full_batch_is_consistent_and_tight():
    audit = audit_full_batch(500, mu=3.0)
    assert not audit.alarm, audit.verdict
    assert audit.tightness >= 0.8
    assert audit.mu_if_normal.low >= 0.85 * audit.proved_mu


@pytest.mark.statistical(failure=0.05)
def test_one_pass_is_tight_on_the_tempting_stream_too():
    audit = audit_one_pass(constant_event(30, 3.0), tempting_neighbours(30, step_size=1.0, clip_norm=1.0), 500)
    assert not audit.alarm, audit.verdict
    assert audit.tightness >= 0.8


@pytest.mark.statistical(failure=1e-3)
def test_half_the_noise_raises_the_alarm():
    assert audit_one_pass(falling_event(), pushing_neighbours(N, D), 300, source=HalfNoise).alarm
    assert audit_full_batch(300, source=HalfNoise).alarm


@pytest.mark.statistical(failure=1e-6)
def test_clipping_left_out_raises_the_alarm(monkeypatch):
    monkeypatch.setattr("gratis.stages.one_pass_kernels.advance", without(clip=False))
    assert audit_one_pass(constant_event(N), pushing_neighbours(N, D), 100).alarm

    def unclipped(X, norms, targets, parameters, mean, clip_norms):
        factors = mean(X @ parameters[:, 0])[:, None] - targets
        return np.einsum("id,ibk->dbk", X, factors)

    monkeypatch.setattr("gratis.stages.full_batch.clipped_gradient_sum", unclipped)
    assert audit_full_batch(100).alarm


@pytest.mark.statistical(failure=0.05)
def test_the_step_cap_left_out_raises_the_alarm(monkeypatch):
    pair = tempting_neighbours(30, step_size=1.0, clip_norm=1.0, capped=False)
    assert not audit_one_pass(constant_event(30), pair, 200).alarm
    monkeypatch.setattr("gratis.stages.one_pass_kernels.advance", without(cap=False))
    assert audit_one_pass(constant_event(30), pair, 200).alarm


@pytest.mark.statistical(failure=0.05)
def test_the_stand_in_kernel_is_honest_when_nothing_is_left_out(monkeypatch):
    """Negative control of the two tests above: the same Python kernel with both protections raises nothing."""
    monkeypatch.setattr("gratis.stages.one_pass_kernels.advance", without())
    assert not audit_one_pass(constant_event(N), pushing_neighbours(N, D), 200).alarm


@pytest.mark.statistical(failure=1e-3)
def test_a_record_used_twice_raises_the_alarm():
    def twice(X, y):
        order = np.append([0, 0], np.arange(2, len(X)))
        return X[order], y[order]

    assert audit_one_pass(falling_event(), pushing_neighbours(N, D), 400, reader=twice).alarm


class Stream:
    """Two classes; the record pushes the two passes in opposite directions."""

    n_rows, n_features = N, D

    def __init__(self, label):
        self.X = np.zeros((N, D))
        self.X[0, 0], self.label = 1.0, label

    def batches(self):
        y = np.full(N, 2)
        y[0] = self.label
        yield self.X, y


def one_vs_rest(label, seed):
    event = OnePassIteration(
        step_sizes=Runs.constant(1.0, N), clip_norms=Runs.constant(0.5, N),
        noise_stds=Runs((0.0, 1.001), (N - 1, 1)), rounding_inflation=1.001, neighbouring=RELATION,
    )  # fmt: skip

    def train(i):
        return train_one_pass(Stream(label), (event, event), OnePassLoss.LOGISTIC, noise=NoiseSource.insecure(seed + i))

    return train, Composition((event, event))


class SeedReused(OnePassTrainer):
    def __init__(self, *arguments, noise, **options):
        super().__init__(*arguments, noise=NoiseSource.insecure(SeedReused.seed), **options)


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
def test_a_seed_reused_across_releases_raises_the_alarm(monkeypatch):
    """The noise of two releases cancels in their difference; the audit has to find that direction by itself."""
    honest = audit_trainer(one_vs_rest(0, 0)[0], one_vs_rest(1, 10**6)[0], one_vs_rest(0, 0)[1], runs=600)
    assert not honest.alarm, honest.verdict
    assert honest.mu.low > 0.8

    def sabotaged(label, offset):
        train, event = one_vs_rest(label, offset)

        def run(i):
            SeedReused.seed = offset + i
            return train(i)

        return run, event

    monkeypatch.setattr("gratis.stages.one_pass.OnePassTrainer", SeedReused)
    (first, event), (second, _) = sabotaged(0, 0), sabotaged(1, 10**6)
    assert audit_trainer(first, second, event, runs=200).alarm


def test_parallel_runs_equal_serial_ones():
    pair, event = pushing_neighbours(N, D), falling_event()
    seen = []

    def watch(portions):
        for portion in portions:
            seen.append(len(portion))
            yield portion

    audits = [
        audit_trainer(
            one_pass(event, pair.X, pair.other_y, 0), one_pass(event, pair.X, pair.y, 10**6), event, runs=120,
            workers=workers, progress=watch,
        )
        for workers in (1, 2)
    ]  # fmt: skip
    assert audits[0].mu == audits[1].mu
    assert len(seen) == 100


def test_proved_values_are_those_of_the_accountant():
    assert account(falling_event()).mu == pytest.approx(1.0, rel=1e-6)
    assert math.isclose(account(constant_event(30, 2.0)).mu, 2.0, rel_tol=1e-6)
