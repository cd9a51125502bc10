"""Families of schedules as smooth maps: parameters → log rate and log clip on a time grid, with derivatives."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gratis.numerics.significant import significant
from gratis.planning.one_pass.schedules import FreeForm, FreeFormWithClip, Harmonic, Polynomial, Schedule
from gratis.planning.one_pass.time_grid import graded_times

__all__ = ["FreeClipFamily", "FreeFamily", "HarmonicFamily", "PolynomialFamily", "ScheduleFamily", "knot_times"]

Array = NDArray[np.float64]
Bounds = list[tuple[float, float]]

# Logarithms of clips and products stay within these of their start; nothing sensible lies outside.
_LOG_SMALLEST, _LOG_LARGEST = -30.0, 12.0
_LARGEST_DROP = 8.0
# Optimised logarithms are cut here, rates downward so that they stay below their cap: risks are flat at the optimum,
# and descents of two machines end within 1e-9 of each other, as a rule.
_PLACES = 5


def knot_times(count: int = 28) -> Array:
    """Return count+1 knots on [0, 1], a few times closer at both ends than in the middle."""
    return significant(graded_times(count, head=0.1, tail=0.05))


class ScheduleFamily(Protocol):
    """One family on fixed grid points. All parameters are logarithms or their decrements."""

    def path(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """Return log η̃ and log c at the points and their Jacobians (points, parameters).

        Narrow families also take many sets of parameters at once, (parameters, sets, 1), for the first two.
        """
        ...

    def bounds(self, rate_cap: float) -> Bounds:
        """Return box bounds that keep η̃ ≤ rate_cap and a non-increasing."""
        ...

    def schedule(self, parameters: Array) -> Schedule:
        """Return the schedule with these parameters."""
        ...


class PolynomialFamily:
    """(log η₀, log c) at fixed α."""

    def __init__(self, points: Array, alpha: float) -> None:
        self.alpha = alpha
        with np.errstate(divide="ignore"):
            self._shape = alpha * np.log1p(-points) if alpha > 0 else np.zeros_like(points)
        self._rate_slope = np.tile([1.0, 0.0], (points.size, 1))
        self._clip_slope = np.tile([0.0, 1.0], (points.size, 1))

    def path(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """Return the path and its slopes."""
        rate = parameters[0] + self._shape
        return rate, np.full_like(rate, parameters[1]), self._rate_slope, self._clip_slope

    def bounds(self, rate_cap: float) -> Bounds:
        """Return the box."""
        return [(_LOG_SMALLEST, np.log(rate_cap)), (_LOG_SMALLEST, _LOG_LARGEST)]

    def schedule(self, parameters: Array) -> Polynomial:
        """Return the schedule."""
        rate, clip = _exponential(parameters, downward=slice(0, 1))
        return Polynomial(self.alpha, rate, clip)


class HarmonicFamily:
    """(log η̃(0), log c, log s): η̃ = η̃(0)/(1 + t/s)."""

    def __init__(self, points: Array) -> None:
        self._points = points
        self._clip_slope = np.tile([0.0, 1.0, 0.0], (points.size, 1))

    def path(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """Return the path and its slopes."""
        ratio = self._points * np.exp(-parameters[2])
        slope = np.stack([np.ones_like(ratio), np.zeros_like(ratio), ratio / (1.0 + ratio)], axis=-1)
        return parameters[0] - np.log1p(ratio), np.full_like(ratio, parameters[1]), slope, self._clip_slope

    def bounds(self, rate_cap: float) -> Bounds:
        """Return the box; at s = e¹² the schedule is constant to six digits."""
        return [(_LOG_SMALLEST, np.log(rate_cap)), (_LOG_SMALLEST, _LOG_LARGEST), (-14.0, 12.0)]

    def schedule(self, parameters: Array) -> Harmonic:
        """Return the schedule."""
        rate, clip, offset = _exponential(parameters, downward=slice(0, 1))
        return Harmonic(float(significant(rate * offset)), offset, clip)


def _hat_functions(points: Array, knots: Array) -> Array:
    return np.stack([np.interp(points, knots, column) for column in np.eye(knots.size)], axis=1)


def _exponential(logarithms: Array, downward: slice | None = None) -> tuple[float, ...]:
    """Exponentials of logarithms that were cut to `_PLACES`, those of rates `downward`."""
    cut = np.round(logarithms, _PLACES)
    if downward is not None:
        cut[downward] = np.floor(logarithms[downward] * 10**_PLACES) / 10**_PLACES
    return tuple(significant(np.exp(cut)).tolist())


def _falling(start: float, drops: Array) -> tuple[float, ...]:
    # A running minimum: the exponential may round two equal logarithms in the wrong order.
    start = np.floor(start * 10**_PLACES) / 10**_PLACES
    values = np.exp(start - np.concatenate(([0.0], np.cumsum(np.round(drops, _PLACES)))))
    return tuple(np.minimum.accumulate(significant(values)).tolist())


class FreeFamily:
    """(log η̃(0), log c, drops of log a from knot to knot ≥ 0)."""

    def __init__(self, points: Array, knots: Array) -> None:
        self.knots = knots
        hats = _hat_functions(points, knots)
        # The drop into knot j lowers a at all knots from j on.
        drops = -np.cumsum(hats[:, :0:-1], axis=1)[:, ::-1]
        self._rate_slope = np.concatenate([np.ones((points.size, 1)), np.zeros((points.size, 1)), drops], axis=1)
        self._clip_slope = np.zeros_like(self._rate_slope)
        self._clip_slope[:, 1] = 1.0

    def path(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """Return the path and its slopes."""
        slopes = self._rate_slope, self._clip_slope
        return slopes[0] @ parameters, slopes[1] @ parameters, *slopes

    def bounds(self, rate_cap: float) -> Bounds:
        """Return the box."""
        ends = [(_LOG_SMALLEST, np.log(rate_cap)), (_LOG_SMALLEST, _LOG_LARGEST)]
        return ends + [(0.0, _LARGEST_DROP)] * (self.knots.size - 1)

    def start(self, schedule: Schedule) -> Array:
        """Return the parameters nearest to another schedule of constant clip."""
        rates = np.log(np.maximum(schedule.rate(self.knots), 1e-300))
        drops = np.clip(-np.diff(rates), 0.0, 4.0)
        return np.concatenate([[rates[0], np.log(float(schedule.clip(0.0)))], drops])

    def schedule(self, parameters: Array) -> FreeForm:
        """Return the schedule."""
        clip = np.round(parameters[1], _PLACES)
        products = _falling(float(parameters[0] + clip), parameters[2:])
        return FreeForm(tuple(self.knots.tolist()), products, *_exponential(parameters[1:2]))


class FreeClipFamily:
    """(log a(0), drops of log a ≥ 0, log η̃ at the knots): c = a/η̃ varies."""

    def __init__(self, points: Array, knots: Array) -> None:
        self.knots = knots
        hats = _hat_functions(points, knots)
        drops = -np.cumsum(hats[:, :0:-1], axis=1)[:, ::-1]
        product = np.concatenate([np.ones((points.size, 1)), drops, np.zeros_like(hats)], axis=1)
        self._rate_slope = np.concatenate([np.zeros((points.size, knots.size)), hats], axis=1)
        self._clip_slope = product - self._rate_slope

    def path(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """Return the path and its slopes."""
        slopes = self._rate_slope, self._clip_slope
        return slopes[0] @ parameters, slopes[1] @ parameters, *slopes

    def bounds(self, rate_cap: float) -> Bounds:
        """Return the box."""
        count = self.knots.size
        cap = float(np.log(rate_cap))
        return [(2 * _LOG_SMALLEST, _LOG_LARGEST)] + [(0.0, _LARGEST_DROP)] * (count - 1) + [(-60.0, cap)] * count

    def start(self, schedule: Schedule) -> Array:
        """Return the parameters nearest to another schedule."""
        products = np.log(np.maximum(schedule.product(self.knots), 1e-300))
        drops = np.clip(-np.diff(products), 0.0, 4.0)
        falling = products[0] - np.concatenate(([0.0], np.cumsum(drops)))
        return np.concatenate([products[:1], drops, falling - np.log(schedule.clip(self.knots))])

    def schedule(self, parameters: Array) -> FreeFormWithClip:
        """Return the schedule."""
        count = self.knots.size
        products = _falling(float(parameters[0]), parameters[1:count])
        return FreeFormWithClip(
            tuple(self.knots.tolist()), products, _exponential(parameters[count:], downward=slice(None))
        )
