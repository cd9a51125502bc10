"""Event → guarantee: the one place where what was done becomes what is proved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from gratis.accounting.gdp import gdp_delta_upper_bound, gdp_epsilon_upper_bound
from gratis.accounting.iteration import amplification_by_iteration
from gratis.accounting.subsampling import pld_delta_upper_bound, pld_epsilon_upper_bound
from gratis.accounting.zcdp import renyi_epsilon_upper_bound, zcdp_delta_upper_bound, zcdp_epsilon_upper_bound
from gratis.numerics.outward import round_down, round_up
from gratis.records.budget import Budget
from gratis.records.checks import check_count, check_delta, check_non_negative
from gratis.records.errors import GratisError
from gratis.records.events import (
    Composition,
    Event,
    FullBatchDescent,
    GaussianRelease,
    LeafEvent,
    OnePassIteration,
    Parallel,
    PoissonSubsampledGaussian,
    ThresholdedCounts,
)
from gratis.records.guarantees import (
    ApproximateDPGuarantee,
    GDPGuarantee,
    GDPWithFailureGuarantee,
    Guarantee,
    PLDGuarantee,
    RenyiGuarantee,
    ZCDPGuarantee,
)
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import common_runs

__all__ = [
    "account",
    "compose_mu",
    "delta_upper_bound",
    "epsilon_upper_bound",
    "failure_probability",
    "gdp_to_renyi",
    "gdp_to_zcdp",
    "group_privacy",
    "leaf_mu",
    "sequential_parts",
]


def leaf_mu(event: LeafEvent | Parallel) -> float:
    """GDP parameter of a single Gaussian event, or of such on disjoint parts; rounded up, ∞ where noise is missing.

    GaussianRelease: √count·Δ/s. FullBatchDescent: √Σ_t(κη_tC/(n s_t))². OnePassIteration: `amplification_by_iteration`.
    ThresholdedCounts: √counts/s; its failures are `failure_probability`. Parallel: the larger.
    """
    if isinstance(event, Parallel):
        return _gaussian(event)[0]
    if isinstance(event, GaussianRelease):
        ratio = _ratio(event.sensitivity, event.noise_std)
        return 0.0 if ratio == 0 else round_up(math.sqrt(event.count) * ratio, ulps=8)
    if isinstance(event, ThresholdedCounts):
        return round_up(math.sqrt(event.counts_moved) / event.noise_std, ulps=8)
    if isinstance(event, OnePassIteration):
        return amplification_by_iteration(event)
    if isinstance(event, FullBatchDescent):
        per_record = (
            event.neighbouring.sensitivity_factor * event.clip_norm * event.rounding_inflation / event.n_records
        )
        ends, (rates, noise) = common_runs(event.learning_rates, event.noise_stds)
        shifts = rates * per_record
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            squares = np.where(shifts > 0, (shifts / noise) ** 2, 0.0) * np.diff(ends, prepend=0)
        if not np.all(squares < 1e290):  # where their sum could overflow, nothing is protected anyway
            return math.inf
        total = math.fsum(squares.tolist())
        return 0.0 if total == 0 else round_up(math.sqrt(total), ulps=8)
    raise GratisError(f"an event of kind {event.kind!r} has no Gaussian-DP parameter")


def account(spent: Event | Budget | Sequence[Event]) -> Guarantee:
    """Return what an event proves, or several together: GDP where it is exact, else the numerical privacy curve.

    Of a budget: what a release that stays inside proves.

    **Guarantee**: an upper bound under the event's own neighbouring relation. Later events may depend on what
    earlier ones released; for GDP their noise may as well (Smith & Thakurta 2022). With a subsampled event inside,
    all settings must have been fixed beforehand. Events on disjoint parts cost the larger of them
    (docs/proofs/parallel.md).

    >>> account(GaussianRelease(sensitivity=1.0, noise_std=4.0, neighbouring="zero-out"))
    GDPGuarantee(neighbouring=<Neighbouring.ZERO_OUT: 'zero-out'>, mu=0.25...)
    """
    if isinstance(spent, Budget):
        return _promised(spent)
    event = spent if isinstance(spent, Event) else Composition(tuple(spent))
    leaves = event.leaves()
    if not leaves:
        return GDPGuarantee(mu=0.0, neighbouring=Neighbouring.REPLACE_ONE)
    relation = leaves[0].neighbouring
    fails = any(isinstance(leaf, ThresholdedCounts) for leaf in leaves)
    if any(isinstance(leaf, PoissonSubsampledGaussian) for leaf in leaves):
        if fails:
            raise GratisError("thresholded counts cannot be accounted together with subsampled events")
        return PLDGuarantee(event=event, neighbouring=relation)
    mu, failure = _gaussian(event)
    if fails:
        return GDPWithFailureGuarantee(mu=mu, failure=failure, neighbouring=relation)
    return GDPGuarantee(mu=mu, neighbouring=relation)


def sequential_parts(event: Event) -> tuple[LeafEvent | Parallel, ...]:
    """What an event composes one after the other: single events, and such as run on disjoint parts."""
    if isinstance(event, Composition):
        return tuple(part for one in event.events for part in sequential_parts(one))
    return (event,)


def _gaussian(event: Event) -> tuple[float, float]:
    """μ and the probability of failure of Gaussian events: added up in sequence, the larger of disjoint parts."""
    if isinstance(event, Parallel):
        parts = [_gaussian(one) for one in event.events]
        return max((mu for mu, _ in parts), default=0.0), max((failure for _, failure in parts), default=0.0)
    if not isinstance(event, Composition):
        return leaf_mu(event), failure_probability(event) if isinstance(event, ThresholdedCounts) else 0.0
    parts = [_gaussian(part) for part in sequential_parts(event)]
    failure = math.fsum(failure for _, failure in parts)
    mu = parts[0][0] if len(parts) == 1 else compose_mu([mu for mu, _ in parts])
    return mu, 0.0 if failure == 0 else min(1.0, round_up(failure))


def failure_probability(event: ThresholdedCounts) -> float:
    """Probability that a value of one record alone is published, over all that it may have; rounded up.

    counts · (1 − Φ((T − 1)/s)), docs/proofs/private-levels.md. Rounding of releases to their grid of 2⁻²⁰ of the noise
    moves the threshold by less than 2⁻²⁰ s, and what stands for the normal has a relative error of 2⁻³² a cell: both
    are covered by the constants.
    """
    distance = (event.threshold - 1) / event.noise_std - 2.0**-19
    return min(1.0, event.counts_moved * float(ndtr(-distance)) * (1 + 2.0**-20))


def _promised(budget: Budget) -> Guarantee:
    if budget.mu is not None:
        return GDPGuarantee(mu=budget.mu, neighbouring=budget.neighbouring)
    assert budget.epsilon is not None
    assert budget.delta is not None
    return ApproximateDPGuarantee(epsilon=budget.epsilon, delta=budget.delta, neighbouring=budget.neighbouring)


def compose_mu(mus: list[float]) -> float:
    """√Σμ², rounded up.

    >>> f"{compose_mu([3.0, 4.0]):.6f}"
    '5.000000'
    """
    values = [check_non_negative("mu", mu, allow_infinite=True) for mu in mus]
    if any(map(math.isinf, values)):
        return math.inf
    total = math.hypot(*values)
    return 0.0 if total == 0 else round_up(total, ulps=4)


def epsilon_upper_bound(guarantee: Guarantee, *, delta: float) -> float:
    """ε at δ that the guarantee implies; ∞ where it implies none."""
    delta = check_delta(delta)
    match guarantee:
        case GDPGuarantee():
            return gdp_epsilon_upper_bound(mu=guarantee.mu, delta=delta)
        case GDPWithFailureGuarantee():
            rest = round_down(delta - guarantee.failure)
            return gdp_epsilon_upper_bound(mu=guarantee.mu, delta=rest) if rest > 0 else math.inf
        case ZCDPGuarantee():
            return zcdp_epsilon_upper_bound(rho=guarantee.rho, delta=delta)
        case RenyiGuarantee():
            return renyi_epsilon_upper_bound(order=guarantee.order, renyi_epsilon=guarantee.epsilon, delta=delta)
        case PLDGuarantee():
            return pld_epsilon_upper_bound(guarantee.event, delta=delta)
        case ApproximateDPGuarantee():
            return guarantee.epsilon if delta >= guarantee.delta else math.inf
    raise GratisError("a KL guarantee does not imply (epsilon, delta)-DP")


def delta_upper_bound(guarantee: Guarantee, *, epsilon: float) -> float:
    """δ at ε that the guarantee implies; 1 where it implies none."""
    epsilon = check_non_negative("epsilon", epsilon)
    match guarantee:
        case GDPGuarantee():
            return gdp_delta_upper_bound(mu=guarantee.mu, epsilon=epsilon)
        case GDPWithFailureGuarantee():
            return min(1.0, round_up(guarantee.failure + gdp_delta_upper_bound(mu=guarantee.mu, epsilon=epsilon)))
        case ZCDPGuarantee():
            return zcdp_delta_upper_bound(rho=guarantee.rho, epsilon=epsilon)
        case PLDGuarantee():
            return pld_delta_upper_bound(guarantee.event, epsilon=epsilon)
        case ApproximateDPGuarantee():
            return guarantee.delta if epsilon >= guarantee.epsilon else 1.0
        case RenyiGuarantee():
            # Invert the conversion at this order: ln δ = (α−1)(ε′ + ln(1−1/α) − ε) − ln α.
            excess = guarantee.order - 1
            if math.isinf(guarantee.epsilon):
                return 1.0
            shrink = math.log1p(-1 / guarantee.order)
            terms = (
                excess * guarantee.epsilon,
                excess * shrink,
                -excess * epsilon,
                -math.log(guarantee.order),
            )
            exponent = math.fsum(terms) + 16 * 2.0**-53 * sum(map(abs, terms))
            return min(1.0, round_up(math.exp(min(exponent, 0.0)), ulps=8))
    raise GratisError("a KL guarantee does not imply (epsilon, delta)-DP")


def gdp_to_zcdp(guarantee: GDPGuarantee) -> ZCDPGuarantee:
    """μ-GDP ⇒ (μ²/2)-zCDP."""
    rho = 0.0 if guarantee.mu == 0 else round_up(0.5 * guarantee.mu**2)
    return ZCDPGuarantee(rho=rho, neighbouring=guarantee.neighbouring)


def gdp_to_renyi(guarantee: GDPGuarantee, *, order: float) -> RenyiGuarantee:
    """μ-GDP ⇒ (α, αμ²/2)-Rényi DP."""
    value = 0.0 if guarantee.mu == 0 else round_up(0.5 * order * guarantee.mu**2)
    return RenyiGuarantee(order=order, epsilon=value, neighbouring=guarantee.neighbouring)


def group_privacy(guarantee: GDPGuarantee, *, rows_per_person: int) -> GDPGuarantee:
    """Several rows a person: m rows are (m·μ)-GDP."""
    rows = check_count("rows_per_person", rows_per_person)
    mu = 0.0 if guarantee.mu == 0 else round_up(rows * guarantee.mu)
    return GDPGuarantee(mu=mu, neighbouring=guarantee.neighbouring)


def _ratio(sensitivity: float, noise_std: float) -> float:
    if sensitivity == 0:
        return 0.0
    return math.inf if noise_std == 0 else round_up(sensitivity / noise_std)
