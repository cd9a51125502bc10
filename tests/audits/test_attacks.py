"""Attacks on what had only been replayed: Poisson training over many steps, the dual engine, persons with intervals.

An attacker knows everything but one record, chooses the worst pair, and takes the best test of what is released. What
it finds must stay below the certificate, come near it (else the attack shows nothing), and rise above it when half of
the noise is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from gratis.accounting import account, delta_upper_bound
from gratis.audits.distinguishing import audit_scores
from gratis.audits.estimators import audit, make_estimator
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.person_rows import PersonRows
from gratis.models.random_features import RandomFeatures, SquaredErrorModel
from gratis.records.budget import Budget
from gratis.records.events import PoissonSubsampledGaussian
from gratis.records.neighbouring import Neighbouring
from gratis.stages.feature_descent import Engine, descend_features


class HalfNoise(NoiseSource):
    """The sabotage."""

    def normal(self, std: float, shape: Any) -> Any:
        return super().normal(std / 2, shape)


N, D, P, MU, STEPS = 8, 3, 24, 2.0, 5
FEATURES = RandomFeatures(n_inputs=D, n_features=P, seed=1)


def hostile(kind: str) -> np.ndarray:
    """Rows whose Gram matrix the first engine could not factor, and ordinary ones."""
    X = np.random.default_rng(0).standard_normal((N, D))
    return {
        "generic": X,
        "a duplicate": np.vstack([X[1], X[1:]]),
        "all alike": np.repeat(X[:1], N, axis=0),
        "nearly alike": X[:1] + 1e-9 * X,
        "an outlier": np.vstack([1e150 * X[:1], X[1:]]),
    }[kind]


def dual_runs(X: np.ndarray, target: float, source: Any, runs: int, seed: int) -> np.ndarray:
    """Released parameters of many trainings in which one record pushes and the others are null."""
    y = np.full(len(X), np.nan)
    y[0] = target
    return np.array(
        [
            descend_features(
                FEATURES, X, y, SquaredErrorModel(), steps=STEPS, clip_norm=1.0, learning_rate=0.2, mu=MU,
                neighbouring=Neighbouring.REPLACE_ONE, noise=source.insecure(seed + i), engine=Engine.DUAL,
            ).parameters[:, 0]
            for i in range(runs)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["generic", "a duplicate", "all alike", "nearly alike", "an outlier"])
def test_the_dual_engine_told_apart_by_its_parameters(kind: str) -> None:
    """A record's target turned around, ±10⁶: all steps push along its features, which is the best direction to look."""
    X = hostile(kind)
    direction = FEATURES.transform(X[:1]).astype(float)[0]
    honest = [dual_runs(X, target, NoiseSource, 400, 1000 * (target > 0)) @ direction for target in (1e6, -1e6)]
    found = audit_scores(honest[1], honest[0], proved_mu=MU)
    assert not found.alarm
    assert found.mu.low > 0.6 * MU
    halved = [dual_runs(X, target, HalfNoise, 400, 1000 * (target > 0)) @ direction for target in (1e6, -1e6)]
    assert audit_scores(halved[1], halved[0], proved_mu=MU).alarm


def lattice(values: np.ndarray) -> int:
    """The largest k such that all values are multiples of 2^k: the bits that told which engine had run."""
    mantissas, exponents = np.frexp(values[values != 0])
    whole = (mantissas * 2.0**53).astype(np.int64)
    trailing = np.log2((whole & -whole).astype(float)).astype(int)
    return int((exponents - 53 + trailing).min())


def test_the_dual_engine_leaves_no_trace_of_singular_rows_in_its_bits() -> None:
    """The attack that showed ε ≥ 4.4 at a certified 1: neighbours of which one has a Gram matrix without full rank."""
    found = {
        kind: {lattice(one) for one in dual_runs(hostile(kind), 1.0, NoiseSource, 25, 5000)}
        for kind in ("generic", "a duplicate", "all alike", "nearly alike", "an outlier")
    }
    assert len(set.union(*found.values())) == 1, found
    # The negative control: one bit finer on one side is seen.
    finer = dual_runs(hostile("generic"), 1.0, NoiseSource, 1, 5000)[0]
    finer[0] += 2.0 ** (lattice(finer) - 1)
    assert lattice(finer) not in set.union(*found.values())


