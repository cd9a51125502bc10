"""One column of a table, and how it becomes numbers by a public rule.

Which levels a category has is declared, found by a paid release, or not known at all: a level that occurs once gives
its owner away. Without a list, text is hashed into a fixed number of buckets. Both become columns of zeros and ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gratis.records.checks import check_finite
from gratis.records.errors import GratisError
from gratis.rows.amounts import numbers
from gratis.rows.dates import DATE_PARTS, date_parts, is_dated, usual_parts

__all__ = ["Column", "Kind", "as_text", "can_be_target", "in_words", "is_number", "is_text", "plain"]

Array = NDArray[np.float64]
_KEYS = ("levels", "buckets", "missing", "parts", "format", "unreadable", "reference", "decimal")
_TRUTH = {"false": "0", "true": "1"}
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


class Kind(StrEnum):
    """What a column holds."""

    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    CATEGORICAL = "categorical"
    ORDERED = "ordered"
    DATE = "date"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column and how it becomes numbers.

    `levels` (public) or `buckets` for categories; an ordered one, from the lowest level up, becomes one number.
    `missing` is a public number to put where a number is missing, None leaves it to the estimator, which puts the
    privately released centre there. `parts` of a date (`gratis.rows.dates`), `form` where it is no ISO date. In a
    `lenient` column of numbers other cells are missing; otherwise a file that holds some is refused. `decimal` is the
    sign of numbers in text (`gratis.rows.amounts`). The level `reference` of a category gets no column of its own.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] | None = None
    buckets: int | None = None
    missing: float | None = None
    parts: tuple[str, ...] | None = None
    form: str | None = None
    lenient: bool = False
    reference: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.kind is Kind.CATEGORICAL:
            if (self.levels is None) == (self.buckets is None):
                raise GratisError(f"the category {self.name!r} needs a public list of levels, or a number of buckets")
            if self.levels is not None and (not self.levels or len(set(self.levels)) != len(self.levels)):
                raise GratisError(f"the levels of {self.name!r} must be a list of different texts")
            if self.buckets is not None and not 2 <= self.buckets <= 2**16:
                raise GratisError(f"the buckets of {self.name!r} must be between 2 and 65536")
        known = (self.levels or ()) if self.kind is Kind.CATEGORICAL else ()
        if self.reference is not None and self.reference not in known:
            raise GratisError(f"the reference of {self.name!r} must be one of its levels")
        if self.kind is Kind.ORDERED and (self.levels is None or len(set(self.levels)) != len(self.levels) < 2):
            raise GratisError(f"the ordered category {self.name!r} needs its public levels, from the lowest up")
        if self.kind is Kind.DATE and (not self.parts or not set(self.parts) <= set(DATE_PARTS)):
            raise GratisError(f"the date {self.name!r} needs parts among {', '.join(DATE_PARTS)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        if self.kind is Kind.IGNORED:
            return ()
        if self.kind is Kind.ORDERED:
            return (self.name,)
        if self.parts is not None:
            return tuple(f"{self.name}.{part}" for part in self.parts)
        if self.levels is not None:
            return tuple(f"{self.name}={level}" for level in self.levels if level != self.reference)
        return (self.name,) if self.buckets is None else tuple(f"{self.name}#{i}" for i in range(self.buckets))

    def encode(self, cells: Any) -> Array:
        """Return (rows, width): numbers, or one 1 a row; unknown or missing categories, and the reference, are zero."""
        if self.kind is Kind.NUMERIC:
            return self.filled(numbers(cells, self.decimal).astype(np.float64, copy=False)[:, None])
        if self.kind is Kind.BOOLEAN:
            return self._truth(cells)[:, None]
        if self.kind is Kind.DATE:
            return self.filled(date_parts(cells, self.parts or (), self.form))
        if self.kind is Kind.ORDERED:
            position = self.positions(cells).astype(np.float64)
            return self.filled(np.where(position >= 0, position, np.nan)[:, None])
        places = np.arange(len(self.names))
        if self.reference is not None and self.levels is not None:
            places = np.delete(np.arange(len(self.levels)), self.levels.index(self.reference))
        return np.asarray(self.positions(cells)[:, None] == places, dtype=np.float64)

    def filled(self, values: Array) -> Array:
        """Return numbers with the public one where they are missing."""
        return values if self.missing is None else np.where(np.isfinite(values), values, self.missing)

    def positions(self, cells: Any) -> NDArray[np.int64]:
        """Return the level's or bucket's number, −1 where there is none."""
        text = as_text(cells)
        if self.levels is not None:
            found = pc.index_in(text, value_set=pa.array(self.levels, pa.string()))
            if found.null_count:
                found = pc.coalesce(found, _written_otherwise(text, self.levels))
            return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
        assert self.buckets is not None
        coded = text.dictionary_encode()
        buckets = [_bucket(value, self.buckets) for value in coded.dictionary.to_pylist()]
        index = np.asarray(pc.fill_null(coded.indices, len(buckets)).to_numpy(zero_copy_only=False), dtype=np.int64)
        return np.array([*buckets, -1], dtype=np.int64)[index]

    def _truth(self, cells: Any) -> Array:
        if pa.types.is_boolean(cells.type):
            return np.asarray(numbers(cells), dtype=np.float64)
        text = pc.utf8_lower(as_text(cells))
        yes, no = (
            pc.fill_null(pc.is_in(text, value_set=pa.array(words)), False).to_numpy(zero_copy_only=False)
            for words in (_TRUE, _FALSE)
        )
        return np.where(yes, 1.0, np.where(no, 0.0, np.nan if self.missing is None else self.missing))

    @classmethod
    def of_type(cls, name: str, kind: Any, buckets: int | None = None) -> Column | None:
        """Return how a column of a file's own type is read; None where that takes a decision."""
        if pa.types.is_boolean(kind):
            return cls(name=name, kind=Kind.BOOLEAN)
        if is_number(kind) or pa.types.is_null(kind):
            return cls(name=name, kind=Kind.NUMERIC)
        if is_dated(kind):
            return cls(name=name, kind=Kind.DATE, parts=usual_parts(kind))
        if is_text(kind) and buckets is not None:
            return cls(name=name, kind=Kind.CATEGORICAL, buckets=buckets)
        return None

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data: dict[str, Any] = {"kind": str(self.kind)}
        if self.levels is not None:
            data["levels"] = list(self.levels)
        if self.parts is not None:
            data["parts"] = list(self.parts)
        if self.form is not None:
            data["format"] = self.form
        if self.lenient:
            data["unreadable"] = "missing"
        return data | {
            k: v for k in ("buckets", "missing", "reference", "decimal") if (v := getattr(self, k)) is not None
        }

    @classmethod
    def from_json(cls, name: str, data: Any) -> Column:
        """Read a column: a kind, or an object with `kind` and what applies of the other keys."""
        data = {"kind": data} if isinstance(data, str) else data
        if not isinstance(data, Mapping) or not set(data) <= {"kind", *_KEYS}:
            raise GratisError(f"the schema of {name!r} must be a kind, or have kind, {', '.join(_KEYS)}")
        if data.get("kind") not in list(Kind):
            raise GratisError(f"the kind of {name!r} must be one of {', '.join(Kind)}, got {data.get('kind')!r}")
        levels, buckets, missing = (data.get(key) for key in ("levels", "buckets", "missing"))
        if levels is not None and not isinstance(levels, list):
            raise GratisError(f"the levels of {name!r} must be a list")
        if buckets is not None and (isinstance(buckets, bool) or not isinstance(buckets, int)):
            raise GratisError(f"the buckets of {name!r} must be a whole number")
        parts, form, unreadable = (data.get(key) for key in ("parts", "format", "unreadable"))
        if data["kind"] == Kind.DATE and parts is None:
            timed = form is None or re.search("%[HIklTRrXcs+]", str(form))
            parts = list(usual_parts(pa.timestamp("s") if timed else pa.date32()))
        if parts is not None and not (isinstance(parts, list) and all(isinstance(part, str) for part in parts)):
            raise GratisError(f"the parts of {name!r} must be a list of texts")
        if form is not None and not isinstance(form, str):
            raise GratisError(f"the format of {name!r} must be a text such as %d.%m.%Y")
        if unreadable not in (None, "missing"):
            raise GratisError(f"the unreadable cells of {name!r} can be 'missing', nothing else")
        if data.get("decimal") not in (None, ".", ","):
            raise GratisError(f"the decimal sign of {name!r} must be '.' or ','")
        if missing is not None:
            missing = check_finite(f"the value for missing entries of {name!r}", missing)
        return cls(
            name=name,
            kind=Kind(data["kind"]),
            levels=None if levels is None else tuple(map(str, levels)),
            buckets=buckets,
            missing=missing,
            parts=None if parts is None else tuple(parts),
            form=form,
            lenient=unreadable == "missing",
            reference=None if data.get("reference") is None else str(data["reference"]),
            decimal=data.get("decimal"),
        )


