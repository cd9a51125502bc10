"""Predictions for the page are those of `gratis.plan`; what an attacker can tell is the exact trade-off, rounded up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from scipy.stats import norm

import gratis
from gratis.records.errors import GratisError
from gratis.studio.forecasts import EPSILONS, Asked, Forecasts
from gratis.studio.questions import attacker, budget_mu, equivalents, needed

ASKED = Asked("additive", 5000, 10, 2, 1.0, 1e-6, "replace-one")


@pytest.fixture(scope="module")
def forecasts() -> Iterator[Forecasts]:
    found = Forecasts()
    yield found
    found.close()


def test_the_picture_is_that_of_the_plans(forecasts: Forecasts) -> None:
    first = forecasts.picture(ASKED, patience=0.0)
    assert set(first["models"]) == {"logistic", "additive", "random-features", "mlp"}
    assert forecasts.one(replace(ASKED, epsilon=2.0), patience=600.0) is not None
    found = first
    while any(model["pending"] for model in found["models"].values()):
        time.sleep(0.05)
        found = forecasts.picture(ASKED)
    for name in ("logistic", "additive"):
        made = gratis.plan(name, rows=5000, columns=10, classes=2, epsilon=1.0, delta=1e-6)
        assert made.cost is not None
        told = found["models"][name]
        assert told["chosen"]["cost"] == dict(zip(("value", "low", "high", "unit"), made.cost, strict=True))
        assert [point["epsilon"] for point in told["points"]] == list(EPSILONS)
        assert [p["value"] for p in told["points"] if p["epsilon"] == 1.0] == [made.cost[0]]
    assert found["models"]["random-features"]["chosen"]["cost"] is None

    # The answer to "how many rows, which epsilon" keeps the loss that was asked for, and is not far above the least.
    answer = needed(forecasts, replace(ASKED, model="logistic"), 0.004)
    for asked in (replace(ASKED, rows=answer["rows"]), replace(ASKED, epsilon=answer["epsilon"])):
        kept = forecasts.one(replace(asked, model="logistic"))
        assert kept is not None
        assert kept["cost"]["value"] <= 0.004
    fewer = forecasts.one(replace(ASKED, model="logistic", rows=int(0.8 * answer["rows"])))
    assert fewer is not None
    assert fewer["cost"]["value"] > 0.004
    with pytest.raises(GratisError, match="not predicted"):
        needed(forecasts, replace(ASKED, model="random-features"), 0.01)
    with pytest.raises(GratisError, match="between"):
        needed(forecasts, ASKED, 0.0)
    refusal = forecasts.one(replace(ASKED, model="linear"))
    assert refusal is not None
    assert "unknown model" in refusal["error"]


def test_a_rough_figure_says_so_and_gives_way_to_the_plan(forecasts: Forecasts) -> None:
    asked = Asked("random-features", 2000, 20, None, 1.0, 1e-6, "replace-one")
    rough = [forecasts.one(replace(asked, epsilon=epsilon, rough=True), patience=600.0) for epsilon in (0.3, 1.0, 8.0)]
    assert all(answer is not None and answer["approximate"] for answer in rough)
    costs = [answer["cost"]["value"] for answer in rough if answer is not None]
    assert costs == sorted(costs, reverse=True)
    shown = forecasts.picture(asked, patience=0.0)["models"]["random-features"]
    assert shown["chosen"].get("approximate") or shown["chosen"]["words"]  # rough, or planned meanwhile
    exact = forecasts.one(asked, patience=600.0)
    assert exact is not None
    assert "approximate" not in exact
    told = forecasts.picture(asked, patience=0.0)["models"]["random-features"]
    made = gratis.plan("random-features", rows=2000, columns=20, epsilon=1.0, delta=1e-6)
    assert made.cost is not None
    assert told["chosen"]["cost"]["value"] == made.cost[0]
    assert [point["approximate"] for point in told["points"] if point["epsilon"] == 1.0] == [False]
    assert costs[1] / 5 < made.cost[0] < costs[1] * 5


@pytest.mark.parametrize(
    "change", [{"rows": 1}, {"rows": 10**10}, {"columns": 0}, {"epsilon": 1e9}, {"delta": 1.0}, {"classes": 1}]
)
def test_what_no_planner_takes_is_refused_at_once(change: dict[str, float]) -> None:
    with pytest.raises(GratisError):
        replace(ASKED, **change).checked()  # type: ignore[arg-type]


@pytest.mark.slow(but=["1"])
@pytest.mark.parametrize("persons", [1, 4])
def test_the_attacker_is_bounded_by_the_trade_off(persons: int) -> None:
    mu = budget_mu(ASKED)
    found = attacker(mu, "replace-one", delta=1e-6, rows_per_person=persons)
    whole = mu * persons
    assert found["advantage"] == pytest.approx(2 * norm.cdf(whole / 2) - 1, rel=1e-9)
    for alarms, recognised in found["curve"][1:-1]:
        assert recognised >= norm.sf(norm.isf(alarms) - whole)
        assert recognised == pytest.approx(norm.sf(norm.isf(alarms) - whole), rel=1e-9)
    stated = float(found["right"].removesuffix(" %")) / 100
    assert (1 + found["advantage"]) / 2 <= stated <= (1 + found["advantage"]) / 2 + 0.011
    assert found["right"] in found["words"][0]
    if persons == 1:
        assert found["person_epsilon"] <= 1.0 + 1e-6


@pytest.mark.slow
def test_the_equivalents_are_what_they_say() -> None:
    found = equivalents(replace(ASKED, neighbouring="zero-out"))
    assert found["command"] == (
        "gratis plan additive --n 5000 --d 10 --classes 2 --epsilon 1 --delta 1e-06 --neighbouring zero-out"
    )
    names: dict[str, object] = {}
    exec(found["python"].split("model =")[0], names)
    plan = names["plan"]
    assert isinstance(plan, gratis.Plan)
    assert plan.budget.epsilon == 1.0
    assert str(plan.budget.neighbouring) == "zero-out"
