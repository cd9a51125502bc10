"""Confidence bounds that audits rest on: binomial (exact) and the shift of two normal samples (non-central t)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri
from scipy.stats import nct

__all__ = ["binomial_upper_bound", "binomial_upper_bounds", "normal_shift_lower_bound"]


def binomial_upper_bounds(successes: NDArray[np.int64], trials: int, confidence: float) -> NDArray[np.float64]:
    """Clopper–Pearson upper bounds on a probability, one-sided, for several counts."""
    failures = np.maximum(trials - successes, 1)  # all successes: the bound is 1, whatever the formula says
    return np.where(successes >= trials, 1.0, betaincinv(successes + 1, failures, confidence))


def binomial_upper_bound(successes: int, trials: int, *, confidence: float) -> float:
    """Clopper–Pearson upper bound on a probability, one-sided.

    >>> round(binomial_upper_bound(0, 100, confidence=0.95), 4)
    0.0295
    """
    return float(binomial_upper_bounds(np.array([successes]), trials, confidence)[0])


def normal_shift_lower_bound(
    first: NDArray[np.float64], second: NDArray[np.float64], confidence: float
) -> tuple[float, float]:
    """Return the estimate of (mean₂ − mean₁)/std and its lower bound, exact for normal samples of equal variance.

    t = shift·√(N/2) of two samples of N has the non-central t law with 2N − 2 degrees of freedom and non-centrality
    (true shift)·√(N/2); the bound inverts it.

    >>> rng = np.random.default_rng(0)
    >>> estimate, low = normal_shift_lower_bound(rng.standard_normal(500), 1 + rng.standard_normal(500), 0.95)
    >>> 0.8 < low < estimate < 1.2
    True
    """
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    pooled = math.sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / 2)
    difference = float(np.mean(second) - np.mean(first))
    if pooled == 0 or not math.isfinite(pooled):
        # Constant scores are not normal: nothing is claimed.
        return (math.inf if difference > 0 else 0.0), 0.0
    shift, scale, freedom = difference / pooled, math.sqrt(size / 2), 2 * size - 2
    if shift <= 0:
        return 0.0, 0.0
    statistic = shift * scale
    if statistic > 1e3:  # the law is normal to all digits, its standard error that of the shift
        spread = math.sqrt(2 / size + shift**2 / (4 * size))
        return shift, max(0.0, shift + spread * float(ndtri(1 - confidence)))

    def excess(centre: float) -> float:
        return float(nct.sf(statistic, freedom, centre)) - (1 - confidence)

    if excess(0.0) > 0:
        return shift, 0.0
    return shift, brentq(excess, 0.0, statistic, xtol=1e-9) / scale
