"""The network plan: inside its budget, from public facts, by rules that scale as they say."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from gratis.accounting import account, calibrate_mu, epsilon_upper_bound
from gratis.planning.bounds.initialization import layer_variances
from gratis.planning.networks import plan_network
from gratis.records.budget import Budget
from gratis.records.errors import GratisError

BUDGET = Budget(epsilon=1.0, delta=1e-5)


def test_the_event_meets_the_budget() -> None:
    for budget in (BUDGET, Budget(epsilon=4.0, delta=1e-6, neighbouring="zero-out"), Budget(mu=0.7)):
        plan = plan_network(20_000, 100, 5, budget=budget)
        assert plan.event.neighbouring is budget.neighbouring
        assert calibrate_mu(budget) * (1 - 1e-6) < account(plan.event).mu <= calibrate_mu(budget)
    assert epsilon_upper_bound(account(plan_network(20_000, 100, 5, budget=BUDGET).event), delta=1e-5) <= 1.0


def test_predicted_noise_is_the_noise_of_the_planned_steps() -> None:
    plan = plan_network(20_000, 100, 5, budget=BUDGET, steps=40)
    settings = plan.settings
    rates = 2 * settings.mean_rate * (1 - (np.arange(40) + 0.5) / 40)
    std = math.sqrt(np.sum((rates * settings.clip_norm) ** 2)) * plan.event.noise_stds.values[0]
    assert std / math.sqrt(2 / 100) == pytest.approx(plan.prediction.value, rel=1e-3)
    assert np.sum(rates) * settings.clip_norm == pytest.approx(settings.total_rate)


def test_steps_do_not_change_the_accumulated_noise() -> None:
    plans = [plan_network(20_000, 100, 5, budget=BUDGET, steps=steps) for steps in (20, 200)]
    assert plans[0].settings.total_rate == pytest.approx(plans[1].settings.total_rate, rel=1e-9)


def test_widths_follow_the_request() -> None:
    plan = plan_network(100, 20, 3, budget=BUDGET, width=50, depth=2)
    assert plan.settings.widths == (20, 50, 50, 3)
    assert plan.prediction.details["parameters"] == 20 * 50 + 50 * 50 + 50 * 3


@pytest.mark.parametrize(
    "bad", [{"n_records": 0}, {"n_inputs": 0}, {"n_classes": 1}, {"width": 0}, {"depth": 0}, {"steps": 0}]
)
def test_bad_sizes_are_refused(bad: dict) -> None:
    arguments = {"n_records": 100, "n_inputs": 20, "n_classes": 3} | bad
    with pytest.raises(GratisError):
        plan_network(**arguments, budget=BUDGET)


def test_planning_needs_no_torch() -> None:
    code = "import sys, gratis.planning.networks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"width": 10**12}, "lower width or depth"),
        ({"width": 10**30}, "lower width or depth"),
        ({"width": 1, "depth": 10**30}, "depth must be at most 1000"),
        ({"steps": 10**30}, "steps must be at most"),
    ],
)
def test_absurd_sizes_are_refused_at_once(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(GratisError, match=words):
        plan_network(20_000, 100, 5, budget=BUDGET, **sizes)


def test_initialisations_keep_the_rules_in_their_own_units() -> None:
    budget = Budget(mu=0.5)
    plans = {init: plan_network(5000, 50, 3, budget=budget, width=64, depth=3, init=init).settings
             for init in ("he", "lecun", "xavier", "ntk")}  # fmt: skip
    he, lecun = plans["he"], plans["lecun"]
    assert plan_network(5000, 50, 3, budget=budget, width=64, depth=3).settings == he
    # LeCun's weights are √2 smaller: four layers of them have gradients 2^{-3/2} as long.
    assert lecun.clip_norm / he.clip_norm == pytest.approx(2**-1.5)
    assert lecun.total_rate / he.total_rate == pytest.approx(2**-0.5)
    assert len({one.clip_norm for one in plans.values()}) == 4
    with pytest.raises(GratisError, match="unknown initialization"):
        plan_network(5000, 50, 3, budget=budget, init="zeros")


@pytest.mark.parametrize("init", ["he", "lecun", "xavier", "ntk"])
def test_a_network_starts_with_the_weights_of_its_initialisation(init: str) -> None:
    pytest.importorskip("torch")
    from gratis import DPMLPClassifier
    from gratis.records.facts import Facts

    model = DPMLPClassifier(width=400, depth=2, init=init, epsilon=1.0, delta=1e-5, preprocessing="none")
    module = model._recipe(Facts(rows=1000, columns=300, classes=5)).prepare()
    found = [float(weight.detach().var()) for weight in module.parameters()]
    assert found == pytest.approx(layer_variances(init, (300, 400, 400, 5)), rel=0.12)


def test_steps_and_the_papers_noise_are_the_users_if_given() -> None:
    from gratis import DPMLPClassifier
    from gratis.records.settings import Descent

    def planned(**choices: object) -> object:
        return DPMLPClassifier(epsilon=1.0, delta=1e-5, preprocessing="none", **choices).plan(1000, 20, classes=2)

    plain, paper = planned(), planned(descent=Descent(noise="paper"))
    assert planned(descent=Descent(steps=30)).settings.steps == 30
    assert planned(steps=30).settings.steps == 30
    assert 2 < account(plain.event).mu / account(paper.event).mu < 4
    assert paper.settings.total_rate < plain.settings.total_rate / 2
