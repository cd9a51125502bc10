"""The network plan: inside its budget, from public facts, by rules that scale as they say."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from gratis.accounting import account, calibrate_mu, epsilon_upper_bound
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
