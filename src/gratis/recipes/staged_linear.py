"""Linear regression: standardise → second moments → descend, settings by a twin of what was released → score."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.models.released_linear import ReleasedLinear
from gratis.planning.twins.problems import Member
from gratis.planning.twins.twin import TwinChoice, plain_settings, twin_settings
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import Descent, StagedSettings
from gratis.stages.staged import DescentSettings, StagedFit, StagedPlan, check_memory, fit_stages, plan_stages

__all__ = [
    "LinearRelease",
    "StagedLinear",
    "StagedRecipe",
    "flat_twin",
    "in_original_units",
    "plain_twin",
    "predict_staged",
    "twin_prediction",
]

_STEPS = 64  # more follow the same path more finely, at the same noise
_TWIN_SEED = 20261115  # public: the twin's synthetic data is the same for everybody


@dataclass(frozen=True, slots=True)
class LinearRelease:
    """A linear model that was released, and what is predicted of it: its score, where the fit paid for one."""

    fit: ReleasedLinear
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Descent settings that the user gave."""

    norm: float
    learning_rate: float

    def clip_norm(self, effective_dimension: float) -> float:
        """C, whatever the dimension."""
        return self.norm


@dataclass(frozen=True, slots=True)
class StagedRecipe:
    """What linear and logistic models in stages share.

    `descent` may fix T, and clip norm with learning rate in the coordinates of the released second moments.
    """

    facts: Facts
    budget: Budget
    reading: Reading
    descent: Descent = field(default_factory=Descent)
    chosen_from_releases: bool = True
    needs_arrays: bool = False

    def __post_init__(self) -> None:
        self.descent.refuse("a staged linear model", "average", "noise", "engine")
        given = self.descent.clip_norm is not None, self.descent.learning_rate is not None
        if given[0] != given[1] or isinstance(self.descent.learning_rate, tuple):
            raise GratisError("give clip_norm and one learning_rate together, or leave both to the plan")

    def check_memory(self) -> None:
        """Refuse rows in memory that would not leave room for the fit; a stream takes constant memory."""
        check_memory(self.stages)

    @property
    def stages(self) -> StagedPlan:
        """Every release, from public facts."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StagedLinear(StagedRecipe):
    """The recipe for given facts: every release is fixed, clip norm and rate are chosen from the released spectrum."""

    @property
    def stages(self) -> StagedPlan:
        """Every release, from public facts."""
        return plan_stages(
            self.facts.rows,
            self.facts.columns,
            mu=calibrate_mu(self.budget),
            neighbouring=self.budget.neighbouring,
            standardise=self.reading.standardise,
            steps=self.descent.steps or _STEPS,
            score=self.reading.standardise and not self.descent.given,
        )

    @property
    def plan(self) -> Plan:
        """The plan as it is known before the data is touched: the spectrum is still assumed to be flat."""
        return _staged_plan(self.stages, self.budget, self.descent)

    def run(self, rows: Rows, *, noise: NoiseSource) -> LinearRelease:
        """Run the stages; the settings of the descent are chosen from what was released before."""

        def choose(spectrum: NDArray[np.float64], planned: StagedPlan) -> DescentSettings:
            if self.descent.clip_norm is not None:
                return _Fixed(self.descent.clip_norm, float(self.descent.learning_rate))  # type: ignore[arg-type]
            return _twin(spectrum, planned)

        fit: StagedFit = fit_stages(
            rows, self.stages, LinearModel(), choose, noise=noise,
            features=self.reading.features, target=self.reading.target, impute=self.reading.impute,
        )  # fmt: skip
        return LinearRelease(fit, fit.expected or in_original_units(self.plan.prediction, fit))


def _twin(spectrum: NDArray[np.float64], stages: StagedPlan) -> TwinChoice:
    """The twin of the released spectrum; where none is released, the one that the plan was made with."""
    if stages.second_moments is None:
        return _assumed_twin(stages)
    return twin_settings(
        spectrum,
        stages.n_records,
        mu=stages.descent_mu,
        neighbouring=stages.neighbouring,
        steps=stages.steps,
        rng=np.random.default_rng(_TWIN_SEED),
    )


def _assumed_twin(stages: StagedPlan) -> TwinChoice:
    """What can be said before the data is touched."""
    twin = flat_twin if stages.second_moments is not None else plain_twin
    width = stages.n_columns + 1
    return twin(width, stages.n_records, stages.steps, stages.neighbouring, stages.descent_mu)


@lru_cache(maxsize=128)
def flat_twin(width: int, n_records: int, steps: int, neighbouring: Neighbouring, mu: float) -> TwinChoice:
    """The twin of a flat spectrum, for one that is still to be released."""
    return twin_settings(
        np.full(width, 0.9), n_records, mu=mu, neighbouring=neighbouring, steps=steps,
        rng=np.random.default_rng(_TWIN_SEED),
    )  # fmt: skip


@lru_cache(maxsize=128)
def plain_twin(
    width: int, n_records: int, steps: int, neighbouring: Neighbouring, mu: float, n_classes: int | None = None
) -> TwinChoice:
    """The twins of assumed spectra, for one that is never released."""
    return plain_settings(
        width, n_records, mu=mu, neighbouring=neighbouring, steps=steps,
        rng=np.random.default_rng(_TWIN_SEED), n_classes=n_classes,
    )  # fmt: skip


def predict_staged(n_records: int, n_features: int, budget: Budget) -> Prediction:
    """Predict the excess risk of the staged fit before any data, in units of the target's variance."""
    facts = Facts(rows=n_records, columns=n_features)
    return StagedLinear(facts, budget, Reading()).plan.prediction


