"""The final risk of a family of schedules as a differentiable function of its parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gratis.planning.one_pass.exponential_steps import steps_gradient
from gratis.planning.one_pass.problem import OnePassProblem
from gratis.planning.one_pass.schedule_families import ScheduleFamily
from gratis.planning.one_pass.time_grid import halved

__all__ = ["RiskGradient"]

Array = NDArray[np.float64]

# Risks below this share of R(0) are as good as zero; without a floor a noiseless problem is optimised to 1e−50.
_FLOOR = 1e-9


class RiskGradient:
    """Parameters ↦ log(R(1) + floor) of every problem, with the exact gradient of the extrapolated solution.

    edges are the ends of the coarse steps; the family must be given at `halved(halved(edges))`. Calling the object
    returns the value and gradient for its first problem, as optimisers expect.
    """

    def __init__(self, problems: Sequence[OnePassProblem], family: ScheduleFamily, edges: Array, atoms: int) -> None:
        self._problems = [(p, p.spectrum.measure(atoms).rows(p.initial_risk)) for p in problems]
        self._family = family
        # Coarse and fine steps with the weights of Richardson's extrapolation.
        self._grids = tuple(
            (np.diff(ends), slice(stride // 2, None, stride), slice(None, None, stride), weight)
            for ends, stride, weight in ((edges, 4, -1 / 3), (halved(edges), 2, 4 / 3))
        )

    def log_risks(self, parameters: Array) -> tuple[Array, Array]:
        """Return log(R + floor) of every problem and the Jacobian (problems, parameters)."""
        log_rate, log_clip, rate_slope, clip_slope = self._family.path(parameters)
        rate, clip = np.exp(log_rate), np.exp(log_clip)
        squares = (rate * clip) ** 2
        values = np.zeros(len(self._problems))
        slopes = np.zeros((len(self._problems), parameters.size))
        for lengths, middle, edge, weight in self._grids:
            rates, clips = np.ascontiguousarray(rate[middle]), np.ascontiguousarray(clip[middle])
            # a² enters as the difference of neighbouring edges, and once more as the last noise.
            product_slope = rate_slope[edge] + clip_slope[edge]
            gradient, change = np.empty((3, lengths.size)), np.empty(lengths.size + 1)
            for index, (problem, table) in enumerate(self._problems):
                mass = problem.noise_scale * squares[edge]
                risk = steps_gradient(
                    lengths,
                    np.minimum(rates, problem.rate_cap),
                    clips,
                    mass[:-1] - mass[1:],
                    problem.gamma,
                    0.5 * problem.label_noise_variance,
                    table,
                    gradient,
                )
                total = risk + mass[-1] + _FLOOR * problem.initial_risk
                # np.diff takes ten times as long for so few numbers
                change[0], change[-1] = gradient[2, 0], 1.0 - gradient[2, -1]
                np.subtract(gradient[2, 1:], gradient[2, :-1], out=change[1:-1])
                slope = (gradient[0] * rates * (rates <= problem.rate_cap)) @ rate_slope[middle]
                slope += (gradient[1] * clips) @ clip_slope[middle]
                slope += (2.0 * mass * change) @ product_slope
                values[index] += weight * np.log(total)
                slopes[index] += (weight / total) * slope
        return values, slopes

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        """Return log(R + floor) of the first problem and its gradient."""
        values, slopes = self.log_risks(parameters)
        return float(values[0]), slopes[0]
