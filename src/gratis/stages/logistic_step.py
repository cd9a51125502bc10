"""The releases of a one-step estimator for two classes: a Newton step of the weighted likelihood, and its covariance.

From a private start θ₀ one step solves E w(x)·u·(y − p(uᵀθ)) = 0, weights w = min(1, K²/‖u‖²) of x alone: no bias where
the log-odds are linear. Residuals y − p lie in [−1, 1], so nothing else is clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.checks import check_count, check_positive
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.one_step import BoundedRows, ReleasedStep

__all__ = ["LogisticStepPlan", "plan_logistic_step", "release_approach", "release_logistic_step", "release_steepness"]

Array = NDArray[np.float64]

_FLATTEST = 1 / (6 * math.sqrt(3))  # the largest |p(1−p)(1−2p)|


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticStepPlan:
    """The five releases, fixed by public facts; all are of numbers in units of their own bounds."""

    n_records: int
    n_columns: int
    approach: GaussianRelease
    jacobian: GaussianRelease
    gradient: GaussianRelease
    squares: GaussianRelease
    steepness: GaussianRelease

    @property
    def events(self) -> tuple[GaussianRelease, ...]:
        """In the order of their release."""
        return self.approach, self.jacobian, self.gradient, self.squares, self.steepness


def plan_logistic_step(
    n_records: int,
    n_columns: int,
    *,
    approach: float,
    jacobian: float,
    gradient: float,
    squares: float,
    steepness: float,
    neighbouring: Neighbouring,
) -> LogisticStepPlan:
    """Fix the releases for D columns (the one among them), each at its own μ.

    Sensitivities, κ = 2 for replace-one and 1 for zero-out. Let v = √w·u/K, so ‖v‖ ≤ 1, s = √w ≤ 1, r = y − p:

    * approach, as the gradient.
    * Jacobian, (1/n)Σ 4p(1−p)·vvᵀ, a factor in [0, 1]: √κ/n, as of vvᵀ.
    * gradient, (1/n)Σ s·r·v: vectors of norm ≤ 1: κ/n; their outer squares: √κ/n.
    * steepness, (1/n)Σ (4p(1−p), s·q·v) with q = p(1−p)(1−2p) in units of its largest size: the first lies in [0, 1]
      and moves by at most 1 under both relations, the second is a vector of norm ≤ 1 and moves by κ: √(1 + κ²)/n.

    >>> plan = plan_logistic_step(1000, 4, approach=0.1, jacobian=0.1, gradient=0.1, squares=0.1, steepness=0.1,
    ...                           neighbouring=Neighbouring.REPLACE_ONE)
    >>> [round(event.sensitivity * 1000, 6) for event in plan.events]
    [2.0, 1.414214, 2.0, 1.414214, 2.236068]
    """
    n, columns = check_count("n_records", n_records), check_count("n_columns", n_columns)
    kappa = neighbouring.sensitivity_factor

    def release(label: str, sensitivity: float, mu: float) -> GaussianRelease:
        # Twice the columns, as for second moments: outer products square the error of a norm.
        inflation = rounding_inflation(n, 2 * columns + 32, sensitivity=sensitivity)
        bound = sensitivity * inflation / n
        noise_std = bound / check_positive("mu", mu)
        return GaussianRelease(sensitivity=bound, noise_std=noise_std, neighbouring=neighbouring, label=label)

    return LogisticStepPlan(
        n_records=n,
        n_columns=columns,
        approach=release("approach to the step", kappa, approach),
        jacobian=release("Jacobian of the step", math.sqrt(kappa), jacobian),
        gradient=release("gradient of the step", kappa, gradient),
        squares=release("outer squares of gradients", math.sqrt(kappa), squares),
        steepness=release("steepness of the probability", math.sqrt(1 + kappa**2), steepness),
    )


def _bounded(read: BoundedRows, X: Array, y: Array, parameters: Array) -> tuple[Array, Array, Array, Array]:
    """v, s, the probability p of the second class and y − p; all 0 of a record that contributes nothing."""
    bounded, factors, residuals, usable = read(X, y, parameters)
    scores = np.where(usable, y, 0.0) - residuals  # `read` returns y − uᵀθ
    p = np.where(usable, expit(scores), 0.0)
    return bounded, factors, p, np.where(usable, np.clip(y - p, -1, 1), 0.0)


def release_approach(
    rows: Rows, read: BoundedRows, parameters: Array, curvature: Array, plan: LogisticStepPlan, *, noise: NoiseSource
) -> Array:
    """Return where one step leads from `parameters` with an assumed diagonal `curvature`, noise taken back.

    One Newton step errs by the square of what is wrong with its start, and starts made for predictions stop early.

    **Guarantee**: one Gaussian release, `plan.approach`; `parameters`, `curvature` and `read` are functions of earlier
    releases.
    """

    def pulls(X: Array, y: Array) -> Array:
        bounded, factors, _, residuals = _bounded(read, X, y, parameters)
        return np.asarray((factors * residuals) @ bounded)

    std = plan.approach.noise_std
    found = noise.release(rows.total(pulls) / plan.n_records, std)
    kept = max(0.0, 1 - len(found) * std**2 / max(float(found @ found), 1e-300))
    return np.asarray(parameters + kept * read.radius * found / curvature)


def release_logistic_step(
    rows: Rows, read: BoundedRows, parameters: Array, plan: LogisticStepPlan, *, noise: NoiseSource
) -> ReleasedStep:
    """Release J = mean w·p(1−p)·uuᵀ, g = mean w·u·(y − p), and S, the mean outer square of g's summands.

    **Guarantee**: three Gaussian releases, `plan.jacobian`, `plan.gradient` and `plan.squares`, of sums that one pass
    over the rows makes; `parameters` and `read` are functions of earlier releases.
    """
    columns = plan.n_columns

    def sums(X: Array, y: Array) -> Array:
        bounded, factors, p, residuals = _bounded(read, X, y, parameters)
        pulls = bounded * (factors * residuals)[:, None]
        steep = 4 * p * (1 - p)
        return np.hstack([(bounded * steep[:, None]).T @ bounded, pulls.T @ pulls, pulls.sum(axis=0)[:, None]])

    total = rows.total(sums) / plan.n_records
    jacobian = noise.release(total[:, :columns], plan.jacobian.noise_std)
    gradient = noise.release(total[:, -1], plan.gradient.noise_std)
    squares = noise.release(total[:, columns:-1], plan.squares.noise_std)
    square = read.radius**2
    return ReleasedStep(
        jacobian=square / 4 * (jacobian + jacobian.T) / 2,
        gradient=read.radius * gradient,
        squares=square * (squares + squares.T) / 2,
        jacobian_noise=square / 4 * plan.jacobian.noise_std,
        gradient_noise=read.radius * plan.gradient.noise_std,
        squares_noise=square * plan.squares.noise_std,
    )


def release_steepness(
    rows: Rows, read: BoundedRows, parameters: Array, plan: LogisticStepPlan, *, noise: NoiseSource
) -> tuple[float, Array, float]:
    """Release the mean of p(1−p) at `parameters` and its derivative there; return them and the variance of the mean.

    **Guarantee**: one Gaussian release, `plan.steepness`. Long rows count in the derivative as their weights say.
    """

    def sums(X: Array, y: Array) -> Array:
        bounded, factors, p, _ = _bounded(read, X, y, parameters)
        steep = p * (1 - p)
        turn = factors * steep * (1 - 2 * p) / _FLATTEST
        return np.append((4 * steep).sum(), (bounded * turn[:, None]).sum(axis=0))

    std = plan.steepness.noise_std
    found = noise.release(rows.total(sums) / plan.n_records, std)
    mean = min(max(float(found[0]) / 4, 1e-4), 0.25)
    # p(1−p) lies in [0, 1/4].
    variance = (std / 4) ** 2 + mean * (0.25 - mean) / plan.n_records
    return mean, np.asarray(read.radius * _FLATTEST * found[1:]), variance
