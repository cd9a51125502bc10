"""Accounts: the state that the ledger's entries add up to, one account a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gratis.ledger.chain import Entry
from gratis.ledger.payloads import (
    MODEL,
    PAYLOADS,
    UNIT,
    BudgetPayload,
    ClaimPayload,
    CommitmentPayload,
    Fingerprint,
    ReservationPayload,
)
from gratis.ledger.spending import largest_fitting, price, spending, total_mu
from gratis.records.budget import Budget
from gratis.records.errors import GratisError, LedgerError
from gratis.records.events import Event
from gratis.records.notebook import card
from gratis.records.record import JsonObject, Record, plain

__all__ = ["Account", "Booked", "Reservation", "Status", "add_up", "check_claim", "reservation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation(Record):
    """Budget taken for one run. `id` is the hash of its entry and names no other, in any ledger."""

    id: str
    sequence: int
    time: str
    name: str
    event: Event
    purpose: str
    note: str = ""
    committed: bool = False
    released: str | None = None

    @property
    def unit(self) -> str:
        """The unit of privacy: a row, unless the note begins by saying otherwise."""
        return self.note.removeprefix(UNIT).partition(";")[0] if self.note.startswith(UNIT) else "a row"

    @property
    def model(self) -> str | None:
        """What was trained, if the note says it."""
        parts = (part.strip() for part in self.note.split(";"))
        return next((part.removeprefix(MODEL) for part in parts if part.startswith(MODEL)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked(Record):
    """One release as its owner reads it: when, what for, which model, and what it costs by itself.

    `released` is the SHA-256 of the model's arrays, as its certificate has it; None where nothing was committed, or
    what was released is no model. `epsilon` is at the budget's delta.
    """

    sequence: int
    time: str
    purpose: str
    model: str | None
    released: str | None
    mu: float | None
    epsilon: float | None
    price: str
    committed: bool

    @classmethod
    def of(cls, reserved: Reservation, budget: Budget) -> Booked:
        """Describe a reservation from this budget."""
        cost = price(budget, (), reserved.event)
        return cls(
            sequence=reserved.sequence, time=reserved.time, purpose=reserved.purpose, model=reserved.model,
            released=reserved.released, mu=cost.mu, epsilon=cost.epsilon, price=cost.words,
            committed=reserved.committed,
        )  # fmt: skip


@dataclass(slots=True)
class Account:
    """One data set: its budget and everything reserved from it, in order."""

    name: str
    budget: Budget
    fingerprint: str | None
    reservations: dict[str, Reservation] = field(default_factory=dict)
    claims: dict[str, ClaimPayload] = field(default_factory=dict)

    @property
    def units(self) -> tuple[str, ...]:
        """The units of privacy of what was reserved. The total holds for one; for several there is no total.

        A release about persons does not even hold for a single row: taking one row of a person away can turn the mean
        over the rest around.
        """
        return tuple(dict.fromkeys(one.unit for one in self.reservations.values()))

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
    left_epsilon: float | None = None  # of one more release at the budget's delta
    all_reservations: tuple[Reservation, ...] = field(default=(), repr=False)
    units: tuple[str, ...] = ()  # of privacy, of what was reserved: more than one in ledgers of earlier versions alone

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
            left_epsilon=largest_fitting(account.budget, account.events),
            all_reservations=reservations,
            units=account.units,
        )

    @property
    def releases(self) -> tuple[Booked, ...]:
        """Every release with its cost, for the budget's owner: not a part of `to_json`, which models carry along."""
        return tuple(Booked.of(one, self.budget) for one in self.all_reservations)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is spent and left, in words.

        Epsilon first, and of mu the shares of its square: those are what adds up.
        """
        mu = None if self.spent_mu is None else f"mu {self.spent_mu:.4g} of {self.total_mu:.4g}"
        in_mu = "" if mu is None else f" ({mu})"
        spent, left = str(mu), "" if self.remaining_mu is None else f"mu {self.remaining_mu:.4g}"
        if self.budget.epsilon is not None:
            spent = f"epsilon {self.spent_epsilon or 0.0:.4g} of {self.budget.epsilon:g} at delta {self.budget.delta:g}"
            spent += in_mu
        if self.left_epsilon is not None:
            more = f"one more release of epsilon {self.left_epsilon:.3g} at delta {self.budget.delta:g}"
            left = f"{more} ({left})" if left else more
        share = None
        if self.spent_mu:
            share = (
                f"{100 * (self.spent_mu / self.total_mu) ** 2:.0f} % of the budget: squares of mu add up, "
                f"{self.spent_mu:.4g}² + {self.remaining_mu:.4g}² = {self.total_mu:.4g}²"
            )
        found = [
            ("budget", self.budget.describe()), ("spent", spent), ("left", left or "not known"), ("share", share),
            ("releases", str(self.reservations)),
        ]  # fmt: skip
        return [(name, words) for name, words in found if words is not None]

    def _repr_html_(self) -> str:
        return card(f"Budget of {self.name}", self.facts)

    def to_json(self) -> JsonObject:
        """Return plain data for JSON; `epsilon` and `delta` are null when the budget was stated in mu."""
        return plain(
            {
                "name": self.name,
                "mu": self.total_mu,
                "epsilon": self.budget.epsilon,
                "delta": self.budget.delta,
                "neighbouring": self.budget.neighbouring,
                "spent_mu": self.spent_mu,
                "remaining_mu": self.remaining_mu,
                "spent_epsilon": self.spent_epsilon,
                "left_epsilon": self.left_epsilon,
                "adaptive_choice_covered": self.adaptive_choice_covered,
                "reservations": self.reservations,
                "by_purpose": self.by_purpose,
                "never_committed": self.never_committed,
                "fingerprint": None if self.fingerprint is None else Fingerprint(sha256=self.fingerprint),
                "head": self.head,
                "entries": self.entries,
            }
        )


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
    stored = {key: value for key, value in entry.payload.items() if key != "writer"}
    if (entry.kind == "ledger") != (entry.sequence == 0):
        raise LedgerError("a ledger begins with one 'ledger' entry")
    if entry.kind == "ledger":
        return
    content = PAYLOADS[entry.kind].from_json(stored)
    if content.to_json() != stored:
        raise LedgerError("there is another way to say this")
    if isinstance(content, BudgetPayload):
        if content.name in accounts:
            raise LedgerError("a data set has one budget")
        mark = content.fingerprint
        accounts[content.name] = Account(content.name, content.budget, None if mark is None else mark.sha256)
    elif isinstance(content, ReservationPayload):
        accounts[content.name].reservations[entry.hash] = reservation(entry, content)
    elif isinstance(content, CommitmentPayload):
        reservations = accounts[content.name].reservations
        reserved = reservations[content.reservation]
        if reserved.committed:
            raise LedgerError("a reservation is committed once")
        reservations[reserved.id] = replace(reserved, committed=True, released=content.released)
    elif isinstance(content, ClaimPayload):
        account = accounts[content.name]
        check_claim(account.reservations[content.reservation], account.claims.get(content.reservation), content)
        account.claims[content.reservation] = content


def check_claim(reserved: Reservation, last: ClaimPayload | None, claim: ClaimPayload) -> None:
    """Refuse a claim after which more steps could be released than were reserved.

    What one run claimed counts as released for any other: it may have died at any moment, or be running still.
    """
    steps = getattr(reserved.event, "steps", None)
    if steps is None or reserved.committed:
        raise LedgerError("only a run of steps that is not committed yet can claim steps; nothing was written")
    if claim.claimed > steps:
        raise LedgerError(f"the reservation has {steps} steps in all; nothing was written")
    floor = 0 if last is None else last.released if last.run == claim.run else last.claimed
    if claim.released < floor:
        raise LedgerError(
            f"of the reservation's {steps} steps {floor} count as released, by a run that went on meanwhile; "
            "nothing was written"
        )


def reservation(entry: Entry, content: ReservationPayload) -> Reservation:
    """Return the reservation that an entry makes."""
    return Reservation(
        id=entry.hash, sequence=entry.sequence, time=entry.time, name=content.name, event=content.event,
        purpose=content.purpose, note=content.note,
    )  # fmt: skip
