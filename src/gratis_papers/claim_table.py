"""One table of all claims over several runs: which seeds each held for, and why not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gratis.records.errors import GratisError
from gratis_papers.findings import Finding, find

__all__ = ["ClaimRow", "claim_rows", "read_figures", "seeds_that_hold", "without_measurements"]

# "(1.8784 ± 0.0405)" in a claim differs from run to run.
_MEASURED = re.compile(r"\s*\([^()]*\d\.\d{3,}[^()]*\)")


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim of one figure: for each seed whether it held, and what was found of it."""

    figure: str
    claim: str
    holds: dict[int, bool] = field(default_factory=dict)

    @property
    def finding(self) -> Finding:
        """Why it did not hold, if that is known."""
        return find(self.figure, self.claim)


def read_figures(folder: Path) -> list[dict[str, Any]]:
    """Return the tables that `gratis papers run` left in a folder, each with its picture beside it."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if not path.with_suffix(".png").is_file():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content["figure"], content["seed"], content["claims"]
        except (ValueError, KeyError, TypeError):
            raise GratisError(
                f"{path} is not a table of `gratis papers run`; remove it or run its figure again"
            ) from None
        found.append(content)
    return found


def without_measurements(claim: str) -> str:
    """Return the claim as it stood before the run.

    >>> without_measurements("A = k^-1 (ε = .2) grows less than A = I (0.4295 ± 0.0047)")
    'A = k^-1 (ε = .2) grows less than A = I'
    """
    return _MEASURED.sub("", claim)


def claim_rows(figures: Iterable[dict[str, Any]]) -> list[ClaimRow]:
    """Collect the claims of runs with any seeds; of two runs with the same seed the later one counts.

    >>> runs = [{"figure": "s9", "seed": s, "claims": [{"claim": "rises", "holds": s < 2}]} for s in range(3)]
    >>> claim_rows(runs)[0].holds
    {0: True, 1: True, 2: False}
    """
    rows: dict[tuple[str, str], ClaimRow] = {}
    for figure in figures:
        for claim in figure["claims"]:
            name, words = figure["figure"], without_measurements(claim["claim"])
            row = rows.setdefault((name, words), ClaimRow(name, words))
            row.holds[int(figure["seed"])] = bool(claim["holds"])
    return list(rows.values())


def seeds_that_hold(row: ClaimRow) -> str:
    """Say for how many seeds a claim held.

    >>> seeds_that_hold(ClaimRow("s9", "rises", {0: True, 1: False}))
    '1 of 2'
    """
    return f"{sum(row.holds.values())} of {len(row.holds)}"
