"""Classifiers learn more with more budget, and with plenty of it what they would learn without privacy."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss

from gratis import DPLogisticRegression
from gratis.accounting import calibrate_mu
from gratis.planning.class_flow import class_flow, flow_steps
from gratis.recipes.logistic import StagedLogistic
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring

N, TEST = 4000, 4000
# Classes, columns, shares of the classes (even if None), factor of the scores.
PROBLEMS = {
    "balanced": (2, 8, None, 1.5),
    "four per cent": (2, 8, (0.96, 0.04), 3.0),
    "ten classes": (10, 8, None, 1.5),
    "separable": (2, 8, None, 30.0),
}


@cache
def problem(name):
    classes, columns, shares, signal = PROBLEMS[name]
    rng = np.random.default_rng(7)
    mixing = rng.normal(size=(columns, columns)) + 2 * np.eye(columns)
    slopes = signal * rng.normal(size=(columns, classes)) / np.sqrt(columns)
    latent = rng.normal(size=(N + TEST, columns))
    scores = latent @ slopes + rng.gumbel(size=(N + TEST, classes))
    if shares is not None:  # the shift that gives these shares
        gap = scores[:, 1] - scores[:, 0]
        scores[:, 1] -= np.quantile(gap, shares[0])
    X = latent @ mixing * 10.0 ** rng.integers(-3, 4, size=columns) + 5.0
    return X, scores.argmax(axis=1)


@cache
def found(name, epsilon, seeds=2):
    """(log loss, accuracy, balanced accuracy) on fresh rows, means over noise seeds."""
    X, y = problem(name)
    scores = []
    for seed in range(seeds):
        model = DPLogisticRegression(
            delta=1e-5,
            epsilon=epsilon,
            classes=list(range(PROBLEMS[name][0])),
            noise_seed=seed,
            insecure_reproducible=True,
        ).fit(X[:N], y[:N])
        scores.append(scored(model.predict_proba(X[N:]), y[N:]))
    return np.mean(scores, axis=0)


def scored(P, y):
    loss = log_loss(y, P, labels=range(P.shape[1]))
    return loss, np.mean(P.argmax(axis=1) == y), balanced_accuracy_score(y, P.argmax(axis=1))


def without_privacy(name, columns):
    X, y = problem(name)
    model = LogisticRegression(max_iter=2000).fit(columns(X[:N]), y[:N])
    return scored(model.predict_proba(columns(X[N:])), y[N:])


@pytest.mark.parametrize("name", PROBLEMS)
def test_quality_rises_with_epsilon(name):
    losses, accuracies, _ = np.array([found(name, epsilon) for epsilon in (0.5, 2.0, 10.0, 100.0)]).T
    assert (np.diff(losses) <= 0.01).all(), losses
    assert (np.diff(accuracies) >= -0.01).all(), accuracies
    assert losses[-1] < losses[0] - 0.01
    prior = np.bincount(problem(name)[1][:N]) / N
    null = -(prior * np.log(prior)).sum()
    assert losses[0] < null + 0.05, "even a little budget must not do much worse than the prior"


@pytest.mark.parametrize("name", PROBLEMS)
def test_with_plenty_of_budget_privacy_costs_nothing(name):
    """Within .005 of scikit-learn on the same winsorised columns; winsorising itself costs up to .01 on normal ones."""
    X, y = problem(name)
    loss, accuracy, balanced = found(name, 100.0)
    classes = list(range(PROBLEMS[name][0]))
    own = DPLogisticRegression(100.0, 1e-5, classes=classes, noise_seed=0, insecure_reproducible=True).fit(X[:N], y[:N])
    free = without_privacy(name, own.fit_.features.transform)
    assert loss <= 1.05 * free[0] + 0.001, (loss, free)
    assert accuracy >= free[1] - 0.005
    assert balanced >= free[2] - 0.03
    raw = without_privacy(name, lambda rows: (rows - X[:N].mean(axis=0)) / X[:N].std(axis=0))
    assert loss <= 1.05 * raw[0] + 0.001, (loss, raw)
    assert accuracy >= raw[1] - 0.015


def test_the_event_is_a_function_of_public_facts_and_is_what_runs():
    X, y = problem("ten classes")
    model = DPLogisticRegression(2.0, 1e-5, classes=list(range(10)), noise_seed=0, insecure_reproducible=True).fit(
        X[:N], y[:N]
    )
    planned = DPLogisticRegression(2.0, 1e-5).plan(N, X.shape[1], classes=10)
    assert model.certificate_.event == model.plan_.event == planned.event
    labels = [leaf.label.split(",")[0].split(":")[0] for leaf in planned.event.leaves()]
    assert list(dict.fromkeys(labels)) == ["features", "second moments", "class counts", "descent", "calibration"]


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("columns", [5, 4000])
def test_the_stages_spend_mu_and_no_more(relation, columns):
    budget = Budget(epsilon=1.0, delta=1e-5, neighbouring=relation)
    plan = StagedLogistic(Facts(rows=500, columns=columns, classes=3), budget, Reading()).plan
    total = 0.0
    for leaf in plan.event.leaves():
        if hasattr(leaf, "steps"):
            step = leaf.neighbouring.sensitivity_factor * leaf.rounding_inflation / leaf.n_records
            total += leaf.steps * (step / leaf.noise_stds.values[0]) ** 2
        else:
            total += (leaf.sensitivity / leaf.noise_std) ** 2
    assert total**0.5 <= calibrate_mu(budget)
    assert total**0.5 == pytest.approx(calibrate_mu(budget), rel=1e-6)
    assert ("calibration" in plan.event.leaves()[-1].label) == (columns == 5)


def test_flow_time_grows_with_budget_and_rarity():
    even, rare = np.array([0.5, 0.5]), np.array([0.97, 0.03])
    relation = Neighbouring.REPLACE_ONE
    times = [class_flow(10_000, 20.0, even, mu=mu, neighbouring=relation).time for mu in (0.1, 0.3, 3.0, 30.0)]
    assert times == sorted(times)
    assert class_flow(10_000, 20.0, rare, mu=0.3, neighbouring=relation).time > 3 * times[1]
    steps = [flow_steps(10_000, 20, 2, mu=mu, neighbouring=relation) for mu in (0.01, 3.0, 1000.0)]
    assert steps[0] == 64 < steps[1] < steps[2] == 256
