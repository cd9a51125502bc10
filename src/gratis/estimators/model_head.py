"""The head of a model file (`model.json`): which estimator it is, how it reads rows, and the sums of all members."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gratis.mechanisms.location_scale import Standardiser
from gratis.models.random_features import Activation, RandomFeatures
from gratis.models.scattering import ScatteringFeatures
from gratis.records.errors import GratisError
from gratis.records.predictions import Prediction
from gratis.records.record import JsonObject, Record
from gratis.stages.feature_mean import CentredFeatures

__all__ = [
    "FORMAT",
    "FeatureMap",
    "Filling",
    "InferenceFacts",
    "ModelFacts",
    "ModelHead",
    "feature_map_record",
    "feature_means",
]

FORMAT = "gratis-model/2"
_FIRST_FORMAT = "gratis-model/1"  # of version 0.1.0: without the hash of the released arrays

FeatureMap = RandomFeatures | ScatteringFeatures


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomMap(Record):
    """Random features are a function of these."""

    kind: ClassVar[str] = "random"
    activation: str
    n_inputs: int
    n_features: int
    seed: int

    def features(self) -> FeatureMap:
        """Make the map again."""
        return RandomFeatures(
            n_inputs=self.n_inputs, n_features=self.n_features, activation=Activation.parse(self.activation),
            seed=self.seed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatteringMap(Record):
    """Scattering features are a function of these."""

    kind: ClassVar[str] = "scattering"
    side: int
    scales: int
    orientations: int
    groups: int
    row_norm: float

    @property
    def n_inputs(self) -> int:
        """Pixels."""
        return self.side**2

    def features(self) -> FeatureMap:
        """Make the map again."""
        return ScatteringFeatures(
            side=self.side, scales=self.scales, orientations=self.orientations, groups=self.groups,
            row_norm=self.row_norm,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filling(Record):
    """Whether a missing value counts as the column's centre."""

    impute: bool

    @classmethod
    def of(cls, scaler: Standardiser) -> Filling:
        """That of a map of columns."""
        return cls(bool(scaler.impute))


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceFacts(Record):
    """Of a fit with inference: its rows, the names of its columns, and why intervals are withheld, if they are."""

    sparse: ClassVar[bool] = True
    rows: int
    names: tuple[str, ...]
    withheld: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts(Record):
    """What prediction needs beside the arrays; three are for models on features (norms of the centred rows)."""

    sparse: ClassVar[bool] = True
    features: Filling
    target: Filling | None = None
    engine: str | None = None
    row_norms: tuple[float | None, ...] | None = None
    feature_map: RandomMap | ScatteringMap | None = None
    inference: InferenceFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHead(Record):
    """`parameters` of the estimator, `facts` (additive: `recipes.released_additive`), `context` of its maker."""

    sparse: ClassVar[bool] = True
    format: str
    estimator: str
    parameters: dict[str, object] = field(hash=False)
    n_features_in: int
    facts: JsonObject = field(hash=False)
    prediction: Prediction
    context: JsonObject = field(hash=False)
    released: str | None = None
    sha256: dict[str, str] = field(hash=False)

    def __post_init__(self) -> None:
        if self.format not in (FORMAT, _FIRST_FORMAT) or (self.released is None) != (self.format == _FIRST_FORMAT):
            raise GratisError("its format or its list of contents is unknown")
        if self.n_features_in < 1:
            raise GratisError("it has no columns")


def feature_map_record(features: object) -> RandomMap | ScatteringMap:
    """Describe a map of features."""
    if isinstance(features, ScatteringFeatures):
        return ScatteringMap(
            side=features.side, scales=features.scales, orientations=features.orientations, groups=features.groups,
            row_norm=features.row_norm,
        )  # fmt: skip
    assert isinstance(features, RandomFeatures)
    return RandomMap(
        activation=features.activation.name, n_inputs=features.n_inputs, n_features=features.n_features,
        seed=features.seed,
    )  # fmt: skip


def feature_means(feature_map: object) -> list[CentredFeatures]:
    """Return the centred maps that were put around a map of features, the innermost first."""
    found: list[CentredFeatures] = []
    while isinstance(feature_map, CentredFeatures):
        found.insert(0, feature_map)
        feature_map = feature_map.features
    return found
