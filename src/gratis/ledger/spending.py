"""Spending: what a data set's reservations cost together, and whether one more fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from gratis.accounting import account, calibrate_mu, epsilon_upper_bound, remaining_budget
from gratis.records.budget import Budget
from gratis.records.errors import BudgetExceededError, GratisError, LedgerError
from gratis.records.events import Composition, Event, GaussianRelease
from gratis.records.guarantees import GDPGuarantee, GDPWithFailureGuarantee, Guarantee

__all__ = [
    "Price",
    "Spending",
    "check_affordable",
    "largest_fitting",
    "price",
    "refuse_other_relation",
    "spending",
    "total_mu",
]

# A plan calibrated to exactly the whole budget may miss it by rounding alone; below this the message says so.
_ROUNDING = 1e-9


@lru_cache(maxsize=256)
def _guarantee(events: tuple[Event, ...]) -> Guarantee:
    return account(Composition(events))


@lru_cache(maxsize=256)
def total_mu(budget: Budget) -> float:
    """Return the largest GDP parameter inside the budget, rounded down."""
    return budget.mu if budget.mu is not None else calibrate_mu(budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What some events cost together, every number rounded up.

    `mu` is None when subsampled events or thresholded counts are among them (no Gaussian curve); `epsilon`, at the
    budget's δ, is None when the budget is stated in mu.
    """

    mu: float | None
    epsilon: float | None

    def fits(self, budget: Budget) -> bool:
        """Tell whether it is proved that the budget covers this: mu ≤ total mu, or epsilon(δ) ≤ ε."""
        if self.mu is not None and self.mu <= total_mu(budget):
            return True
        return self.epsilon is not None and budget.epsilon is not None and self.epsilon <= budget.epsilon

    def remaining_mu(self, budget: Budget) -> float | None:
        """Return √(total² − spent²), rounded down: the largest mu that one further event may have."""
        if self.mu is None:
            return None
        total = total_mu(budget)
        square = Fraction(total) ** 2 - Fraction(self.mu) ** 2
        if square <= 0:
            return 0.0
        root = total * math.sqrt(square / Fraction(total) ** 2)  # √square alone could overflow
        while Fraction(root) ** 2 > square:
            root = math.nextafter(root, 0.0)
        return root


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one run takes from a budget, and whether it fits; what is shown of it, everywhere."""

    mu: float | None
    epsilon: float | None
    delta: float | None
    fits: bool

    @property
    def words(self) -> str:
        """The price in words.

        >>> Price(mu=0.23688, epsilon=1.0, delta=1e-6, fits=True).words
        'epsilon 1 at delta 1e-06 (mu 0.2369)'
        """
        mu = None if self.mu is None else f"mu {self.mu:.4g}"
        if self.epsilon is None:
            return str(mu)
        return f"epsilon {self.epsilon:.4g} at delta {self.delta:g}" + ("" if mu is None else f" ({mu})")


def price(budget: Budget, spent: tuple[Event, ...], event: Event) -> Price:
    """Return what an event takes from a budget of which some is spent: epsilon is at the budget's delta, by itself."""
    alone, after = spending(budget, (event,)), spending(budget, (*spent, event))
    return Price(mu=alone.mu, epsilon=alone.epsilon, delta=budget.delta, fits=after.fits(budget))


def spending(budget: Budget, events: tuple[Event, ...]) -> Spending:
    """Return what the events cost together.

    **Guarantee.** For Gaussian events (mu is a number): the joint release of everything reserved is mu-GDP
    under the budget's relation, also when later events were chosen after seeing earlier releases [1]. For
    compositions with subsampled events or thresholded counts the curve holds when the events' parameters were fixed
    beforehand; a filter on a general privacy curve is not free of charge under adaptive choice [2].

    References: [1] Smith & Thakurta 2022. [2] Regehr et al. 2026.

    >>> from gratis.records.events import GaussianRelease
    >>> event = GaussianRelease(sensitivity=1.0, noise_std=4.0, neighbouring="replace-one")
    >>> round(spending(Budget(mu=1.0), (event, event, event, event)).mu, 9)
    0.5
    """
    if not events:
        return Spending(mu=0.0, epsilon=None if budget.delta is None else 0.0)
    guarantee = _guarantee(events)
    mu = guarantee.mu if isinstance(guarantee, GDPGuarantee) else None
    if mu is None and budget.delta is None:
        raise LedgerError(
            "a budget in mu cannot hold subsampled events or thresholded counts, whose privacy curve is not Gaussian; "
            "state the budget as epsilon and delta; nothing was reserved"
        )
    epsilon = None if budget.delta is None else epsilon_upper_bound(guarantee, delta=budget.delta)
    return Spending(mu=mu, epsilon=epsilon)


