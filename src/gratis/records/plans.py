"""Plan: settings chosen from public facts, the event they will cause, and the prediction that chose them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gratis.records.budget import Budget
from gratis.records.events import Event
from gratis.records.predictions import Prediction

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is fixed before data is touched. `event` is what the ledger reserves."""

    algorithm: str
    schedule: str
    settings: dict[str, Any] = field(hash=False)
    budget: Budget
    event: Event
    prediction: Prediction
    reasons: tuple[str, ...] = ()
    alternatives: tuple[dict[str, Any], ...] = field(default=(), hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON (the event goes into the certificate, not here)."""
        return {
            "algorithm": self.algorithm,
            "schedule": self.schedule,
            "settings": self.settings,
            "budget": self.budget.to_json(),
            "prediction": self.prediction.to_json(),
            "reasons": list(self.reasons),
            "alternatives": list(self.alternatives),
        }

    def explain(self) -> str:
        """Return the reasons in words."""
        return "\n".join(self.reasons)
