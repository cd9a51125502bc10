"""Prediction and Estimate: numbers that are not guarantees, as types that cannot be mistaken for one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from typing import Any

from gratis.records.checks import check_finite
from gratis.records.errors import GratisError
from gratis.records.notebook import card
from gratis.records.record import JsonObject, Record, plain, read_record

__all__ = ["Estimate", "Prediction"]

_ROUNDING = 1e-9  # relative: a mean of thousands of members rounds by far less


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Record):
    """What theory or a twin says will happen, with the assumptions it rests on; not measured on private data.

    `low` and `high` are the range over the assumed family, not a confidence interval.
    """

    quantity: str
    value: float
    low: float
    high: float
    source: str
    assumptions: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            object.__setattr__(self, name, check_finite(name, getattr(self, name)))
        slack = _ROUNDING * max(abs(self.low), abs(self.high)) + sys.float_info.min
        if not self.low - slack <= self.value <= self.high + slack:
            raise GratisError("a prediction must lie inside its own range")
        # The mean of equal members can round past them: no reason to end a fit whose noise has been drawn.
        object.__setattr__(self, "low", min(self.low, self.value))
        object.__setattr__(self, "high", max(self.high, self.value))

    @property
    def excess_risk(self) -> float:
        """The predicted value, for predictions of an excess risk."""
        if self.quantity != "excess_risk":
            raise AttributeError(f"this prediction is of {self.quantity}, not of an excess risk")
        return self.value

    @property
    def range(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high

    def _repr_html_(self) -> str:
        facts = [("value", self.value), ("range", f"{self.low:.4g} to {self.high:.4g}"), ("from", self.source)]
        assumed = [f"Assumed: {one}." for one in self.assumptions]
        return card(f"Predicted {self.quantity.replace('_', ' ')}", facts, assumed)

    def to_json(self) -> JsonObject:
        """Return plain data for JSON, the details beside the rest."""
        data = Record.to_json(self)  # not `super()`: a slotted dataclass is made twice, and it would see the first
        del data["details"]
        return data | plain(self.details)

    @classmethod
    def from_json(cls, data: object) -> Prediction:
        """Read what `to_json` wrote; unknown keys are details.

        >>> made = Prediction(quantity="test_loss", value=1.0, low=0.5, high=2.0, source="twin", details={"gap": 0.1})
        >>> Prediction.from_json(made.to_json()) == made
        True
        """
        if not isinstance(data, dict):
            raise GratisError("a prediction must be an object")
        own = {field.name for field in fields(cls)} - {"details"}
        details = {key: value for key, value in data.items() if key not in own}
        return read_record(cls, {key: data[key] for key in own & set(data)} | {"details": details})


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Record):
    """What was sampled, with its confidence: `low` is a lower bound that holds with probability `confidence`."""

    quantity: str
    value: float
    low: float
    high: float
    confidence: float
    samples: int
    method: str

    def _repr_html_(self) -> str:
        span = f"{self.low:.4g} to {self.high:.4g} at {100 * self.confidence:g} %"
        facts = [("value", self.value), ("range", span), ("samples", self.samples)]
        return card(f"Estimated {self.quantity.replace('_', ' ')}", facts, [self.method])
