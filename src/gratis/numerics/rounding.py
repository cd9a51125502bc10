"""How far floating-point summation can move a clipped sum: the factor by which a sensitivity is enlarged.

One exchanged record changes every later rounding, so the computed sums of two neighbours may differ by more than the
exact ones do (docs/proofs/rounding.md).
"""

from __future__ import annotations

import math

__all__ = ["ROWS_PER_CHUNK", "rounding_inflation"]

ROWS_PER_CHUNK = 4096
_UNIT = 2.0**-53
_TREE = 66


def rounding_inflation(
    n_records: int, n_columns: int, *, sensitivity: float = 1.0, rows_per_chunk: int = ROWS_PER_CHUNK
) -> float:
    """Return the factor r ≥ 1 such that computed sums of neighbours differ by at most r·sensitivity·C.

    Let every record contribute a vector of exact norm ≤ C, so that exact sums of neighbours differ by at most
    `sensitivity`·C. With u = 2⁻⁵³ and γ_k = ku/(1−ku):

    1. *One record.* Its scale is min(1, C/‖·‖) with ‖·‖ the root of a sum of `n_columns` squares (the columns of
       the row and those of its gradient factor together). The sum of squares has relative error ≤ γ_D, its root
       half of that; root, product of two norms, quotient and product with the scale add at most 8 more
       roundings. The computed contribution v̂ therefore has ‖v̂‖ ≤ C(1+s), s = γ_{D/2+8}.
       (Rows whose squares leave the normal range are set to zero by the callers.)
    2. *The sum.* Added in any order, coordinate j of the computed sum differs from Σᵢ v̂ᵢⱼ by at most
       γ_m Σᵢ|v̂ᵢⱼ|, m the longest chain of roundings that an addend passes through (Higham 2002, section 4.2),
       and ‖(Σᵢ|v̂ᵢⱼ|)ⱼ‖ ≤ Σ‖v̂ᵢ‖ ≤ nC(1+s). Rows are summed in chunks, then the chunks in turn or in a tree:
       m ≤ rows_per_chunk + ⌈n/rows_per_chunk⌉ + 2 (one product, one division by n).
       Where a record is a person with many rows (`mechanisms.person_rows`), n are persons, and there may be more chunks
       than that, each with a weight: of up to ROWS_PER_CHUNK rows, in parts of rows_per_chunk, added in a tree of fewer
       than 2⁶⁰ leaves. So m = rows_per_chunk + ⌈max(n, ROWS_PER_CHUNK)/rows_per_chunk⌉ + 66 covers both.
    3. Both neighbours err: ‖Ŝ − Ŝ′‖ ≤ (1+s)·C·(sensitivity + 2γ_m n).

    So r = (1+s)(1 + 2γ_m n/sensitivity). The bound needs no assumption on the order in which BLAS adds, only
    that it adds products (no Strassen-like scheme).

    Parameters
    ----------
    n_records, n_columns : int
        n, and the length of the vectors whose norms are computed.
    sensitivity : float
        The exact sensitivity in units of C (κ; √2 for outer products under replace-one).
    rows_per_chunk : int
        Longest block that is summed at once.

    References
    ----------
    Higham 2002, (4.4).

    >>> 1 < rounding_inflation(50_000, 1000, sensitivity=2.0) < 1 + 1e-7
    True
    """
    if not (n_records >= 1 and n_columns >= 1 and rows_per_chunk >= 1 and sensitivity > 0):
        raise ValueError("rounding_inflation needs positive counts and a positive sensitivity")
    chain = rows_per_chunk + math.ceil(max(n_records, ROWS_PER_CHUNK) / rows_per_chunk) + _TREE
    slop = _gamma(n_columns / 2 + 8)
    factor = (1 + slop) * (1 + 2 * _gamma(chain) * n_records / sensitivity)
    # A few roundings of this very formula: 16 ulp more covers them.
    return factor * (1 + 16 * _UNIT)


def _gamma(roundings: float) -> float:
    if not roundings * _UNIT < 0.5:
        raise ValueError("too many records or features for the bound on rounding errors")
    return roundings * _UNIT / (1 - roundings * _UNIT)
