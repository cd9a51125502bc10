"""The tree of a sum is fixed by the number of its parts."""

from __future__ import annotations

import numpy as np
import pytest

from gratis.numerics.tree_sum import TreeSum


def summed(parts: np.ndarray) -> np.ndarray:
    tree = TreeSum()
    for part in parts:
        tree.add(part.copy())
    return tree.total()


def recursive(parts: np.ndarray) -> np.ndarray:
    """The same tree, written down as a definition: the largest power of two below the number goes left."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return recursive(parts[:half]) + recursive(parts[half:])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 8, 13, 64, 100])
def test_parts_are_added_in_the_tree_of_their_number(count: int) -> None:
    parts = np.random.default_rng(count).normal(size=(count, 4)) * 10.0 ** np.arange(4)
    np.testing.assert_array_equal(summed(parts), recursive(parts))


def test_an_aligned_run_may_be_added_elsewhere() -> None:
    parts = np.random.default_rng(1).normal(size=(24, 3)) * 1e8
    whole = summed(parts)
    tree = TreeSum()
    for run in (parts[:8], parts[8:16], parts[16:]):
        tree.add(summed(run))
    np.testing.assert_array_equal(tree.total(), whole)
    in_order = np.zeros(3)
    for part in parts:
        in_order = in_order + part
    assert (in_order != whole).any()  # the order does matter


def test_nothing_is_zero() -> None:
    assert TreeSum().total() == 0
