"""Numbers as people write them: 1,234.56 and 1.234,56, currencies, per cent, negatives; each cell by itself.

Which sign is the decimal one is a fact of a column, told or found in its first cells, and public. Read alone, 1.234 and
1,234 are two numbers in two countries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["MOST", "Writing", "numbers", "numbers_into", "spread", "unreadable", "written"]

MOST = 0.7  # of the first cells; what is written for a missing number may be a fifth
_NOTHING = pa.nulls(1, pa.string())[0]  # made of a None, it would bring pandas
_LONG = 512  # cells of a column that are worth a call to Arrow
_PLAIN = r"^\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|nan)\s*$"
_PLAIN_COMMA = r"^[+-]?((\d+(,\d*)?|,\d+)([eE][+-]?\d+)?|inf|nan)$"
_SPACE = r"[ \x{a0}\x{2009}\x{202f}]"
_MINUS = r"[+\-\x{2212}]"
_CODES = (
    "USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|RON|RUB|TRY|BRL|MXN|CAD|AUD|NZD|ZAR|KRW|SGD|HKD|ILS|"
    r"S?Fr\.?|kr\.?|Kč|zł|Ft"
)
_MONEY = rf"(?:(?:US|CA|AU|NZ|HK|[ACRS])?\p{{Sc}}|{_CODES})"


def _amount(thousands: str, decimal: str) -> str:
    """Digits in threes with one of the signs between them, or without; a fraction, money or per cent, one minus."""
    grouped = "|".join(rf"[1-9]\d{{0,2}}(?:{sign}\d{{3}})+" for sign in (thousands, _SPACE, "['’]"))
    number = rf"(?:(?:{grouped}|\d+)(?:{decimal}\d*)?|{decimal}\d+)"
    after = rf"(?:{_SPACE}*(?:{_MONEY}|%))?"
    bare = rf"(?:{_MONEY}{_SPACE}*{number}|{number}{after})"
    inside = rf"\({_SPACE}*{number}{_SPACE}*\)"
    forms = (
        rf"(?:{_MINUS}{_SPACE}*)?{bare}", rf"{_MONEY}{_SPACE}*{_MINUS}{_SPACE}*{number}", rf"{bare}{_SPACE}*-",
        rf"{number}-{after}", rf"\({_SPACE}*{bare}{_SPACE}*\)", rf"{_MONEY}{_SPACE}*{inside}", rf"{inside}{after}",
    )  # fmt: skip
    return rf"^(?:{'|'.join(forms)})$"


_AMOUNTS = {".": _amount(",", r"\."), ",": _amount(r"\.", ",")}


def numbers(column: Any, decimal: str | None = None) -> NDArray[Any]:
    """Return a column as floats, NaN where a value is missing or no number. Each cell is read by itself.

    With a decimal comma, what can only have a point is read so. Without a told sign a sum of money with three digits
    after its point is none: they may be thousands.

    >>> numbers(pa.array(["1.5", "$1,200", "-3 €", "12%", "1,5", "€1.200", "(4,567)", "one", None])).tolist()
    [1.5, 1200.0, -3.0, 12.0, nan, nan, -4567.0, nan, nan]
    >>> numbers(pa.array(["1.234,56 €", "CHF 1'234", "1,5", "12.5", "1.234", "7-"]), ",").tolist()
    [1234.56, 1234.0, 1.5, 12.5, 1234.0, -7.0]
    """
    return np.asarray(_floats(column, decimal).to_numpy(zero_copy_only=False))


def spread(column: Any, decimal: str | None = None) -> tuple[float, float] | None:
    """The least and the largest number of a column, None where it has none; without pandas, which NumPy would bring."""
    found = pc.cast(_floats(column, decimal), pa.float64())
    ends = pc.min_max(found.filter(pc.is_finite(found))).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


def _floats(column: Any, decimal: str | None) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        column = _plain(column, decimal)
    return column if pa.types.is_floating(column.type) else pc.cast(column, pa.float64(), safe=False)


def numbers_into(X: NDArray[Any], columns: Mapping[int, tuple[Any, str | None]]) -> None:
    """Write `numbers` of columns and their decimal signs, by their places, to those of X (rows, places).

    Short columns of one type are read as one: a call to Arrow takes longer than the few cells of a wide table's batch.
    """
    if len(X) >= _LONG:
        for place, (column, decimal) in columns.items():
            X[:, place] = numbers(column, decimal)
        return
    places: dict[Any, list[int]] = {}
    for place, (column, decimal) in columns.items():
        places.setdefault((column.type, decimal), []).append(place)
    for (_, decimal), chosen in places.items():
        found = numbers(pa.concat_arrays([columns[place][0] for place in chosen]), decimal)
        X[:, chosen] = found.reshape(len(chosen), -1).T


def unreadable(column: Any, decimal: str | None = None) -> bool:
    """Say whether a column of text holds a cell that is there and is no number."""
    if not _is_text(column.type):
        return False
    return bool(_plain(column, decimal).null_count > column.null_count)


@dataclass(frozen=True, slots=True)
class Writing:
    """How columns of text write numbers, by their first cells.

    `commas`: with a decimal comma. `numbers`: most cells are numbers. `amounts`: all are, beyond doubt, and some in
    another way than programs write them. `doubtful`: read with a point, because nothing in the file says otherwise.
    """

    commas: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()


def written(first: Mapping[str, Any], told: str | None = None) -> Writing:
    """Say how columns write numbers, by their first cells as text; a decimal sign that was told is that of all.

    A column's own cells decide: 1,5 and 1.234,5 have a comma, 1.5 and 1,234.5 a point. Where all of them could be
    either, as 1.234, most of the other columns do.

    >>> cells = {"a": ["1.234,5", "7"], "b": ["1.234", "5.678"], "c": ["x", "1,5"]}
    >>> found = written({name: pa.array(column) for name, column in cells.items()})
    >>> sorted(found.commas), sorted(found.amounts)
    (['a', 'b'], ['a'])
    """
    looks = _looks(first)
    votes = sum((look.comma > look.point) - (look.point > look.comma) for look in looks.values())
    known = told is not None or any(look.comma or look.point for look in looks.values())
    commas = set(first) if told == "," else set[str]()
    if told is None:
        own = {name: look.comma - look.point for name, look in looks.items()}
        commas = {name for name, vote in own.items() if vote > 0 or (vote == 0 and votes > 0)}
    doubtful = {name for name, look in looks.items() if look.either and not known}
    readable = {name: look.by_comma if name in commas else look.by_point for name, look in looks.items()}
    return Writing(
        frozenset(commas),
        frozenset(name for name, share in readable.items() if share >= MOST),
        frozenset(n for n, share in readable.items() if share == 1 and looks[n].decorated and n not in doubtful),
        frozenset(doubtful),
    )


@dataclass(frozen=True, slots=True)
class _Look:
    point: int  # cells that only a point explains
    comma: int
    either: int  # cells that are another number with the other sign
    by_point: float  # share of the cells that are numbers
    by_comma: float  # with those of a point
    decorated: bool  # some are not as programs write them


def _looks(first: Mapping[str, Any]) -> dict[str, _Look]:
    """What the cells of columns look like; without those that are mostly none of numbers. All are read as one."""
    cells = {name: found for name, column in first.items() if len(found := column.cast(pa.string()).drop_null())}
    if not cells:
        return {}
    whole = pc.utf8_trim_whitespace(pa.concat_arrays([_flat(column) for column in cells.values()]))
    point, comma = _plain(whole, "."), _with_comma(whole)
    by_point, by_comma = (_flags(pc.is_valid(found)) for found in (point, comma))
    same = _flags(pc.equal(pc.coalesce(point, whole), pc.coalesce(comma, whole)))
    other = ~_flags(pc.match_substring_regex(whole, _PLAIN, ignore_case=True))
    sizes = np.array([len(column) for column in cells.values()])
    starts = np.r_[0, np.cumsum(sizes)[:-1]]
    masks = (
        by_point & ~by_comma,
        by_comma & ~by_point,
        by_point & by_comma & ~same,
        by_point,
        by_point | by_comma,
        other,
    )
    counts = np.array([np.add.reduceat(mask.astype(np.int64), starts) for mask in masks])
    looks = {
        # Between numbers with a comma those with a point are read, too.
        name: _Look(int(only), int(others), int(either), points / size, all_read / size, bool(strange))
        for name, size, (only, others, either, points, all_read, strange) in zip(cells, sizes, counts.T, strict=True)
    }
    return {name: look for name, look in looks.items() if look.by_comma >= MOST}


def _flags(mask: Any) -> NDArray[np.bool_]:
    """Truth values, none of them missing; Arrow's own way to NumPy brings pandas."""
    return np.frombuffer(pc.cast(mask, pa.uint8()).buffers()[1], dtype=np.uint8, count=len(mask)).astype(bool)


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plain(column: Any, decimal: str | None) -> Any:
    """Text as programs write numbers; missing where it is none."""
    column = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    if decimal == ",":
        found = _with_comma(column)
        return found if found.null_count == column.null_count else pc.coalesce(found, _plain(column, "."))
    readable = pc.match_substring_regex(column, _PLAIN, ignore_case=True)
    plain = pc.if_else(readable, column, _NOTHING)
    if pc.all(readable, min_count=0).as_py():
        return plain
    found = _amounts(pc.if_else(readable, _NOTHING, column), ".")
    if decimal is None:
        thousands = pc.match_substring_regex(column, r"^\D*[1-9]\d{0,2}\.\d{3}\D*$")
        money = pc.and_(thousands, pc.match_substring_regex(column, _MONEY))
        found = pc.if_else(money, _NOTHING, found)
    return pc.coalesce(plain, found)


def _with_comma(column: Any) -> Any:
    """Numbers with a decimal comma, and whole ones, as programs write them; missing where a cell is none."""
    simple = pc.match_substring_regex(column, _PLAIN_COMMA, ignore_case=True)
    plain = pc.if_else(simple, pc.replace_substring(column, ",", "."), _NOTHING)
    return plain if pc.all(simple, min_count=0).as_py() else pc.coalesce(plain, _amounts(column, ","))


def _amounts(column: Any, decimal: str) -> Any:
    """Amounts with a decimal sign as plain numbers; missing where a cell is none."""
    sound = pc.match_substring_regex(column, _AMOUNTS[decimal])
    digits = pc.replace_substring_regex(column, _MONEY, "")  # first, for Fr. has a point
    digits = pc.replace_substring(pc.replace_substring_regex(digits, rf"[^\d{decimal}]", ""), ",", ".")
    minus = pc.match_substring_regex(column, r"[-(\x{2212}]")
    found = pc.if_else(minus, pc.replace_substring_regex(digits, "^", "-"), digits)
    return pc.if_else(sound, found, _NOTHING)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
