"""The example of the documentation: six thousand invented people, the same on every machine."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

__all__ = ["write_people"]


def write_people(path: Path) -> None:
    """Write `people.csv`: income bends with age, rises with hours and with owning a house; some hours are missing."""
    rng = np.random.default_rng(7)
    n = 6000
    age, hours = rng.normal(44, 12, n).clip(18, 80).round(), rng.normal(36, 7, n).clip(5, 60).round(1)
    children, owner, silent = rng.integers(0, 4, n), rng.random(n) < 0.3, rng.random(n) < 0.05
    income = 30 + 0.4 * hours + 4 * owner - 0.012 * (age - 52) ** 2 + rng.normal(0, 3, n)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["age", "hours", "children", "owner", "income"])
        for i in range(n):
            stated = "" if silent[i] else f"{hours[i]:.1f}"
            rows.writerow([f"{age[i]:.0f}", stated, children[i], int(owner[i]), f"{income[i]:.2f}"])
