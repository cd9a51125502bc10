"""Linear regression planned and run (`models.linear`), and what linear recipes share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

import numpy as np

from gratis.accounting import calibrate_mu, leaf_mu
from gratis.mechanisms.location_scale import target_doubts
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner
from gratis.models.linear import STEPS, LinearFit, descent_settings, linear, second_moments_pay
from gratis.models.released_linear import ReleasedLinear
from gratis.planning.twins.problems import Member
from gratis.planning.twins.twin import TwinChoice, plain_settings, twin_settings
from gratis.private.memory import check_memory
from gratis.private.session import Planned, Session
from gratis.private.session import plan as plan_session
from gratis.private.session import run as run_session
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.settings import Descent, StagedSettings

__all__ = [
    "Linear",
    "LinearRelease",
    "StagedRecipe",
    "flat_twin",
    "in_original_units",
    "plain_twin",
    "twin_prediction",
]

_FLAT = 0.9  # w/(w + λ) of every direction
_TWIN_SEED = 20261115  # public: the twin's synthetic data is the same for everybody


@dataclass(frozen=True, slots=True)
class LinearRelease:
    """A linear model that was released, and what is predicted of it: its score, where the fit paid for one."""

    fit: ReleasedLinear
    prediction: Prediction


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


@dataclass(frozen=True)
class Linear(StagedRecipe):
    """`models.linear` for given facts: every release is fixed; clip norm and step size follow from the spectrum."""

    @cached_property
    def _mu(self) -> float:
        return calibrate_mu(self.budget)

    @property
    def _model(self) -> Callable[[Session], LinearFit]:
        return partial(linear, mu=self._mu, reading=self.reading, descent=self.descent)

    @cached_property
    def _planned(self) -> Planned:
        return plan_session(self._model, self.facts.rows, self.facts.columns, self.budget.neighbouring)

    @property
    def _effective_size(self) -> float:
        return self.facts.rows * self._mu / self.budget.neighbouring.sensitivity_factor

    def check_memory(self) -> None:
        """Refuse rows in memory that would not leave room for the fit; a stream takes constant memory."""
        whitened = second_moments_pay(self.facts.columns, self._effective_size)
        check_memory(self.facts.rows, self.facts.columns, second_moments=whitened)

    @property
    def plan(self) -> Plan:
        """The plan as it is known before the data is touched: the spectrum is still assumed to be flat."""
        event, relation, fixed = self._planned.event, self.budget.neighbouring, self.descent.clip_norm is not None
        mus = {leaf.label or leaf.kind: leaf_mu(leaf) for leaf in event.leaves()}
        (descent_mu,) = (leaf_mu(leaf) for leaf in event.leaves() if isinstance(leaf, FullBatchDescent))
        whitened = "second moments" in mus
        steps = self.descent.steps or STEPS
        width, rows = self.facts.columns + 1, self.facts.rows
        if whitened:
            flat = Preconditioner(None, np.full(width, _FLAT))
            of_descent = rows * descent_mu / relation.sensitivity_factor
            clip, length = descent_settings(self._effective_size, of_descent, flat, whitened=True)
            settings = clip / math.sqrt(flat.effective_dimension), length
            twin = flat_twin(width, rows, steps, relation, descent_mu, settings)
            schedule, chosen = "preconditioned", "from public sizes and the released spectrum"
            source = "twin of a flat spectrum (before the data is touched)"
            stage = "location and scale, second moments and descent share the budget"
            basis = "the basis of the released second moments"
        else:
            twin = plain_twin(width, rows, steps, relation, descent_mu)
            schedule, chosen = "plain", "from public sizes"
            source = "twins of assumed spectra (before the data is touched)"
            stage = "second moments of so many columns would tell less than they cost; the others share the budget"
            basis = "the columns themselves"
        words = (
            "Clip norm and learning rate are the user's."
            if fixed
            else f"Clip norm and learning rate follow {chosen}; no setting is chosen by looking at scores on the data."
        )
        return Plan(
            algorithm="full-batch",
            schedule=f"{schedule}, mean of the last half",
            settings=StagedSettings(
                steps=steps,
                stages=tuple(mus),
                descent_mu=descent_mu,
                second_moments_mu=mus.get("second moments"),
                clip_and_rate="given" if fixed else chosen,
                given=self.descent if self.descent.given else None,
            ),
            budget=self.budget,
            event=event,
            prediction=twin_prediction(twin, source),
            reasons=(
                f"{self.budget.describe()}: {stage}; {steps} full-batch steps in {basis}.",
                words,
                *target_doubts(event, rows),
            ),
        )

    def run(self, rows: Rows, *, noise: NoiseSource) -> LinearRelease:
        """Run the model as planned."""
        if (rows.n_rows, rows.n_features) != (self.facts.rows, self.facts.columns):
            raise GratisError("X and y must have the rows and columns that the plan was made for")
        fit = run_session(self._model, rows, self.budget.neighbouring, noise, planned=self._planned)
        return LinearRelease(fit, fit.expected or in_original_units(self.plan.prediction, fit))


@lru_cache(maxsize=128)
def flat_twin(
    width: int, n_records: int, steps: int, neighbouring: Neighbouring, mu: float,
    settings: tuple[float, float] | None = None,
) -> TwinChoice:  # fmt: skip
    """The twin of a flat spectrum, for one that is still to be released; at the clip and total step size given."""
    clips, travels = (None, None) if settings is None else ((settings[0],), (settings[0] * settings[1],))
    return twin_settings(
        np.full(width, _FLAT), n_records, mu=mu, neighbouring=neighbouring, steps=steps,
        rng=np.random.default_rng(_TWIN_SEED), clips=clips, travels=travels,
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
