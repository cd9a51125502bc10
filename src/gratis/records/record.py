"""Records: frozen dataclasses whose fields say how they are written as JSON and, strictly, how they are read back.

Plain dataclasses and these lines instead of msgspec, which was tried: its strict reading (no unknown field, unions told
apart by a tag) needs its own Struct in the place of dataclasses, and so another way to copy, list and inspect fields
everywhere; what is stored also differs from the fields here and there (runs, the details of a prediction).
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from gratis.records.errors import GratisError

__all__ = ["Json", "JsonObject", "Record", "plain", "read_as", "read_record"]

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    Json = object  # when fields are read: taken as it is, it was parsed strictly
JsonObject: TypeAlias = dict[str, Json]


class Record:
    """Base of frozen dataclasses that are stored.

    `kind` is the tag that is written with a member of a union and tells the members apart. A `sparse` record leaves out
    fields that are None; all others must name every field. Values are checked by `__post_init__`, types by the reader.
    """

    __slots__ = ()
    kind: ClassVar[str] = ""
    sparse: ClassVar[bool] = False

    def to_json(self) -> JsonObject:
        """Return plain data for JSON, from which `from_json` makes an equal record."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        kept = {name: plain(value) for name, value in values.items() if not (self.sparse and value is None)}
        return {"kind": self.kind, **kept} if self.kind else kept

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read what `to_json` wrote; a missing, unknown or mistyped field is an error, never skipped."""
        return read_record(cls, data)


_Made = TypeVar("_Made", bound=Record)


def read_record(cls: type[_Made], data: object) -> _Made:
    """Read a record by its fields."""
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy takes a type variable's class for unhashable
    wanted = {"kind", *hints} if cls.kind else {*hints}
    left_out = {name for name, (_, optional) in hints.items() if cls.sparse and optional}
    if not isinstance(data, dict) or not wanted - left_out <= set(data) <= wanted:
        named = ", ".join(sorted(wanted))
        raise GratisError(f"{cls.kind or cls.__name__} must be an object with exactly the fields {named}")
    if cls.kind and data["kind"] != cls.kind:
        raise GratisError(f"kind must be {cls.kind!r}, got {_shown(data['kind'])}")
    return cls(**{name: read_as(hint, data[name], name) for name, (hint, _) in hints.items() if name in data})


@cache
def _hints(cls: type[Any]) -> dict[str, tuple[Any, bool]]:
    """Return the type of every field, and whether it may be left out."""
    found = get_type_hints(cls)
    return {field.name: (found[field.name], field.default is None) for field in fields(cls)}


def read_as(hint: Any, data: object, name: str = "it") -> Any:
    """Return JSON data as a value of the type `hint`, or refuse it in one sentence that names the field.

    >>> read_as(tuple[int, ...], [1, 2])
    (1, 2)
    >>> read_as(float | None, "1", "delta")
    Traceback (most recent call last):
    ...
    gratis.records.errors.GratisError: delta must be a number, got '1'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _read_union(inner, data, name)
    if origin is tuple and isinstance(data, list):
        return tuple(read_as(inner[0], item, name) for item in data)
    if origin is dict and isinstance(data, dict):
        return {key: read_as(inner[1], value, name) for key, value in data.items()}
    if hint is float:
        if isinstance(data, str) and data in ("inf", "-inf"):
            return float(data)
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return _finite(data, name)
    if hint is int and isinstance(data, int) and not isinstance(data, bool):
        return data
    if hint in (str, bool) and isinstance(data, hint):
        return data
    if hint in (Any, object) or (is_typeddict(hint) and isinstance(data, dict)):
        return data
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(data, str):
        if data in tuple(hint):
            return hint(data)
        raise GratisError(f"{name} must be one of {', '.join(map(repr, map(str, hint)))}, got {_shown(data)}")
    if hasattr(hint, "from_json"):
        return hint.from_json(data)
    raise GratisError(f"{name} must be {_WORDS.get(origin or hint, 'something else')}, got {_shown(data)}")


def _read_union(options: tuple[Any, ...], data: object, name: str) -> Any:
    if data is None and types.NoneType in options:
        return None
    tagged = {option.kind: option for option in options if getattr(option, "kind", "")}
    if tagged:
        kind = data.get("kind") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in tagged:
            raise GratisError(f"{name} must be an object of a known kind ({', '.join(tagged)}), got {_shown(kind)}")
        return tagged[kind].from_json(data)
    several = isinstance(data, list)
    fitting = [option for option in options if (get_origin(option) is tuple) is several]
    return read_as((fitting or options)[0], data, name)


_WORDS: dict[Any, str] = {
    float: "a number", int: "a whole number", str: "a text", bool: "true or false", tuple: "a list", dict: "an object",
}  # fmt: skip


def _finite(data: float, name: str) -> float:
    try:
        value = float(data)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise GratisError(f"{name} must be a finite number")
    return value


def _shown(value: object) -> str:
    return repr(value)[:50]


def plain(value: Any) -> Any:
    """Make data strict JSON: records by their fields, infinities as the strings "inf" and "-inf"; NaN is refused."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise GratisError("a result is not a number")
        return "inf" if value > 0 else "-inf"
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return plain(value.tolist())
    return value
