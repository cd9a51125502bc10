"""The columns of a table and how they are read: names and types alone. No cell is shown, or kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gratis.records.errors import GratisError
from gratis.rows.columns import Column, Kind, can_be_target, is_text
from gratis.rows.encoding import TableSchema
from gratis.rows.readings import left_out_by_name
from gratis.rows.tables import open_table

__all__ = ["described_table", "encoded", "stated_schema"]

_BUCKETS = 32  # as `gratis schema` proposes


def described_table(path: Path) -> dict[str, Any]:
    """Rows, and every column with its type, how it is read if nothing else is said, and what to think about."""
    table = open_table(path)
    unnamed = left_out_by_name(table)
    columns = []
    for name, kind in table.types.items():
        found = None if name in unnamed else Column.of_type(name, kind, buckets=_BUCKETS)
        columns.append(found or Column(name=name, kind=Kind.IGNORED))
    said = {reading.name: reading for reading in TableSchema(tuple(columns)).readings(table)}
    return {
        "rows": table.count_rows(),
        "kinds": [str(kind) for kind in Kind],
        "columns": [
            {
                "name": column.name,
                "type": said[column.name].holds,
                "reading": column.to_json(),
                "undecided": is_text(table.types[column.name]),
                # What to do about it is said for the command line; here it is chosen beside it.
                "warning": re.split("[:;]", said[column.name].warning or "")[0] or None,
                "target": can_be_target(table.types[column.name]),
            }
            for column in columns
        ],
    }


def stated_schema(stated: object, target: str) -> tuple[TableSchema, tuple[str, ...]]:
    """Check what the page says of the columns: a schema without the target, and whose levels are found privately."""
    if not isinstance(stated, dict):
        raise GratisError("the page sent no columns")
    columns = {name: value for name, value in stated.items() if name != target}
    private = tuple(name for name, value in columns.items() if isinstance(value, dict) and value.get("private") is True)
    return TableSchema.from_json({"columns": {n: v for n, v in columns.items() if n not in private}}), private


def encoded(stated: object, target: str) -> dict[str, Any]:
    """How many columns of the matrix each column becomes; where levels are found privately, that is not known yet."""
    schema, private = stated_schema(stated, target)
    widths = {column.name: len(column.names) for column in schema.columns}
    return {"columns": len(schema.names), "widths": widths | dict.fromkeys(private)}
