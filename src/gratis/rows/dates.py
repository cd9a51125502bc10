"""Dates and times as numbers, row by row: maps that are public, so that they cost nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["DATE_PARTS", "date_parts", "is_dated", "usual_parts"]

Array = NDArray[np.float64]
DATE_PARTS = ("days", "year", "month", "weekday", "hour")
_DAY, _FAR = 86400, 1e12  # seconds; beyond some 30,000 years all days are one
_FIRST_DAY = 10957  # 2000-01-01, in days since 1970: days are counted from there
_ISO = (
    r"^\s*(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?\s*$"
)
_CLOCK = r"^\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?\s*$"


def is_dated(kind: Any) -> bool:
    """Say whether a file's type is one of dates, of times of day or of both."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def usual_parts(kind: Any) -> tuple[str, ...]:
    """Return the parts that a column of this type becomes. The year is left out: days and month say the same."""
    if pa.types.is_time(kind):
        return ("hour",)
    return ("days", "month", "weekday", *(("hour",) if pa.types.is_timestamp(kind) else ()))


def date_parts(cells: Any, parts: tuple[str, ...], form: str | None = None) -> Array:
    """Return (rows, parts) of dates or times; NaN where a cell is missing or none. Clock times are as written.

    days since 2000-01-01, year, month 1 … 12, weekday 0 (Monday) … 6, hour with its fraction. Text is read as ISO 8601
    or day.month.year, or as `form` (the signs of strptime) says.

    >>> date_parts(pa.array(["2013-01-02 12:30:00", "no date"]), DATE_PARTS).tolist()
    [[4750.0, 2013.0, 1.0, 2.0, 12.5], [nan, nan, nan, nan, nan]]
    >>> date_parts(pa.array(["2.1.2013", "31.12.2013"]), ("days", "month")).tolist()
    [[4750.0, 1.0], [5113.0, 12.0]]
    """
    seconds = _seconds(cells, form)
    known = np.isfinite(seconds)
    whole = np.clip(np.where(known, seconds, 0.0), -_FAR, _FAR).astype("int64")
    day = whole // _DAY
    months = day.astype("datetime64[D]").astype("datetime64[M]").astype("int64")
    maps = {
        "days": day - _FIRST_DAY,
        "year": 1970 + months // 12,
        "month": months % 12 + 1,
        "weekday": (day + 3) % 7,
        "hour": (whole - day * _DAY) / 3600,
    }
    return np.where(known[:, None], np.column_stack([maps[part] for part in parts]).astype(np.float64), np.nan)


def _seconds(cells: Any, form: str | None) -> Array:
    """Seconds since 1970 on the clock that wrote them, NaN where there are none; nothing raises because of a cell."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_time(cells.type):
        unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[cells.type.unit]
        counted = cells.cast(pa.int32() if pa.types.is_time32(cells.type) else pa.int64())
        return _floats(counted) * unit
    if is_dated(cells.type):
        if pa.types.is_timestamp(cells.type) and cells.type.tz:
            cells = pc.local_timestamp(cells)
        stamps = cells.to_numpy(zero_copy_only=False).astype("datetime64[s]")
        return np.where(np.isnat(stamps), np.nan, stamps.astype("int64").astype(np.float64))
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return np.full(len(cells), np.nan)
    if form is not None:
        found = pc.strptime(cells, format=form, unit="s", error_is_null=True)
        return _seconds(found, None)
    cells = _year_first(cells)
    day = _iso_days(cells)
    clock = _clock(cells, _ISO)
    return np.where(np.isfinite(day), day * _DAY + np.nan_to_num(clock), _clock(cells, _CLOCK))


def _year_first(cells: Any) -> Any:
    """31.12.2015 and 1.2.2015 as 2015-12-31 and 2015-02-01; other text as it is."""
    for pattern, written in ((r"^\s*(\d\.\d{1,2}\.\d{4})", r"0\1"), (r"^\s*(\d{2})\.(\d\.\d{4})", r"\1.0\2"),
                             (r"^\s*(\d{2})\.(\d{2})\.(\d{4})", r"\3-\2-\1")):  # fmt: skip
        cells = pc.replace_substring_regex(cells, pattern=pattern, replacement=written)
    return cells


def _iso_days(cells: Any) -> Array:
    date = pc.struct_field(pc.extract_regex(cells, pattern=_ISO), "date")
    return _seconds(pc.strptime(date, format="%Y-%m-%d", unit="s", error_is_null=True), None) / _DAY


def _clock(cells: Any, pattern: str) -> Array:
    found = pc.extract_regex(cells, pattern=pattern)
    hour, minute, second = (_digits(pc.struct_field(found, part)) for part in ("hour", "minute", "second"))
    seconds = 3600 * hour + 60 * minute + np.nan_to_num(second)
    return np.where((hour < 24) & (minute < 60), seconds, np.nan)


def _digits(text: Any) -> Array:
    return _floats(pc.cast(pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text), pa.float64()))


def _floats(cells: Any) -> Array:
    return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
