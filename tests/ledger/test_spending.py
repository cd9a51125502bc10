from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gratis.accounting import calibrate_mu, calibrate_noise_std
from gratis.ledger import Ledger
from gratis.ledger.spending import Spending, check_affordable, spending, total_mu
from gratis.records.budget import Budget
from gratis.records.errors import BudgetExceededError, LedgerError
from gratis.records.events import Composition, GaussianRelease, PoissonSubsampledGaussian


def _release(mu: float, relation: str = "replace-one", **more) -> GaussianRelease:
    noise = calibrate_noise_std(mu=mu, sensitivity=1.0)
    return GaussianRelease(sensitivity=1.0, noise_std=noise, neighbouring=relation, **more)


_SUBSAMPLED = PoissonSubsampledGaussian(sampling_rate=0.01, noise_multiplier=2.0, steps=50, neighbouring="zero-out")


@given(st.floats(1e-6, 50.0))
def test_the_whole_budget_can_be_reserved_once_and_not_twice(mu):
    budget, event = Budget(mu=mu), _release(mu)
    check_affordable("d", budget, (), event)
    with pytest.raises(BudgetExceededError):
        check_affordable("d", budget, (event,), event)


@settings(max_examples=30)
@given(st.floats(0.01, 20.0), st.floats(-12, -1).map(lambda x: 10.0**x))
def test_the_whole_epsilon_delta_budget_can_be_reserved_once(epsilon, delta):
    budget = Budget(epsilon=epsilon, delta=delta)
    event = _release(calibrate_mu(budget))
    check_affordable("d", budget, (), event)
    assert spending(budget, (event,)).epsilon <= epsilon * (1 + 1e-9)
    more_noise_needed = GaussianRelease(
        sensitivity=1.0, noise_std=event.noise_std * (1 - 1e-6), neighbouring="replace-one"
    )
    with pytest.raises(BudgetExceededError):
        check_affordable("d", budget, (), more_noise_needed)


@given(st.floats(1e-3, 10.0), st.floats(0.0, 1.0))
def test_the_remainder_is_the_other_leg_of_the_triangle_rounded_down(total, share):
    spent = total * share
    left = Spending(mu=spent, epsilon=None).remaining_mu(Budget(mu=total))
    square = Fraction(total) ** 2 - Fraction(spent) ** 2
    assert Fraction(left) ** 2 <= square
    assert (Fraction(left) * (1 + Fraction(1, 2**50))) ** 2 >= square


@given(st.lists(st.floats(0.01, 0.5), max_size=8))
def test_what_is_admitted_stays_inside_in_exact_arithmetic(mus):
    budget, taken = Budget(mu=0.8), []
    for mu in mus:
        event = _release(mu)
        try:
            check_affordable("d", budget, tuple(taken), event)
        except BudgetExceededError:
            continue
        taken.append(event)
    exact = sum((Fraction(e.sensitivity) / Fraction(e.noise_std)) ** 2 for e in taken)
    assert exact <= Fraction(0.8) ** 2


def test_the_refusal_says_what_remains():
    budget = Budget(mu=0.268)
    with pytest.raises(BudgetExceededError) as caught:
        check_affordable("california", budget, (_release(0.24),), _release(0.2))
    assert str(caught.value) == (
        "the budget 'california' has mu 0.1193 left of 0.268 (replace-one); this run needs mu 0.2; nothing was reserved"
    )


@given(st.floats(0.05, 8.0), st.floats(0.05, 0.95))
def test_the_epsilon_that_the_refusal_names_fits_and_is_nearly_the_largest(epsilon, share):
    budget = Budget(epsilon=epsilon, delta=1e-6)
    spent = (_release(share * total_mu(budget)),)
    with pytest.raises(BudgetExceededError) as caught:
        check_affordable("d", budget, spent, _release(total_mu(budget)))
    named = float(re.search(r"a run with epsilon (\S+) at delta 1e-06 would still fit", str(caught.value))[1])

    def event(epsilon):
        return _release(0.999999 * total_mu(Budget(epsilon=epsilon, delta=1e-6)))

    check_affordable("d", budget, spent, event(named))
    with pytest.raises(BudgetExceededError):
        check_affordable("d", budget, spent, event(1.06 * named))


def test_a_miss_by_rounding_shows_the_digits_and_the_way_out():
    event = GaussianRelease(sensitivity=1.0, noise_std=1 / 0.268, neighbouring="replace-one")
    with pytest.raises(BudgetExceededError, match=r"mu 0\.268 left .* needs mu 0\.26800000.*slightly upward"):
        check_affordable("d", Budget(mu=0.268), (), event)


@pytest.mark.parametrize("budget", [Budget(mu=1e300), Budget(epsilon=1e300, delta=0.5)])
def test_no_noise_never_fits(budget):
    event = GaussianRelease(sensitivity=1.0, noise_std=0.0, neighbouring="replace-one")
    with pytest.raises(BudgetExceededError, match="needs mu inf"):
        check_affordable("d", budget, (), event)


def test_another_relation_and_an_empty_event_are_refused():
    with pytest.raises(LedgerError, match="stated under replace-one, the event under zero-out"):
        check_affordable("d", Budget(mu=1.0), (), _release(0.1, "zero-out"))
    with pytest.raises(LedgerError, match="releases nothing"):
        check_affordable("d", Budget(mu=1.0), (), Composition(()))


def test_subsampled_events_need_a_budget_in_epsilon_and_delta():
    with pytest.raises(LedgerError, match="state the budget as epsilon and delta"):
        check_affordable("d", Budget(mu=1.0, neighbouring="zero-out"), (), _SUBSAMPLED)


def test_subsampled_events_are_checked_by_the_curve_of_the_whole(tmp_path):
    pytest.importorskip("dp_accounting")
    gaussian = _release(0.1, "zero-out")
    one, two = (spending(Budget(epsilon=9.0, delta=1e-5, neighbouring="zero-out"), events).epsilon
                for events in ((_SUBSAMPLED,), (_SUBSAMPLED, gaussian)))  # fmt: skip
    assert 0 < one < two
    budget = Budget(epsilon=two, delta=1e-5, neighbouring="zero-out")
    ledger = Ledger.create(tmp_path / "l", {"d": budget})
    ledger.reserve("d", _SUBSAMPLED)
    ledger.reserve("d", gaussian, purpose="evaluation")
    status = ledger.status("d")
    assert (status.spent_mu, status.remaining_mu, status.adaptive_choice_covered) == (None, None, False)
    assert status.spent_epsilon == two
    with pytest.raises(BudgetExceededError, match=r"has spent epsilon .* at delta 1e-05 .*would be epsilon"):
        ledger.reserve("d", gaussian)
    assert ledger.verify().entries == 4
