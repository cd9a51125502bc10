"""Rows that become persons before anything is planned for them: `groups` of a fit, or a column of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.person_rows import PersonRows
from gratis.mechanisms.rows import Rows
from gratis.recipes.recipe import Recipe
from gratis.records.errors import GratisError
from gratis.rows.columns import as_text
from gratis.rows.person_ids import NamedIds, held_out_persons, number_persons, person_names
from gratis.rows.tables import Table

__all__ = ["TablePersons", "refuse_unless_sums", "rows_of_persons"]


def rows_of_persons(rows: Any, groups: Any, *, refuse_missing: bool) -> PersonRows:
    """The rows with persons as their units; what is no id for each of them is refused, and nothing is spent."""
    if not isinstance(rows, Rows) or not rows.in_memory:
        raise GratisError("groups need all rows in one memory, to find those of a person: pass arrays")
    X, y = rows.arrays()
    names = person_names(groups)
    if names.shape != y.shape:
        raise GratisError(f"groups must have one id for each of the {len(y)} rows, got {len(names)}")
    persons, count = number_persons(names)
    if refuse_missing and (persons < 0).any():
        raise GratisError(
            'some rows have no id in groups; nothing was spent. With on_invalid="zero" or "impute" such rows '
            "contribute nothing"
        )
    if count < 2:
        raise GratisError("groups name fewer than two persons: there is nobody to hide among")
    return PersonRows.of(X, y, persons, count)


def refuse_unless_sums(recipe: Recipe) -> None:
    """Refuse a recipe that does more with rows than add them up: a person's rows would not stay together in it."""
    if recipe.needs_arrays or any(getattr(recipe, name, False) for name in ("needs_order", "clips_rows")):
        raise GratisError(
            "groups are for models that add up bounded contributions (linear and logistic by full-batch descent, "
            "additive): this one takes rows one by one, so that a person with many would count as many"
        )
    reading = getattr(recipe, "reading", None)
    if reading is not None and not reading.standardise and reading.features is None:
        raise GratisError(
            "groups need private or public scales, which bound every entry: preprocessing='none' does not"
        )


@dataclass(frozen=True, slots=True)
class TablePersons:
    """Ids of all rows, as names, and which rows are held out: all of a person, or none."""

    column: str
    names: NDArray[Any] = field(repr=False)
    held: NDArray[np.bool_] = field(repr=False)

    @staticmethod
    def check_column(table: Table, column: str, target: str) -> None:
        """Refuse a column that is not there, or is predicted."""
        if column not in table.types or column == target:
            raise GratisError(f"there is no column {column!r} of ids in {table.path.name!r} beside the target")

    @classmethod
    def of(cls, table: Table, column: str, share: float) -> TablePersons:
        """Read the column; whoever is held out is so by a public function of the id alone."""
        ids: list[str | None] = []
        for batch in table.batches([column], 2**16):
            ids += as_text(batch.column(column)).to_pylist()
        names = person_names(ids)
        found = cls(column, names, held_out_persons(names, share))
        if min(found.count("training"), found.count("held-out") if share else 2) < 2:
            raise GratisError(f"the column {column!r} names too few persons to train on")
        return found

    def rows(self, part: str) -> NDArray[np.bool_]:
        """Which rows are in a part."""
        return self.held if part == "held-out" else ~self.held

    def groups(self, part: str) -> NamedIds:
        """Whose rows they are, in their order."""
        return NamedIds(self.names[self.rows(part)], self.column)

    def count(self, part: str) -> int:
        """How many persons are in a part: public, as their ids are labels."""
        return number_persons(self.names[self.rows(part)])[1]

    def check(self) -> None:
        """Refuse rows without an id. That answer is not private."""
        if (self.names == "").any():
            raise GratisError(
                f"some rows have no id in {self.column!r}; with --missing-target leave-out they contribute nothing"
            )

    def words(self) -> str:
        """What the unit is, in a sentence."""
        return (
            f"The unit of privacy is a person with all rows ({self.column!r}): {self.count('training')} persons, each "
            "of whom counts once, by the mean over the own rows."
        )
