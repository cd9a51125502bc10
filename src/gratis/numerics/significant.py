"""Numbers that two machines agree on: what a plan states is cut where kernels of other processors begin to differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["significant"]


def significant(values: ArrayLike, digits: int = 12) -> NDArray[np.float64]:
    """Return the values with so many significant digits; order is kept, and so are 0 and infinity.

    Exponentials and products of matrices differ in their last digits between processors and libraries. A plan that is
    made again elsewhere must be the same plan, so it is made of numbers that were cut before anything hung on them.

    >>> significant([1 / 3, 0.0, 2.0**0.5 * 1e-9], 4).tolist()
    [0.3333, 0.0, 1.414e-09]
    """
    array = np.asarray(values, dtype=np.float64)
    return np.array([float(f"{value:.{digits}g}") for value in array.ravel().tolist()]).reshape(array.shape)
