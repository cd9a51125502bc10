"""What a fitted object shows, as a flat list that can be compared bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np

__all__ = ["differences", "finest_bit", "flattened"]

# Differ between any two runs; and the hash of what is compared anyway, which says nothing more.
_CLOCKS = {"id", "uuid", "time", "date", "created", "issued", "released"}
_DEEPEST = 12


def flattened(value: object, path: str = "", *, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield (path, plain value or array) for all that is reachable from a fitted object.

    >>> dict(flattened({"a": (1, 2.0)}))
    {"['a'][0]": 1, "['a'][1]": 2.0}
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, Enum, np.generic, np.ndarray, type)):
        yield path, value
    elif depth > _DEEPEST:
        yield path, f"<{type(value).__qualname__}>"
    elif hasattr(value, "state_dict"):  # a torch module: parameters and buffers
        yield from flattened(dict(value.state_dict()), path, depth=depth + 1)
    elif hasattr(value, "detach"):
        yield path, value.detach().cpu().numpy()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _CLOCKS:
                yield from flattened(item, f"{path}[{key!r}]", depth=depth + 1)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from flattened(item, f"{path}[{place}]", depth=depth + 1)
    elif isinstance(value, (set, frozenset)):
        yield path, repr(sorted(map(repr, value)))
    elif callable(value) and hasattr(value, "__qualname__"):
        yield path, value.__qualname__
    else:
        yield path, f"<{type(value).__qualname__}>"
        for name in _names(value):
            if name not in _CLOCKS and hasattr(value, name):
                yield from flattened(getattr(value, name), f"{path}.{name}", depth=depth + 1)


def _names(value: object) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*getattr(value, "__dict__", {}), *slots]


def differences(first: object, second: object, *, values_may_differ: bool = False) -> list[str]:
    """Name what differs in type, shape, dtype or any bit.

    With `values_may_differ` real arrays may hold other numbers on the same lattice: for trainings whose noise was drawn
    apart from the value, where equal noise does not make equal outputs.

    >>> differences({"a": np.zeros(2)}, {"a": np.array([0.0, -0.0])}), differences([1], [1.0])
    (["['a']: values"], ['[0]: type'])
    """
    left, right = dict(flattened(first)), dict(flattened(second))
    found = [f"{path or 'value'}: only on one side" for path in left.keys() ^ right.keys()]
    for path in left.keys() & right.keys():
        what = _difference(left[path], right[path], values_may_differ)
        if what:
            found.append(f"{path or 'value'}: {what}")
    return sorted(found)


def _difference(a: Any, b: Any, values_may_differ: bool) -> str:
    if type(a) is not type(b):
        return "type"
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype} {a.shape} against {b.dtype} {b.shape}"
        if a.dtype == object:
            return "" if repr(a.tolist()) == repr(b.tolist()) else "values"
        if a.tobytes() == b.tobytes():
            return ""
        if not values_may_differ or a.dtype.kind != "f":
            return "values"
        return "" if finest_bit(a) == finest_bit(b) else "lattice"
    if isinstance(a, (float, np.floating)):
        return "" if np.asarray(a).tobytes() == np.asarray(b).tobytes() else "value"
    return "" if a == b else "value"


def finest_bit(values: object) -> int | None:
    """The largest k such that all entries are multiples of 2^k; None if all are zero or one is not finite.

    >>> finest_bit(np.array([0.75, 8.0, 0.0])), finest_bit(np.zeros(3))
    (-2, None)
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if not np.isfinite(numbers).all() or not numbers.any():
        return None
    mantissas, exponents = np.frexp(numbers[numbers != 0])
    whole = np.abs(mantissas * 2.0**53).astype(np.int64)
    low = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    return int((exponents - 53 + low).min())
