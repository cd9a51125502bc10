"""Time grids on [0, 1] for the deterministic equivalent: fine where schedules and risks move fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["TimeGrid", "graded_times"]

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
        """Return a graded grid of `steps` coarse steps, and more where a breakpoint falls inside one.

        The first rows carry the fast descent (on the scale γ of the step cap), the last ones vanishing rates.
        """
        edges = graded_times(steps, head=0.02 * min(gamma, 1.0), tail=2e-3)
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
