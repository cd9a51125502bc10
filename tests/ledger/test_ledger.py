from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gratis.accounting.network_descent import network_descent_event
from gratis.ledger import Ledger, content_fingerprint
from gratis.ledger.chain import Entry
from gratis.ledger.payloads import BudgetPayload
from gratis.ledger.storage import create_file, writer
from gratis.records.budget import Budget
from gratis.records.errors import BudgetExceededError, GratisError, LedgerError
from gratis.records.events import Composition, GaussianRelease


def _event(noise_std: float = 4.0, relation: str = "replace-one", label: str = "") -> GaussianRelease:
    return GaussianRelease(sensitivity=1.0, noise_std=noise_std, neighbouring=relation, label=label)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger.create(tmp_path / "budgets.ledger", {"census": Budget(mu=0.5)})


def test_reserve_commit_and_status(ledger):
    first = ledger.reserve("census", _event(), purpose="tuning", note="grid of three")
    second = ledger.reserve("census", _event(), purpose="training")
    third = ledger.reserve("census", _event(8.0), purpose="tuning")
    committed = ledger.commit(second.id, _event())
    assert committed.committed
    assert committed.sequence == 3
    status = ledger.status("census")
    assert status.reservations == 3
    assert status.by_purpose == {"training": 1, "tuning": 2}
    assert [r.id for r in status.never_committed] == [first.id, third.id]
    assert status.spent_mu == pytest.approx(0.375, rel=1e-12)
    assert status.spent_mu >= 0.375
    assert status.remaining_mu == pytest.approx((0.25 - 0.140625) ** 0.5, rel=1e-12)
    assert (status.entries, status.head) == (6, ledger.head)
    assert ledger.reservation(first.id) == first
    assert json.loads(json.dumps(status.to_json()))["spent_mu"] == status.spent_mu


def test_what_was_reserved_is_spent_for_a_process_that_opens_the_file_later(ledger):
    ledger.reserve("census", _event())
    with pytest.raises(BudgetExceededError, match=r"has mu 0.433 left of 0.5 \(replace-one\); this run needs mu 0.5"):
        Ledger.open(ledger.path).reserve("census", _event(2.0))
    assert ledger.status("census").reservations == 1


@pytest.mark.parametrize(
    "other",
    [_event(5.0), _event(label="other"), _event(relation="zero-out"), Composition((_event(),)), None, "event"],
)
def test_commit_refuses_another_event_and_the_reservation_stays_spent(ledger, other):
    reservation = ledger.reserve("census", _event())
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match=r"not the one that was reserved.*stays spent"):
        ledger.commit(reservation.id, other)
    assert ledger.path.read_bytes() == before
    assert ledger.status("census").never_committed == (reservation,)


def test_commit_happens_once_and_only_for_reservations(ledger):
    reservation = ledger.reserve("census", _event())
    ledger.commit(reservation.id, _event())
    with pytest.raises(LedgerError, match="committed already"):
        ledger.commit(reservation.id, _event())
    for unknown in ("0" * 64, ledger.head, 3, None):
        with pytest.raises(LedgerError, match="no reservation"):
            ledger.commit(unknown, _event())


def test_a_budget_is_given_once_and_each_data_set_has_its_own(ledger):
    ledger.create_budget("images", Budget(epsilon=1.0, delta=1e-5, neighbouring="zero-out"))
    for budget in (Budget(mu=0.5), Budget(mu=5.0)):
        with pytest.raises(LedgerError, match="has a budget already"):
            ledger.create_budget("census", budget)
    ledger.reserve("images", _event(relation="zero-out"))
    assert ledger.names == ("census", "images")
    assert [status.reservations for status in ledger.statuses()] == [0, 1]
    assert ledger.status("images").spent_epsilon > 0
    assert ledger.status("census").spent_epsilon is None


def test_a_fingerprint_is_flagged_and_cannot_have_two_budgets(ledger):
    mark = content_fingerprint(b"rows")
    status = ledger.create_budget("a", Budget(mu=1.0), mark)
    assert status.to_json()["fingerprint"] == {"sha256": mark, "data_dependent": True}
    with pytest.raises(LedgerError, match="already has a budget, under the name 'a'"):
        ledger.create_budget("b", Budget(mu=1.0), mark)
    for bad in ("abc", mark.upper(), 7):
        with pytest.raises(LedgerError, match="SHA-256"):
            ledger.create_budget("b", Budget(mu=1.0), bad)
    assert ledger.names == ("census", "a")


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\x00", "x" * 201, 5, None])
def test_bad_names_are_refused_before_a_file_exists(tmp_path, name):
    with pytest.raises(LedgerError, match="name of a data set"):
        Ledger.create(tmp_path / "l", {name: Budget(mu=1.0)})
    assert list(tmp_path.iterdir()) == []


