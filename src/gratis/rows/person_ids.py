"""Whose rows they are: ids of any kind become numbers of persons."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.errors import GratisError

__all__ = ["NamedIds", "held_out_persons", "ids_name", "number_persons", "person_names"]

_WHOLE = re.compile(r"([+-]?)0*(\d+)(?:\.0*)?")
_MISSING = frozenset({"", "nan", "none", "null", "na", "nat", "<na>", "n/a", "inf", "-inf", "+inf"})


class NamedIds:
    """Ids with the name of the column that they are from, as a pandas series has it."""

    def __init__(self, values: NDArray[Any], name: str) -> None:
        self._values, self.name = values, name

    def to_numpy(self) -> NDArray[Any]:
        """The ids alone."""
        return self._values


def ids_name(groups: Any) -> str | None:
    """What the ids are called, "" if they have no name; None where there are none, and a row is the unit.

    >>> ids_name(NamedIds(np.arange(3), "patient")), ids_name([1, 2]), ids_name(None)
    ('patient', '', None)
    """
    if groups is None:
        return None
    name = getattr(groups, "name", None)
    return name if isinstance(name, str) else ""


def person_names(ids: Any) -> NDArray[Any]:
    """Ids as text, "" where there is none; whoever is written in two ways must not count as two persons.

    A whole number is the same in every type and writing (7, 7.0, "7", " 007"), and a text without the spaces around it.
    Missing (None, NaN, NaT, empty, "NA"), infinite, and whatever cannot be turned into text are no ids. No entry
    raises.

    >>> person_names([7, 7.0, "007", " ann ", None, float("nan"), ("a", 1)]).tolist()
    ['7', '7', '7', 'ann', '', '', "('a', 1)"]
    """
    entries = _entries(ids)
    if entries.dtype.kind in "iufb":
        values, places = np.unique(entries, return_inverse=True)
    else:
        values, places = entries, np.arange(len(entries))
    return np.array([_name(value) for value in values.tolist()], dtype=object)[places]


def number_persons(names: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Return the number of each row's person, −1 where there is none, and how many persons there are.

    >>> number_persons(person_names(["b", "a", None, "b"]))
    (array([ 1,  0, -1,  1]), 2)
    """
    found, places = _different(names)
    nobody = int(len(found) > 0 and found[0] == "")
    return places - nobody, len(found) - nobody


def held_out_persons(names: NDArray[Any], share: float) -> NDArray[np.bool_]:
    """Say whose rows are held out: a public function of the id alone, so that nobody is in both parts.

    >>> names = person_names(range(10_000))
    >>> bool(0.19 < held_out_persons(names, 0.2).mean() < 0.21)
    True
    """
    found, places = _different(names)
    drawn = [
        int.from_bytes(hashlib.sha256(b"held out:" + name.encode("utf-8", "replace")).digest()[:6]) for name in found
    ]
    return np.asarray((np.array(drawn, dtype=np.float64) / 2.0**48 < share)[places], dtype=bool)


def _different(names: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The different names, sorted, and where each row's stands among them.

    NumPy's own texts are as wide as the longest of them, in every row: one long id would take the memory.
    """
    listed = names.tolist()
    found = sorted(set(listed))
    place = {name: number for number, name in enumerate(found)}
    return found, np.fromiter((place[name] for name in listed), dtype=np.int64, count=len(listed))


def _entries(ids: Any) -> NDArray[Any]:
    if not isinstance(ids, np.ndarray) and hasattr(ids, "to_numpy"):
        ids = ids.to_numpy()
    if not isinstance(ids, np.ndarray):
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise GratisError("groups must be one id for each row")
        listed = list(ids)
        ids = np.empty(len(listed), dtype=object)
        for place, entry in enumerate(listed):  # NumPy would make 1 of a "1" beside it, or a table of tuples
            ids[place] = entry
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids.ndim != 1:
        raise GratisError("groups must be one id for each row")
    return np.asarray(ids)


def _name(entry: Any) -> str:
    try:
        text = entry.decode("utf-8", "replace") if isinstance(entry, bytes) else str(entry)
        if isinstance(entry, bool) or (isinstance(entry, float) and entry.is_integer()):
            text = str(int(entry))
        text = text.strip().replace("\0", "")  # NumPy drops trailing zeros of its texts
    except Exception:  # of whatever an object's own conversion raises
        return ""
    if text.lower() in _MISSING:
        return ""
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return text
    return ("-" if whole[1] == "-" and whole[2] != "0" else "") + whole[2]
