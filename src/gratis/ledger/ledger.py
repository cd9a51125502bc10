"""The ledger: reserve before training, commit after, and never spend more than a data set's budget."""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gratis.ledger.accounts import Account, Reservation, Status, add_up, check_claim, reservation
from gratis.ledger.chain import Entry
from gratis.ledger.payloads import (
    UNIT,
    BudgetPayload,
    ClaimPayload,
    CommitmentPayload,
    Fingerprint,
    Payload,
    ReservationPayload,
    unit_of_persons,
)
from gratis.ledger.spending import Price, check_affordable, price, refuse_other_relation, spending
from gratis.ledger.storage import FORMAT, Snapshot, append, create_file, read, transact, writer
from gratis.records.budget import Budget
from gratis.records.errors import LedgerError
from gratis.records.events import Event
from gratis.records.notebook import card
from gratis.records.record import JsonObject

__all__ = ["Ledger", "Verification", "content_fingerprint"]


def content_fingerprint(content: bytes) -> str:
    """Return the SHA-256 of a data set's bytes.

    It is computed from the data and not private: whoever guesses the data can check the guess.

    >>> content_fingerprint(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What `Ledger.verify` found in a ledger that holds.

    `every_byte`: the file was reproduced from its entries; False only when another SQLite build wrote too.
    """

    entries: int
    head: str
    names: tuple[str, ...]
    every_byte: bool


