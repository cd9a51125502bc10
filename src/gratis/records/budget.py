"""A privacy budget, as the user states it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gratis.records.checks import check_delta, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.records.record import Record

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Record):
    """What may be spent: (epsilon, delta), or a Gaussian-DP parameter mu, under one neighbouring relation.

    Turning (epsilon, delta) into mu is accounting and lives there (`accounting.calibrate_mu`).

    >>> Budget(epsilon=1.0, delta=1e-5).describe()
    '(epsilon=1, delta=1e-05)-DP, replace-one'
    """

    sparse: ClassVar[bool] = True
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbouring", Neighbouring.parse(self.neighbouring))
        if self.mu is not None:
            if self.epsilon is not None or self.delta is not None:
                raise GratisError("give a budget as mu, or as epsilon and delta, not both")
            object.__setattr__(self, "mu", check_positive("mu", self.mu))
            return
        if self.epsilon is None or self.delta is None:
            raise GratisError("a budget needs mu, or both epsilon and delta")
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))

    def describe(self) -> str:
        """One phrase that always names the relation."""
        if self.mu is not None:
            return f"{self.mu:g}-GDP, {self.neighbouring}"
        return f"(epsilon={self.epsilon:g}, delta={self.delta:g})-DP, {self.neighbouring}"
