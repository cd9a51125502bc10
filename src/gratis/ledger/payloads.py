"""What the entries of a ledger say: one record a kind of entry, checked when it is made and when it is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from gratis.ledger.spending import total_mu
from gratis.records.budget import Budget
from gratis.records.errors import LedgerError
from gratis.records.events import Event, event_from_json
from gratis.records.record import Record

__all__ = [
    "MODEL", "PAYLOADS", "UNIT", "BudgetPayload", "ClaimPayload", "CommitmentPayload", "Fingerprint", "Payload",
    "ReservationPayload", "unit_of_persons",
]  # fmt: skip

_NAME_LENGTH = 200
_NOTE_LENGTH = 2000
UNIT = "unit: "  # how the note of a reservation begins whose unit of privacy is not a row
MODEL = "model: "  # how the part of a note begins that says what is trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint(Record):
    """The hash of a data set. Who guesses the data can check the guess against it: the flag travels with the value."""

    sha256: str
    data_dependent: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", str(self.sha256)) or not self.data_dependent:
            raise LedgerError("a fingerprint is a SHA-256 in 64 lower-case hexadecimal digits; see content_fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPayload(Record):
    """A data set gets its budget."""

    name: str
    budget: Budget
    fingerprint: Fingerprint | None

    def __post_init__(self) -> None:
        _check_text("the name of a data set", self.name, _NAME_LENGTH)
        if not isinstance(self.budget, Budget):
            raise LedgerError(f"a budget must be a Budget, got {type(self.budget).__name__}")
        total_mu(self.budget)  # a budget that cannot be turned into mu must fail here, not at the first run


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationPayload(Record):
    """Budget is taken for one run."""

    name: str
    event: Event
    purpose: str
    note: str

    def __post_init__(self) -> None:
        _check_text("the purpose", self.purpose, _NAME_LENGTH)
        if self.note:
            _check_text("the note", self.note, _NOTE_LENGTH)

    def check_survives(self) -> None:
        """Refuse an event that is another one when it is read back."""
        if event_from_json(self.event.to_json()) != self.event:
            raise LedgerError("the event does not survive being written down and read back; nothing was reserved")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentPayload(Record):
    """A reserved run has released what it said; `released` is the SHA-256 of a model's arrays."""

    sparse: ClassVar[bool] = True
    name: str
    reservation: str
    released: str | None = None

    def __post_init__(self) -> None:
        if self.released is not None and not re.fullmatch(r"[0-9a-f]{64}", self.released):
            raise LedgerError("what was released is named by a SHA-256 in 64 lower-case hexadecimal digits")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPayload(Record):
    """Of a reserved run's steps, `released` may have been released by now, and up to `claimed` before the next entry.

    `run` names the process that claims: one that goes on from a checkpoint has another name than the one before it.
    """

    name: str
    reservation: str
    run: str
    released: int
    claimed: int

    def __post_init__(self) -> None:
        _check_text("the name of a run", self.run, _NAME_LENGTH)
        if not 0 <= self.released <= self.claimed:
            raise LedgerError("a claim counts steps: 0 ≤ released ≤ claimed")


Payload = BudgetPayload | ReservationPayload | CommitmentPayload | ClaimPayload
PAYLOADS: dict[str, type[Payload]] = {
    "budget": BudgetPayload, "reservation": ReservationPayload, "commitment": CommitmentPayload,
    "claim": ClaimPayload,
}  # fmt: skip


def unit_of_persons(name: str) -> str:
    """The unit of privacy, where ids called `name` say whose rows they are.

    >>> unit_of_persons("patient"), unit_of_persons("")
    ("a person with all rows, by 'patient'", 'a person with all rows')
    """
    return "a person with all rows" + (f", by {name[:200]!r}".replace(";", ",") if name else "")


def _check_text(what: str, value: object, limit: int) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= limit or not value.isprintable() or value != value.strip():
        raise LedgerError(
            f"{what} must be a printable text of 1 to {limit} characters without outer blanks, got {value!r}"
        )
