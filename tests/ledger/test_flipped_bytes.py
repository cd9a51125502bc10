"""Damage to the file: every flipped bit is noticed, also in bytes that neither SQLite nor the chain looks at."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import LedgerError
from gratis.records.events import FullBatchDescent, GaussianRelease
from gratis.records.sequences import Runs

_EVENT = GaussianRelease(sensitivity=1.0, noise_std=9.0, neighbouring="replace-one")
_LONG = FullBatchDescent(
    learning_rates=Runs.of([0.1 + 0.001 * k for k in range(150)]),
    noise_stds=Runs.of([1.0 + 0.01 * k for k in range(150)]),
    clip_norm=1.0,
    n_records=1000,
    neighbouring="replace-one",
)


def _ledger(path):
    """A ledger with every kind of page: a root with children, leaves, and overflow pages of a long event."""
    ledger = Ledger.create(path, {"a": Budget(mu=9.0), "b": Budget(epsilon=1.0, delta=1e-5)})
    for number in range(6):
        event = _LONG if number == 3 else _EVENT
        reservation = ledger.reserve("a", event)
        if number % 2:
            ledger.commit(reservation.id, event)
    return ledger


def _sqlite_notices(path, rows) -> bool:
    try:
        with closing(sqlite3.connect(path)) as connection:
            sound = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return not sound or connection.execute("SELECT * FROM entries").fetchall() != rows
    except (sqlite3.Error, UnicodeDecodeError):
        return True


def test_every_flipped_bit_is_detected(tmp_path):
    path = tmp_path / "l"
    _ledger(path)
    image = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT * FROM entries").fetchall()
    rng = random.Random(7)
    places = [*range(108), *rng.sample(range(108, len(image)), 300)]  # the header whole, the rest at random
    unseen_by_sqlite = 0
    for place in places:
        damaged = bytearray(image)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(LedgerError):
            Ledger.open(path)
        path.write_bytes(damaged)
        unseen_by_sqlite += not _sqlite_notices(path, rows)
    # Without the comparison of the whole image many flips would pass: the test can fail.
    assert unseen_by_sqlite > len(places) // 10
    path.write_bytes(image)
    assert Ledger.open(path).verify().every_byte


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b[:-4096], lambda b: b + b"\0", lambda b: b + bytes(4096)]
)
def test_a_longer_or_shorter_file_is_detected(tmp_path, change):
    path = tmp_path / "l"
    _ledger(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(LedgerError):
        Ledger.open(path)


def test_nothing_is_reserved_or_committed_on_a_damaged_ledger(tmp_path):
    path = tmp_path / "l"
    ledger = _ledger(path)
    open_reservation = ledger.status("a").never_committed[0]
    image = bytearray(path.read_bytes())
    image[image.index(b'"purpose"') + 1] ^= 1
    path.write_bytes(image)
    for act in (
        lambda: ledger.reserve("a", _EVENT),
        lambda: ledger.commit(open_reservation.id, open_reservation.event),
        lambda: ledger.create_budget("c", Budget(mu=1.0)),
        lambda: ledger.status("a"),
        ledger.verify,
    ):
        with pytest.raises(LedgerError, match="damaged"):
            act()
    assert path.read_bytes() == image


def test_a_file_of_another_sqlite_build_is_checked_by_content(tmp_path, monkeypatch):
    path = tmp_path / "l"
    build = "gratis.ledger.ledger.writer"
    from gratis.ledger.storage import writer

    monkeypatch.setattr(build, lambda: writer().partition("-")[0] + "-another")
    ledger = _ledger(path)
    status = ledger.status("a")
    assert ledger.verify().every_byte  # the same layout proves as much, whoever wrote it
    image = bytearray(path.read_bytes())
    free = image.index(bytes(64), 4096)
    image[free] ^= 1
    path.write_bytes(image)
    assert not Ledger.open(path).verify().every_byte
    assert Ledger.open(path).status("a") == status
    image[image.index(b'"purpose"') + 1] ^= 1
    path.write_bytes(image)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger.open(path)
