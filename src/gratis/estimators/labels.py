"""Labels as positions in the list of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["encoded"]


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
