"""Log-odds with standard errors: what is planned is released, errors are as large as stated, or withheld."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

from gratis import Descent, DPLogisticRegression, load_model, plan, save_model
from gratis.accounting import calibrate_mu
from gratis.audits.hostile import HostileTables
from gratis.audits.trainings import audit_tables, estimator_training
from gratis.recipes.logistic_inference import LogisticInference, least_logistic_rows
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring

TRUTH = np.array([-3.2, 0.03, -0.6])
SEEDED = {"insecure_reproducible": True, "classes": ["no", "yes"]}


def table(seed, n=3000):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)) * [25.0, 1.0] + [100.0, 0.0]
    p = 1 / (1 + np.exp(-(X @ TRUTH[1:] + TRUTH[0])))
    return X, np.where(rng.random(n) < p, "yes", "no"), p


@cache
def fitted(seed):
    X, y, _ = table(seed)
    return DPLogisticRegression(1.0, 1e-6, inference=True, noise_seed=seed, **SEEDED).fit(X, y)


@pytest.mark.statistical(failure=0.02)
@pytest.mark.slow
def test_errors_are_as_large_as_stated_and_sampling_alone_would_not_explain_them():
    models = [fitted(seed) for seed in range(12)]
    errors = np.array([model.params - TRUTH for model in models])
    own = np.square(errors / [model.bse for model in models]).mean()
    sampling = [np.diag(model.cov_params()) * (1 - model.inference_.privacy_share) for model in models]
    assert 0.4 < own < 1.8, own
    assert np.mean(np.square(errors) / sampling) > 1.9  # negative control: a covariance that forgets privacy
    effects = np.array([model.marginal_effects() for model in models])
    truth = TRUTH[1:] * (table(0, 10**5)[2] * (1 - table(0, 10**5)[2])).mean()
    assert 0.4 < np.square((effects[:, :, 0] - truth) / effects[:, :, 1]).mean() < 1.8


def test_odds_ratios_effects_and_tables():
    model = fitted(0)
    ratio, low, high = model.odds_ratios().T
    assert ratio == pytest.approx(np.exp(model.params[1:]))
    assert np.log(high / low) / 2 == pytest.approx(1.959964 * model.bse[1:])
    assert "odds ratio" in model.summary()
    assert "Logistic regression, 3000 rows" in model.summary()
    assert "dy/dx" in model.marginal_effects(output="markdown")
    X = table(0)[0]
    middle, below, above = model.inference_.predict(X[:50], "mean").T
    assert ((below < middle) & (middle < above)).all()
    p = model.probability_intervals(X[:50])
    assert p == pytest.approx(1 / (1 + np.exp(-np.column_stack([middle, below, above]))))
    with pytest.raises(GratisError, match="regressions"):
        model.inference_.predict(X, "observation")


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_the_releases_spend_mu_and_no_more_and_are_what_was_planned(relation):
    budget = Budget(epsilon=1.0, delta=1e-5, neighbouring=relation)
    made = LogisticInference(Facts(rows=20_000, columns=5, classes=2), budget, Reading()).plan
    total = 0.0
    for leaf in made.event.leaves():
        if hasattr(leaf, "steps"):
            step = leaf.neighbouring.sensitivity_factor * leaf.rounding_inflation / leaf.n_records
            total += sum(count * (step / std) ** 2 for std, count in zip(
                leaf.noise_stds.values, leaf.noise_stds.counts, strict=True))  # fmt: skip
        else:
            total += (leaf.sensitivity / leaf.noise_std) ** 2
    assert 0.999 * calibrate_mu(budget) < total**0.5 <= calibrate_mu(budget)


def test_the_event_is_a_function_of_public_facts():
    made = plan("logistic", rows=3000, columns=2, classes=2, epsilon=1.0, delta=1e-6, inference=True)
    assert fitted(0).certificate_.event == fitted(0).fit_.event == made.event
    assert f"{made.prediction.details['interval_width_over_ml']:.3g} times as wide" in made.explain()


def test_few_rows_more_classes_and_what_does_not_go_together(tmp_path):
    X, y, _ = table(0)
    least = least_logistic_rows(2, Budget(epsilon=1.0, delta=1e-6))
    few = DPLogisticRegression(1.0, 1e-6, inference=True, noise_seed=0, **SEEDED).fit(X[: least - 1], y[: least - 1])
    plain = DPLogisticRegression(1.0, 1e-6, noise_seed=0, **SEEDED).fit(X[: least - 1], y[: least - 1])
    assert f"about {least} rows would do" in few.summary()
    assert (few.decision_function(X) == plain.decision_function(X)).all()
    with pytest.raises(GratisError, match="withheld"):
        few.odds_ratios()
    with pytest.raises(GratisError, match="two classes"):
        DPLogisticRegression(1.0, 1e-6, inference=True, classes=[0, 1, 2]).fit(X, np.arange(3000) % 3)
    for extra in ({"algorithm": "one-pass"}, {"descent": Descent(steps=3)}):
        with pytest.raises(GratisError):
            DPLogisticRegression(1.0, 1e-6, inference=True, **extra).fit(X, y)
    for model in (few, fitted(0)):
        save_model(tmp_path / "m.gratis", model)
        loaded = load_model(tmp_path / "m.gratis").estimator
        assert loaded.summary() == model.summary()
    assert (loaded.marginal_effects() == model.marginal_effects()).all()


@pytest.mark.slow(but=["zero-out-zero"])
@pytest.mark.parametrize(
    ("relation", "on_invalid"), [(Neighbouring.REPLACE_ONE, "raise"), (Neighbouring.ZERO_OUT, "zero")]
)
def test_replay_of_hostile_pairs(relation, on_invalid):
    create = partial(
        DPLogisticRegression, 20.0, 1e-3, inference=True, neighbouring=str(relation), on_invalid=on_invalid,
        classes=[0, 1],
    )  # fmt: skip
    tables = HostileTables(n=60, d=2, classes=[0, 1], invalid=on_invalid != "raise")
    assert create().plan(60, 2, classes=2).settings.kind == "linear-inference"
    found = audit_tables(partial(estimator_training, create), tables, relation, pairs=8, rng=np.random.default_rng(1))
    assert not found.alarm, (found.verdict, found.differences, found.examples)
    assert found.pairs == 8
    assert found.largest_ratio > 0.2
