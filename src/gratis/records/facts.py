"""Facts: what is public of a table before anything is planned."""

from __future__ import annotations

from dataclasses import dataclass

from gratis.records.checks import check_count
from gratis.records.record import Record

__all__ = ["Facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Record):
    """Rows, encoded columns, and the number of classes (None: a regression).

    >>> Facts(rows=100, columns=3).task
    'regression'
    """

    rows: int
    columns: int
    classes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", check_count("rows", self.rows, minimum=2))
        object.__setattr__(self, "columns", check_count("columns", self.columns))
        if self.classes is not None:
            object.__setattr__(self, "classes", check_count("classes", self.classes, minimum=2))

    @property
    def task(self) -> str:
        """What the classes imply."""
        return "regression" if self.classes is None else "classification"
