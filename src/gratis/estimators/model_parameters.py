"""What every model is told and the recipe that follows, without scikit-learn, which takes a second or two to load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from gratis.recipes.recipe import Recipe
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.facts import Facts

if TYPE_CHECKING:
    from gratis.recipes.one_pass import OnePassLinear
from dataclasses import KW_ONLY

from gratis.estimators.scales import PublicScales
from gratis.recipes.recipe import Reading
from gratis.records.budget import Budget
from gratis.records.neighbouring import Neighbouring
from gratis.records.plans import Plan
from gratis.records.settings import Descent

__all__ = [
    "ACTIVATIONS",
    "AdditiveClassifierParameters",
    "AdditiveParameters",
    "FeatureClassifierParameters",
    "FeatureParameters",
    "FitParameters",
    "LinearParameters",
    "LogisticParameters",
    "NetworkParameters",
]

ACTIVATIONS = ("tanh", "relu", "erf")
_DIRECTIONS = {"increasing": 1, "decreasing": -1}


@dataclass(eq=False, repr=False)
class FitParameters:
    """The parameters that all models share; `PrivateFit` says what each means."""

    epsilon: float | None = None
    delta: float | None = None
    _: KW_ONLY
    neighbouring: str = "replace-one"
    preprocessing: str = "private"
    public: PublicScales | None = None
    descent: Descent | None = None
    on_invalid: str = "raise"
    ledger: Any = None
    dataset: str | None = None
    noise_seed: int | None = None
    insecure_reproducible: bool = False
    verbose: bool = False

    def plan(self, rows: int, columns: int, *, classes: int | None = None) -> Plan:
        """Return what `fit` would release for a table of these sizes; nothing is opened or spent."""
        return self._recipe(Facts(rows=rows, columns=columns, classes=classes)).plan

    def _recipe(self, facts: Facts) -> Recipe:
        """The model's private steps for these facts."""
        raise NotImplementedError

    def _reading(self, facts: Facts) -> Reading:
        """How rows are read: from `preprocessing`, `public` and `on_invalid`."""
        how = self._choice("preprocessing", ("private", "public", "none"))
        if (self.public is not None) != (how == "public"):
            raise GratisError("give public scales with preprocessing='public', and only then")
        impute = self._handling() == "impute"
        if self.public is None:
            return Reading(standardise=how == "private", impute=impute)
        target = self.public.target() if facts.classes is None else None
        return Reading(standardise=False, features=self.public.features(facts.columns), target=target, impute=impute)

    def _descent(self) -> Descent:
        if self.descent is not None and not isinstance(self.descent, Descent):
            raise GratisError("descent must be a Descent (gratis.Descent), or None")
        return self.descent or Descent()

    def _budget(self) -> Budget:
        if self.epsilon is None or self.delta is None:
            raise GratisError("give epsilon and delta: nothing is spent by accident")
        return Budget(epsilon=self.epsilon, delta=self.delta, neighbouring=Neighbouring.parse(self.neighbouring))

    def _handling(self) -> str:
        """What is done with invalid records: the checked `on_invalid`."""
        return self._choice("on_invalid", ("raise", "zero", "impute"))

    def _choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = getattr(self, name)
        if value not in allowed:
            raise GratisError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
        return str(value)