RATE, T, BLOCKS = 0.5, 3, 400
SIGMAS = {"zero-out": 0.8, "replace-one": 1.6}  # of a push by 1, and of one by 2


def transcripts(relation: str, target: float, source: NoiseSource, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Blocks of T noisy gradients of a loop with Poisson batches, in units of the clip norm, pushed by one record.

    Nobody moves the weights, so that all blocks are draws of the same one.
    """
    torch = pytest.importorskip("torch")
    import gratis

    records, targets = np.zeros((4, 2), dtype=np.float32), np.zeros(4, dtype=np.float32)
    records[0, 0], targets[0] = 1.0, target
    monkeypatch.setattr("gratis.estimators.own_loop.noise_source", lambda *_, **__: source)
    module = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    loop = gratis.privatise(
        module, records, targets, budget=Budget(epsilon=1.0, delta=1e-5, neighbouring=relation), steps=T * BLOCKS,
        clip_norm=1.0, batch_size=4 * RATE, noise_multiplier=SIGMAS[relation],
        loss=lambda outputs, wanted: 0.5 * (outputs[:, 0] - wanted) ** 2,
    )  # fmt: skip
    # p.grad is the sum over the expected size of a batch.
    return np.array([-4 * RATE * module.weight.grad[0, 0].item() for _ in loop]).reshape(BLOCKS, T)


def log_likelihood(x: np.ndarray, push: float, sigma: float) -> np.ndarray:
    """log of the density with the record's push over that without, summed over the steps."""
    return np.log1p(RATE * np.expm1((2 * push * x - push**2) / (2 * sigma**2))).sum(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_many_poisson_steps_told_apart_by_the_best_test(relation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole transcript of T steps, judged by its exact likelihood ratio: the advantage, which is δ at ε = 0."""
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr("gratis.estimators.own_loop.epsilon_upper_bound", lambda *_, **__: 0.0)  # of T steps, below
    sigma = SIGMAS[relation]
    event = PoissonSubsampledGaussian(
        sampling_rate=RATE, noise_multiplier=sigma, steps=T, neighbouring=Neighbouring.parse(relation)
    )
    proved = delta_upper_bound(account(event), epsilon=0.0)
    other = np.nan if relation == "zero-out" else -1e6

    def advantage(source: Any) -> float:
        pushed = transcripts(relation, 1e6, source.insecure(1), monkeypatch)
        without = transcripts(relation, other, source.insecure(2), monkeypatch)
        scores = [
            log_likelihood(x, 1.0, sigma) - (log_likelihood(x, -1.0, sigma) if relation == "replace-one" else 0.0)
            for x in (without, pushed)
        ]
        found = audit_scores(*scores, proved_mu=float("inf"))
        return 1 - 2 * float(ndtr(-found.mu.low / 2))

    assert 0.6 * proved < advantage(NoiseSource) <= proved
    assert advantage(HalfNoise) > proved


@pytest.mark.parametrize(
    "options",
    [
        {"on_invalid": "impute", "neighbouring": "replace-one"},
        {"on_invalid": "zero", "neighbouring": "zero-out"},
    ],
)
def test_persons_with_logistic_intervals(options: dict[str, Any]) -> None:
    """Approach, Jacobian, gradient, squares and steepness of whole persons, replayed on hostile neighbours."""
    found = audit(make_estimator("logistic", {"epsilon": 2.0, "inference": True, **options}), pairs=12, persons=True)
    assert not found.alarm, found.verdict
    assert found.largest_ratio > 0.4


def test_persons_that_count_by_their_rows_are_noticed_in_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a person enters every sum once for every row."""
    monkeypatch.setattr("gratis.mechanisms.person_rows.person_weight", lambda rows: 1.0)
    monkeypatch.setattr(PersonRows, "clipped_total", PersonRows.total)
    assert audit(make_estimator("logistic", {"epsilon": 2.0, "inference": True}), pairs=4, persons=True).alarm
