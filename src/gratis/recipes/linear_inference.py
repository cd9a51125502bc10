"""Linear regression with standard errors: the staged fit as a start, then one step whose covariance is released."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.accounting.gdp import gdp_epsilon_upper_bound
from gratis.mechanisms.location_scale import Standardiser, plan_standardisation
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner, second_moment_event
from gratis.models.generalised_linear import LinearModel
from gratis.models.released_linear import ReleasedLinear
from gratis.planning.interval_width import WidthPrediction, predict_width, rows_for_intervals
from gratis.planning.rehearsal import rehearsed_rows
from gratis.planning.twins.twin import TwinChoice
from gratis.recipes.linear import Linear, LinearRelease, flat_twin, in_original_units, twin_prediction
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.checks import check_positive
from gratis.records.events import Composition
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import InferenceSettings
from gratis.stages.full_batch import descend, descent_event
from gratis.stages.one_step import (
    BoundedRows,
    OneStepPlan,
    plan_one_step,
    release_mean_residual,
    release_residual_sizes,
    release_step,
)
from gratis.stages.released_inference import ReleasedInference
from gratis.stages.sandwich import choose_clips, combined, shrunk, solve_step
from gratis.stages.staged import StagedPlan, release_basis

__all__ = [
    "ESTIMANDS",
    "HIDDEN",
    "InferenceRelease",
    "LinearInference",
    "least_rows",
    "needed_for_width",
    "original_units",
    "too_few",
]

Array = NDArray[np.float64]

_STEPS = 64
# Shares of μ². Those of the step are close to the prototype's (`stages.sandwich`), whose start was a Newton step:
# descent is a better start for predictions and gets as much. Columns get .16: with .10, noisy windows of log-normal
# columns cost .009 of R² (synthetic, 5000 × 10, ε = 1). Those of the scales go to the others where scales are public.
_SHARES = {
    "features": 0.16, "target": 0.05, "second moments": 0.08, "descent": 0.14, "residuals": 0.02, "jacobian": 0.15,
    "gradient": 0.32, "squares": 0.03, "level": 0.05,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InferenceRelease(LinearRelease):
    """A linear model for predictions, and what may be said about its coefficients."""

    inference: ReleasedInference


# What intervals are of, and the least K²/d_eff of its weights: rows as they are, long ones with less weight; or columns
# pulled to their released windows, which bound nearly all rows by themselves, so that weights hardly act.
ESTIMANDS = {"weighted": 1.0, "winsorised": 4.0}
# K²/d_eff of winsorised rows at most. Rows of adult hours, winsorised, reach 8.7, and 999 in 1,000 of them 6.
_LONGEST = 8.0


@dataclass(frozen=True)
class LinearInference:
    """The recipe for given facts: every release is fixed; bases, weights and clips are chosen from earlier releases.

    Where public sizes say that intervals would drown in noise, it is the staged fit, and nothing is spent on them.
    """

    facts: Facts
    budget: Budget
    reading: Reading
    estimand: str = "weighted"
    chosen_from_releases: bool = True
    needs_arrays: bool = False

    def check_memory(self) -> None:
        """As the staged fit."""
        if self.withheld is None:
            self.stages.check_memory()

    @cached_property
    def mu(self) -> float:
        """Of the whole fit."""
        return calibrate_mu(self.budget)

    @property
    def withheld(self) -> str | None:
        """Why there will be no intervals, from public sizes, and what would help; None if there will be."""
        return too_few(self.facts, self.budget, least_rows(self.facts.columns, self.budget))

    @cached_property
    def _mus(self) -> dict[str, float]:
        without = set() if self.reading.standardise else {"features", "target"}
        kept = {name: share for name, share in _SHARES.items() if name not in without}
        # One part in 10¹² less, so that rounding cannot push the sum of squares above μ².
        return {name: self.mu * math.sqrt(share / sum(kept.values())) * (1 - 1e-12) for name, share in kept.items()}

    @cached_property
    def stages(self) -> StagedPlan:
        """Releases of the start."""
        n, columns, relation, mus = self.facts.rows, self.facts.columns, self.budget.neighbouring, self._mus
        features = target = None
        if self.reading.standardise:
            features = plan_standardisation(n, columns, mu=mus["features"], neighbouring=relation)
            target = plan_standardisation(
                n, 1, mu=mus["target"], neighbouring=relation, tail=0.002, headroom=2.0, label="target"
            )
        return StagedPlan(
            n_records=n,
            n_columns=columns,
            outputs=1,
            neighbouring=relation,
            features=features,
            target=target,
            second_moments=second_moment_event(n, columns + 1, mu=mus["second moments"], neighbouring=relation),
            second_moments_mu=mus["second moments"],
            descent=descent_event(n, columns + 1, 1, _STEPS, mu=mus["descent"], neighbouring=relation),
            descent_mu=mus["descent"],
        )

    @cached_property
    def step(self) -> OneStepPlan:
        """Releases of the step."""
        named = {name: self._mus[name] for name in ("residuals", "jacobian", "gradient", "squares", "level")}
        return plan_one_step(
            self.facts.rows, self.facts.columns + 1, **named, neighbouring=self.budget.neighbouring
        )  # fmt: skip

    @property
    def twin(self) -> TwinChoice:
        """Settings of the descent: where intervals pay, columns in the released basis have a nearly flat spectrum."""
        width, relation = self.facts.columns + 1, self.budget.neighbouring
        return flat_twin(width, self.facts.rows, _STEPS, relation, self.stages.descent_mu)

    def _prediction(self) -> Prediction:
        return twin_prediction(self.twin, "twin of a flat spectrum, of the start alone")

    @cached_property
    def width(self) -> WidthPrediction:
        """How wide intervals will be, and the radius of the weights that goes with it."""
        return self._width(None)

    def _width(self, rehearsal: StagedPlan | None) -> WidthPrediction:
        risk, least = 2 * self._prediction().value, ESTIMANDS[self.estimand]
        return predict_width(self.step, risk, rehearsal, least_radius=least)

    def _rehearsal(self) -> StagedPlan:
        """Releases of the start on few rows with the noise of these (`planning.rehearsal`)."""
        few = rehearsed_rows(self.facts.columns)
        budget = Budget(mu=self.mu * self.facts.rows / few, neighbouring=self.budget.neighbouring)
        return replace(self, facts=replace(self.facts, rows=few), budget=budget).stages

    @property
    def event(self) -> Composition:
        """The whole fit as one event, where there are intervals."""
        return Composition((*self.stages.event.events, *self.step.events))

    @property
    def plan(self) -> Plan:
        """Before the data is touched: the spectrum is assumed to be flat, columns and errors to be normal."""
        if self.withheld is not None:
            plain = self._staged().plan
            return replace(plain, reasons=(f"{self.withheld[0].upper()}{self.withheld[1:]}.", *plain.reasons))
        event, prediction, width = self.event, self._prediction(), self._width(self._rehearsal())
        return Plan(
            algorithm="full-batch",
            schedule="preconditioned, then one step of bounded influence",
            settings=InferenceSettings(
                steps=_STEPS,
                stages=tuple(dict.fromkeys(leaf.label or leaf.kind for leaf in event.leaves())),
                descent_mu=self._mus["descent"],
                jacobian_mu=self._mus["jacobian"],
                gradient_mu=self._mus["gradient"],
            ),
            budget=self.budget,
            event=event,
            prediction=replace(prediction, details=prediction.details | width.details("ols")),
            reasons=(
                f"{self.budget.describe()}: intervals will be about {width.value:.3g} times as wide as those of least "
                f"squares without privacy if columns and errors are normal, {width.low:.3g} to {width.high:.3g} times "
                "over correlated, skewed and 0/1 columns and heavy-tailed, skewed or growing errors.",
                "Scales, second moments, descent, and a step with its covariance share the budget; weights and clips "
                "are chosen from what was released, never by looking at the data.",
            ),
        )

    def _staged(self) -> Linear:
        return Linear(self.facts, self.budget, self.reading)

    def run(self, rows: Rows, *, noise: NoiseSource) -> InferenceRelease:
        """Release the start, then the step; what is chosen in between is a function of what was released."""
        if self.withheld is not None:
            plain = self._staged().run(rows, noise=noise)
            return InferenceRelease(
                plain.fit, plain.prediction, ReleasedInference(rows=rows.n_rows, withheld=self.withheld)
            )
        basis = release_basis(
            rows, self.stages, noise=noise, features=self.reading.features, target=self.reading.target,
            impute=self.reading.impute,
        )  # fmt: skip
        moved, n = basis.moved, self.facts.rows
        twin = self.twin
        start = descend(
            basis.rows, LinearModel(), steps=_STEPS, clip_norm=twin.clip_norm(moved.effective_dimension),
            learning_rate=twin.learning_rate, mu=self.stages.descent_mu, neighbouring=self.budget.neighbouring,
            noise=noise,
        ).parameters[:, 0]  # fmt: skip
        radius = math.sqrt(self.width.radius * moved.effective_dimension)
        if self.estimand == "winsorised":
            radius = max(radius, _within_windows(moved, basis.features))
        read = BoundedRows(basis.features, basis.target, moved, radius, winsorised=self.estimand == "winsorised")
        sizes = release_residual_sizes(rows, read, start, self.step, noise=noise)
        clips = choose_clips(sizes, radius, self.step)
        released = release_step(rows, read, start, clips.residual, self.step, noise=noise)
        solved = solve_step(released, clips, moved.effective_dimension)

        # The model for predictions: start and step by their precisions, what noise could have made taken back.
        move, risk = np.zeros_like(start), float(np.median(twin.risks))
        if solved.trusted:
            move, risk = combined(solved, risk)
        parameters = moved.restore((start + move)[:, None]).copy()
        slopes = np.append(parameters[:-1], [[0.0]], axis=0)
        energy = float(moved.spectrum @ np.square(moved.coordinates(slopes)[:, 0]))
        parameters[:-1] *= shrunk(energy, risk)
        at = start + solved.move if solved.trusted else moved.coordinates(parameters)[:, 0]
        one = np.zeros((self.facts.columns + 1, 1))
        one[-1] = 1.0
        level = moved.coordinates(one)[:, 0]  # moves every prediction by one
        mean = release_mean_residual(rows, read, at, clips.level, self.step, noise=noise)
        found = at + level * mean / solved.mean_weight(level)
        level_noise = clips.level * self.step.level.noise_std
        of_level = (level, level_noise, clips.deviation, n)

        to_columns = moved.restore(np.eye(len(found)))
        unknown = (level_noise / solved.mean_weight(level)) ** 2
        if solved.trusted:
            unknown = float(solved.covariances(to_columns[-1:], *of_level)[0][0, 0])
        higher = float(to_columns[-1] @ found - parameters[-1, 0])
        parameters[-1] += higher * shrunk(higher**2, unknown + risk / len(found))
        fit = ReleasedLinear(
            parameters=parameters, features=basis.features, target=basis.target, event=self.event
        )  # fmt: skip
        prediction = in_original_units(self._prediction(), fit)
        if not solved.trusted:
            return InferenceRelease(fit, prediction, ReleasedInference(rows=n, withheld=HIDDEN))
        change, shift = original_units(moved, basis.features, basis.target)
        privacy, sampling = solved.covariances(change, *of_level)
        return InferenceRelease(
            fit, prediction,
            ReleasedInference(
                rows=n,
                estimates=change @ found + shift,
                covariance=privacy + sampling,
                privacy=privacy,
                errors=sizes.law() * [[float(basis.target.scale[0])], [1.0]],
            ),
        )  # fmt: skip


def least_rows(columns: int, budget: Budget) -> int:
    """Return from how many rows on there are intervals: a rule of public sizes (`rows_for_intervals`)."""
    return rows_for_intervals(columns, mu=calibrate_mu(budget), neighbouring=budget.neighbouring)


def too_few(facts: Facts, budget: Budget, wanted: int) -> str | None:
    """Why there can be no intervals with fewer rows than `wanted`, and what would help; None if there are as many."""
    rows, columns = facts.rows, facts.columns
    if rows >= wanted:
        return None
    few = (columns + 1) * (rows / wanted) ** (2 / 3) - 1
    epsilon = gdp_epsilon_upper_bound(mu=calibrate_mu(budget) * wanted / rows, delta=budget.delta or 1e-6)
    fewer = f", or at most {int(few)} column{'s' if few >= 2 else ''}" if few >= 1 else ""
    return (
        f"intervals are withheld: {rows} rows of {columns} columns are too few for {budget.describe()}; "
        f"about {wanted} rows would do, or epsilon of about {epsilon:.2g}{fewer}"
    )


def needed_for_width(
    facts: Facts, budget: Budget, factor: float, *, estimand: str = "weighted"
) -> tuple[int | None, float | None]:
    """Return the rows at this budget, and the ε at these rows, from which intervals are predicted at `factor` of OLS'.

    For normal columns and errors, by bisection to 1 %. None where nothing up to 10¹⁰ rows or ε = 64 suffices: clips and
    weights cost some per cent whatever the noise.
    """
    check_positive("factor", factor)

    def predicted(rows: int, asked: Budget) -> float:
        made = LinearInference(replace(facts, rows=rows), asked, Reading(), estimand)
        return math.inf if made.withheld is not None else made.width.value

    def least(suffices: Callable[[float], bool], low: float, high: float) -> float | None:
        if not suffices(high):
            return None
        while high / low > 1.01:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if suffices(middle) else (middle, high)
        return high

    rows = least(lambda n: predicted(math.ceil(n), budget) <= factor, 10.0, 1e10)
    delta = budget.delta or 1e-6
    epsilon = least(
        lambda e: predicted(facts.rows, Budget(epsilon=e, delta=delta, neighbouring=budget.neighbouring)) <= factor,
        1e-3, 64.0,
    )  # fmt: skip
    return None if rows is None else math.ceil(rows), epsilon


def _within_windows(moved: Preconditioner, features: Standardiser) -> float:
    """Length of a row with one column at the end of its window and others of usual size: weights leave it alone.

    At most √8 times the usual length, or that of a row whose other columns go along. Where columns repeat each other,
    as age and its square, no row has one of them at its end and the other in its middle, and weights for such a row
    would hide all intervals in noise.
    """
    ends = np.square(np.where(np.isfinite(features.window), features.window / features.scale, 0.0))
    to_columns = moved.restore(np.eye(ends.size + 1))
    precision = to_columns @ to_columns.T
    others_still = float((ends * np.diag(precision)[:-1]).max())
    others_along = float((ends / np.diag(np.linalg.inv(precision))[:-1]).max())
    usual = moved.effective_dimension
    return math.sqrt(min(usual + others_still, max(_LONGEST * usual, usual + others_along)))


HIDDEN = (
    "intervals are withheld: some direction of the columns varies less than the noise of its release; columns that "
    "nearly repeat others or hardly vary should be left out, or more rows or a larger epsilon are needed"
)


def original_units(moved: Preconditioner, features: Standardiser, target: Standardiser) -> tuple[Array, Array]:
    """Return M and m such that Mθ + m are intercept and slopes in original units, for θ in the released basis."""
    size = features.scale.size + 1
    unit, place = float(target.scale[0]), float(target.centre[0])
    change = np.zeros((size, size))
    change[0, -1] = unit
    change[0, :-1] = -unit * features.centre / features.scale
    change[1:, :-1] = np.diag(unit / features.scale)
    shift = np.zeros(size)
    shift[0] = place
    return change @ moved.restore(np.eye(size)), shift
