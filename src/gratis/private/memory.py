"""Whether a fit will fit into memory, from public sizes."""

from __future__ import annotations

from gratis.numerics.available_memory import available_memory
from gratis.records.errors import GratisError

__all__ = ["check_memory", "fit_memory"]

_OVERHEAD = 300 * 10**6  # packages and chunks


def fit_memory(n_records: int, n_columns: int, *, second_moments: bool, outputs: int = 1) -> int:
    """Return the bytes that a linear model takes beyond the table it is given."""
    width = n_columns + 1
    rows = 3 * n_records * width  # a validated copy, standardised, and in the basis
    moments = 8 * width**2 if second_moments else 0  # sums, noise, eigenvectors, workspace
    columns = width * (1024 + 16 * outputs)  # histograms of the columns, iterates and their noise
    return 8 * (rows + moments + columns) + _OVERHEAD


def check_memory(n_records: int, n_columns: int, *, second_moments: bool, outputs: int = 1) -> None:
    """Refuse a fit that cannot fit: a process that is killed halfway has spent its budget for nothing."""
    needed, available = (
        fit_memory(n_records, n_columns, second_moments=second_moments, outputs=outputs),
        available_memory(),
    )
    if available is not None and needed > available:
        raise GratisError(
            f"{n_records} rows of {n_columns} columns need about {needed / 1e9:.1f} GB to train on and "
            f"{max(available, 0) / 1e9:.1f} GB of memory are available: nothing was spent"
        )
