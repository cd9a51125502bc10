"""Settings: what a user may fix (`Descent`; the rest is planned), and what a plan fixes, one tagged record a kind."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.record import JsonObject, Record

__all__ = [
    "AdditiveSettings",
    "Descent",
    "FeatureSettings",
    "FullBatchSettings",
    "InferenceSettings",
    "NetworkSettings",
    "OnePassSettings",
    "Settings",
    "StagedSettings",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent(Record):
    """How full-batch private gradient descent is run: T, C, η, what is returned, how much noise, and where.

    steps : T.
    clip_norm : C, of a record's gradient (in the coordinates that the model descends in).
    learning_rate : η, or one for each step; needs `clip_norm` and, for a sequence, as many as `steps`.
    average : the mean of the last half of the iterates instead of the last one.
    noise : "exact", the least that the budget allows, or "paper", S0's Proposition 2.2 (two to three times as much).
    engine : "primal" or "dual", for random features.

    >>> Descent(steps=100, clip_norm=2.0).given
    ('steps', 'clip_norm')
    """

    sparse: ClassVar[bool] = True
    steps: int | None = None
    clip_norm: float | None = None
    learning_rate: float | tuple[float, ...] | None = None
    average: bool | None = None
    noise: str = "exact"
    engine: str | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            object.__setattr__(self, "steps", check_count("steps", self.steps))
        if self.clip_norm is not None:
            object.__setattr__(self, "clip_norm", check_positive("clip_norm", self.clip_norm))
        rates = self.learning_rate
        if rates is not None:
            if isinstance(rates, (tuple, list)):
                if len(rates) != self.steps:
                    raise GratisError("learning_rate must be one number, or one for each of the steps given with it")
                every = tuple(check_positive("learning_rate", rate) for rate in rates)
                object.__setattr__(self, "learning_rate", every)
            else:
                object.__setattr__(self, "learning_rate", check_positive("learning_rate", rates))
        if self.average not in (None, True, False):
            raise GratisError("average must be True or False")
        if self.noise not in ("exact", "paper"):
            raise GratisError(f"noise must be 'exact' or 'paper', got {self.noise!r}")
        if self.engine not in (None, "primal", "dual"):
            raise GratisError(f"engine must be 'primal' or 'dual', got {self.engine!r}")

    @property
    def given(self) -> tuple[str, ...]:
        """The names of what is not left to the planner."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name) != one.default)

    def refuse(self, model: str, *names: str) -> None:
        """Refuse settings that a model does not have."""
        foreign = [name for name in self.given if name in names]
        if foreign:
            raise GratisError(f"{model} has no setting {' or '.join(foreign)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FullBatchSettings(Record):
    """Plain descent on a linear model; `output` says which iterate is returned."""

    kind: ClassVar[str] = "full-batch"
    steps: int
    clip_norm: float
    learning_rate: float
    noise_std: float
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSettings(Record):
    """Standardise, second moments, descend; clip norm and rate are chosen from what was released, unless given."""

    kind: ClassVar[str] = "staged"
    sparse: ClassVar[bool] = True
    steps: int
    stages: tuple[str, ...]
    descent_mu: float
    clip_and_rate: str
    second_moments_mu: float | None = None
    given: Descent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePassSettings(Record):
    """One pass over the rows: the schedule's curve, and what it begins with."""

    kind: ClassVar[str] = "one-pass"
    rho: float
    initial_step_size: float
    initial_clip_norm: float
    noise_std_total: float
    blocks: int
    curve: JsonObject = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSettings(Record):
    """Descent on fixed features. What one of the two tasks does not have is None; `mean_mu` 0 releases no mean."""

    kind: ClassVar[str] = "features"
    sparse: ClassVar[bool] = True
    n_features: int
    steps: int
    clip_norm: float
    learning_rate: float | tuple[float, ...]
    activation: str | None = None
    row_norm: float | None = None
    noise_std: float | None = None
    descent_mu: float | None = None
    mean_mu: float | None = None
    counts_mu: float | None = None
    calibration_mu: float | None = None
    engine: str | None = None
    average: bool | None = None
    noise: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings(Record):
    """Full-batch training of a network with rates that fall to 0; `total_rate` is Σ η_t·C."""

    kind: ClassVar[str] = "network"
    widths: tuple[int, ...]
    clip_norm: float
    steps: int
    total_rate: float
    mean_rate: float
    average: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveSettings(Record):
    """Curves of `cosines` cosines and up to `most_pairs` surfaces, from `steps` released gradients."""

    kind: ClassVar[str] = "additive"
    cosines: int
    steps: int
    most_pairs: int
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings(Record):
    """A staged linear fit as the start of one step of bounded influence, whose covariance is released with it."""

    kind: ClassVar[str] = "linear-inference"
    steps: int
    stages: tuple[str, ...]
    descent_mu: float
    jacobian_mu: float
    gradient_mu: float


Settings = (
    FullBatchSettings
    | StagedSettings
    | OnePassSettings
    | FeatureSettings
    | NetworkSettings
    | AdditiveSettings
    | InferenceSettings
)
