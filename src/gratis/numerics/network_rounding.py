"""What float32 sums cost: the factor by which the sensitivity of a network's clipped gradient sum is enlarged."""

from __future__ import annotations

import math

__all__ = ["BLOCK", "GRAM_SLACK", "GROUP", "LONGEST_CHAIN", "SINGLE_UNIT", "network_rounding_inflation"]

BLOCK = 512
"""Records that one float32 matrix product sums."""
GROUP = 4
"""Blocks whose products are added in float32 before they meet the others in float64."""
SINGLE_UNIT = 2.0**-24
LONGEST_CHAIN = 2**20
GRAM_SLACK = 2.0**-20
_UNIT = 2.0**-53


def network_rounding_inflation(n_records: int, *, sensitivity: float) -> float:
    """Return r ≥ 1 such that computed clipped sums of neighbours differ by at most r·sensitivity·C.

    Let v̂ᵢ be what record i contributes: wᵢ·Σ_t b_t a_tᵀ with the *computed* a, b and weight wᵢ = min(1, C/N̂ᵢ).
    Errors of the forward and backward pass do not matter: they change which vector is clipped, not its length.

    1. *One record.* N̂ᵢ is rounded up past the norm of (a, b) (`layer_rules`: float32 norms times 1 + u(k+8); float64
       Gram sums plus 2⁻²⁰L², L = Σ_t‖a_t‖‖b_t‖, which is more than their error γ_{2²⁰}L²). Rounding wᵢ and wᵢ·b to
       float32 adds two roundings, and records with wᵢ < 1e−30 add nothing: ‖v̂ᵢ‖ ≤ C(1+s), s = 4u, u = 2⁻²⁴.
    2. *The block that holds the exchanged record*, m = `BLOCK` records: coordinate j of its float32 sum errs by at
       most γ_{m+1}Σᵢ|v̂ᵢⱼ| in any order of addition (Higham 2002, 4.2), so by γ_{m+1}·m·C(1+s) in norm; both
       neighbours err. Sequences are summed in float64, where Σ wᵢL ≤ 2¹⁰·m·C and the chain is at most 2²⁰ long.
       The products of its group, k = `GROUP` blocks, are then added one by one: another γ_{k−1}·k·m·C(1+s)(1+γ_{m+1}).
    3. *All other blocks*, of this group and of the others, hold the same bits in the same shapes, so their products
       are the same bits. This assumes that the computed (a, b) of a record do not depend on the values of other
       records, and that a matrix product is a function of its operands and their shapes: the number of threads is
       fixed, and `block_sums.aligned` fixes layout and alignment.
    4. *Adding groups*, at most n of them, in float64: both neighbours err by at most γ_{n+1}·n·C(1+s).

    So r = (1+s)(1 + 2[γ³²_{m+1}m + γ³²_{k−1}km(1+γ³²_{m+1}) + γ⁶⁴_{2²⁰}2¹⁰m + γ⁶⁴_{n+1}n]/sensitivity).

    >>> 1.015 < network_rounding_inflation(50_000, sensitivity=2.0) < 1.017
    True
    """
    if not (n_records >= 1 and sensitivity > 0):
        raise ValueError("network_rounding_inflation needs a positive count and a positive sensitivity")
    block = min(BLOCK, n_records)
    product = _gamma(block + 1, SINGLE_UNIT)
    errors = product * block + _gamma(GROUP - 1, SINGLE_UNIT) * GROUP * block * (1 + product)
    errors += _gamma(LONGEST_CHAIN, _UNIT) * block / math.sqrt(GRAM_SLACK) + _gamma(n_records + 1, _UNIT) * n_records
    return (1 + 4 * SINGLE_UNIT) * (1 + 2 * errors / sensitivity) * (1 + 16 * _UNIT)


def _gamma(roundings: float, unit: float) -> float:
    if not roundings * unit < 1:
        raise ValueError("too many records or features for the rounding bound")
    return roundings * unit / (1 - roundings * unit)
