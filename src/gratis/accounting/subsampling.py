"""Poisson-subsampled events through dp-accounting's privacy loss distributions (spec 2.5).

No accountant is written here: the library is imported when it is needed and brought by the `nn` extra.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from gratis.specs.errors import MissingExtraError
from gratis.specs.events import Composition, Event, LeafEvent, PoissonSubsampledGaussian
from gratis.specs.neighbouring import Neighbouring

__all__ = ["pld_delta_upper_bound", "pld_epsilon_upper_bound"]

_DISCRETISATION = 1e-4
# Beyond this μ the loss distribution no longer fits into memory; such an event counts as no privacy at all.
_HOPELESS_MU = 50.0


def _library() -> Any:
    try:
        import dp_accounting
        from dp_accounting import pld  # noqa: F401  the submodule must be loaded
    except ImportError:
        raise MissingExtraError(
            "subsampled training is accounted with dp-accounting; install it with: pip install 'gratis[nn]'"
        ) from None
    return dp_accounting


@lru_cache(maxsize=32)
def _accountant(event: Event) -> Any:
    """Compose the event in a PLD accountant under the event's own relation, never the library's default."""
    from gratis.accounting.composition import compose_mu, leaf_mu

    library = _library()
    leaves: tuple[LeafEvent, ...] = event.leaves() if isinstance(event, Composition) else (event,)
    relation = leaves[0].neighbouring
    theirs = library.NeighboringRelation
    accountant = library.pld.PLDAccountant(
        theirs.REPLACE_ONE if relation is Neighbouring.REPLACE_ONE else theirs.REPLACE_SPECIAL,
        value_discretization_interval=_DISCRETISATION,
    )
    mus: list[float] = []
    for leaf in leaves:
        if isinstance(leaf, PoissonSubsampledGaussian):
            gaussian = library.GaussianDpEvent(leaf.noise_multiplier)
            accountant.compose(library.PoissonSampledDpEvent(leaf.sampling_rate, gaussian), leaf.steps)
        else:
            mus.append(leaf_mu(leaf))
    mu = compose_mu(mus)
    if mu > 0:
        # Their replace-one doubles the sensitivity of a Gaussian event; μ has that factor already.
        accountant.compose(library.GaussianDpEvent(relation.sensitivity_factor / mu if mu < _HOPELESS_MU else 0.0))
    return accountant


def pld_epsilon_upper_bound(event: Event, *, delta: float) -> float:
    """ε of the event at δ; pessimistic discretisation, NaN becomes ∞."""
    return _closed(float(_accountant(event).get_epsilon(delta)), math.inf)


def pld_delta_upper_bound(event: Event, *, epsilon: float) -> float:
    """δ of the event at ε; pessimistic discretisation, NaN becomes 1."""
    return min(1.0, _closed(float(_accountant(event).get_delta(epsilon)), 1.0))


def _closed(value: float, worst: float) -> float:
    return worst if math.isnan(value) or value < 0 else value
