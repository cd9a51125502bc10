"""Following the gradient flow for a given time in a given number of noisy steps: plain or with momentum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["flow_rate", "follow_flow"]

Array = NDArray[np.float64]

# Momentum is remembered for at most an eighth of the steps: more would still be swinging when they end.
_MEMORY = 8


def flow_rate(time: float, steps: int, largest_step: float) -> tuple[float, float]:
    """Return (η, β): steps of η with Nesterov's momentum β advance by η/(1 − β) each, T of them by `time` in all.

    >>> flow_rate(10.0, 20, 2.0), flow_rate(1000.0, 100, 2.0)
    ((0.5, 0.0), (2.0, 0.8))
    """
    rate = min(time / steps, largest_step)
    return rate, min(max(0.0, 1 - rate * steps / time), max(0.0, 1 - _MEMORY / steps))


def follow_flow(
    gradient: Callable[[Array], Array], start: Array, *, time: float, steps: int, largest_step: float = np.inf
) -> Array:
    """Follow θ̇ = −∇ from `start` for `time` in `steps` steps and return the mean of the last half of them.

    Where a step would have to be longer than `largest_step` to arrive, Nesterov's momentum β makes up for it: steps of
    η with momentum advance by η/(1 − β) a step. Post-processing of what `gradient` releases.

    >>> follow_flow(lambda x: x - 1.0, np.zeros(1), time=50.0, steps=40, largest_step=1.0).round(3)
    array([1.])
    """
    rate, momentum = flow_rate(time, steps, largest_step)
    place, velocity, total = start, np.zeros_like(start), np.zeros_like(start)
    kept = (steps + 1) // 2
    for step in range(steps):
        velocity = momentum * velocity - rate * gradient(place + momentum * velocity)
        place = place + velocity
        if step >= steps - kept:
            total += place
    return np.asarray(total / kept)
