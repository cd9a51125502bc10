"""The staged private fit: standardise → second moments → descend, every share fixed before data is touched."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.mechanisms.location_scale import (
    StandardisationPlan,
    Standardiser,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.second_moments import Preconditioner, release_second_moments, second_moment_event
from gratis.specs.checks import check_count, check_positive
from gratis.specs.errors import GratisError
from gratis.specs.events import Composition, Event, FullBatchDescent, GaussianRelease
from gratis.specs.neighbouring import Neighbouring
from gratis.training.full_batch import GeneralisedLinearModel, descend, descent_event
from gratis.training.released_linear import ReleasedLinear

__all__ = ["DescentSettings", "StagedFit", "StagedPlan", "fit_stages", "plan_stages"]

_TARGET_SHARE = 0.35  # of what standardisation gets
# So few records that little beyond the mean can be learnt: find the target's mean well, and move little.
_SCARCE, _SCARCE_SHARES, _SCARCE_TARGET_SHARE = 0.02, (0.60, 0.10, 0.30), 0.70
_SHARES = (0.33, 0.17, 0.50)  # of μ²: standardisation, second moments, descent
_POOLED_SHARES = (0.20, 0.18, 0.62)  # columns cannot be told apart, so less is spent on asking


class DescentSettings(Protocol):
    """What the chooser returns: settings that depend on released facts only."""

    @property
    def learning_rate(self) -> float:
        """η."""

    def clip_norm(self, effective_dimension: float) -> float:
        """C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPlan:
    """All releases of a staged fit, from public facts alone; `event` can be reserved before the data is opened.

    `features` and `target` are None when that standardisation is public or not wanted; `second_moments` is None
    for plain descent.
    """

    n_records: int
    n_columns: int
    outputs: int
    neighbouring: Neighbouring
    features: StandardisationPlan | None
    target: StandardisationPlan | None
    second_moments: GaussianRelease | None
    second_moments_mu: float
    descent: FullBatchDescent
    descent_mu: float

    @property
    def steps(self) -> int:
        """T."""
        return self.descent.steps

    @property
    def event(self) -> Composition:
        """The whole fit as one event."""
        events: list[Event] = [plan.event for plan in (self.features, self.target) if plan is not None]
        if self.second_moments is not None:
            events.append(self.second_moments)
        return Composition((*events, self.descent))


