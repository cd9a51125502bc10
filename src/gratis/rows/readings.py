"""What the columns of a table became, for whoever decides before anything is spent. Names and types alone are used."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from gratis.records.record import Record
from gratis.rows.columns import Column, Kind, in_words, is_number, is_text
from gratis.rows.tables import Table

__all__ = [
    "ColumnReading",
    "is_personal",
    "left_out_by_name",
    "looks_like_identifier",
    "names_a_person",
    "read_columns",
    "readings_text",
    "repeated_ids",
    "shared_ids",
]

_UNNAMED = re.compile(r"^(|unnamed: ?0|__index_level_\d+__)$", re.IGNORECASE)
_IDENTIFIER = re.compile(
    r"^(ids?|uuid|guid|key|ssn|row_?(id|names?|number|num)|index|id_?(num|number|no)|"
    r"(u|case|user|person|patient|customer|client|record|sample|subject|order)_?id|.*[_. ](id|uuid|key)|.*[a-z]I[dD])$"
)
_PERSONAL = re.compile(r"^(e-?mail|phone|telephone|address|(first|last|sur|full)_?name|name|title)$", re.IGNORECASE)
_SHARED = 0.9  # different ids a row, among the first: a row is hardly ever written twice by mistake so often
_SHOWN = 4
_WIDE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReading(Record):
    """One column: its name, the file's type, how it is read, the columns that it becomes, and what to think about."""

    name: str
    holds: str
    read_as: str
    becomes: tuple[str, ...]
    warning: str | None = None


def looks_like_identifier(name: str) -> bool:
    """Say whether a column's name is one that identifiers have."""
    return bool(_IDENTIFIER.match(name) or _IDENTIFIER.match(name.lower()))


def names_a_person(name: str) -> bool:
    """Say whether a column's name is one of names, titles and addresses."""
    return bool(_PERSONAL.match(name))


def is_personal(name: str) -> bool:
    """Say whether a column's name is one of identifiers, names or addresses."""
    return looks_like_identifier(name) or names_a_person(name)


def left_out_by_name(table: Table) -> tuple[str, ...]:
    """Return the columns that are an index that was written along: without a name, or by pandas' own name for it."""
    first = next(iter(table.types), None)
    unnamed = [name for name in table.types if _UNNAMED.match(name) and (name or name == first)]
    return tuple(name for name in unnamed if len(table.types) > 1)


def read_columns(
    table: Table, columns: Mapping[str, Column], target: Column | None = None, unit: str | None = None
) -> tuple[ColumnReading, ...]:
    """Return what every column of a table became, in its order; `unit` is the one that says whose row it is."""
    index = {*left_out_by_name(table)}
    repeated = repeated_ids(table, [] if unit is not None else [name for name in columns if name not in index])
    found = []
    for name, kind in table.types.items():
        column = target if target is not None and name == target.name else columns.get(name)
        if column is None:
            continue
        is_target = target is not None and name == target.name
        found.append(
            ColumnReading(
                name=name,
                holds=in_words(kind) + ("" if table.states_types else ", by its first cells"),
                read_as=("the target: " if is_target else "") + _how(column, name in index),
                becomes=() if is_target else column.names,
                warning=_doubt(table, column) if is_target else _warning(table, name, kind, column, name in repeated),
            )
        )
    return tuple(found)


def readings_text(readings: tuple[ColumnReading, ...]) -> list[str]:
    """Return lines: a column, how it is read, what it becomes; long runs of alike columns in one line."""
    groups: list[list[ColumnReading]] = []
    for reading in readings:
        alike = groups and len(readings) > _WIDE and _alike(groups[-1][-1], reading)
        if alike:
            groups[-1].append(reading)
        else:
            groups.append([reading])
    names = [_shown(group) for group in groups]
    wide = min(max(map(len, names), default=0), 28)
    lines = [f"  {name:<{wide}}  {_becomes(group)}" for name, group in zip(names, groups, strict=True)]
    return lines + [f"  ! {group[0].warning}" for group in groups if group[0].warning]


