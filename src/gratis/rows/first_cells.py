"""What the first cells of a column of text look like: how it is read, or the option that reads it.

That is public, as certificates state ("public-types"). No count and no cell is told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from gratis.rows.amounts import MOST
from gratis.rows.columns import Column, Kind, is_text
from gratis.rows.dates import usual_parts
from gratis.rows.readings import is_personal
from gratis.rows.tables import Table

__all__ = ["Looks", "first_looks"]

_DATE = re.compile(
    r"(?:(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})|\d{4}([/-])\d{1,2}\5\d{1,2})([T ]\d{1,2}:\d{2}(:\d{2})?)?$"
)


@dataclass(frozen=True, slots=True)
class Looks:
    """Columns of text most of whose cells look like numbers; and those of numbers or dates, as what reads them."""

    numbers: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()


def first_looks(table: Table, names: Sequence[str]) -> Looks:
    """Say which columns of text look like numbers or dates, by their first cells.

    >>> from gratis.rows.frames import FrameTable
    >>> cells = {"a": ["1", "-", "$2", "3"], "b": ["12/31/2020"] * 4, "c": ["x"] * 4}
    >>> found = first_looks(FrameTable(pa.table(cells)), "abc")
    >>> found.numbers, [(column.name, column.form) for column in found.columns]
    (('a',), [('b', '%m/%d/%Y')])
    """
    texts = [name for name in names if is_text(table.types[name])]
    dates = [date for name, cells in table.first_cells(texts).items() if (date := _date(name, cells.to_pylist()))]
    dated = {date.name for date in dates}
    found = [name for name in texts if name not in dated and name in table.writing.numbers]
    # A telephone number in threes is none.
    amounts = [name for name in found if name in table.writing.amounts and not is_personal(name)]
    return Looks(tuple(found), (*dates, *(Column(name=name, kind=Kind.NUMERIC) for name in amounts)))


def _date(name: str, cells: list[str]) -> Column | None:
    """The column as dates, American ones where days and months cannot be told apart; None where they are none."""
    found = [match for cell in cells if (match := _DATE.match(cell.strip()))]
    if not found or len(found) < MOST * len(cells):
        return None
    timed = any(match[6] is not None for match in found)
    form = _date_format(found)
    return Column(name=name, kind=Kind.DATE, form=form, parts=usual_parts(pa.timestamp("s") if timed else pa.date32()))


def _date_format(found: list[re.Match[str]]) -> str | None:
    """The format of dates; None for one that is read without being told."""
    first = found[0]
    clock = "" if first[6] is None else f"{first[6][0]}%H:%M" + ("" if first[7] is None else ":%S")
    if first[2] is None:
        return None if first[5] == "-" else f"%Y/%m/%d{clock}"
    if first[2] == "." and len(first[4]) == 4:
        return None
    day_first = any(int(match[1]) > 12 for match in found if match[1])
    year = "%Y" if len(first[4]) == 4 else "%y"
    return first[2].join(("%d", "%m", year) if day_first else ("%m", "%d", year)) + clock
