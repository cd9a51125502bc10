"""The staged private fit: standardise → second moments → descend, every share fixed before data is touched.

Wide tables skip the second moments (`second_moments_pay`): D² numbers would cost more than they tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.location_scale import (
    StandardisationPlan,
    Standardiser,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner, release_second_moments, second_moment_event
from gratis.models.descent_noise import averaged_noise, curvature_left, noise_covariance
from gratis.models.fit_score import (
    EVERYTHING,
    NOTHING,
    SCORE_SHARE,
    between,
    expected_r_squared,
    kept_by_score,
    plan_score,
    release_score,
    score_widths,
    shrunk_r_squared,
)
from gratis.models.released_linear import ReleasedLinear
from gratis.numerics.available_memory import available_memory
from gratis.private.reading import Standardised
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import Composition, Event, FullBatchDescent, GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Prediction
from gratis.stages.evidence import (
    kept_by_evidence,
    level_event,
    level_shrinkage,
    release_level,
)
from gratis.stages.full_batch import GeneralisedLinearModel, descend, descent_event

__all__ = [
    "DescentSettings",
    "ReleasedBasis",
    "StagedFit",
    "StagedPlan",
    "check_memory",
    "fit_stages",
    "plan_stages",
    "release_basis",
    "second_moments_pay",
]

# Shares of μ². With few records the target's place must be found first of all, and its level last; with plenty the
# descent gets most. In between they move with ln N, N = nμ/κ. Chosen on validation parts of housing, stock, energy,
# forest, concrete, red wine, airfoil, pmlb_4544 and fri_c4_100 (splits 9100 and later; docs/results/small.md).
_SCARCE, _PLENTY = 14.0, 50.0
_SCARCE_SHARES = {"features": 0.10, "target": 0.42, "second moments": 0.05, "descent": 0.15, "level": 0.28}
_SHARES = {"features": 0.20, "target": 0.11, "second moments": 0.15, "descent": 0.50, "level": 0.04}
# Classes: flat around it on validation rows of six tables (docs/results/classifiers.md). With plenty of records a
# column its scale costs little to find, and the others get what that saves (validation rows of letter and pendigits at
# ε = 3; optdigits, clean2 and texture at ε = 100).
_CLASS_SHARES = {"features": 0.22, "second moments": 0.11, "descent": 0.67}
_RICH_CLASS_SHARES = {"features": 0.05, "second moments": 0.20, "descent": 0.75}
_RICH_FROM, _RICH = 60.0, 300.0


# Below `EVERYTHING` a part α of a fit is kept: 2α − α² of what there is to gain, and α² of its noise. Plain descent
# knows no energy by which to doubt a fit, so there all of it is kept from four times as many on (validation parts of
# fri_c4_100 and pmlb_4544).
_PLAIN = 4.0
_LEAST_LEFT = 0.3  # share of the variance that a score reckons with at least: signals may be noise


def _shares(records: float, columns: int, *, regression: bool, without: set[str]) -> dict[str, float]:
    """Shares of μ² at N records in units of the noise; those of a stage that is left out go to the others."""
    scarce, rich = (_SCARCE_SHARES, _SHARES) if regression else (_CLASS_SHARES, _RICH_CLASS_SHARES)
    plenty = between(records, _SCARCE, _PLENTY) if regression else between(records / columns, _RICH_FROM, _RICH)
    found = {name: (1 - plenty) * scarce[name] + plenty * share for name, share in rich.items()}
    kept = {name: share for name, share in found.items() if name not in without}
    return {name: share / sum(kept.values()) for name, share in kept.items()}


# Crowding κd/(nμ) above which plain descent does better, and columns whose eigenvectors take a minute and a gigabyte.
# Chosen on synthetic problems and validation rows of mfeat_factors (regression), and of mfeat_factors, isolet and dna
# (classes, whose descent stands noisy second moments better); benchmarks/wide_tables.py, docs/results/wide.md.
_CROWDED, _CROWDED_CLASSES, _MOST_COLUMNS = 1.5, 4.0, 4096
# Least ridge of the second moments. Classifiers shrink slopes by 1/n: in a basis of ridge 2/n that has a curvature of
# at most ½, as the loss has, so that steps which suit the loss suit both.
_RIDGE, _CLASS_RIDGE = 1e-4, 2.0
_OVERHEAD = 300 * 10**6  # twins and chunks


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

    `features`, `target` and `level` are None when that standardisation is public or not wanted; `second_moments` is
    None for plain descent, in the columns themselves; `score` where the fit does not pay for one.
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
    level: GaussianRelease | None = None
    score: GaussianRelease | None = None
    records: float = 0.0  # N = nμ/κ of the whole fit, for its score
    kept: float = 1.0

    @property
    def steps(self) -> int:
        """T."""
        return self.descent.steps

    @property
    def memory(self) -> int:
        """Bytes that the fit takes beyond the table it is given, from public sizes."""
        width = self.n_columns + 1
        rows = 3 * self.n_records * width  # a validated copy, standardised, and in the basis
        moments = 8 * width**2 if self.second_moments is not None else 0  # sums, noise, eigenvectors, workspace
        columns = width * (1024 + 16 * self.outputs)  # histograms of the columns, iterates and their noise
        return 8 * (rows + moments + columns) + _OVERHEAD

    @property
    def event(self) -> Composition:
        """The whole fit as one event."""
        events: list[Event] = [plan.event for plan in (self.features, self.target) if plan is not None]
        if self.second_moments is not None:
            events.append(self.second_moments)
        events.append(self.descent)
        return Composition((*events, *(last for last in (self.level, self.score) if last is not None)))


def second_moments_pay(
    n_records: int, n_columns: int, *, mu: float, neighbouring: Neighbouring, regression: bool = True
) -> bool:
    """Say, from public facts, whether a second-moment matrix of d columns is worth its share of the budget.

    Its noise has spectral norm ≍ κd^{3/2}/(nμ) against a trace of d, so only directions with a share ≫ κ√d/(nμ) of the
    variance are seen. Plain descent needs no basis to learn directions with a share ≫ κ/(nμ); what it lacks is the
    equal treatment of weaker ones, which the noise drowns where crowding κd/(nμ) is above one or so.

    >>> second_moments_pay(2000, 100, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE)
    True
    >>> second_moments_pay(2000, 20_000, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE)
    False
    >>> crowded = {"mu": 0.3, "neighbouring": Neighbouring.REPLACE_ONE}  # κd/(nμ) = 2.2
    >>> second_moments_pay(600, 200, **crowded), second_moments_pay(600, 200, **crowded, regression=False)
    (False, True)
    """
    crowding = neighbouring.sensitivity_factor * n_columns / (n_records * mu)
    return n_columns <= _MOST_COLUMNS and crowding <= (_CROWDED if regression else _CROWDED_CLASSES)


def check_memory(plan: StagedPlan) -> None:
    """Refuse a fit that cannot fit: a process that is killed halfway has spent its budget for nothing."""
    available = available_memory()
    if available is not None and plan.memory > available:
        raise GratisError(
            f"{plan.n_records} rows of {plan.n_columns} columns need about {plan.memory / 1e9:.1f} GB to train on and "
            f"{max(available, 0) / 1e9:.1f} GB of memory are available: nothing was spent"
        )


def plan_stages(
    n_records: int,
    n_columns: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    outputs: int = 1,
    regression: bool = True,
    standardise: bool = True,
    precondition: bool | None = None,
    steps: int = 64,
    score: bool = False,
) -> StagedPlan:
    """Split `mu` over the stages (squares add up) and fix every release.

    Shares of a stage that is left out go to the others in proportion. Second moments are left out where they do not
    pay, unless `precondition` says otherwise. With `score` a regression ends with a score of itself.

    >>> plan = plan_stages(1000, 5, mu=0.3, neighbouring=Neighbouring.ZERO_OUT)
    >>> [leaf.label.split(":")[0] for leaf in plan.event.leaves()][::4]
    ['features', 'target', 'second moments']
    """
    n, columns = check_count("n_records", n_records), check_count("n_columns", n_columns)
    mu = check_positive("mu", mu)
    if precondition is None:
        precondition = second_moments_pay(n, columns, mu=mu, neighbouring=neighbouring, regression=regression)
    without = set() if standardise else {"features", "target", "level"}
    if not precondition:
        without.add("second moments")
    records = n * mu / neighbouring.sensitivity_factor
    shares = _shares(records, columns, regression=regression, without=without)
    if score:
        shares = {name: (1 - SCORE_SHARE) * share for name, share in shares.items()} | {"score": SCORE_SHARE}
    # One part in 10¹² less, so that rounding cannot push the sum of squares above μ².
    mus = {name: mu * math.sqrt(share) * (1 - 1e-12) for name, share in shares.items()}
    features = target = level = None
    if "features" in mus:
        features = plan_standardisation(n, columns, mu=mus["features"], neighbouring=neighbouring)
    if "target" in mus:
        target = plan_standardisation(
            n, 1, mu=mus["target"], neighbouring=neighbouring, tail=0.002, headroom=2.0, label="target"
        )
        level = level_event(n, mu=mus["level"], neighbouring=neighbouring)
    width = columns + 1
    moments_mu, descent_mu = mus.get("second moments", 0.0), mus["descent"]
    moments = second_moment_event(n, width, mu=moments_mu, neighbouring=neighbouring) if precondition else None
    return StagedPlan(
        n_records=n,
        n_columns=columns,
        outputs=outputs,
        neighbouring=neighbouring,
        features=features,
        target=target,
        second_moments=moments,
        second_moments_mu=moments_mu,
        descent=descent_event(n, width, outputs, steps, mu=descent_mu, neighbouring=neighbouring),
        descent_mu=descent_mu,
        level=level,
        score=plan_score(n, 2, mu=mus["score"], neighbouring=neighbouring) if score else None,
        records=records,
        kept=between(records, NOTHING, EVERYTHING * (1 if precondition else _PLAIN)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFit(ReleasedLinear):
    """Everything a staged fit released: the model, the spectrum of its second moments, and the chosen settings."""

    spectrum: NDArray[np.float64]
    settings: DescentSettings
    noise_covariance: NDArray[np.float64] | None = None  # on standardised columns and the one
    expected: Prediction | None = None  # R² on fresh rows, by the score that the fit paid for


def fit_stages(
    rows: Rows,
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
    rows : Rows
        The private records; in memory, or read once for each release.
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
    basis = release_basis(rows, plan, noise=noise, features=features, target=target, impute=impute)
    settings = choose(basis.moved.spectrum, plan)
    clip_norm = settings.clip_norm(basis.moved.effective_dimension)
    run = descend(
        basis.rows,
        model,
        steps=plan.steps,
        clip_norm=clip_norm,
        learning_rate=settings.learning_rate,
        mu=plan.descent_mu,
        neighbouring=plan.neighbouring,
        noise=noise,
        keep_path=model.outputs == 1 and basis.moved.basis is not None,
    )
    moved = basis.moved
    parameters = moved.restore(run.parameters).copy()
    whole, level_kept, level_noise = float(np.linalg.norm(parameters[:-1])), 0.0, 0.0
    # Of the flow that the descent follows: the mean of its last half is about where it is after three quarters.
    travel = 0.75 * settings.learning_rate * plan.steps
    variances = averaged_noise(
        moved.spectrum, learning_rate=settings.learning_rate, steps=plan.steps,
        noise_std=clip_norm * plan.descent.noise_stds.values[0],
    )  # fmt: skip
    if plan.target is not None and plan.level is not None:
        error = plan.target.centre_error
        if plan.score is not None:  # else the user fixed the descent: what it ends with is what was asked for
            parameters = kept_by_evidence(
                parameters, moved, variances, travel=travel, n_records=plan.n_records, centre_error=error
            )
        parameters = plan.kept * parameters
        ends = moved.coordinates(parameters)
        residuals = basis.rows.mapped(lambda Z, t: (t - (Z @ ends)[:, 0],))
        parameters[-1] += release_level(residuals, plan.level, centre_error=error, noise=noise)
        level_kept, level_noise = level_shrinkage(plan.level, centre_error=error)
    expected = None
    if plan.score is not None:
        freedoms = float(-np.expm1(-travel * moved.spectrum).sum())
        expected, share = _scored(basis, parameters, plan, plan.score, freedoms, level_noise, noise=noise)
        parameters[:-1] *= share
    kept = float(np.linalg.norm(parameters[:-1])) / max(whole, 1e-300)
    covariance = None
    if run.path is not None:
        noisy = {"learning_rate": settings.learning_rate, "noise_std": clip_norm * plan.descent.noise_stds.values[0]}
        with np.errstate(all="ignore"):  # a descent that the user made diverge must not end in a warning
            felt = curvature_left(run.path[:, :, 0], moved.spectrum, **noisy)
        clipped = averaged_noise(felt * moved.spectrum, steps=plan.steps, **noisy)
        covariance = noise_covariance(moved, clipped, kept=kept, level_kept=level_kept, level_noise=level_noise)
    return StagedFit(
        parameters=parameters,
        features=basis.features,
        target=basis.target,
        spectrum=basis.moved.spectrum,
        settings=settings,
        event=plan.event,
        noise_covariance=covariance,
        expected=expected,
    )


def _scored(
    basis: ReleasedBasis,
    parameters: NDArray[np.float64],
    plan: StagedPlan,
    event: GaussianRelease,
    freedoms: float,
    level_noise: float,
    *,
    noise: NoiseSource,
) -> tuple[Prediction, float]:
    """Release the score of a regression on its rows: the R² to expect, and how much of the slopes it speaks for."""
    moved, ends = basis.moved, basis.moved.coordinates(parameters)
    reach = float(basis.target.window[0] / basis.target.scale[0])
    slopes = parameters.copy()
    slopes[-1] = 0.0
    signal = float(moved.spectrum @ np.square(moved.coordinates(slopes)[:, 0]))

    def squares(Z: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.clip((Z @ ends)[:, 0], -reach, reach)
        return np.square(np.column_stack([t - found, t]))

    left = min(max(1 - signal, _LEAST_LEFT), 1.0)
    found = release_score(basis.rows, squares, score_widths(left, event.noise_std), plan.n_records, event, noise=noise)
    expected = expected_r_squared(found, basis.target, plan.n_records, plan.records, freedoms)
    share = kept_by_score(expected.value, signal, plan.records)
    return shrunk_r_squared(expected, share, signal, level_noise), share


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
    """Run the stages of `plan` before its descent: location and scale, then second moments. See `fit_stages`."""
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
