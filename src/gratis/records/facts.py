"""Facts: what is public of a table before anything is planned."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = ["Facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
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

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Facts:
        """Read what `to_json` wrote."""
        if not isinstance(data, dict) or set(data) != {"rows", "columns", "classes"}:
            raise GratisError("the facts of a plan are its rows, columns and classes")
        return cls(**data)
