"""Entries of X and y as numbers, labels as positions, without a message that quotes one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.errors import GratisError

__all__ = [
    "CLASSES_OCCUR",
    "ROWS_A_CLASS",
    "as_array",
    "encoded",
    "entries",
    "floats",
    "numbers_of_objects",
    "refuse_shape",
    "refuse_text",
]

CLASSES_OCCUR = "the set of classes that occur is public"  # assumed where no list was declared
ROWS_A_CLASS = 5  # on average: labels of fewer rows are values of persons, which must not be taken for public classes


def encoded(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
    """Positions in the (sorted) classes by equality; NaN for a label that equals none of them, whatever it is.

    >>> encoded(np.array(["b", None, b"a", float("nan"), "a"], dtype=object), np.array(["a", "b"])).tolist()
    [1.0, nan, nan, nan, 0.0]
    """
    kinds = {"number" if array.dtype.kind in "biuf" else array.dtype.kind for array in (labels, classes)}
    if kinds in ({"number"}, {"U"}):
        position = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        return np.where(classes[position] == labels, position, np.nan)
    places = {label: float(place) for place, label in enumerate(classes.tolist())}
    return np.array([_place(label, places) for label in labels], dtype=np.float64)


def _place(label: Any, places: dict[Any, float]) -> float:
    try:
        return places.get(label, float("nan"))
    except Exception:  # of whatever an object's own hash or comparison raises
        return float("nan")


def refuse_text(**tables: Any) -> None:
    """Refuse text, complex numbers and an X that is no table, in our words: scikit-learn's would quote the entries."""
    for name, values in tables.items():
        if hasattr(values, "toarray"):
            continue  # sparse: validation refuses it without quoting
        array = as_array(name, values)
        refuse_shape(name, array)
        if array.dtype.kind == "c":
            raise GratisError(f"Complex data not supported: {name} must hold real numbers")
        found = None
        if array.dtype.kind in "OUS" and array.ndim and _holds_text(array):
            found = "text"
        elif array.dtype.kind in "mM" or _dated_types(values):
            found = "dates"
        if found is not None:
            raise GratisError(f"{name} must hold numbers only, but some of its entries are {found}{_elsewhere(name)}")


def _elsewhere(name: str) -> str:
    return ": DPTableRegressor and DPTableClassifier read tables as they are" if name == "X" else ""


def _dated_types(values: Any) -> bool:
    """Whether a data frame's own types are of dates; nothing is known of arrays."""
    try:
        return any(getattr(kind, "kind", "") in ("m", "M") for kind in getattr(values, "dtypes", ()))
    except TypeError:  # the one type of a series
        return False


def as_array(name: str, values: Any) -> NDArray[Any]:
    """NumPy's array of the values; rows of several lengths are refused without quoting one."""
    try:
        return np.asarray(values)
    except ValueError:
        pass
    # Outside the handler: inside it, the refusal would carry the error that quotes an entry.
    raise GratisError(f"the rows of {name} must have equal lengths")


def refuse_shape(name: str, array: NDArray[Any]) -> None:
    """Refuse an X that is no table."""
    if name == "X" and array.ndim != 2:
        raise GratisError(f"X must have one row for each record, got {array.ndim} dimensions. Reshape your data")


def _holds_text(array: NDArray[Any]) -> bool:
    try:
        array.astype(np.float64)
    except TypeError:
        pass  # no numbers at all: validation says so without quoting
    except Exception:  # of whatever an object's own conversion raises
        return True
    return False


def numbers_of_objects(y: ArrayLike) -> ArrayLike:
    """Targets as numbers where they came as objects: scikit-learn overlooks a None there, as a number it is NaN."""
    array = np.asarray(y)
    try:
        return array.astype(np.float64) if array.dtype.kind == "O" and y is not None else y
    except TypeError:
        return y  # validation refuses it


def entries(name: str, values: Any) -> NDArray[Any]:
    """An array in which no entry changes how others are read: NumPy would turn 1 into "1" beside a text."""
    if not isinstance(values, (list, tuple)):
        return as_array(name, values)
    try:
        array = np.array(values, dtype=object)
    except Exception:  # arrays of several shapes among the entries, or one that raises: each is one entry
        array = np.empty(len(values), dtype=object)
        for place, entry in enumerate(values):
            array[place] = entry
    if array.ndim == 1:
        # A column of lists in which one has another length: the others are read as if it had not.
        for place, entry in enumerate(array):
            if isinstance(entry, (list, tuple)) and len(entry) == 1:
                array[place] = entry[0]
    return array


def floats(name: str, values: Any) -> NDArray[np.float64]:
    """Numbers, NaN for an entry that is none or not finite; no entry raises or warns.

    A frame whose types say that a column holds dates is refused: that is no entry's doing, and all would be missing.
    """
    if _dated_types(values):
        raise GratisError(f"{name} must hold numbers only, but some of its entries are dates{_elsewhere(name)}")
    array = entries(name, values)
    if array.dtype.kind == "T":  # NumPy's texts of any length
        array = array.astype(object)
    if array.dtype.kind not in "OUSbiuf":
        raise GratisError(f"{name} must hold real numbers, got the type {array.dtype}")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = array.astype(np.float64)
        except Exception:  # of whatever an object's own conversion raises
            found = np.array([_number(entry) for entry in array.ravel()]).reshape(array.shape)
    return np.where(np.isfinite(found), found, np.nan)


def _number(entry: Any) -> float:
    try:
        return float(entry)
    except Exception:  # of whatever an object's own conversion raises
        return float("nan")
