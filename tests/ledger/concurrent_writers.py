"""Concurrent writers, killed with SIGKILL at random moments or racing each other; a program, run by test_crashes.

It forks its writers itself, from one thread and after the imports, so that 200 rounds take half a minute, and prints
one JSON object of counts. In the rounds, what is counted as "overspent", "lost" and "damaged" must be zero.

    python tests/ledger/concurrent_writers.py kill ROUNDS [--broken]
    python tests/ledger/concurrent_writers.py race ROUNDS [--broken]

--broken is the negative control: writers that report before the entry is durable, or check before they hold the lock.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path

from gratis.ledger import Ledger
from gratis.ledger import ledger as room
from gratis.ledger.chain import Entry
from gratis.records.budget import Budget
from gratis.records.errors import BudgetExceededError, LedgerError
from gratis.records.events import GaussianRelease

WRITERS = 4
ROUNDS_A_LEDGER = 5
SHARES = (10, 60)  # in turn: writers meet an exhausted budget; kills meet writers at work
EVENT = GaussianRelease(sensitivity=1.0, noise_std=5.0, neighbouring="replace-one")
BUDGETS = [Budget(mu=(shares**0.5 / 5.0) * (1 + 1e-9)) for shares in SHARES]
REFUSED = "-" * 64


def write_until_killed(path: str, pipe: int, seed: int, *, broken: bool) -> None:
    ledger, rng = Ledger(path), random.Random(seed)
    if broken:
        real = room.append

        def append_and_report(connection: sqlite3.Connection, entry: Entry) -> None:
            real(connection, entry)
            if entry.kind == "reservation":
                os.write(pipe, f"{entry.hash}\n".encode())
                signal.pause()  # who reports dies here, however fast or slow the disk is

        room.append = append_and_report
    while True:
        try:
            reservation = ledger.reserve("data", EVENT, purpose=rng.choice(["training", "tuning"]))
        except BudgetExceededError:
            os.write(pipe, f"{REFUSED}\n".encode())
            time.sleep(0.005)
            continue
        if not broken:
            os.write(pipe, f"{reservation.id}\n".encode())
        if rng.random() < 0.5:
            ledger.commit(reservation.id, EVENT)


def run_round(path: str, rng: random.Random, *, broken: bool) -> list[str]:
    """Start the writers, kill each a moment after a report of any of them, return what they reported."""
    reader, pipe = os.pipe()
    children = []
    for _ in range(WRITERS):
        seed = rng.getrandbits(32)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(reader)
                write_until_killed(path, pipe, seed, broken=broken)
            finally:
                os._exit(code)
        children.append(child)
    os.close(pipe)
    with os.fdopen(reader, "rb") as stream:
        reports = [stream.readline()]
        for child in rng.sample(children, WRITERS):
            # Writers report as long as one of them lives; broken ones wait for ever in the midst of a reservation.
            reports += [stream.readline() for _ in range(0 if broken else rng.randrange(4))]
            time.sleep(rng.uniform(0.0, 0.01))  # anywhere in what comes after a report
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status), "a writer ended by itself"
        return b"".join([*reports, stream.read()]).decode().split()


def check_only_once(looked: int, seen: int) -> None:
    """Leave out every check of the budget after the first, which `reserve` makes before it holds the lock."""
    real, done = room.check_affordable, []

    def check(*arguments: object) -> None:
        if not done:
            done.append(True)
            real(*arguments)
            os.write(looked, b".")
            os.read(seen, 1)  # returns when both have looked

    room.check_affordable = check


def race(rounds: int, *, broken: bool) -> dict[str, int]:
    """Let two processes ask for the last share at the same moment; count how many won in all."""
    counts = {"rounds": rounds, "winners": 0, "refused": 0, "looks": 0}
    budget = Budget(mu=0.2 * (1 + 1e-9))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            path = f"{folder}/{number}.ledger"
            Ledger.create(path, {"data": budget})
            (gate, opener), (looks, looked), (seen, shown) = os.pipe(), os.pipe(), os.pipe()
            children = []
            for _ in range(2):
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        os.close(opener)
                        os.close(shown)
                        if broken:
                            check_only_once(looked, seen)
                        os.read(gate, 1)  # returns for both when the parent closes its end
                        Ledger(path).reserve("data", EVENT)
                        code = 0
                    except BudgetExceededError:
                        code = 3
                    finally:
                        os._exit(code)
                children.append(child)
            os.close(opener)
            while broken and len(children) > counts["looks"] - 2 * number:
                counts["looks"] += len(os.read(looks, 2))
            for end in (gate, looks, looked, seen, shown):
                os.close(end)
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            counts["winners"] += codes.count(0)
            counts["refused"] += codes.count(3)
    return counts


def kill(rounds: int, *, broken: bool) -> dict[str, int]:
    counts = dict.fromkeys(
        ("rounds", "acknowledged", "written", "refused", "hot_journals", "overspent", "lost", "damaged"), 0
    )
    rng = random.Random(20240)
    reported: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            path = f"{folder}/{number // ROUNDS_A_LEDGER}.ledger"
            budget = BUDGETS[number // ROUNDS_A_LEDGER % len(BUDGETS)]
            if number % ROUNDS_A_LEDGER == 0:
                Ledger.create(path, {"data": budget})
                reported = set()
            lines = run_round(path, rng, broken=broken)
            acknowledged = {line for line in lines if line != REFUSED}
            reported |= acknowledged
            counts["rounds"] += 1
            counts["acknowledged"] += len(acknowledged)
            counts["refused"] += lines.count(REFUSED)
            counts["hot_journals"] += Path(path + "-journal").exists()
            try:
                Ledger.open(path).verify()
            except LedgerError:
                counts["damaged"] += 1
            # Read the file by a way that shares no code with the ledger.
            with closing(sqlite3.connect(path)) as connection:
                rows = connection.execute("SELECT entry, hash FROM entries ORDER BY sequence").fetchall()
            written = {digest for text, digest in rows if json.loads(text)["kind"] == "reservation"}
            counts["lost"] += len(reported - written)
            counts["overspent"] += len(written) * Fraction(1, 25) > Fraction(budget.mu or 0) ** 2
            if number % ROUNDS_A_LEDGER == ROUNDS_A_LEDGER - 1 or number == rounds - 1:
                counts["written"] += len(written)
    return counts


if __name__ == "__main__":
    mode, rounds, *options = sys.argv[1:]
    found = {"kill": kill, "race": race}[mode](int(rounds), broken="--broken" in options)
    sys.stdout.write(json.dumps(found) + "\n")
