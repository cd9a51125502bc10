"""Plan: settings chosen from public facts, the event they will cause, and the prediction that chose them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gratis.records.budget import Budget
from gratis.records.events import Event
from gratis.records.notebook import card
from gratis.records.predictions import Prediction
from gratis.records.record import JsonObject, Record
from gratis.records.settings import Settings

__all__ = ["Cost", "Plan", "cost_words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """Everything that is fixed before data is touched. `event` is what the ledger reserves."""

    algorithm: str
    schedule: str
    settings: Settings
    budget: Budget
    event: Event
    prediction: Prediction
    reasons: tuple[str, ...] = ()
    alternatives: tuple[JsonObject, ...] = field(default=(), hash=False)

    def to_json(self) -> JsonObject:
        """Return plain data for JSON (the event goes into the certificate, not here)."""
        return {name: value for name, value in Record.to_json(self).items() if name != "event"}

    def _repr_html_(self) -> str:
        found = self.prediction
        predicted = f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"
        facts = [
            ("budget", self.budget.describe()),
            ("algorithm", self.algorithm),
            (f"predicted {found.quantity.replace('_', ' ')}", predicted),
        ]
        return card("Plan: nothing is spent yet", facts, self.reasons)

    def explain(self) -> str:
        """Return the reasons in words."""
        return "\n".join(self.reasons)


class Cost(NamedTuple):
    """What privacy is predicted to cost against the same model without it."""

    value: float
    low: float
    high: float
    unit: str


def cost_words(value: float, low: float, high: float, unit: str) -> str:
    """What privacy is predicted to cost, as a range.

    >>> cost_words(0.013, 0.0012, 0.127, "R²"), cost_words(0.004, 0.002, 0.006, "nats of log loss")
    ('0.00 to 0.13 of R²', '0.002 to 0.006 nats of log loss')
    >>> cost_words(0.0051, 0.0049, 0.0052, "R²")
    '0.005 of R²'
    """
    digits = 2 if high >= 0.1 else 3
    least, most = (f"{end:.{digits}f}" for end in (low, high))
    return f"{least if least == most else f'{least} to {most}'} {unit if unit.startswith('nats') else f'of {unit}'}"
