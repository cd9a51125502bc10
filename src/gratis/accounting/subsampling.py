"""Poisson-subsampled events through dp-accounting's privacy loss distributions (Doroshenko et al. 2022).

No accountant is written here: the library is imported when it is needed and brought by the extra `poisson`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from gratis.records.events import Event, PoissonSubsampledGaussian
from gratis.records.extras import missing_extra
from gratis.records.neighbouring import Neighbouring

__all__ = ["pld_delta_upper_bound", "pld_epsilon_upper_bound"]

_DISCRETISATION = 1e-4
# Beyond this μ, mean loss or so many steps the loss distribution no longer fits into memory; such an event, which a
# certificate of unknown origin may state, counts as no privacy at all.
_HOPELESS_MU, _HOPELESS_STEP_MU, _HOPELESS_LOSS = 50.0, 10.0, 1000.0
_MOST_STEPS = 10**6
# The library's numbers overflow outside.
_MOST_NOISE, _LEAST_RATE = 1e6, 1e-12


def _library() -> Any:
    try:
        import dp_accounting
        from dp_accounting import pld  # noqa: F401  the submodule must be loaded
    except ImportError:
        raise missing_extra("subsampled training is accounted with dp-accounting", "poisson") from None
    return dp_accounting


@lru_cache(maxsize=32)
def _accountant(event: Event) -> Any:
    """Compose the event in a PLD accountant under the event's own relation, never the library's default."""
    from gratis.accounting.composition import compose_mu, leaf_mu, sequential_parts

    library = _library()
    relation = event.leaves()[0].neighbouring
    theirs = library.NeighboringRelation
    accountant = library.pld.PLDAccountant(
        theirs.REPLACE_ONE if relation is Neighbouring.REPLACE_ONE else theirs.REPLACE_SPECIAL,
        value_discretization_interval=_DISCRETISATION,
    )
    mus: list[float] = []
    for leaf in sequential_parts(event):
        if isinstance(leaf, PoissonSubsampledGaussian):
            if _is_hopeless(leaf):
                accountant.compose(library.GaussianDpEvent(0.0))
                continue
            noise, rate = min(leaf.noise_multiplier, _MOST_NOISE), max(leaf.sampling_rate, _LEAST_RATE)
            accountant.compose(library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(noise)), leaf.steps)
        else:
            mus.append(leaf_mu(leaf))
    mu = compose_mu(mus)
    if mu > 0:
        # Their replace-one doubles the sensitivity of a Gaussian event; μ has that factor already.
        accountant.compose(library.GaussianDpEvent(relation.sensitivity_factor / mu if mu < _HOPELESS_MU else 0.0))
    return accountant


def _is_hopeless(leaf: PoissonSubsampledGaussian) -> bool:
    """Whether accounting for the event would not end, by two estimates of the mean loss of all its steps."""
    sensitivity = leaf.neighbouring.sensitivity_factor
    if sensitivity > leaf.noise_multiplier * _HOPELESS_STEP_MU or leaf.steps > _MOST_STEPS:
        return True
    single = sensitivity / leaf.noise_multiplier
    loss = 0.5 * min(single * single, leaf.sampling_rate * math.expm1(single * single))
    return leaf.steps * leaf.sampling_rate * loss > _HOPELESS_LOSS


def pld_epsilon_upper_bound(event: Event, *, delta: float) -> float:
    """ε of the event at δ; pessimistic discretisation, NaN becomes ∞."""
    return _closed(float(_accountant(event).get_epsilon(delta)), math.inf)


def pld_delta_upper_bound(event: Event, *, epsilon: float) -> float:
    """δ of the event at ε; pessimistic discretisation, NaN becomes 1."""
    return min(1.0, _closed(float(_accountant(event).get_delta(epsilon)), 1.0))


def _closed(value: float, worst: float) -> float:
    return worst if math.isnan(value) or value < 0 else value
