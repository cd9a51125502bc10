"""What the first cells of a column of text look like, so that a refusal names the option that reads them.

Nothing is read by it: whoever follows the advice declares how the column is read. No count and no cell is told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gratis.rows.columns import as_text, is_text
from gratis.rows.tables import Table, numbers

__all__ = ["Looks", "first_looks"]

_FIRST = 1000  # cells
_MOST = 0.7  # of them; what is written for a missing number may be a fifth
_DATE = re.compile(
    r"(?:(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})|\d{4}([/-])\d{1,2}\5\d{1,2})([T ]\d{1,2}:\d{2}(:\d{2})?)?$"
)


@dataclass(frozen=True, slots=True)
class Looks:
    """Columns of text that look like numbers, and those that look like dates with their likely formats.

    An empty format is one that dates are read in without being told.
    """

    numbers: tuple[str, ...] = ()
    dates: tuple[tuple[str, str], ...] = ()


def first_looks(table: Table, names: Sequence[str]) -> Looks:
    """Say which columns of text look like numbers or dates, by their first cells.

    >>> from gratis.rows.frames import FrameTable
    >>> first_looks(FrameTable(pa.table({"a": ["1", "-", "$2", "3"], "b": ["12/31/2020"] * 4, "c": ["x"] * 4})), "abc")
    Looks(numbers=('a',), dates=(('b', '%m/%d/%Y'),))
    """
    texts = [name for name in names if is_text(table.types[name])]
    batch = next(iter(table.batches(texts, _FIRST)), None) if texts else None
    if batch is None:
        return Looks()
    try:
        cells = {name: as_text(batch.column(name)).drop_null() for name in texts}
    except (pa.ArrowException, UnicodeDecodeError):  # no text at all: reading the rows says so
        return Looks()
    dates = {name: form for name in texts if (form := _date_format(cells[name].to_pylist())) is not None}
    found = [name for name in texts if name not in dates and len(cells[name])]
    return Looks(
        tuple(name for name in found if np.isfinite(numbers(cells[name])).mean() >= _MOST),
        tuple(dates.items()),
    )


def _date_format(cells: list[str]) -> str | None:
    """The format of dates, the American one where days and months cannot be told apart; None where they are none."""
    found = [match for cell in cells if (match := _DATE.match(cell))]
    if not found or len(found) < _MOST * len(cells):
        return None
    first = found[0]
    clock = "" if first[6] is None else f"{first[6][0]}%H:%M" + ("" if first[7] is None else ":%S")
    if first[2] is None:
        return "" if first[5] == "-" else f"%Y/%m/%d{clock}"
    if first[2] == "." and len(first[4]) == 4:
        return ""
    day_first = any(int(match[1]) > 12 for match in found if match[1])
    year = "%Y" if len(first[4]) == 4 else "%y"
    return first[2].join(("%d", "%m", year) if day_first else ("%m", "%d", year)) + clock
