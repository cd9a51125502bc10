"""`groups` of a fit: rows become persons, before anything is planned for them."""

from __future__ import annotations

from typing import Any

from gratis.mechanisms.person_rows import PersonRows
from gratis.mechanisms.rows import Rows
from gratis.recipes.recipe import Recipe
from gratis.records.errors import GratisError
from gratis.rows.person_ids import number_persons, person_names

__all__ = ["refuse_unless_sums", "rows_of_persons"]


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
