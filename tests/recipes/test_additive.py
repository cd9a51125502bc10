"""The recipe of additive models: everything is planned from public facts, and what runs is what was planned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gratis.accounting import compose_mu, leaf_mu
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.recipes.additive_plan import plan_additive
from gratis.recipes.additive_run import run_additive
from gratis.records.neighbouring import Neighbouring

RELATIONS = [Neighbouring.ZERO_OUT, Neighbouring.REPLACE_ONE]
SIZES: list[dict[str, Any]] = [
    {"n_records": 100, "n_columns": 20},
    {"n_records": 2000, "n_columns": 5},
    {"n_records": 30_000, "n_columns": 5},
    {"n_records": 30_000, "n_columns": 5, "pairs": False},
    {"n_records": 30_000, "n_columns": 6, "levels": {0: 3, 5: 40}},
    {"n_records": 5000, "n_columns": 2, "levels": {0: 3, 1: 4}},
    {"n_records": 30_000, "n_columns": 5, "n_classes": 2},
    {"n_records": 300, "n_columns": 50, "n_classes": 7},
]


class Counting(NoiseSource):
    """Counts its releases and their deviations."""

    def __init__(self) -> None:
        super().__init__(5, secure=False)
        self.stds: list[float] = []

    def release(self, values: Any, std: float) -> Any:
        self.stds.append(std)
        return super().release(values, std)


def stds(event: Any) -> list[float]:
    return [leaf.noise_std for leaf in event.leaves() for _ in range(leaf.count)]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_stages_use_up_mu_and_no_more(sizes: dict[str, Any], relation: Neighbouring) -> None:
    plan = plan_additive(mu=0.3, neighbouring=relation, **sizes)
    total = compose_mu([leaf_mu(leaf) for leaf in plan.event.leaves()])
    assert total <= 0.3
    assert total == pytest.approx(0.3, rel=1e-6)


@pytest.mark.slow(but=["None-no pair to find"])
@pytest.mark.parametrize("signal", [0.0, 1.0], ids=["no pair to find", "one pair"])
@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_what_runs_is_what_was_planned_however_many_pairs_are_found(signal: float, n_classes: int | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3))
    y = signal * 2 * X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=5000)
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes)).astype(float)
    plan = plan_additive(5000, 3, mu=0.5, neighbouring=Neighbouring.ZERO_OUT, n_classes=n_classes)
    noise = Counting()
    model, expected, _ = run_additive(Rows.held(X, y), plan, noise=noise)
    assert 0 <= expected.low < expected.value < expected.high <= 1 or not signal
    assert noise.stds == stds(plan.event)
    assert ((0, 1) in model.basis.pairs.chosen) == bool(signal)
    assert model.outputs == plan.outputs


def test_lines_alone_where_records_are_few_and_pairs_where_they_are_many() -> None:
    def plan(n: int, **options: Any) -> Any:
        return plan_additive(n, 8, mu=0.27, neighbouring=Neighbouring.REPLACE_ONE, **options)

    few, some, many = plan(400), plan(3000), plan(30_000)
    assert (few.n_cosines, few.histograms, few.screening) == (0, None, None)
    assert some.n_cosines > 4
    assert some.screening is None
    assert many.screening.most > 4
    assert len(many.screening.candidates) == 28
    assert len(plan(30_000, alone=frozenset({0})).screening.candidates) == 21
    assert plan(30_000, pairs=False).screening is None


def test_settings_move_smoothly_with_the_number_of_records() -> None:
    shares = []
    for n in np.geomspace(100, 100_000, 200).astype(int):
        plan = plan_additive(int(n), 30, mu=0.27, neighbouring=Neighbouring.ZERO_OUT, pairs=False)
        squares = [sum(leaf_mu(leaf) ** 2 for leaf in stage.event.leaves()) for stage in (plan.target, plan.features)]
        shares.append(np.array(squares) / 0.27**2)
    assert np.abs(np.diff(shares, axis=0)).max() < 0.02


def test_tables_of_any_width_can_be_planned_and_run() -> None:
    rng = np.random.default_rng(0)
    for n, d in ((50, 1), (40, 60)):
        X, y = rng.normal(size=(n, d)), rng.normal(size=n)
        plan = plan_additive(n, d, mu=0.5, neighbouring=Neighbouring.REPLACE_ONE)
        model, *_ = run_additive(Rows.held(X, y), plan, noise=NoiseSource.insecure(0))
        assert np.isfinite(model.scores(X)).all()
    assert plan_additive(10**6, 300, mu=1.0, neighbouring=Neighbouring.ZERO_OUT).main.width < 1200


def test_wrong_second_moments_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in a basis that is wrong by a factor of 30 go far too far; the next gradients tell."""
    from gratis.recipes import additive_learning, additive_run
    from gratis.stages import gradient_posterior

    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    y = X @ [1.0, -0.5, 0.3, 0.0] + 0.5 * rng.normal(size=4000)
    plan = plan_additive(4000, 4, mu=0.5, neighbouring=Neighbouring.ZERO_OUT, pairs=False)

    def error(wrong: float) -> float:
        monkeypatch.setattr(additive_run, "cleaned_moments", lambda *a: (cleaned(*a)[0] / wrong, 1e-3))
        errors = []
        for seed in range(3):
            found, *_ = run_additive(Rows.held(X, y), plan, noise=NoiseSource.insecure(seed))
            scores = found.target.inverse(found.scores(X))[:, 0]
            errors.append(float(np.mean((y - scores) ** 2) / y.var()))
        return float(np.median(errors))

    cleaned = additive_run.cleaned_moments
    assert error(1) < 0.2
    protected = error(30)
    assert protected < 0.4
    # Negative control: all gradients are believed, the ridge never grows, and nothing is taken back at the end.
    monkeypatch.setattr(gradient_posterior, "_WRONG", 0.0)
    monkeypatch.setattr(additive_learning, "_FALL", 1e9)
    monkeypatch.setattr(additive_learning, "_kept_share", lambda *a: 1.0)
    assert error(30) > 2 * protected


def test_without_noise_the_fit_is_least_squares_on_its_features() -> None:
    """Columns that move together, heavy tails and outlying targets: clipping and moments must not stand in the way."""
    rng = np.random.default_rng(1)
    common = rng.normal(size=(3000, 1))
    X = np.exp(0.7 * (common + 0.4 * rng.normal(size=(3000, 6))))
    y = np.log(X[:, 0]) - 0.5 * X[:, 1] + 0.2 * rng.normal(size=3000) - 4 * (X[:, 2] > 4)
    plan = plan_additive(3000, 6, mu=300.0, neighbouring=Neighbouring.REPLACE_ONE, pairs=False)
    model, *_ = run_additive(Rows.held(X, y), plan, noise=NoiseSource.insecure(0))
    target = model.target.transform(y[:, None])
    features = model.basis.features(model.basis.columns.places(X))
    best = features @ np.linalg.lstsq(features, target, rcond=None)[0]
    left, least = (float(np.square(target - scores).mean() / target.var()) for scores in (model.scores(X), best))
    assert left < least + 0.01