def as_text(cells: Any) -> Any:
    """Return cells of any type as text without spaces around it, each by itself."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_float16(cells.type):  # Arrow compares no half floats
        cells = cells.cast(pa.float32())
    if pa.types.is_floating(cells.type):
        # 3.0 and 3 are the same level; decided cell by cell, for one record must not change how others are read.
        whole = pc.cast(cells, pa.int64(), safe=False)
        same = pc.equal(pc.cast(whole, cells.type, safe=False), cells)
        cells = pc.if_else(same, pc.cast(whole, pa.string()), pc.cast(cells, pa.string()))
    return pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))


def plain(text: str) -> str:
    """A number without a plus and without zeros at its end; other text, and a code such as 007, as it is.

    >>> [plain(text) for text in ("1.0", "+2.50", "007", "0.10", "-0.0", "Berlin")]
    ['1', '2.5', '007', '0.1', '0', 'Berlin']
    """
    number = re.match(r"^\+?(-?(?:0|[1-9][0-9]*))(?:\.([0-9]*?)0*)?$", text)
    if number is None:
        return text
    whole, rest = number.groups()
    return f"{whole}.{rest}" if rest else whole if whole != "-0" else "0"


def _written_otherwise(text: Any, levels: tuple[str, ...]) -> Any:
    """Positions of levels that cells write in another way: 1.0 for 1, True for true; and 1 where truth is 0 and 1."""
    known = [plain(_small(level)) for level in levels]
    truth = _TRUTH if {*known} <= {*_TRUTH, *_TRUTH.values()} else {}
    place: dict[str, int] = {}
    for index, level in enumerate(known):
        place.setdefault(truth.get(level, level), index)
    coded = text.dictionary_encode()
    written = [plain(_small(value)) for value in coded.dictionary.to_pylist()]
    found = pa.array([place.get(truth.get(value, value)) for value in written], pa.int32())
    return found.take(coded.indices)


def _small(text: str) -> str:
    return text.lower() if text.lower() in _TRUTH else text


def _bucket(value: str | None, buckets: int) -> int:
    if value is None:
        return -1
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "big") % buckets


def is_number(kind: Any) -> bool:
    """Say whether a file's type is one of numbers."""
    return any(test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def can_be_target(kind: Any) -> bool:
    """Say whether a column of this type can be regressed or holds classes that can be written as text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    dated = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    return is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or dated


def is_text(kind: Any) -> bool:
    """Say whether a file's type is text, or a dictionary of texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string))


def in_words(kind: Any) -> str:
    """Return a file's type in words."""
    if is_text(kind):
        return "text"
    if is_number(kind):
        return "whole numbers" if pa.types.is_integer(kind) else "numbers"
    return "truth values" if pa.types.is_boolean(kind) else f"values of the type {kind}"
