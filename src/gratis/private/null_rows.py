"""Tables in which nobody is: what a plan is made on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.rows import Rows
from gratis.records.checks import check_count

__all__ = ["null_rows"]


def null_rows(n_records: int, n_columns: int) -> Rows:
    """Return n records without a value or a target, which contribute nothing to any sum: one of them stands for all.

    >>> rows = null_rows(10**12, 3)
    >>> rows.n_rows, rows.mapped(lambda X, y: (2 * X, y)).total(lambda X, y: np.nansum(X, axis=0)).tolist()
    (1000000000000, [0.0, 0.0, 0.0])
    """
    columns = check_count("n_columns", n_columns)

    def nobody() -> Iterator[tuple[NDArray[Any], ...]]:
        return iter(((np.full((1, columns), np.nan), np.full(1, np.nan)),))

    return Rows(nobody, check_count("n_records", n_records), columns, chunks=nobody, in_memory=True)
