"""What every private model is told, and its plan: without scikit-learn, which takes a second or two to load."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from gratis.estimators.scales import PublicScales
from gratis.recipes.recipe import Reading, Recipe
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.records.plans import Plan
from gratis.records.settings import Descent

__all__ = ["FitParameters"]


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
