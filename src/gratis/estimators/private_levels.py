"""Levels of text columns found within a fit's budget, before the model is planned for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gratis.accounting import calibrate_mu
from gratis.estimators.release import Release
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError
from gratis.records.events import ThresholdedCounts
from gratis.rows.cluster_table import ClusterTable
from gratis.rows.encoding import EncodedRows
from gratis.stages.private_levels import count_levels, levels_event, release_levels

__all__ = ["ASSUMED_LEVELS", "MOST_LEVELS", "FoundLevels", "LevelSearch", "plan_search"]

# Chosen, not tuned on any table: a tenth of μ² leaves the model 95 % of its μ.
_SHARE_OF_MU, _SHARE_OF_DELTA = 0.1, 0.1
MOST_LEVELS = 32
ASSUMED_LEVELS = 8  # a column, in plans that are printed before the levels are known


@dataclass(frozen=True, slots=True)
class LevelSearch:
    """Which columns are searched, and what that costs; fixed by public facts before anything is read."""

    columns: tuple[str, ...]
    event: ThresholdedCounts

    def words(self, n_rows: int) -> str:
        """What will be found."""
        least = self.event.threshold
        names = ", ".join(map(repr, self.columns))
        return (
            f"Levels of {names} are found first, with a tenth of the budget: those of about {least:.0f} records or "
            f"more ({least / n_rows:.1%} of the rows), at most {MOST_LEVELS} a column. The plan below is for "
            f"{ASSUMED_LEVELS} levels a column and is made anew for those that are found."
        )

    def run(self, rows: EncodedRows | ClusterTable, release: Release) -> FoundLevels:
        """Find the levels inside a release that was made for `event`."""
        if release.event != self.event:
            raise ValueError("the release must have been made for this search")
        with release:
            counts = _counted(rows, self.columns)
            found = release_levels(counts, self.event, most=MOST_LEVELS, noise=release.noise)
        # A table without rows to count yields no columns at all.
        found = found or tuple(() for _ in self.columns)
        return FoundLevels(dict(zip(self.columns, found, strict=True)), release.certificate)


@dataclass(frozen=True, slots=True)
class FoundLevels:
    """What a search released: levels with their noisy counts, and its certificate."""

    counts: dict[str, tuple[tuple[str, float], ...]]
    certificate: Certificate = field(repr=False)

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each column, the most frequent first."""
        return {name: tuple(level for level, _ in found) for name, found in self.counts.items()}

    def words(self, file: str) -> str:
        """How many levels every column has, which is released along with them; none is a column that is left out."""
        found = ", ".join(
            f"{len(levels)} of {name!r}" if levels else f"none of {name!r}, which is left out"
            for name, levels in self.levels.items()
        )
        return f"Levels found within the budget: {found}; they are in {file}, with noisy counts."

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON: a schema of these columns, with counts and certificate beside it."""
        return {
            "columns": {
                name: {"kind": "categorical", "levels": list(levels)} if levels else "ignored"
                for name, levels in self.levels.items()
            },
            "counts": {name: dict(found) for name, found in self.counts.items()},
            "certificate": self.certificate.to_json(),
        }


def plan_search(columns: tuple[str, ...], budget: Budget) -> LevelSearch:
    """Return the search of these columns at its share of a budget in epsilon and delta."""
    if budget.delta is None:
        raise GratisError("levels are found within a budget in epsilon and delta")
    event = levels_event(
        len(columns), mu=calibrate_mu(budget) * _SHARE_OF_MU**0.5, failure=budget.delta * _SHARE_OF_DELTA,
        neighbouring=budget.neighbouring,
    )  # fmt: skip
    return LevelSearch(columns, event)


def _counted(rows: EncodedRows | ClusterTable, columns: tuple[str, ...]) -> list[Counter[str]]:
    """Exact counts of the values of every searched column: whole numbers, the same wherever they were added up."""
    if isinstance(rows, ClusterTable):
        return rows.counts(lambda block: count_levels(_texts(block, columns)), len(columns))
    return count_levels(_texts(rows, columns))


def _texts(rows: EncodedRows, columns: tuple[str, ...]) -> Iterator[list[list[str | None]]]:
    """The searched columns of the records that contribute: one without a target is the null record."""
    for texts, targets in rows.texts(columns):
        kept = np.flatnonzero(np.isfinite(targets))
        yield [[column[place] or None for place in kept] for column in texts]
