"""The one reader of JSON that somebody else may have written: what has two readings, or none, is refused."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import NoReturn

from gratis.records.errors import GratisError
from gratis.records.record import Json, JsonObject

__all__ = ["parse_json", "read_json"]

# Events may be nested 50 deep, which is two levels of JSON each.
_DEEPEST = 128
_LONGEST = 2**26
# No finite float64 has more digits, and Python would take quadratic time for millions of them.
_MOST_DIGITS = 309


class _RefusalError(ValueError):
    """Why a text is refused, as the end of a sentence."""


def read_json(path: str | os.PathLike[str], what: str) -> Json:
    """Read a JSON file; `what` names it in messages, as in "the schema file".

    The file is refused before it is read if it is too large to be what it should be.
    """
    name = f"{what} {os.fspath(path)!r}"
    try:
        if Path(path).stat().st_size > _LONGEST:
            raise GratisError(f"{name} is larger than {_LONGEST >> 20} MB")
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, GratisError):
            raise
        raise GratisError(f"cannot read {name}") from None
    return parse_json(content, name)


def parse_json(content: str | bytes, what: str) -> Json:
    """Parse JSON strictly.

    Refused, in one sentence: a key that stands twice in one object (readers differ in which they believe), NaN and
    infinities, numbers beyond a float64, nesting deeper than 128, text that is no Unicode.

    >>> parse_json('{"a": [1, 2.5]}', "the file")
    {'a': [1, 2.5]}
    >>> parse_json('{"a": 1, "a": 2}', "the file")
    Traceback (most recent call last):
    ...
    gratis.records.errors.GratisError: the file cannot be read: the key 'a' stands twice in one object
    """
    try:
        if len(content) > _LONGEST:
            raise _RefusalError(f"it is larger than {_LONGEST >> 20} MB")
        text = content if isinstance(content, str) else content.decode("utf-8")
        data = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
        )
        _check(data)
    except _RefusalError as error:
        raise GratisError(f"{what} cannot be read: {error}") from None
    except (UnicodeError, json.JSONDecodeError):
        raise GratisError(f"{what} is not JSON in UTF-8") from None
    except RecursionError:
        raise GratisError(f"{what} cannot be read: it is nested more than {_DEEPEST} deep") from None
    return data


def _object(pairs: list[tuple[str, Json]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _RefusalError(f"the key {twice[:50]!r} stands twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS or not math.isfinite(float(text)):
        raise _RefusalError("a number in it is too large for a float64")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _RefusalError("a number in it is too large for a float64")
    return value


def _constant(text: str) -> NoReturn:
    raise _RefusalError(f"{text} is not a number in JSON")


def _check(data: object) -> None:
    """Refuse deep nesting, which later recursions could not follow, and halves of characters (lone surrogates)."""
    level: list[object] = [data]
    for _ in range(_DEEPEST + 1):
        following: list[object] = []
        for value in level:
            if isinstance(value, dict):
                following += value.keys()
                following += value.values()
            elif isinstance(value, list):
                following += value
            elif isinstance(value, str) and not value.isascii():
                value.encode("utf-8")
        if not following:
            return
        level = following
    raise RecursionError
