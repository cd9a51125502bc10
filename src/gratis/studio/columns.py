"""The columns of a table and how they are read: names and types alone. No cell is shown, or kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gratis.records.errors import GratisError
from gratis.rows.encoding import Column, Kind, TableSchema, can_be_target
from gratis.rows.tables import open_table

__all__ = ["described_table", "encoded", "stated_schema"]


def described_table(path: Path) -> dict[str, Any]:
    """Rows, and every column with its type and how it is read if nothing else is said."""
    table = open_table(path)
    columns = []
    for name, kind in table.types.items():
        reading, advice = None, None
        try:
            reading = Column.of_type(name, kind).to_json()
        except GratisError as error:
            advice = " ".join(str(error).split())
        columns.append(
            {"name": name, "type": str(kind), "reading": reading, "advice": advice, "target": can_be_target(kind)}
        )
    return {"rows": table.count_rows(), "columns": columns, "kinds": [str(kind) for kind in Kind]}


def stated_schema(stated: object, target: str) -> dict[str, Any]:
    """Check a schema that the page made and return it for a schema file, without the target."""
    if not isinstance(stated, dict):
        raise GratisError("the page sent no columns")
    columns = {name: value for name, value in stated.items() if name != target}
    schema: dict[str, Any] = TableSchema.from_json({"columns": columns}).to_json()
    return schema


def encoded(stated: object, target: str) -> dict[str, Any]:
    """How many columns of the matrix each column becomes."""
    schema = TableSchema.from_json(stated_schema(stated, target))
    return {"columns": len(schema.names), "widths": {column.name: len(column.names) for column in schema.columns}}