def _alike(one: ColumnReading, other: ColumnReading) -> bool:
    same = (one.read_as, len(one.becomes)) == (other.read_as, len(other.becomes))
    return same and len(one.becomes) <= 1 and one.warning is None and other.warning is None


def _shown(group: list[ColumnReading]) -> str:
    first = repr(group[0].name)
    return first if len(group) == 1 else f"{first} … {group[-1].name!r} ({len(group)})"


def _becomes(group: list[ColumnReading]) -> str:
    reading = group[0]
    if not reading.becomes or reading.becomes == (reading.name,) or len(group) > 1:
        return reading.read_as
    names = [*reading.becomes[:_SHOWN], *(("…",) if len(reading.becomes) > _SHOWN else ())]
    return f"{reading.read_as} → {', '.join(names)}"


def _how(column: Column, index: bool) -> str:
    match column.kind:
        case Kind.IGNORED:
            return (
                "left out: an index that was written along (declare it in a --schema to use it)"
                if index
                else "left out"
            )
        case Kind.NUMERIC:
            filled = "" if column.missing is None else f", {column.missing:g} where missing"
            shown = " with a decimal comma" if column.decimal == "," else ""
            return f"number{shown}" + (", other cells missing" if column.lenient else "") + filled
        case Kind.BOOLEAN:
            return "truth value"
        case Kind.ORDERED:
            return f"number from 0 to {len(column.levels or ()) - 1}, by the order of its levels"
        case Kind.DATE:
            return "date" + ("" if column.form is None else f", written {column.form}")
        case Kind.CATEGORICAL if column.levels is not None:
            return f"{len(column.levels)} levels"
    return f"text, hashed into {column.buckets} buckets"


def repeated_ids(table: Table, names: Iterable[str]) -> set[str]:
    """The identifiers that several of the first rows share."""
    kinds = table.types
    ids = [name for name in names if looks_like_identifier(name) and (is_text(kinds[name]) or is_number(kinds[name]))]
    first = table.first_cells(ids)
    return {name for name, cells in first.items() if len(cells.unique()) <= _SHARED * len(cells) and len(cells)}


def _warning(table: Table, name: str, kind: object, column: Column, shared: bool) -> str | None:
    if shared:
        return f"{name!r} {shared_ids(name, python=table.for_python)}"
    if column.kind is Kind.IGNORED:
        return None
    if name in table.index_columns:
        return (
            f"{name!r} is an index of pandas, by the file's own words: leave it out with --ignore if it means nothing"
        )
    if looks_like_identifier(name):
        return f"{name!r} looks like an identifier, which predicts nothing: leave it out with --ignore {name!r}"
    if names_a_person(name):
        return f"{name!r} looks like a name or an address: leave it out with --ignore {name!r}"
    if column.kind is Kind.CATEGORICAL and column.buckets is not None and not table.states_types:
        return f"{name!r} is read as text; if it should hold numbers, --numeric {name!r} takes other cells as missing"
    if (doubt := _doubt(table, column)) is not None:
        return doubt
    if column.kind is Kind.NUMERIC and pa.types.is_null(kind):
        return f"{name!r} has no type, so its first cells are empty: leave it out with --ignore, or declare its kind"
    return None


def shared_ids(name: str, *, python: bool) -> str:
    """What is said of identifiers that several rows share."""
    how = f"unit={name!r}" if python else f"--unit {shlex.quote(name)}"
    return f"has several rows for the same id: if they are of one person, {how} protects persons with all their rows"


def _doubt(table: Table, column: Column) -> str | None:
    """What may be another number in another country."""
    if column.kind is not Kind.NUMERIC or column.decimal is not None or column.name not in table.writing.doubtful:
        return None
    return (
        f"{column.name!r} is read with a decimal point, but all its first cells could have a comma instead (1.234 and "
        "1,234 are two numbers in two countries): --decimal . or --decimal , says which"
    )
