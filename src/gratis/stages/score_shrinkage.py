"""How much of a classifier's scores to keep, paid for: one release of how the loss changes along them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.logistic import SoftmaxModel
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring

__all__ = ["plan_shrinkage", "release_shrinkage"]

Array = NDArray[np.float64]

_FACTORS = np.array([0.05, 0.15, 0.35, 0.6, 1.0])
# Slopes are clipped at so many deviations of a score: at most a few of them part the scores of two classes.
_WIDTH = 2.5


def plan_shrinkage(n_records: int, *, mu: float, neighbouring: Neighbouring) -> GaussianRelease:
    """Fix the release of mean slopes in units of their clip at `mu`-GDP.

    A record adds a vector in [−1, 1]^J over n, or nothing, of length √J at most: the mean moves by κ√J/n.
    """
    kappa, size = neighbouring.sensitivity_factor, math.sqrt(len(_FACTORS))
    inflation = rounding_inflation(n_records, len(_FACTORS) + 16, sensitivity=kappa)
    sensitivity = kappa * size * inflation / n_records
    return GaussianRelease(
        sensitivity=sensitivity, noise_std=sensitivity / mu, neighbouring=neighbouring, label="shrinkage of the scores"
    )


def release_shrinkage(
    rows: Rows, prior: Array, *, deviation: float, event: GaussianRelease, noise: NoiseSource
) -> float:
    """Return a factor a in [0, 1] for scores s, with which P(class) ∝ prior·exp(a·s) has the least loss.

    **Guarantee**: that of `event` (`plan_shrinkage`), if scores are a function of one record each and of what was
    released before, and prior and deviation were released. The slope of a record's loss in a is fᵀs with f = p − e_y;
    it is clipped, at every factor, to ±`_WIDTH` deviations. A record without a label, or with a score that is not
    finite, adds nothing. Which factor follows from the slopes is post-processing.

    The loss is convex in a, so slopes rise with it, and its least value is where they cross 0. A fit is shrunk only as
    far as slopes are above 0 by more than their noise: where nothing can be seen it stays as it is.

    Parameters
    ----------
    rows : Rows
        (s, y): what the model adds to the log of the prior (n, K), and positions of the classes (n,).
    prior : (K,)
        Shares of the classes at a = 0.
    deviation : float
        Typical size of a score.

    >>> rows = Rows.held(np.array([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]]), np.array([0.0, 1.0, 1.0]))
    >>> event = plan_shrinkage(3, mu=1e9, neighbouring=Neighbouring.ZERO_OUT)
    >>> found = release_shrinkage(
    ...     rows, np.full(2, 0.5), deviation=9.0, event=event, noise=NoiseSource.insecure(0)
    ... )
    >>> bool(0.05 < found < 0.15)
    True
    """
    model, offset = SoftmaxModel(len(prior)), np.log(prior)
    width = _WIDTH * max(deviation, 1e-9)

    def slopes(scores: Array, y: Array) -> Array:
        targets = model.targets(y)[:, 0]
        found = np.stack(
            [np.einsum("ik,ik->i", model.mean(offset + a * scores) - targets, scores) for a in _FACTORS], axis=1
        )
        counted = np.isfinite(found).all(axis=1)
        return np.clip(np.where(counted[:, None], found / width, 0.0), -1.0, 1.0).sum(axis=0)

    with np.errstate(all="ignore"):
        total = rows.total(slopes)
    released = noise.release(total / rows.n_rows, event.noise_std)
    return _crossing(_rising(released) - event.noise_std)


def _rising(values: Array) -> Array:
    """The nearest values that rise: every one the largest mean that ends, of the least that begin, there (min-max)."""
    count = len(values)
    means = np.array([[values[i : j + 1].mean() if i <= j else math.nan for j in range(count)] for i in range(count)])
    return np.array([np.nanmax([np.nanmin(means[i, k:]) for i in range(k + 1)]) for k in range(count)])


def _crossing(slopes: Array) -> float:
    """Where rising slopes cross 0; 1 where they do not rise so far, 0 where they begin above.

    >>> [round(_crossing(np.array(s)), 3) for s in ([-1.0, -1, -1, -1, -0.5], [-1.0, -1, 0.5, 1, 1], [0.1, 1, 1, 1, 1])]
    [1.0, 0.283, 0.0]
    """
    if slopes[-1] <= 0:
        return 1.0
    if slopes[0] > 0:
        return 0.0
    above = int(np.argmax(slopes > 0))
    low, high = slopes[above - 1], slopes[above]
    return float(_FACTORS[above - 1] + (_FACTORS[above] - _FACTORS[above - 1]) * low / (low - high))