def test_bad_requests_write_nothing(ledger):
    before = ledger.path.read_bytes()
    for request in (
        lambda: ledger.reserve("nobody", _event()),
        lambda: ledger.reserve("census", "event"),
        lambda: ledger.reserve("census", _event(relation="zero-out")),
        lambda: ledger.reserve("census", Composition(())),
        lambda: ledger.reserve("census", _event(), purpose=""),
        lambda: ledger.reserve("census", _event(), note="a\nb"),
        lambda: ledger.create_budget("b", 0.5),
        lambda: ledger.status("nobody"),
    ):
        with pytest.raises(LedgerError) as caught:
            request()
        assert "\n" not in str(caught.value)
    assert ledger.path.read_bytes() == before


def test_create_never_overwrites_and_leaves_no_trace_when_it_fails(tmp_path):
    path = tmp_path / "l"
    path.write_text("mine")
    with pytest.raises(LedgerError, match="not overwritten"):
        Ledger.create(path)
    assert path.read_text() == "mine"
    path.unlink()
    stale = tmp_path / "l-journal"
    stale.write_bytes(b"another database's journal")
    with pytest.raises(LedgerError, match="l-journal exists already"):
        Ledger.create(path)
    assert [p.name for p in tmp_path.iterdir()] == ["l-journal"]
    with pytest.raises(LedgerError, match="folder does not exist"):
        Ledger.create(tmp_path / "no" / "l")


def test_creation_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger.create(tmp_path / "l")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3\x00", bytes(range(256)) * 20, None], ids=range(5))
def test_a_missing_or_foreign_file_is_one_sentence_and_untouched(tmp_path, content):
    path = tmp_path / "l"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LedgerError) as caught:
        Ledger.open(path)
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ([] if content is None else ["l"])
    assert content is None or path.read_bytes() == content


def test_someone_elses_database_and_a_directory_are_refused(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE entries (sequence INTEGER PRIMARY KEY, entry TEXT, hash TEXT)")
        connection.commit()
    with pytest.raises(LedgerError, match="not a ledger of Gratis"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger.open(tmp_path)
    with pytest.raises(GratisError, match="path"):
        Ledger.open("a\x00b")


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET hash = 'x' WHERE sequence = 1",
        "DELETE FROM entries WHERE sequence = 2",
        "INSERT OR REPLACE INTO entries VALUES (2, 'x', 'y')",
        "INSERT INTO entries VALUES (9, 'x', 'y')",
        "INSERT INTO entries (entry, hash) VALUES ('x', 'y')",
    ],
)
def test_the_file_itself_is_append_only(ledger, sql):
    ledger.reserve("census", _event())
    with (
        closing(sqlite3.connect(ledger.path)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(sql)
    assert ledger.verify().entries == 3


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TRIGGER no_delete",
        "CREATE TRIGGER spy AFTER INSERT ON entries BEGIN SELECT 1; END",
        "CREATE TABLE more (a)",
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 0",
        "PRAGMA journal_mode = WAL",
        "INSERT INTO entries SELECT sequence + 1, entry, hash FROM entries ORDER BY sequence DESC LIMIT 1",
        "BEGIN; DROP TRIGGER no_delete; DELETE FROM entries WHERE sequence = 2; "
        "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN"
        " SELECT RAISE(ABORT, 'the ledger is append-only'); END; COMMIT",
    ],
)
def test_what_was_done_to_the_file_behind_the_ledgers_back_is_noticed(ledger, sql):
    ledger.reserve("census", _event())
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.executescript(sql)
        connection.commit()
    with pytest.raises(LedgerError):
        Ledger.open(ledger.path)
    with pytest.raises(LedgerError):
        ledger.reserve("census", _event())


def test_an_older_copy_put_back_is_noticed_by_who_saw_more_and_by_an_anchor(ledger, tmp_path):
    older = tmp_path / "older"
    shutil.copy(ledger.path, older)
    ledger.reserve("census", _event())
    head = ledger.head
    assert ledger.verify(anchor=head).head == head
    shutil.copy(older, ledger.path)
    for act in (ledger.verify, lambda: ledger.reserve("census", _event())):
        with pytest.raises(LedgerError, match="lost entries"):
            act()
    # A fresh process cannot know; only a head that was noted elsewhere tells it.
    assert Ledger.open(ledger.path).verify().entries == 2
    with pytest.raises(LedgerError, match="noted head is not in this ledger"):
        Ledger.open(ledger.path).verify(anchor=head)


def _forge(path: Path, *entries: tuple[str, dict]) -> Path:
    chain: list[Entry] = []
    for kind, payload in entries:
        chain.append(Entry.after(chain[-1] if chain else None, kind, payload | {"writer": writer()}))
    create_file(path, chain)
    return path


_START = ("ledger", {"format": 1, "id": "0"})
_BUDGET = ("budget", BudgetPayload(name="d", budget=Budget(mu=0.3), fingerprint=None).to_json())


def _taken(noise_std: float, name: str = "d") -> tuple[str, dict]:
    return "reservation", {"name": name, "event": _event(noise_std).to_json(), "purpose": "training", "note": ""}


