"""Stop `gratis fit` at random moments after its reservation, and count what is left.

    python benchmarks/signals.py [RUNS] [SEED]

Every run is a process of its own (forked, so that loading the libraries is not measured a thousand times) with a
small CSV file, a ledger and real signals: SIGINT, SIGTERM and SIGKILL in turn, at a moment between the reservation
and the end of an undisturbed run, more often early, where the model is made and saved. A run is a failure if

- the ledger says committed and no model is there that loads and has the certificate beside it or inside it;
- the file `model.gratis` is there and does not load;
- after SIGINT or SIGTERM the last line does not say where the model is, or what was spent and that there is none;
- with `--force`, neither the old nor the new model is there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt  # noqa: F401  (loaded here, so that every run need not)
import numpy as np

import gratis.cli.model_report
import gratis.estimators.model_folder
import gratis.estimators.table_fit  # noqa: F401
from gratis import Budget, Ledger, load_model
from gratis.accounting import verify_certificate
from gratis.cli.program import run
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
VARIANTS = {
    "model only": ["--no-report", "--no-audit"],
    "score": ["--no-report", "--no-audit", "--hold-out", "0.25"],
    "force": ["--no-report", "--no-audit", "--force"],
    "all": ["--hold-out", "0.25"],
}


def write_table(path: Path) -> None:
    """150 rows, two columns and a target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = X @ [1.0, -1.0] + 0.3 * rng.normal(size=150)
    lines = ["a,b,y", *(f"{a:.4f},{b:.4f},{t:.4f}" for (a, b), t in zip(X, y, strict=True))]
    path.write_text("\n".join(lines) + "\n")


class Course:
    """One folder for all runs: the table, a fresh ledger, and an old model for `--force`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_table(folder / "t.csv")
        Ledger.create(folder / "fresh", {"people": Budget(epsilon=20.0, delta=1e-3)})
        run(["--version"])  # loads what the command line needs

    def prepare(self, variant: str) -> Path:
        """Return the folder of a run that has not begun."""
        place = self.folder / "run"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        shutil.copy(self.folder / "fresh", place / "ledger")
        if variant == "force":
            shutil.copytree(self.folder / "old", place / "out")
        return place

    def start(self, place: Path, variant: str) -> int:
        """Fork a process that runs the command; its words go to files."""
        command = ["fit", str(self.folder / "t.csv"), "--target", "y", "--epsilon", "4", "--delta", "1e-3"]
        command += ["--model", "linear", "--output", str(place / "out")]
        command += ["--ledger", str(place / "ledger"), "--budget", "people", *VARIANTS[variant]]
        child = os.fork()
        if child == 0:
            for number, name in ((1, "out.txt"), (2, "err.txt")):
                os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT), number)
            code = 1
            try:
                code = run(command)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        return child


def wait_for_reservation(ledger: Path, child: int) -> bool:
    """Return once the ledger's file is written to; False if the process ended before."""
    size, began = ledger.stat().st_mtime_ns, time.monotonic()
    while ledger.stat().st_mtime_ns == size:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) or time.monotonic() > began + 120:
            return False
        time.sleep(0.0005)
    return True


def end_of(child: int) -> int:
    """Wait and return the exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def loads(path: Path) -> object | None:
    """The fitted estimator of a model file, or None."""
    try:
        return load_model(path).estimator
    except GratisError:
        return None


def judge(place: Path, code: int, sent: signal.Signals, old: Certificate | None) -> tuple[str, list[str]]:
    """Say what a run left behind, and what is wrong with it."""
    wrong = []
    reservations = Ledger.open(place / "ledger").status("people")
    committed = reservations.reservations - len(reservations.never_committed)
    path = place / "out" / "model.gratis"
    found = loads(path)
    wholes = [found, *(loads(partial / "model.gratis") for partial in (place / "out").glob(".partial-*"))]
    new = [e for e in wholes if e is not None and (old is None or e.certificate_ != old)]  # type: ignore[attr-defined]
    said = (place / "err.txt").read_text().strip().split("\n")[-1] if (place / "err.txt").exists() else ""
    if path.exists() and found is None:
        wrong.append("a model file that does not load")
    if committed and not new:
        wrong.append("committed, and no model")
    if old is not None and found is None:
        wrong.append("neither the old nor the new model")
    if found is not None and code >= 0:
        beside = Certificate.read(place / "out" / "certificate.json")
        if beside != found.certificate_ or verify_certificate(beside):  # type: ignore[attr-defined]
            wrong.append("model and certificate do not belong together")
    if sent is not signal.SIGKILL and code not in (0, 128 + sent) and not (code == -sent and new):
        wrong.append(f"exit code {code}")
    if code == 128 + sent and not (
        ("the model is saved in" in said and new)
        or ("is spent" in said and "no model" in said and not committed)
        or ("nothing was spent" in said and not reservations.reservations)
    ):
        wrong.append(f"the last line was {said!r}")
    if code == 0:
        left = "finished before the signal"
    elif not reservations.reservations:
        left = "nothing spent"
    elif new:
        left = "model on disk, committed" if committed else "model on disk, spent"
    else:
        left = "spent, no model"
    return left, wrong


def main(runs: int, seed: int) -> int:
    """Print the counts; return the number of failures."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    rng = random.Random(seed)
    counts: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        course = Course(Path(name))
        lengths = {}
        for variant in ("model only", *VARIANTS):  # the first also makes the old model, and pays for what is done once
            place = course.prepare(variant)
            child = course.start(place, variant)
            wait_for_reservation(place / "ledger", child)
            began = time.monotonic()
            if end_of(child) != 0:
                raise RuntimeError((place / "err.txt").read_text())
            lengths[variant] = time.monotonic() - began
            if not (course.folder / "old").exists():
                shutil.copytree(place / "out", course.folder / "old")
        old = Certificate.read(course.folder / "old" / "certificate.json")
        for number in range(runs):
            sent, variant = SIGNALS[number % 3], list(VARIANTS)[number // 3 % len(VARIANTS)]
            place = course.prepare(variant)
            child = course.start(place, variant)
            if wait_for_reservation(place / "ledger", child):
                # More often early, where the model is made and saved: the square of a uniform number.
                time.sleep(lengths[variant] * rng.random() ** 2)
                if not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    os.kill(child, sent)
            left, wrong = judge(place, end_of(child), sent, old if variant == "force" else None)
            counts[sent.name, left] += 1
            if number % 30 == 29:
                print(f"{number + 1} runs", file=sys.stderr)
            failures += [f"run {number} ({variant}, {sent.name}): {what}" for what in wrong]
    print(f"{runs} runs; seconds from the reservation to the end: "
          + ", ".join(f"{variant} {seconds:.2f}" for variant, seconds in lengths.items()))  # fmt: skip
    for (sent_name, left), count in sorted(counts.items()):
        print(f"{sent_name:8} {left:28} {count}")
    print(f"failures: {len(failures)}", *failures, sep="\n")
    return len(failures)


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]) if len(sys.argv) > 1 else 210, int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
