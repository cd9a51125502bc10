"""Minimisation of a smooth function of a few dozen parameters in a box: projected quasi-Newton steps.

SciPy's L-BFGS-B would do, but `scipy.optimize` takes longer to load than a schedule takes to be found, and with so few
parameters the whole matrix of second derivatives can be kept, which needs fewer gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["descend_in_box"]

Array = NDArray[np.float64]

_LONGEST = 2.0  # of a step, in any coordinate: parameters are logarithms
_ENOUGH = 1e-4  # Armijo's share of the predicted decrease


def descend_in_box(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    bounds: list[tuple[float, float]],
    *,
    tolerance: float = 1e-9,
    most_steps: int = 250,
) -> Array:
    """Return where BFGS with projection (Bertsekas 1982) ends: no step gains more than `tolerance` of the value.

    Coordinates at a bound that the gradient presses against are held; the others take a quasi-Newton step, which is
    projected on the box and halved until it decreases the function.

    >>> bowl = lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3))
    >>> descend_in_box(bowl, np.zeros(2), [(-1.0, 1.0), (-9.0, 9.0)]).round(6).tolist()
    [1.0, 3.0]
    """
    low, high = np.array(bounds).T
    point = np.clip(start, low, high)
    value, slope = function(point)
    curvature: Array | None = None
    stalled, turned = 0, False
    for _ in range(most_steps):
        free = ~((point <= low) & (slope > 0) | (point >= high) & (slope < 0))
        if not free.any() or np.abs(slope[free]).max() < 1e-7:
            break
        step = np.zeros_like(point)
        if curvature is None:
            step[free] = -slope[free] / np.abs(slope[free]).max()
        else:
            step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
        step *= min(1.0, _LONGEST / np.abs(step).max())
        for _ in range(30):
            new = np.clip(point + step, low, high)
            move = new - point
            expected = slope @ move
            if not expected < 0:  # what the box cut off was the descent
                turned = True
                step *= 0.1
                continue
            new_value, new_slope = function(new)
            if new_value <= value + _ENOUGH * expected:
                break
            # The minimum of the parabola through both values, if it is not too near either end.
            step *= np.clip(-0.5 * expected / (new_value - value - expected), 0.1, 0.5)
        else:
            if curvature is None:
                break
            curvature = None  # stale: once more along the gradient
            continue
        gain, bend = value - new_value, new_slope - slope
        along = float(move @ bend)
        if curvature is None:
            curvature = np.eye(point.size) * max(float(bend @ bend) / along if along > 0 else 0.0, 1e-6)
        if along > 1e-12 * float(bend @ bend):
            pressed = curvature @ move
            curvature += np.outer(bend, bend) / along - np.outer(pressed, pressed) / float(move @ pressed)
        point, value, slope = new, new_value, new_slope
        stalled = stalled + 1 if gain <= tolerance * max(abs(value), 1.0) else 0
        if stalled == 2:
            if not turned:
                break
            # Steps that the box turned uphill were cut to next to nothing: once more along the gradient.
            curvature, stalled, turned = None, 0, False
    return np.asarray(point)
