"""`gratis schema`: a schema file to begin with, from the column types of a table."""

from __future__ import annotations

import json
from pathlib import Path

import typer

__all__ = ["schema"]


def schema(
    file: Path = typer.Argument(..., help="The table, or (with --public) a public one with the same columns."),
    public: bool = typer.Option(False, "--public", help="The file is public: list the levels that occur in it."),
    most_levels: int = typer.Option(100, help="Text columns with more levels get buckets instead."),
) -> None:
    """Print a schema as JSON; text columns are hashed into 32 buckets until you list their public levels."""
    from gratis.records.errors import GratisError
    from gratis.rows.encoding import Column, Kind, TableSchema, distinct_values
    from gratis.rows.tables import open_table

    table = open_table(file)
    columns = []
    for name, kind in table.types.items():
        try:
            column = Column.of_type(name, kind, buckets=32)
        except GratisError:  # dates and the like
            column = Column(name=name, kind=Kind.IGNORED)
        if public and column.kind is Kind.CATEGORICAL:
            levels = distinct_values(table, name, most_levels)
            column = column if not levels else Column(name=name, kind=Kind.CATEGORICAL, levels=levels)
        columns.append(column)
    typer.echo(json.dumps(TableSchema(tuple(columns)).to_json(), indent=1, ensure_ascii=False))
