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

__all__ = ["TOO_FEW", "Cost", "Plan", "cost_words", "is_worthless", "predicted_cost", "predicted_gain"]

TOO_FEW = (
    "So few rows at this budget may not show even the target's order of magnitude, and predictions can then be "
    "far off: more rows, a larger epsilon or public scales help."
)
_EXPLAINED = 0.55  # of a target's variance: the mean over the twins that linear plans are made for
_LOG_ODDS = 0.5  # nats, for log-odds of variance 1: what additive classifiers lose when they lose all


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


def predicted_cost(prediction: Prediction, classes: int | None) -> Cost | None:
    """What a plan predicts that privacy costs against the same model without it; None where that is not predicted."""
    found, details = prediction, prediction.details
    if found.quantity == "excess_risk" and classes is None:
        return Cost(2 * found.value, 2 * found.low, 2 * found.high, "R²")
    if found.quantity == "excess_risk":
        return Cost(found.value, found.low, found.high, "nats of log loss")
    if "predicted_nonprivate_loss" in details:
        best = min(details["predicted_nonprivate_loss"], details["predicted_nonprivate_stopped_loss"])
        value, low, high = (max(0.0, loss - best) for loss in (found.value, found.low, found.high))
        return Cost(value, low, high, "R²")
    return None


def predicted_gain(prediction: Prediction, classes: int | None) -> float:
    """What there is to gain over answering the mean, or the shares of the classes, in the unit of the cost."""
    details = prediction.details
    if "predicted_nonprivate_loss" in details:
        best = min(details["predicted_nonprivate_loss"], details["predicted_nonprivate_stopped_loss"])
        return max(0.0, 1.0 - float(best))
    known = details.get("null_risk", details.get("initial_excess_risk"))
    if known is None:
        return _EXPLAINED if classes is None else _LOG_ODDS
    return float(known) * (2 if classes is None else 1)


def is_worthless(plan: Plan, classes: int | None) -> bool:
    """Whether a plan expects to lose most of what there is to gain. It follows from public facts.

    Most is more than half. On the diabetes table (442 rows, ten columns, least squares reaches R² = .52) fits at
    ε = 1 of 60 and 120 rows ended near R² = 0 or below, of 250 rows at .2 with ten columns and at .4 with three, of 442
    at .4: this asks for the first two, and for 250 rows with ten columns.
    """
    found = predicted_cost(plan.prediction, classes)
    lost = found is not None and found.value > predicted_gain(plan.prediction, classes) / 2
    return lost or TOO_FEW in plan.reasons