def _staged_plan(stages: StagedPlan, budget: Budget, descent: Descent) -> Plan:
    """The plan as it is known before the data is touched: the spectrum is still assumed to be flat."""
    shares = {leaf.label or leaf.kind: leaf.kind for leaf in stages.event.leaves()}
    if stages.second_moments is not None:
        schedule, chosen = "preconditioned", "chosen by a twin of the privately released spectrum"
        source = "twin of a flat spectrum (before the data is touched)"
        stage = "location and scale, second moments and descent share the budget"
        basis, family = "the basis of the released second moments", "the released spectrum"
    else:
        schedule, chosen = "plain", "chosen by twins of assumed spectra"
        source = "twins of assumed spectra (before the data is touched)"
        stage = "second moments of so many columns would tell less than they cost; the others share the budget"
        basis, family = "the columns themselves", "flat and decaying spectra"
    fixed = descent.clip_norm is not None
    words = (
        "Clip norm and learning rate are the user's."
        if fixed
        else "Clip norm and learning rate minimise the mean risk over a family of synthetic problems with "
        f"{family}; no setting is chosen by looking at scores on the data."
    )
    return Plan(
        algorithm="full-batch",
        schedule=f"{schedule}, mean of the last half",
        settings=StagedSettings(
            steps=stages.steps,
            stages=tuple(shares),
            descent_mu=stages.descent_mu,
            second_moments_mu=None if stages.second_moments is None else stages.second_moments_mu,
            clip_and_rate="given" if fixed else chosen,
            given=descent if descent.given else None,
        ),
        budget=budget,
        event=stages.event,
        prediction=twin_prediction(_assumed_twin(stages), source),
        reasons=(
            f"{budget.describe()}: {stage}; {stages.steps} full-batch steps in {basis}.",
            words,
            *(() if stages.target is None else stages.target.doubts),
        ),
    )


def twin_prediction(choice: TwinChoice, source: str) -> Prediction:
    """What a twin says of the settings it chose: the mean over its members, and their range."""
    risks = np.array(choice.risks) / 2  # twins report E(xᵀθ − xᵀθ*)², the excess risk is half of that
    return Prediction(
        quantity="excess_risk",
        value=float(np.mean(risks)),
        low=float(risks.min()),
        high=float(risks.max()),
        source=source,
        assumptions=(
            "rows with log-normal lengths, skewed label noise",
            "members: " + "; ".join(dict.fromkeys(map(_described, choice.members))),
            "mean over the members; the range is over the members",
        ),
        details={
            "unit": "½·variance of the target",
            "null_risk": float(np.mean(choice.null_risks)) / 2,
        },
    )


def _described(member: Member) -> str:
    return f"signal {member.signal_variance:g}, alignment {member.alignment:g}"


def in_original_units(prediction: Prediction, fit: ReleasedLinear) -> Prediction:
    """Scale a prediction for targets of variance 1 by the (released or public) scale of the target."""
    factor = float(fit.target.scale[0]) ** 2
    return Prediction(
        quantity=prediction.quantity,
        value=prediction.value * factor,
        low=prediction.low * factor,
        high=prediction.high * factor,
        source=prediction.source,
        assumptions=prediction.assumptions,
        details=prediction.details | {"relative_value": prediction.value, "target_scale": factor**0.5},
    )