def plan_stages(
    n_records: int,
    n_columns: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    outputs: int = 1,
    regression: bool = True,
    standardise: bool = True,
    precondition: bool = True,
    steps: int = 64,
) -> StagedPlan:
    """Split `mu` over the stages (squares add up) and fix every release.

    Shares of a stage that is left out go to the others in proportion.

    >>> plan = plan_stages(1000, 5, mu=0.3, neighbouring=Neighbouring.ZERO_OUT)
    >>> [leaf.label.split(":")[0] for leaf in plan.event.leaves()][::4]
    ['features', 'target', 'second moments']
    """
    n, columns = check_count("n_records", n_records), check_count("n_columns", n_columns)
    mu = check_positive("mu", mu)
    scarce = regression and standardise and neighbouring.sensitivity_factor / (n * mu) > _SCARCE
    target_share = (_SCARCE_TARGET_SHARE if scarce else _TARGET_SHARE) if regression else 0.0

    def split(shares: tuple[float, float, float]) -> list[float]:
        kept = [shares[0] * standardise, shares[1] * precondition, shares[2]]
        # One part in 10¹² less, so that rounding cannot push the sum of squares above μ².
        return [mu * math.sqrt(share / sum(kept)) * (1 - 1e-12) for share in kept]

    def features_plan(mu_scale: float) -> StandardisationPlan | None:
        features_mu = mu_scale * math.sqrt(1 - target_share)
        return plan_standardisation(n, columns, mu=features_mu, neighbouring=neighbouring) if standardise else None

    mus = split(_SCARCE_SHARES if scarce else _SHARES)
    features = features_plan(mus[0])
    if features is not None and features.pooled and not scarce:
        mus = split(_POOLED_SHARES)
        features = features_plan(mus[0])
    target = None
    if standardise and regression:
        target_mu = mus[0] * math.sqrt(target_share)
        target = plan_standardisation(
            n, 1, mu=target_mu, neighbouring=neighbouring, tail=0.002, headroom=2.0, label="target"
        )
    width = columns + 1
    moments = second_moment_event(n, width, mu=mus[1], neighbouring=neighbouring) if precondition else None
    return StagedPlan(
        n_records=n,
        n_columns=columns,
        outputs=outputs,
        neighbouring=neighbouring,
        features=features,
        target=target,
        second_moments=moments,
        second_moments_mu=mus[1],
        descent=descent_event(n, width, outputs, steps, mu=mus[2], neighbouring=neighbouring),
        descent_mu=mus[2],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFit(ReleasedLinear):
    """Everything a staged fit released: the model, the spectrum of its second moments, and the chosen settings."""

    spectrum: NDArray[np.float64]
    settings: DescentSettings


def fit_stages(
    X: NDArray[np.float64],
    y: ArrayLike,
    plan: StagedPlan,
    model: GeneralisedLinearModel,
    choose: Callable[[NDArray[np.float64], StagedPlan], DescentSettings],
    *,
    noise: NoiseSource,
    features: Standardiser | None = None,
    target: Standardiser | None = None,
    impute: bool = False,
) -> StagedFit:
    """Run the stages of `plan`; every stage sees the rows and what earlier stages released.

    **Guarantee**: the result is a function of the releases in `plan.event`, run in its order, and of public
    randomness, so it satisfies what that event does (adaptive composition of Gaussian mechanisms).
    Nothing here raises on a data-dependent condition.

    Parameters
    ----------
    X, y : arrays
        The private records.
    plan : StagedPlan
        From `plan_stages`.
    model : GeneralisedLinearModel
        Linear or softmax.
    noise : NoiseSource
        Where the noise comes from.
    choose : callable
        Maps the released spectrum (ones for plain descent) and the plan to descent settings. It gets no data.
    features, target : Standardiser, optional
        Public maps, where the plan pays for none; default: identity.
    impute : bool
        Put the centre of its column where an entry of X is not finite, instead of leaving the row out.
    """
    rows, answers = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64).reshape(-1, 1)
    if rows.shape != (plan.n_records, plan.n_columns) or len(answers) != len(rows):
        raise GratisError("X and y must have the rows and columns that the plan was made for")
    if plan.features is not None:
        features = release_location_scale(rows, plan.features, noise=noise, impute=impute)
    if plan.target is not None:
        target = release_location_scale(answers, plan.target, noise=noise)
    features = replace(features or Standardiser.identity(plan.n_columns), impute=impute)
    target = target or Standardiser.identity(1)
    Z = np.column_stack([features.transform(rows), np.ones(len(rows))])
    t = target.transform(answers)[:, 0]
    # Where features are filled, a record without a target would still count as one at the centre.
    Z[~np.isfinite(t)] = np.nan
    if plan.second_moments is not None:
        moved, _ = release_second_moments(Z, mu=plan.second_moments_mu, neighbouring=plan.neighbouring, noise=noise)
    else:
        moved = Preconditioner.identity(plan.n_columns + 1)
    settings = choose(moved.spectrum, plan)
    run = descend(
        moved.transform(Z),
        t,
        model,
        steps=plan.steps,
        clip_norm=settings.clip_norm(moved.effective_dimension),
        learning_rate=settings.learning_rate,
        mu=plan.descent_mu,
        neighbouring=plan.neighbouring,
        noise=noise,
    )
    return StagedFit(
        parameters=moved.restore(run.parameters),
        features=features,
        target=target,
        spectrum=moved.spectrum,
        settings=settings,
        event=plan.event,
    )
