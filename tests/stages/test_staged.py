"""What classifiers begin with: every share is fixed by public sizes."""

from __future__ import annotations

import math

import pytest

from gratis.private import memory
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.records.neighbouring import Neighbouring
from gratis.stages.staged import plan_stages

RELATIONS = list(Neighbouring)


def spent(plan):
    total = 0.0
    for leaf in plan.event.leaves():
        if isinstance(leaf, FullBatchDescent):
            step = leaf.neighbouring.sensitivity_factor * leaf.rounding_inflation / leaf.n_records
            total += leaf.steps * (step / leaf.noise_stds.values[0]) ** 2
        else:
            total += (leaf.sensitivity / leaf.noise_std) ** 2
    return math.sqrt(total)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("shape", [(5000, 5), (300, 80)])
@pytest.mark.parametrize("options", [{}, {"precondition": False}, {"standardise": False}])
def test_the_stages_spend_mu_and_no_more(relation, shape, options):
    plan = plan_stages(*shape, mu=0.3, neighbouring=relation, outputs=3, **options)
    assert spent(plan) <= 0.3
    assert spent(plan) == pytest.approx(0.3, rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_second_moments_are_left_out_where_they_say_nothing(relation):
    """The rule is κd > 4·nμ, from public facts alone; what is left out is not paid for."""
    wide = plan_stages(2000, 20_000, mu=0.3, neighbouring=relation, outputs=2)
    assert wide.second_moments is None
    assert wide.second_moments_mu == 0
    assert spent(wide) == pytest.approx(0.3, rel=1e-9)
    edge = round(4 * 500 * 0.3 / relation.sensitivity_factor)
    moments = [plan_stages(500, edge + off, mu=0.3, neighbouring=relation, outputs=2).second_moments for off in (-1, 1)]
    assert [found is None for found in moments] == [False, True]
    assert plan_stages(10**7, 20_000, mu=1.0, neighbouring=relation, outputs=2).second_moments is None


def test_memory_is_counted_from_public_sizes_and_refused_in_a_sentence(monkeypatch):
    sizes = {"mu": 0.3, "neighbouring": Neighbouring.ZERO_OUT, "outputs": 1}
    plan, forced = (plan_stages(2000, 20_000, **sizes, precondition=moments) for moments in (False, True))
    assert 1e9 < memory.fit_memory(2000, 20_000, second_moments=False) < 4e9
    assert memory.fit_memory(2000, 20_000, second_moments=True) > 20e9
    monkeypatch.setattr(memory, "available_memory", lambda: 4 * 10**9)
    plan.check_memory()
    with pytest.raises(GratisError, match=r"2000 rows of 20000 columns need about .* 4\.0 GB .* nothing was spent"):
        forced.check_memory()
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    forced.check_memory()
