"""Time grids on [0, 1] for the deterministic equivalent: fine where schedules and risks move fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["TimeGrid", "graded_times"]

Array = NDArray[np.float64]

_TAIL = 2e-3


def graded_times(count: int, gamma: float) -> Array:
    """Return count+1 times from 0 to 1 with spacing ∝ (t + ε₀)(1 − t + ε₁): geometric towards both ends.

    The first rows carry the fast descent (on the scale γ of the step cap), the last ones the vanishing rates.

    >>> graded_times(4, 0.1).round(3).tolist()
    [0.0, 0.034, 0.508, 0.969, 1.0]
    """
    head = 0.02 * min(gamma, 1.0)
    start, stop = np.log(head / (1 + _TAIL)), np.log((1 + head) / _TAIL)
    odds = np.exp(np.linspace(start, stop, count + 1))
    times = (odds * (1 + _TAIL) - head) / (1 + odds)
    times[0], times[-1] = 0.0, 1.0
    return np.asarray(times)


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Coarse steps, and their halves for the extrapolation: four points in each coarse step, the last at t = 1.

    >>> TimeGrid.refine(np.array([0.0, 1.0])).points.tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """

    points: Array

    @classmethod
    def refine(cls, edges: Array) -> TimeGrid:
        """Quarter the steps between the given edges."""
        quarters = edges[:-1, None] + np.diff(edges)[:, None] * np.array([0.0, 0.25, 0.5, 0.75])
        return cls(np.append(quarters.ravel(), edges[-1]))

    @classmethod
    def graded(cls, steps: int, gamma: float, breakpoints: Array | None = None) -> TimeGrid:
        """Return a graded grid of about `steps` coarse steps in which every breakpoint is an edge."""
        edges = graded_times(steps, gamma)
        if breakpoints is not None:
            edges = np.unique(np.concatenate([edges, breakpoints[(breakpoints > 0) & (breakpoints < 1)]]))
        return cls.refine(edges)

    @property
    def lengths(self) -> Array:
        """Lengths of the fine steps."""
        return np.diff(self.points[::2])

    @property
    def coarse_lengths(self) -> Array:
        """Lengths of the coarse steps."""
        return np.diff(self.points[::4])
