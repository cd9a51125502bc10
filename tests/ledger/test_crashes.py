"""Processes that die and processes that race: no overspend, no lost reservation, an intact chain.

GRATIS_CRASH_ROUNDS=200 runs the full number of rounds (half a minute); the ordinary suite runs fewer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gratis.ledger import Ledger
from gratis.records.budget import Budget
from gratis.records.errors import BudgetExceededError
from gratis.records.events import GaussianRelease

_PROGRAM = Path(__file__).with_name("concurrent_writers.py")
_ROUNDS = int(os.environ.get("GRATIS_CRASH_ROUNDS", "16"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the program forks")


def _run(*arguments: object) -> dict[str, int]:
    command = [sys.executable, "-W", "error", str(_PROGRAM), *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_killed_writers_neither_overspend_nor_lose_a_reservation():
    counts = _run("kill", _ROUNDS)
    assert counts["rounds"] == _ROUNDS
    assert (counts["overspent"], counts["lost"], counts["damaged"]) == (0, 0, 0)
    assert counts["acknowledged"] >= len(range(0, _ROUNDS, 5))  # on each new ledger the first report is one


def test_the_rounds_catch_a_writer_that_reports_before_the_entry_is_written():
    assert _run("kill", 4, "--broken")["lost"] >= 4


def test_two_processes_race_for_the_last_share_and_one_wins():
    assert _run("race", 12) == {"rounds": 12, "winners": 12, "refused": 12, "looks": 0}


def test_the_race_catches_a_check_made_before_the_lock_is_held():
    assert _run("race", 4, "--broken")["winners"] == 8


def test_threads_that_share_one_ledger_do_not_overspend(tmp_path):
    event = GaussianRelease(sensitivity=1.0, noise_std=2.0, neighbouring="replace-one")
    ledger = Ledger.create(tmp_path / "l", {"data": Budget(mu=1.0 + 1e-9)})  # four shares of mu = 1/2
    won, refused = [], []

    def take() -> None:
        for _ in range(2):
            try:
                won.append(ledger.reserve("data", event).id)
            except BudgetExceededError as error:
                refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(set(won)), len(refused)) == (4, 4, 4)
    assert ledger.status("data").reservations == 4
    assert ledger.verify().every_byte
