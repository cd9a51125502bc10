"""How wide private intervals for coefficients will be, before any data: a factor over those of least squares."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2

from gratis.records.neighbouring import Neighbouring
from gratis.stages.one_step import OneStepPlan, ResidualSizes
from gratis.stages.sandwich import choose_clips

__all__ = ["predicted_width", "rows_for_intervals"]

# A prototype's own releases agreed with n·μ ≥ 20(d+1)^1.5 (replace-one) in 89 of 90 synthetic cells on whether the
# smallest eigenvalue stood out of its noise. Outer products have noise √κ/(nμ), hence the other relation's constant.
_LEAST = 20.0 / math.sqrt(2.0)
_QUANTILES = 512
_UNEXPLAINED = 0.5  # the variance of errors, of the target's: decides little


def rows_for_intervals(n_columns: int, *, mu: float, neighbouring: Neighbouring) -> int:
    """Return how many rows intervals for d slopes need, so that what they are made from rises above its noise.

    >>> rows_for_intervals(3, mu=0.25, neighbouring=Neighbouring.REPLACE_ONE)
    640
    """
    return math.ceil(_LEAST * math.sqrt(neighbouring.sensitivity_factor) * (n_columns + 1) ** 1.5 / mu - 1e-9)


def predicted_width(plan: OneStepPlan, start_risk: float) -> float:
    """Return the factor for normal columns and errors; `start_risk` is E(xᵀθ₀ − xᵀθ*)² over the target's variance.

    The terms of `stages.sandwich` at their expectations: J = E w·u²·P(|r| ≤ c), privacy (κKc/(nμ_g))², the Jacobian's
    noise to second order in J⁻¹, and E w²u²·E clip_c(r)²/n.
    """
    n, size = plan.n_records, plan.n_columns
    columns = max(size - 1, 1)
    lengths = chi2.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES, columns)
    square = plan.radius * size
    weights = np.minimum(1.0, square / (lengths + 1))
    radius, mean_size = math.sqrt(square), math.sqrt(2 / math.pi)
    clip = choose_clips(ResidualSizes(mean_size), radius, plan).residual
    inside = 2 * float(ndtr(clip)) - 1
    density = math.exp(-(clip**2) / 2) / math.sqrt(2 * math.pi)
    clipped = inside - 2 * clip * density + clip**2 * (1 - inside)
    jacobian = inside * float((weights * lengths).mean()) / columns
    sampling = clipped * float((np.square(weights) * lengths).mean()) / columns / n
    of_gradient = (radius * clip * plan.gradient.noise_std) ** 2
    of_jacobian = (square * plan.jacobian.noise_std) ** 2 / 2
    through = of_jacobian * start_risk / _UNEXPLAINED * (1 + 1 / size)
    inflated = 1 + 3 * (size + 1) * of_jacobian / jacobian**2
    return math.sqrt(n * (of_gradient + sampling + through) * inflated) / jacobian
