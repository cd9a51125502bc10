"""Sums in a fixed tree: which parts are added first follows from their number alone, not from where they were made."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TreeSum"]


class TreeSum:
    """Adds parts pairwise, neighbours first, as they arrive; at most log₂ of their number are kept.

    Part 2i is added to part 2i+1, their sum to that of the next pair, and so on, so any aligned run of 2ᵏ parts may be
    added elsewhere: the total has the same bits. No number passes more than ⌈log₂ m⌉ + 1 additions, fewer than one
    after the other, which is what bounds on rounding errors count.

    >>> tree = TreeSum()
    >>> for part in (1e16, 1.0, 1.0, 1.0):
    ...     tree.add(np.array([part]))
    >>> float(tree.total()[0]) - 1e16
    2.0
    """

    def __init__(self) -> None:
        self._kept: list[tuple[int, NDArray[Any]]] = []  # (level, sum of 2^level parts), levels falling

    def add(self, part: NDArray[Any], level: int = 0) -> None:
        """Add the next part, or the sum of the next 2^level parts, made elsewhere.

        It may be kept and changed, so it must not be a view of something else.
        """
        while self._kept and self._kept[-1][0] == level:
            before = self._kept.pop()[1]
            before += part
            level, part = level + 1, before
        self._kept.append((level, part))

    @property
    def kept(self) -> list[tuple[int, NDArray[Any]]]:
        """Level and value of the sums so far, in the order of their parts: what `add` takes elsewhere."""
        return list(self._kept)

    def total(self) -> NDArray[Any]:
        """The sum of all parts; 0 if there were none."""
        if not self._kept:
            return np.zeros(())
        result = self._kept[-1][1].copy()
        for _, part in reversed(self._kept[:-1]):
            result = part + result
        return result
