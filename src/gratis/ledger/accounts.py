"""Accounts: the state that the ledger's entries add up to, one account a data set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gratis.ledger.chain import Entry
from gratis.ledger.spending import spending, total_mu
from gratis.records.budget import Budget
from gratis.records.errors import GratisError, LedgerError
from gratis.records.events import Event, event_from_json

__all__ = ["Account", "Reservation", "Status", "add_up", "budget_payload", "reservation_payload"]

_NAME_LENGTH = 200
_NOTE_LENGTH = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Budget taken for one run. `id` is the hash of its entry and names no other, in any ledger."""

    id: str
    sequence: int
    time: str
    name: str
    event: Event
    purpose: str
    note: str = ""
    committed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = {key: getattr(self, key) for key in ("id", "sequence", "time", "name", "purpose", "note", "committed")}
        return plain | {"event": self.event.to_json()}


@dataclass(slots=True)
class Account:
    """One data set: its budget and everything reserved from it, in order."""

    name: str
    budget: Budget
    fingerprint: str | None
    reservations: dict[str, Reservation] = field(default_factory=dict)

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that counts as spent: a reservation counts from the moment it is written."""
        return tuple(reservation.event for reservation in self.reservations.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a data set's budget stands. Depends on events only, never on data, so it may be shown to anyone.

    `never_committed` are reservations whose run did not report back: spent all the same.
    `adaptive_choice_covered` is False once subsampled events are inside (see `ledger.spending`).
    """

    name: str
    budget: Budget
    fingerprint: str | None
    total_mu: float
    spent_mu: float | None
    remaining_mu: float | None
    spent_epsilon: float | None
    reservations: int
    by_purpose: dict[str, int]
    never_committed: tuple[Reservation, ...]
    head: str
    entries: int

    @property
    def adaptive_choice_covered(self) -> bool:
        """Whether the total also holds if later runs were chosen after seeing earlier releases."""
        return self.spent_mu is not None

    @classmethod
    def of(cls, account: Account, head: Entry) -> Status:
        """Compute the status of an account at the head of the chain."""
        spent = spending(account.budget, account.events)
        reservations = tuple(account.reservations.values())
        return cls(
            name=account.name,
            budget=account.budget,
            fingerprint=account.fingerprint,
            total_mu=total_mu(account.budget),
            spent_mu=spent.mu,
            remaining_mu=spent.remaining_mu(account.budget),
            spent_epsilon=spent.epsilon,
            reservations=len(reservations),
            by_purpose=dict(sorted(Counter(r.purpose for r in reservations).items())),
            never_committed=tuple(r for r in reservations if not r.committed),
            head=head.hash,
            entries=head.sequence + 1,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; `epsilon` and `delta` are null when the budget was stated in mu."""
        return {
            "name": self.name,
            "mu": self.total_mu,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "neighbouring": str(self.budget.neighbouring),
            "spent_mu": self.spent_mu,
            "remaining_mu": self.remaining_mu,
            "spent_epsilon": self.spent_epsilon,
            "adaptive_choice_covered": self.adaptive_choice_covered,
            "reservations": self.reservations,
            "by_purpose": self.by_purpose,
            "never_committed": [reservation.to_json() for reservation in self.never_committed],
            "fingerprint": _fingerprint_json(self.fingerprint),
            "head": self.head,
            "entries": self.entries,
        }


def _fingerprint_json(fingerprint: str | None) -> dict[str, Any] | None:
    # Who guesses the data can check the guess against a hash: the flag travels with the value.
    return None if fingerprint is None else {"sha256": fingerprint, "data_dependent": True}


def _check_text(what: str, value: Any, limit: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= limit or not value.isprintable() or value != value.strip():
        raise LedgerError(
            f"{what} must be a printable text of 1 to {limit} characters without outer blanks, got {value!r}"
        )
    return value


def budget_payload(name: str, budget: Budget, fingerprint: str | None) -> dict[str, Any]:
    """Return the checked content of a 'budget' entry."""
    _check_text("the name of a data set", name, _NAME_LENGTH)
    if not isinstance(budget, Budget):
        raise LedgerError(f"a budget must be a Budget, got {type(budget).__name__}")
    if fingerprint is not None and not re.fullmatch(r"[0-9a-f]{64}", str(fingerprint)):
        raise LedgerError("a fingerprint is a SHA-256 in 64 lower-case hexadecimal digits; see content_fingerprint")
    total_mu(budget)  # a budget that cannot be turned into mu must fail here, not at the first run
    return {"name": name, "budget": budget.to_json(), "fingerprint": _fingerprint_json(fingerprint)}


def reservation_payload(name: str, event: Event, purpose: str, note: str) -> dict[str, Any]:
    """Return the checked content of a 'reservation' entry."""
    _check_text("the purpose", purpose, _NAME_LENGTH)
    if note:
        _check_text("the note", note, _NOTE_LENGTH)
    stored = event.to_json()
    if event_from_json(stored) != event:
        raise LedgerError("the event does not survive being written down and read back; nothing was reserved")
    return {"name": name, "event": stored, "purpose": purpose, "note": note}


def add_up(entries: Iterable[Entry]) -> dict[str, Account]:
    """Replay the entries; one that makes no sense where it stands is an error, never skipped."""
    accounts: dict[str, Account] = {}
    for entry in entries:
        try:
            _apply(accounts, entry)
        except (GratisError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise LedgerError(
                f"the ledger is damaged: entry {entry.sequence} makes no sense where it stands; "
                "restore the file from a copy, and reserve nothing until then"
            ) from None
    return accounts


def _apply(accounts: dict[str, Account], entry: Entry) -> None:
    payload = {key: value for key, value in entry.payload.items() if key != "writer"}
    if (entry.kind == "ledger") != (entry.sequence == 0):
        raise LedgerError("a ledger begins with one 'ledger' entry")
    if entry.kind == "budget":
        name = payload["name"]
        budget = Budget.from_json(payload["budget"])
        fingerprint = payload["fingerprint"] and payload["fingerprint"]["sha256"]
        if name in accounts or payload != budget_payload(name, budget, fingerprint):
            raise LedgerError("a data set has one budget")
        accounts[name] = Account(name, budget, fingerprint)
    elif entry.kind == "reservation":
        event = event_from_json(payload["event"])
        if payload != reservation_payload(payload["name"], event, payload["purpose"], payload["note"]):
            raise LedgerError("not a reservation")
        accounts[payload["name"]].reservations[entry.hash] = Reservation(
            id=entry.hash,
            sequence=entry.sequence,
            time=entry.time,
            name=payload["name"],
            event=event,
            purpose=payload["purpose"],
            note=payload["note"],
        )
    elif entry.kind == "commitment":
        reservations = accounts[payload["name"]].reservations
        reservation = reservations[payload["reservation"]]
        if reservation.committed or set(payload) != {"name", "reservation"}:
            raise LedgerError("a reservation is committed once")
        reservations[reservation.id] = replace(reservation, committed=True)
    elif entry.kind != "ledger":
        raise LedgerError("unknown kind")
