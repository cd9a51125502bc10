"""How a table is read, as the user says it: the file's dialect, columns to leave out, levels, buckets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gratis.estimators.private_levels import ASSUMED_LEVELS
from gratis.records.errors import GratisError
from gratis.rows.columns import Column, Kind
from gratis.rows.encoding import TableSchema
from gratis.rows.tables import Table, open_table

__all__ = ["TableReading"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReading:
    """What was declared about a table. All of it is public.

    Parameters
    ----------
    schema : TableSchema, path of a schema file, or None
    ignore : names of columns that are left out.
    numeric : names of columns of numbers; a cell that is none is missing.
    levels : public levels of text columns, by name.
    hash_buckets : number of buckets for every other column of text.
    private_levels : names of columns of text whose common levels are found within the budget.
    encoding, separator, decimal : how a text file is written, where its header does not tell (`gratis.rows.dialects`).
    """

    schema: TableSchema | str | os.PathLike[str] | None = None
    ignore: Sequence[str] = ()
    numeric: Sequence[str] = ()
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hash_buckets: int | None = None
    private_levels: Sequence[str] = ()
    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None

    def open(self, source: str | os.PathLike[str] | Table, *others: str | None) -> Table:
        """Open a file, or take a table that is open already; `others` are columns beside those of a schema."""
        if isinstance(source, Table):
            return source
        dialect = {"encoding": self.encoding, "separator": self.separator, "decimal": self.decimal}
        return open_table(source, **dialect, columns=self.columns(*others))

    def columns(self, *others: str | None) -> list[str] | None:
        """The columns of a table whose file does not say which it has; None where no schema does."""
        if self.schema is None or self.declared().released:
            return None
        declared = (*(column.name for column in self.declared().columns), *self.private_levels, *self.ignore)
        return [*dict.fromkeys(name for name in (*declared, *others) if name is not None)]

    def declared(self) -> TableSchema:
        """The columns about which something was said; each by one way of saying it."""
        schema = self.schema
        if schema is not None and not isinstance(schema, TableSchema):
            schema = TableSchema.read(schema)
        columns = {column.name: column for column in (schema.columns if schema else ())}
        said = [*self.numeric, *self.levels, *self.private_levels]
        twice = next((name for place, name in enumerate(said) if name in said[:place]), None)
        if twice is not None:
            raise GratisError(
                f"column {twice!r} is declared in two ways: give it once, as numeric, levels or private levels"
            )
        columns |= {name: Column(name=name, kind=Kind.NUMERIC, lenient=True) for name in self.numeric}
        columns |= {
            name: Column(name=name, kind=Kind.CATEGORICAL, levels=tuple(map(str, levels)))
            for name, levels in self.levels.items()
        }
        return TableSchema(tuple(columns.values()), released=schema is not None and schema.released)

    def schema_of(
        self, table: Table, target: str | None, found: Mapping[str, Sequence[str]] | None = None
    ) -> TableSchema:
        """Return how every column but the target is read; `found` are the private levels, once they are released."""
        names: dict[str, Any] = dict(found or {})
        for name in self.private_levels:
            if name not in table.types or name == target:
                raise GratisError(f"there is no column {name!r} of features in {Path(table.path).name!r}")
        searched = [
            Column(name=n, kind=Kind.CATEGORICAL, levels=tuple(names[n])) for n in self.private_levels if names.get(n)
        ]
        if found is None:  # not searched yet: as many buckets as levels are assumed, for the plan that is printed
            searched = [Column(name=n, kind=Kind.CATEGORICAL, buckets=ASSUMED_LEVELS) for n in self.private_levels]
        # A column in which no level was common enough says nothing, and is left out.
        empty = [name for name in self.private_levels if found is not None and not names.get(name)]
        known = {column.name: column for column in (*self.declared().columns, *searched)}
        return TableSchema.of(
            table, target=target, declared=TableSchema(tuple(known.values())), ignored=(*self.ignore, *empty),
            buckets=self.hash_buckets,
        )  # fmt: skip
