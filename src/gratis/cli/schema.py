"""`gratis schema`: a schema file to begin with, from the column types of a table."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from gratis.cli.output import DECIMAL_OPTION, ENCODING_OPTION, SEPARATOR_OPTION, echo, messages

__all__ = ["schema"]


def schema(
    file: Path = typer.Argument(..., help="The table, or (with --public) a public one with the same columns."),
    public: bool = typer.Option(False, "--public", help="The file is public: list the levels that occur in it."),
    most_levels: int = typer.Option(100, help="Text columns with more levels get buckets instead."),
    encoding: str | None = ENCODING_OPTION,
    separator: str | None = SEPARATOR_OPTION,
    decimal: str | None = DECIMAL_OPTION,
) -> None:
    """Print a schema as JSON; text columns are hashed into 32 buckets until you list their public levels.

    What every column becomes is said on the standard error, so that the output can be written to a file.
    """
    from gratis.rows.columns import Column, Kind
    from gratis.rows.encoding import TableSchema, distinct_values
    from gratis.rows.first_cells import first_looks
    from gratis.rows.readings import left_out_by_name, readings_text
    from gratis.rows.tables import open_table

    table = open_table(file, encoding=encoding, separator=separator, decimal=decimal)
    unnamed, columns = left_out_by_name(table), []
    seen = {column.name: column for column in first_looks(table, list(table.types)).columns}
    for name, kind in table.types.items():
        column = None if name in unnamed else seen.get(name) or Column.of_type(name, kind, buckets=32)
        column = column or Column(name=name, kind=Kind.IGNORED)  # an index, lists and the like
        if public and column.kind is Kind.CATEGORICAL:
            levels = distinct_values(table, name, most_levels)
            column = column if not levels else Column(name=name, kind=Kind.CATEGORICAL, levels=levels)
        columns.append(column)
    made = TableSchema(tuple(columns)).written_as(table)
    console = messages()
    for line in readings_text(made.readings(table)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    echo(json.dumps(made.to_json(), indent=1, ensure_ascii=False))
