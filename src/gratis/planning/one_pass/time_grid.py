"""Time grids on [0, 1] for the deterministic equivalent: fine where schedules and risks move fast."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["graded_edges", "graded_times", "halved"]

Array = NDArray[np.float64]


def graded_times(count: int, *, head: float, tail: float) -> Array:
    """Return count+1 times from 0 to 1 with spacing ∝ (t + head)(1 − t + tail): geometric towards both ends.

    >>> graded_times(4, head=0.1, tail=0.1).round(3).tolist()
    [0.0, 0.178, 0.5, 0.822, 1.0]
    """
    odds = np.exp(np.linspace(np.log(head / (1 + tail)), np.log((1 + head) / tail), count + 1))
    times = (odds * (1 + tail) - head) / (1 + odds)
    times[0], times[-1] = 0.0, 1.0
    return np.asarray(times)


def graded_edges(steps: int, gamma: float, breakpoints: Array) -> Array:
    """Return the ends of `steps` graded time steps, and of more where a breakpoint falls inside one.

    The first rows carry the fast descent (on the scale γ of the step cap), the last ones vanishing rates.
    """
    edges = graded_times(steps, head=0.02 * min(gamma, 1.0), tail=5e-4)
    return np.unique(np.concatenate([edges, breakpoints[(breakpoints > 0) & (breakpoints < 1)]]))


def halved(edges: Array) -> Array:
    """Return the edges with the middle of every step added.

    >>> halved(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    finer = np.empty(2 * edges.size - 1)
    finer[::2] = edges
    finer[1::2] = 0.5 * (edges[1:] + edges[:-1])
    return finer