class Ledger:
    """The budgets of data sets across runs, in one SQLite file that any number of processes may use at once.

    **Guarantee.** Everything reserved for a data set, released or not, is together within its budget under
    the budget's relation (`ledger.spending` says what holds for adaptively chosen runs). A reservation is on
    the disk before `reserve` returns and counts from then on, whatever becomes of the process. Nothing is
    refunded or deleted. Every call first verifies the whole file and refuses to work on a damaged one.

    >>> import tempfile
    >>> from gratis.records.events import GaussianRelease
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(folder.name + "/budgets.ledger", {"census": Budget(mu=0.5)})
    >>> event = GaussianRelease(sensitivity=1.0, noise_std=2.5, neighbouring="replace-one")
    >>> ticket = ledger.reserve("census", event, purpose="tuning")
    >>> round(ledger.status("census").remaining_mu, 6)
    0.3
    >>> ledger.commit(ticket.id, event).committed
    True
    >>> ledger.reserve("census", event)
    Traceback (most recent call last):
    ...
    gratis.records.errors.BudgetExceededError: the budget 'census' has mu 0.3 left of 0.5 (replace-one);
    this run needs mu 0.4; nothing was reserved
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _as_path(path)
        self._seen: Entry | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        budgets: Mapping[str, Budget] | None = None,
        *,
        fingerprints: Mapping[str, str | None] | None = None,
    ) -> Ledger:
        """Create a ledger with these budgets; the file appears complete or not at all."""
        place = _as_path(path)
        marks = fingerprints or {}
        payloads = [_budget(name, budget, marks.get(name)) for name, budget in (budgets or {}).items()]
        entries = [_entry(None, "ledger", {"format": FORMAT, "id": secrets.token_hex(16)})]
        for payload in payloads:
            entries.append(_entry(entries[-1], "budget", payload.to_json()))
        create_file(place, entries)
        return cls.open(place)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing ledger; a missing, foreign or damaged file is a LedgerError."""
        ledger = cls(path)
        ledger._read()
        return ledger

    @property
    def head(self) -> str:
        """The newest entry's hash. Kept elsewhere, it proves later that nothing up to it was taken back."""
        return self._read()[0].head.hash

    @property
    def names(self) -> tuple[str, ...]:
        """The data sets that have a budget here, in the order of their creation."""
        return tuple(self._read()[1])

    def create_budget(self, name: str, budget: Budget, fingerprint: str | None = None) -> Status:
        """Give a data set its budget, once and for all; `fingerprint` as from `content_fingerprint`."""
        payload = _budget(name, budget, fingerprint)

        def decide(accounts: dict[str, Account]) -> Payload:
            if name in accounts:
                raise LedgerError(f"the data set {name!r} has a budget already, and a budget cannot be changed")
            for account in accounts.values():
                if fingerprint is not None and account.fingerprint == fingerprint:
                    raise LedgerError(f"this content already has a budget, under the name {account.name!r}")
            return payload

        entry = self._append("budget", decide)
        return Status.of(Account(name, budget, fingerprint), entry)

    def reserve(
        self, name: str, event: Event, *, purpose: str = "training", note: str = "", persons: str | None = None
    ) -> Reservation:
        """Take the event's cost from the budget, durably, before any data is touched.

        It fits if the composition of `event` with everything reserved before is proved to stay inside: its
        mu, rounded up, at most the budget's mu, or its ε at the budget's δ at most the budget's ε.
        There is no tolerance: noise calibrated by `accounting` is rounded up and fits, noise calibrated by
        hand to exactly the budget may miss by the last digit.

        `persons` is given where the unit of the event is a person with all rows: what the ids are called, or "". The
        note tells it. All that is reserved from one budget has one unit: costs of different units do not add up.
        """
        if not isinstance(event, Event):
            raise LedgerError(f"only an event can be reserved, got {type(event).__name__}; nothing was reserved")
        if note.startswith(UNIT):
            raise LedgerError(f"a note cannot begin with {UNIT!r}: the ledger says that itself; nothing was reserved")
        if persons is not None:
            note = "; ".join(filter(None, (UNIT + unit_of_persons(persons), note)))
        payload = ReservationPayload(name=name, event=event, purpose=purpose, note=note)
        payload.check_survives()

        def decide(accounts: dict[str, Account]) -> Payload:
            account = _account(accounts, name)
            unit = "a row" if persons is None else unit_of_persons(persons)
            if account.units not in ((), (unit,)):
                raise LedgerError(
                    f"what was spent from {name!r} protects {' and '.join(account.units)}, and this run {unit}: their "
                    "costs do not add up, so give it a budget of its own; nothing was reserved"
                )
            check_affordable(name, account.budget, account.events, event)
            return payload

        # A first look without the lock: what is refused never locks others out, and slow privacy curves are
        # already computed (and cached) when the lock is held.
        decide(self._read()[1])
        entry = self._append("reservation", decide)
        return reservation(entry, payload)

    def price(self, name: str, event: Event) -> Price:
        """Return what `reserve` would take for the event, and whether it would; nothing is reserved."""
        account = _account(self._read()[1], name)
        refuse_other_relation(name, account.budget, event)
        return price(account.budget, account.events, event)

    def commit(self, reservation_id: str, event: Event, *, released: str | None = None) -> Reservation:
        """Record that the reserved run released exactly `event`; another is refused and all stays spent.

        `released` is the SHA-256 of a model's arrays, by which the entry and the model's certificate know each other.
        """

        def decide(accounts: dict[str, Account]) -> Payload:
            reserved = _reservation(accounts, reservation_id)
            if reserved.committed:
                raise LedgerError(f"the reservation {reservation_id} was committed already; nothing was written")
            if reserved.event != event:
                raise LedgerError(
                    f"the event is not the one that was reserved as {reservation_id}; "
                    "the reservation stays spent and is not committed"
                )
            return CommitmentPayload(name=reserved.name, reservation=reserved.id, released=released)

        self._append("commitment", decide)
        return self.reservation(reservation_id)

    def claim(self, reservation_id: str, *, run: str, released: int, claimed: int) -> None:
        """Record, before it happens, that the reserved run's steps up to `claimed` may be released by `run`.

        A training that can be resumed claims its steps in blocks, so that the ledger knows how many may have been
        released whatever becomes of the process: all that another run claimed counts as released.
        """

        def decide(accounts: dict[str, Account]) -> Payload:
            reserved = _reservation(accounts, reservation_id)
            payload = ClaimPayload(
                name=reserved.name, reservation=reserved.id, run=run, released=released, claimed=claimed
            )
            check_claim(reserved, accounts[reserved.name].claims.get(reserved.id), payload)
            return payload

        self._append("claim", decide)

    def claimed_steps(self, reservation_id: str) -> int:
        """Return how many steps of a reserved run may have been released."""
        accounts = self._read()[1]
        last = accounts[_reservation(accounts, reservation_id).name].claims.get(reservation_id)
        return 0 if last is None else last.claimed

    def reservation(self, reservation_id: str) -> Reservation:
        """Return one reservation as it stands."""
        return _reservation(self._read()[1], reservation_id)

    def status(self, name: str) -> Status:
        """Return where a data set's budget stands."""
        snapshot, accounts = self._read()
        return Status.of(_account(accounts, name), snapshot.head)

    def statuses(self) -> tuple[Status, ...]:
        """Return where every data set's budget stands, all at one moment."""
        snapshot, accounts = self._read()
        return tuple(Status.of(account, snapshot.head) for account in accounts.values())

    def _repr_html_(self) -> str:
        try:
            found = self.statuses()
        except LedgerError as error:  # a notebook shows it instead of failing
            return card("Ledger", [], [str(error)])
        return "".join(status._repr_html_() for status in found) or card(
            "Ledger", [], ["No data set has a budget yet."]
        )

    def verify(self, *, anchor: str | None = None) -> Verification:
        """Check everything that can be checked; a fault is a LedgerError.

        File marks, schema, chain, the sense of every entry, the image of every page, SQLite's integrity
        check, every total against its budget, and that `anchor`, a head noted earlier, is still in the chain.
        """

        def work(connection: sqlite3.Connection) -> Snapshot:
            snapshot = read(connection, self.path)
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise LedgerError(f"the ledger {self.path} is damaged: SQLite's integrity check fails")
            return snapshot

        snapshot, accounts = self._read(work)
        for account in accounts.values():
            if not spending(account.budget, account.events).fits(account.budget):
                raise LedgerError(f"the reservations of {account.name!r} exceed its budget")
        if anchor is not None and anchor not in {entry.hash for entry in snapshot.entries}:
            raise LedgerError("the noted head is not in this ledger: entries were taken back, or it is another ledger")
        head = snapshot.head
        return Verification(
            entries=head.sequence + 1, head=head.hash, names=tuple(accounts), every_byte=snapshot.every_byte
        )

    def _read(
        self, work: Callable[[sqlite3.Connection], Snapshot] | None = None
    ) -> tuple[Snapshot, dict[str, Account]]:
        seen = self._seen  # before the file is read: another thread may move on meanwhile
        snapshot = transact(self.path, work or (lambda connection: read(connection, self.path)), write=False)
        return snapshot, self._add_up(snapshot, seen)

    def _add_up(self, snapshot: Snapshot, seen: Entry | None) -> dict[str, Account]:
        entries = snapshot.entries
        if seen is not None and (len(entries) <= seen.sequence or entries[seen.sequence].hash != seen.hash):
            raise LedgerError(f"the ledger {self.path} lost entries that it had: an older copy was put in its place")
        accounts = add_up(entries)
        self._seen = snapshot.head
        return accounts

    def _append(self, kind: str, decide: Callable[[dict[str, Account]], Payload]) -> Entry:
        """Read, decide what to write (or refuse) and write, all under one lock."""
        seen = self._seen

        def work(connection: sqlite3.Connection) -> Entry:
            snapshot = read(connection, self.path)
            entry = _entry(snapshot.head, kind, decide(self._add_up(snapshot, seen)).to_json())
            append(connection, entry)
            return entry

        entry = transact(self.path, work, write=True)
        self._seen = entry
        return entry


def _budget(name: str, budget: Budget, fingerprint: str | None) -> BudgetPayload:
    mark = None if fingerprint is None else Fingerprint(sha256=fingerprint)
    return BudgetPayload(name=name, budget=budget, fingerprint=mark)


def _as_path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(os.path.realpath(Path(path).expanduser()))
    except (TypeError, ValueError, RuntimeError):
        raise LedgerError(f"a ledger needs the path of a file, got {path!r}") from None


def _entry(last: Entry | None, kind: str, payload: JsonObject) -> Entry:
    return Entry.after(last, kind, payload | {"writer": writer()})


def _account(accounts: dict[str, Account], name: str) -> Account:
    if name not in accounts:
        known = ", ".join(map(repr, accounts)) or "none yet"
        raise LedgerError(f"the ledger has no budget named {name!r} (it has: {known}); create it first")
    return accounts[name]


def _reservation(accounts: dict[str, Account], reservation_id: str) -> Reservation:
    for account in accounts.values():
        if reservation_id in account.reservations:
            return account.reservations[reservation_id]
    raise LedgerError(f"the ledger has no reservation {reservation_id!r}")