def refuse_other_relation(name: str, budget: Budget, event: Event) -> None:
    """Refuse an event that is stated under another relation than the budget: their costs do not add up."""
    relation = event.neighbouring
    if relation is None:
        raise LedgerError("an event that releases nothing needs no reservation; nothing was reserved")
    if relation is not budget.neighbouring:
        raise LedgerError(
            f"the budget {name!r} is stated under {budget.neighbouring}, the event under {relation}; "
            "plan the run under the budget's relation; nothing was reserved"
        )


def check_affordable(name: str, budget: Budget, spent: tuple[Event, ...], event: Event) -> None:
    """Refuse an event that the budget is not proved to cover together with everything already reserved."""
    refuse_other_relation(name, budget, event)
    after = spending(budget, (*spent, event))
    if after.fits(budget):
        return
    before, alone = spending(budget, spent), spending(budget, (event,))
    left, most = before.remaining_mu(budget), largest_fitting(budget, spent) if spent else None
    fits = f"; a run with epsilon {most:.3g} at delta {budget.delta:g} would still fit" if most else ""
    if left is not None and alone.mu is not None:
        left_text, need_text = _tell_apart(left, alone.mu)
        raise BudgetExceededError(
            f"the budget {name!r} has mu {left_text} left of {total_mu(budget):.4g} ({budget.neighbouring}); "
            f"this run needs mu {need_text}; nothing was reserved{fits}"
            + ("; calibrate the noise slightly upward" if alone.mu <= left * (1 + _ROUNDING) else "")
        )
    total_text, after_text = _tell_apart(budget.epsilon or 0.0, after.epsilon or math.inf)
    raise BudgetExceededError(
        f"the budget {name!r} has spent epsilon {before.epsilon or 0.0:.4g} of {total_text} "
        f"at delta {budget.delta:g} ({budget.neighbouring}); "
        f"with this run it would be epsilon {after_text}; nothing was reserved{fits}"
    )


@lru_cache(maxsize=256)
def largest_fitting(budget: Budget, spent: tuple[Event, ...]) -> float | None:
    """The largest epsilon of one more Gaussian run at the budget's delta, in three digits, rounded down.

    None where that is not known: the budget is in mu, or subsampled events are among what was spent.
    """
    if budget.epsilon is None or budget.delta is None:
        return None
    if not spent:
        return budget.epsilon
    guarantee = _guarantee(spent)
    if not isinstance(guarantee, GDPGuarantee | GDPWithFailureGuarantee):
        return None
    try:
        rest = remaining_budget(budget, Composition(spent)).epsilon or 0.0
    except GratisError:  # nothing is left
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(rest)) - 2) if rest > 0 else 1.0
    for steps in range(math.floor(rest / digit), 0, -1):
        epsilon = float(f"{steps * digit:.3g}")
        mu = calibrate_mu(Budget(epsilon=epsilon, delta=budget.delta, neighbouring=budget.neighbouring))
        event = GaussianRelease(sensitivity=1.0, noise_std=1.0 / mu, neighbouring=budget.neighbouring)
        if spending(budget, (*spent, event)).fits(budget):
            return epsilon
        if steps < rest / digit - 3:  # what failures of levels take of delta is not worth a longer search
            break
    return 0.0


def _tell_apart(smaller: float, larger: float) -> tuple[str, str]:
    """Write two numbers with as few digits as show that they differ."""
    texts = [(f"{smaller:.{digits}g}", f"{larger:.{digits}g}") for digits in range(4, 18)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])