@pytest.mark.parametrize(
    "entries",
    [
        [_BUDGET],
        [_START, _START],
        [_START, ("refund", {})],
        [_START, _BUDGET, _BUDGET],
        [_START, _taken(4.0)],
        [_START, _BUDGET, _taken(4.0, "other")],
        [_START, _BUDGET, ("reservation", _taken(4.0)[1] | {"extra": 1})],
        [_START, _BUDGET, ("reservation", _taken(4.0)[1] | {"event": {"kind": "free-lunch"}})],
        [_START, _BUDGET, ("commitment", {"name": "d", "reservation": "0" * 64})],
        [_START, ("budget", _BUDGET[1] | {"budget": {"mu": -1.0, "neighbouring": "replace-one"}})],
    ],
)
def test_a_well_hashed_chain_that_makes_no_sense_is_refused(tmp_path, entries):
    with pytest.raises(LedgerError, match="makes no sense"):
        Ledger.open(_forge(tmp_path / "l", *entries))


def test_steps_of_a_run_are_claimed_before_they_are_released(tmp_path):
    ledger = Ledger.create(tmp_path / "l", {"census": Budget(mu=0.5)})
    event = network_descent_event(100, 10, mu=0.5, neighbouring="replace-one")
    ticket = ledger.reserve("census", event)
    assert ledger.claimed_steps(ticket.id) == 0
    ledger.claim(ticket.id, run="a", released=0, claimed=4)
    ledger.claim(ticket.id, run="a", released=2, claimed=2)  # a checkpoint: no more than two so far
    assert Ledger.open(ledger.path).claimed_steps(ticket.id) == 2
    ledger.claim(ticket.id, run="a", released=2, claimed=6)
    for run, released in (("b", 2), ("a", 1), ("b", 5)):  # what another run claimed counts as released
        with pytest.raises(LedgerError, match="count as released"):
            ledger.claim(ticket.id, run=run, released=released, claimed=8)
    ledger.claim(ticket.id, run="b", released=6, claimed=10)
    with pytest.raises(LedgerError, match="10 count as released"):
        ledger.claim(ticket.id, run="a", released=6, claimed=10)
    with pytest.raises(LedgerError, match="10 steps in all"):
        ledger.claim(ticket.id, run="b", released=6, claimed=11)
    with pytest.raises(LedgerError, match="counts steps"):
        ledger.claim(ticket.id, run="b", released=8, claimed=7)
    ledger.commit(ticket.id, event)
    with pytest.raises(LedgerError, match="not committed yet"):
        ledger.claim(ticket.id, run="b", released=10, claimed=10)
    assert ledger.verify().entries == 8
    other = Ledger.create(tmp_path / "m", {"census": Budget(mu=0.5)})
    single = other.reserve("census", _event())
    with pytest.raises(LedgerError, match="only a run of steps"):
        other.claim(single.id, run="a", released=0, claimed=0)


def test_verify_recomputes_every_total(tmp_path):
    ledger = Ledger.open(_forge(tmp_path / "l", _START, _BUDGET, _taken(4.0), _taken(4.0)))
    with pytest.raises(LedgerError, match="reservations of 'd' exceed its budget"):
        ledger.verify()
    with pytest.raises(BudgetExceededError, match=r"has mu 0 left of 0\.3"):
        ledger.reserve("d", _event(1e6))


def test_a_locked_ledger_is_waited_for_and_then_reported(ledger, monkeypatch):
    monkeypatch.setattr("gratis.ledger.storage._BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="stayed locked"):
            ledger.reserve("census", _event())
        connection.execute("ROLLBACK")
    assert ledger.reserve("census", _event()).sequence == 2


def test_a_new_ledger_is_durable_before_it_has_its_name(tmp_path, monkeypatch):
    """SQLite tells what it would flush; the folder is flushed after the file has its name there."""
    from gratis.ledger import storage

    seen, lay_out = [], storage._lay_out

    def spy(connection, rows):
        seen.append(connection.execute("PRAGMA synchronous").fetchone()[0])
        lay_out(connection, rows)

    path = tmp_path / "new.ledger"
    monkeypatch.setattr(storage, "_lay_out", spy)
    monkeypatch.setattr(storage.os, "fsync", lambda _: seen.append(path.exists()))
    Ledger.create(path, {"census": Budget(epsilon=1.0, delta=1e-6)})
    assert seen[:2] == [3, True]  # 3 is EXTRA; later layouts are looked at, not kept


def test_writes_are_durable_and_keep_one_file(ledger, monkeypatch):
    settings = []
    import gratis.ledger.ledger as module

    original = module.append

    def spy(connection, entry):
        settings.extend(connection.execute(f"PRAGMA {p}").fetchone()[0] for p in ("synchronous", "journal_mode"))
        original(connection, entry)

    monkeypatch.setattr(module, "append", spy)
    ledger.reserve("census", _event())
    assert settings == [3, "delete"]  # 3 is EXTRA
    assert [p.name for p in ledger.path.parent.iterdir()] == [ledger.path.name]


def test_a_ledger_travels_to_other_processes(ledger):
    ledger.reserve("census", _event())
    assert pickle.loads(pickle.dumps(ledger)).status("census") == ledger.status("census")
