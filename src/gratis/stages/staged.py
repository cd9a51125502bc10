"""What classifiers and intervals begin with: standardise → second moments, every share fixed before data is touched.

Wide tables skip the second moments (`second_moments_pay`): D² numbers would cost more than they tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gratis.mechanisms.location_scale import (
    StandardisationPlan,
    Standardiser,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner, release_second_moments, second_moment_event
from gratis.models.fit_score import between
from gratis.private.memory import check_memory
from gratis.private.reading import Standardised
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import Composition, Event, FullBatchDescent, GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.full_batch import descent_event

__all__ = ["ReleasedBasis", "StagedPlan", "plan_stages", "release_basis", "second_moments_pay"]

# Shares of μ²: flat around it on validation rows of six tables (docs/results/classifiers.md). With plenty of records a
# column its scale costs little to find, and the others get what that saves (validation rows of letter and pendigits at
# ε = 3; optdigits, clean2 and texture at ε = 100).
_SHARES = {"features": 0.22, "second moments": 0.11, "descent": 0.67}
_RICH_SHARES = {"features": 0.05, "second moments": 0.20, "descent": 0.75}
_RICH_FROM, _RICH = 60.0, 300.0
# Crowding κd/(nμ) above which plain descent does better, and columns whose eigenvectors take a minute and a gigabyte.
# Chosen on synthetic problems and validation rows of mfeat_factors, isolet and dna; benchmarks/wide_tables.py,
# docs/results/wide.md.
_CROWDED, _MOST_COLUMNS = 4.0, 4096
# Least ridge of the second moments. Classifiers shrink slopes by 1/n: in a basis of ridge 2/n that has a curvature of
# at most ½, as the loss has, so that steps which suit the loss suit both.
_RIDGE, _CLASS_RIDGE = 1e-4, 2.0


def _shares(records: float, columns: int, *, without: set[str]) -> dict[str, float]:
    """Shares of μ² at N records in units of the noise; those of a stage that is left out go to the others."""
    plenty = between(records / columns, _RICH_FROM, _RICH)
    found = {name: (1 - plenty) * _SHARES[name] + plenty * share for name, share in _RICH_SHARES.items()}
    kept = {name: share for name, share in found.items() if name not in without}
    return {name: share / sum(kept.values()) for name, share in kept.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPlan:
    """All releases of a staged fit, from public facts alone; `event` can be reserved before the data is opened.

    `features` and `target` are None when that standardisation is public or not wanted; `second_moments` is None for
    plain descent, in the columns themselves.
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

    def check_memory(self) -> None:
        """Refuse rows in memory that would not leave room for the fit; a stream takes constant memory."""
        moments = self.second_moments is not None
        check_memory(self.n_records, self.n_columns, second_moments=moments, outputs=self.outputs)

    @property
    def event(self) -> Composition:
        """The whole fit as one event."""
        events: list[Event] = [plan.event for plan in (self.features, self.target) if plan is not None]
        if self.second_moments is not None:
            events.append(self.second_moments)
        return Composition((*events, self.descent))


def second_moments_pay(n_records: int, n_columns: int, *, mu: float, neighbouring: Neighbouring) -> bool:
    """Say, from public facts, whether second moments of d columns are worth their share of a classifier's budget.

    As `models.linear.second_moments_pay`; descent on classes stands noisy second moments better.

    >>> second_moments_pay(600, 200, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE)  # κd/(nμ) = 2.2
    True
    >>> second_moments_pay(2000, 20_000, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE)
    False
    """
    crowding = neighbouring.sensitivity_factor * n_columns / (n_records * mu)
    return n_columns <= _MOST_COLUMNS and crowding <= _CROWDED


def plan_stages(
    n_records: int,
    n_columns: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    outputs: int,
    standardise: bool = True,
    precondition: bool | None = None,
    steps: int = 64,
) -> StagedPlan:
    """Split `mu` over the stages of a classifier (squares add up) and fix every release.

    Shares of a stage that is left out go to the others in proportion. Second moments are left out where they do not
    pay, unless `precondition` says otherwise.

    >>> plan = plan_stages(1000, 5, mu=0.3, neighbouring=Neighbouring.ZERO_OUT, outputs=2)
    >>> [leaf.label.split(":")[0] for leaf in plan.event.leaves()][::4]
    ['features', 'second moments']
    """
    n, columns = check_count("n_records", n_records), check_count("n_columns", n_columns)
    mu = check_positive("mu", mu)
    if precondition is None:
        precondition = second_moments_pay(n, columns, mu=mu, neighbouring=neighbouring)
    without = set() if standardise else {"features"}
    if not precondition:
        without.add("second moments")
    shares = _shares(n * mu / neighbouring.sensitivity_factor, columns, without=without)
    # One part in 10¹² less, so that rounding cannot push the sum of squares above μ².
    mus = {name: mu * math.sqrt(share) * (1 - 1e-12) for name, share in shares.items()}
    features = None
    if "features" in mus:
        features = plan_standardisation(n, columns, mu=mus["features"], neighbouring=neighbouring)
    width = columns + 1
    moments_mu, descent_mu = mus.get("second moments", 0.0), mus["descent"]
    moments = second_moment_event(n, width, mu=moments_mu, neighbouring=neighbouring) if precondition else None
    return StagedPlan(
        n_records=n,
        n_columns=columns,
        outputs=outputs,
        neighbouring=neighbouring,
        features=features,
        target=None,
        second_moments=moments,
        second_moments_mu=moments_mu,
        descent=descent_event(n, width, outputs, steps, mu=descent_mu, neighbouring=neighbouring),
        descent_mu=descent_mu,
    )


@dataclass(frozen=True, slots=True)
class ReleasedBasis:
    """What the stages before the descent released, and the private rows (Z, t) in those coordinates."""

    features: Standardiser
    target: Standardiser
    moved: Preconditioner
    rows: Rows


def release_basis(
    rows: Rows,
    plan: StagedPlan,
    *,
    noise: NoiseSource,
    features: Standardiser | None = None,
    target: Standardiser | None = None,
    impute: bool = False,
) -> ReleasedBasis:
    """Run the stages of `plan` before its descent: location and scale, then second moments.

    **Guarantee**: what is returned beside the rows is a function of the releases in `plan.event` before its descent.
    Nothing here raises on a data-dependent condition.
    """
    if (rows.n_rows, rows.n_features) != (plan.n_records, plan.n_columns):
        raise GratisError("X and y must have the rows and columns that the plan was made for")
    if plan.features is not None:
        features = release_location_scale(rows, plan.features, noise=noise, impute=impute)
    if plan.target is not None:
        target = release_location_scale(rows.targets(), plan.target, noise=noise)
    read = Standardised(
        replace(features or Standardiser.identity(plan.n_columns), impute=impute), target or Standardiser.identity(1)
    )
    standardised = rows.mapped(read, n_features=plan.n_columns + 1)
    if plan.second_moments is not None:
        moved, _ = release_second_moments(
            standardised, mu=plan.second_moments_mu, neighbouring=plan.neighbouring, noise=noise,
            least_ridge=max(_RIDGE, _CLASS_RIDGE / plan.n_records) if plan.outputs > 1 else _RIDGE,
        )  # fmt: skip
    else:
        moved = Preconditioner.identity(plan.n_columns + 1)
    moved_rows = standardised.mapped(lambda Z, t: (moved.transform(Z), t))
    return ReleasedBasis(read.features, read.target, moved, moved_rows)
