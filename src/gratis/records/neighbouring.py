"""The neighbouring relation: what "one record" means in a guarantee."""

from __future__ import annotations

from enum import StrEnum

from gratis.records.errors import GratisError

__all__ = ["Neighbouring"]


class Neighbouring(StrEnum):
    """Which data sets must be hard to tell apart. The number of rows is public and the same on both sides.

    REPLACE_ONE: one record is exchanged for any other record (sensitivity factor 2 for a sum of clipped terms).
    ZERO_OUT: one record's contribution is replaced by nothing (factor 1); other libraries call it
    add/remove with a public n.

    >>> Neighbouring.parse("replace-one").sensitivity_factor
    2
    """

    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"

    @property
    def sensitivity_factor(self) -> int:
        """κ: how far a sum of terms of norm at most 1 moves between neighbours."""
        return 2 if self is Neighbouring.REPLACE_ONE else 1

    @classmethod
    def parse(cls, value: str | Neighbouring) -> Neighbouring:
        """Read a relation from its name; an unknown name is an error, never a default."""
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(str(member)) for member in cls)
            raise GratisError(f"unknown neighbouring relation {value!r}; expected one of {names}") from None
