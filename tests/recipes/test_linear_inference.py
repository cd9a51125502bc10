"""Coefficients with standard errors: what is planned is released, errors are as large as stated, or withheld."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from gratis import DPLinearRegression, plan
from gratis.accounting import calibrate_mu
from gratis.recipes.linear import Linear
from gratis.recipes.linear_inference import LinearInference, least_rows
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.rows.streaming import ArrayRows

SLOPES = np.array([0.4, -20.0])
TRUTH = np.array([7.0, *SLOPES])


def table(seed, n=1500):
    """Slopes in odd units, errors that depend on the first column."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)) * [25.0, 0.5] + [100.0, 2.0]
    errors = rng.standard_normal(n) * (0.3 + np.abs(X[:, 0] - 100.0) / 25.0) * 8
    return X, X @ SLOPES + TRUTH[0] + errors


@cache
def fitted(seed):
    model = DPLinearRegression(0.7, 1e-6, inference=True, noise_seed=seed, insecure_reproducible=True)
    return model.fit(*table(seed))


@pytest.mark.statistical(failure=0.01)
@pytest.mark.slow
def test_errors_are_as_large_as_stated_and_sampling_alone_would_not_explain_them():
    models = [fitted(seed) for seed in range(16)]
    errors = np.array([model.params - TRUTH for model in models])
    own = np.square(errors / [model.bse for model in models]).mean()
    sampling = [np.diag(model.cov_params()) * (1 - model.inference_.privacy_share) for model in models]
    assert 0.5 < own < 1.7, own
    # Negative control: the same check on a covariance that forgets privacy.
    assert np.mean(np.square(errors) / sampling) > 1.9


def test_the_event_is_a_function_of_public_facts_and_is_what_runs():
    model = fitted(0)
    planned = plan("linear", rows=1500, columns=2, epsilon=0.7, delta=1e-6, inference=True)
    assert model.certificate_.event == model.plan_.event == planned.event
    assert planned.settings.stages[-5:] == (
        "mean size of residuals", "Jacobian of the step", "gradient of the step", "outer squares of gradients",
        "level of the step",
    )  # fmt: skip
    width = planned.prediction.details["interval_width_over_ols"]
    assert 1.5 < width < 5
    assert f"{width:.3g} times as wide" in planned.explain()


@pytest.mark.slow(but=["False-replace-one"])
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("standardise", [True, False])
def test_the_releases_spend_mu_and_no_more(relation, standardise):
    budget = Budget(epsilon=1.0, delta=1e-5, neighbouring=relation)
    recipe = LinearInference(Facts(rows=20_000, columns=5), budget, Reading(standardise=standardise))
    total = 0.0
    for leaf in recipe.plan.event.leaves():
        if hasattr(leaf, "steps"):
            step = leaf.neighbouring.sensitivity_factor * leaf.rounding_inflation / leaf.n_records
            total += leaf.steps * (step / leaf.noise_stds.values[0]) ** 2
        else:
            total += (leaf.sensitivity / leaf.noise_std) ** 2
    assert 0.999 * calibrate_mu(budget) < total**0.5 <= calibrate_mu(budget)


def test_below_the_public_rule_nothing_is_spent_on_intervals():
    budget = Budget(epsilon=1.0, delta=1e-6, neighbouring=Neighbouring.REPLACE_ONE)
    least = least_rows(2, budget)
    facts = Facts(rows=least - 1, columns=2)
    below = LinearInference(facts, budget, Reading())
    assert below.plan.event == Linear(facts, budget, Reading()).plan.event
    assert LinearInference(Facts(rows=least, columns=2), budget, Reading()).withheld is None
    X, y = table(0, n=least - 1)
    model = DPLinearRegression(1.0, 1e-6, inference=True, noise_seed=0, insecure_reproducible=True).fit(X, y)
    plain = DPLinearRegression(1.0, 1e-6, noise_seed=0, insecure_reproducible=True).fit(X, y)
    assert (model.predict(X) == plain.predict(X)).all()
    assert f"about {least} rows would do" in model.summary()
    assert model.plan_.reasons[0] == model.summary()
    with pytest.raises(GratisError, match="withheld"):
        model.conf_int()
    with pytest.raises(GratisError, match="withheld"):
        _ = model.bse


@pytest.mark.slow
def test_columns_that_repeat_each_other_are_withheld_by_what_was_released():
    X, y = table(0)
    twice = np.column_stack([X, X[:, 0]])
    model = DPLinearRegression(0.7, 1e-6, inference=True, noise_seed=0, insecure_reproducible=True).fit(twice, y)
    assert "varies less than the noise" in model.summary()
    assert model.plan_.prediction.details["interval_width_over_ols"] < 8  # the plan could not know
    assert model.score(twice, y) > fitted(0).score(X, y) - 0.05


@pytest.mark.slow
def test_predictions_are_those_of_the_plain_fit_or_better():
    gained = [
        fitted(seed).score(*table(100 + seed))
        - DPLinearRegression(0.7, 1e-6, noise_seed=seed, insecure_reproducible=True)
        .fit(*table(seed))
        .score(*table(100 + seed))
        for seed in range(4)
    ]
    assert np.mean(gained) > -0.005


def test_a_stream_gives_the_same_bits():
    X, y = table(0)
    streamed = DPLinearRegression(0.7, 1e-6, inference=True, noise_seed=0, insecure_reproducible=True).fit(
        ArrayRows(X, y)
    )
    assert (streamed.params == fitted(0).params).all()
    assert (streamed.cov_params() == fitted(0).cov_params()).all()
    assert (streamed.coef_ == fitted(0).coef_).all()