def _mapping(name: str, given: Any) -> dict[Any, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise GratisError(f"{name} must be a mapping of columns")
    return dict(given or {})


@dataclass(eq=False, repr=False, kw_only=True)
class LinearParameters(FitParameters):
    """Of `DPLinearRegression`."""

    algorithm: str = "auto"
    schedule: str = "free"
    inference: bool | str = False

    def _recipe(self, facts: Facts) -> Recipe:
        estimand = self._estimand()
        if self._choice("algorithm", ("auto", "full-batch", "one-pass")) == "one-pass":
            return self._pass(facts)
        if self.schedule != "free":
            raise GratisError("a schedule is for algorithm='one-pass'")
        return self._intervals(facts, estimand) if estimand else self._staged(facts)

    def _pass(self, facts: Facts) -> OnePassLinear:
        from gratis.recipes.one_pass import OnePassLinear  # compiled kernels: half a second, for those who need them

        return OnePassLinear(facts, self._budget(), self._reading(facts), str(self.schedule), self._descent())

    def _staged(self, facts: Facts) -> Recipe:
        from gratis.recipes.linear import Linear

        return Linear(facts, self._budget(), self._reading(facts), self._descent())

    def _intervals(self, facts: Facts, estimand: str) -> Recipe:
        from gratis.recipes.linear_inference import LinearInference

        return LinearInference(facts, self._budget(), self._reading(facts), estimand)

    def _estimand(self) -> str | None:
        """What intervals are of: the checked parameter `inference`; None without intervals."""
        if self.inference is False:
            return None
        from gratis.recipes.linear_inference import ESTIMANDS

        if self.inference is not True and self.inference not in (False, *ESTIMANDS):
            raise GratisError(f"inference must be True, False, 'weighted' or 'winsorised', got {self.inference!r}")
        if not self.inference:
            return None
        if self.algorithm == "one-pass":
            raise GratisError("inference needs the full-batch fit: one pass has no covariance")
        self._descent().refuse("a fit with inference", *self._descent().given)
        return self.inference if isinstance(self.inference, str) else "weighted"


@dataclass(eq=False, repr=False, kw_only=True)
class LogisticParameters(LinearParameters):
    """Of `DPLogisticRegression`."""

    classes: ArrayLike | None = None
    class_weight: Mapping[Any, float] | str | None = None

    def _recipe(self, facts: Facts) -> Recipe:
        if self.class_weight is not None and (self._estimand() or self.algorithm == "one-pass"):
            raise GratisError("class_weight is for the full-batch fit without inference")
        return super()._recipe(facts)

    def _staged(self, facts: Facts) -> Recipe:
        from gratis.recipes.logistic import StagedLogistic

        return StagedLogistic(facts, self._budget(), self._reading(facts), self._descent())

    def _intervals(self, facts: Facts, estimand: str) -> Recipe:
        from gratis.recipes.logistic_inference import LogisticInference

        if facts.classes != 2:
            raise GratisError("inference is for two classes")
        return LogisticInference(facts, self._budget(), self._reading(facts), estimand)


@dataclass(eq=False, repr=False, kw_only=True)
class AdditiveParameters(FitParameters):
    """Of `DPAdditiveRegressor`."""

    categorical: Mapping[Any, int] | None = None
    pairs: str | bool = "auto"
    monotone: Mapping[Any, str] | None = None

    def _recipe(self, facts: Facts) -> Recipe:
        from gratis.recipes.additive import Additive

        if self.preprocessing != "private" or self.public is not None:
            raise GratisError("an additive model finds the scales of its columns privately: preprocessing='private'")
        self._descent().refuse("an additive model", *self._descent().given)
        return Additive(
            facts, self._budget(), self._levels(facts.columns), self._pairs(),
            self._directions(facts.columns, facts.classes), self._handling() == "impute",
        )  # fmt: skip

    def _pairs(self) -> bool:
        if self.pairs not in ("auto", False):
            raise GratisError(f"pairs must be 'auto' or False, got {self.pairs!r}")
        return self.pairs == "auto"

    def _column(self, key: Any, n_columns: int) -> int:
        """The position of a column that is given by position or by name."""
        names = list(getattr(self, "feature_names_in_", ()))
        if isinstance(key, str):
            if key not in names:
                raise GratisError(f"there is no column {key!r}" + ("" if names else ": X has no names of columns"))
            return names.index(key)
        position = check_count("a column's position", key, minimum=0)
        if position >= n_columns:
            raise GratisError(f"there is no column {position}: X has {n_columns} columns")
        return position

    def _levels(self, n_columns: int) -> dict[int, int]:
        found = _mapping("categorical", self.categorical)
        return {
            self._column(key, n_columns): check_count("the number of levels", count, minimum=2)
            for key, count in sorted(found.items(), key=lambda item: str(item[0]))
        }

    def _directions(self, n_columns: int, n_classes: int | None) -> dict[int, int]:
        found = _mapping("monotone", self.monotone)
        if found and n_classes is not None and n_classes > 2:
            raise GratisError("monotone curves need a number or two classes as the target")
        levels = self._levels(n_columns)
        directions = {}
        for key, word in found.items():
            if word not in _DIRECTIONS:
                raise GratisError(f"monotone must say 'increasing' or 'decreasing', got {word!r}")
            column = self._column(key, n_columns)
            if column in levels:
                raise GratisError("a categorical column has no order in which it could be monotone")
            directions[column] = _DIRECTIONS[word]
        return directions


@dataclass(eq=False, repr=False, kw_only=True)
class AdditiveClassifierParameters(AdditiveParameters):
    """Of `DPAdditiveClassifier`."""

    classes: ArrayLike | None = None
    class_weight: Mapping[Any, float] | str | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureParameters(FitParameters):
    """Of `DPRandomFeaturesRegressor`."""

    n_features: int = 2000
    features: str = "tanh"
    feature_seed: int = 0

    def _recipe(self, facts: Facts) -> Recipe:
        from gratis.recipes.random_features import FixedFeatures

        self._choice("features", ACTIVATIONS if facts.classes is None else (*ACTIVATIONS, "scattering"))
        return FixedFeatures(
            facts, self._budget(), self._reading(facts), self.features, self.n_features, self.feature_seed,
            bool(getattr(self, "centre", True)), self._descent(),
        )  # fmt: skip


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureClassifierParameters(FeatureParameters):
    """Of `DPRandomFeaturesClassifier`."""

    features: str = "relu"
    centre: bool = True
    classes: ArrayLike | None = None
    class_weight: Mapping[Any, float] | str | None = None

    def _recipe(self, facts: Facts) -> Recipe:
        recipe = super()._recipe(facts)
        if self.class_weight is not None and not recipe.chosen_from_releases:
            raise GratisError("class_weight needs class counts, which a descent with a given learning rate has not")
        return recipe


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkParameters(FitParameters):
    """Of `DPMLPClassifier`."""

    width: int = 1000
    depth: int = 1
    steps: int = 75
    init: str = "he"
    initial_seed: int = 0
    classes: ArrayLike | None = None

    def _recipe(self, facts: Facts) -> Recipe:
        from gratis.recipes.network import Network

        return Network(
            facts, self._budget(), self._reading(facts), self.width, self.depth, self.steps, self.initial_seed,
            self._descent(), self.init,
        )  # fmt: skip
