"""Many schedules sampled at once: grids of thousands of simple schedules cost a few array operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.schedules import Harmonic, Polynomial, Schedule

__all__ = ["ScheduleBundle"]

Array = NDArray[np.float64]


class ScheduleBundle:
    """Schedules with shared breakpoints, as arrays of parameters where the family allows it.

    >>> bundle = ScheduleBundle([Polynomial(0.0, rate, 1.0) for rate in (1.0, 2.0)])
    >>> bundle.sample(np.array([0.0, 1.0]), np.array([1, 0]))[0].tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self._schedules = schedules
        # Each simple schedule is scale·shape(t) at one clip level, with shape (1−t)^α or 1/(t + offset).
        shapes, kinds = [], []
        for schedule in schedules:
            if type(schedule) is Polynomial:
                shapes.append((schedule.initial_rate, schedule.alpha, schedule.clip_level))
                kinds.append(1)
            elif type(schedule) is Harmonic:
                shapes.append((schedule.numerator, schedule.offset, schedule.clip_level))
                kinds.append(2)
            else:
                shapes.append((0.0, 0.0, 0.0))
                kinds.append(0)
        self._shapes, self._kinds = np.array(shapes).reshape(-1, 3), np.array(kinds)

    def sample(self, times: Array, which: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return rates and clips of the schedules `which` at the times, (which, times)."""
        shapes, kinds = self._shapes[which], self._kinds[which]
        rates, clips = np.empty((which.size, times.size)), np.empty((which.size, times.size))
        clips[:] = shapes[:, 2:3]
        for alpha in np.unique(shapes[kinds == 1, 1]):
            rows = np.flatnonzero((kinds == 1) & (shapes[:, 1] == alpha))
            rates[rows] = shapes[rows, 0:1] * (1.0 - times) ** alpha
        rows = np.flatnonzero(kinds == 2)
        rates[rows] = shapes[rows, 0:1] / (times + shapes[rows, 1:2])
        for row in np.flatnonzero(kinds == 0):
            schedule = self._schedules[which[row]]
            rates[row], clips[row] = schedule.rate(times), schedule.clip(times)
        return rates, clips
