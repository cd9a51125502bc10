"""A score on held-out private rows is a release like any other: clipped, noised, paid for and certified."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.estimators.private_fit import Release
from gratis.numerics.rounding import ROWS_PER_CHUNK, rounding_inflation
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.events import GaussianRelease
from gratis.records.predictions import Estimate

__all__ = ["DISJOINT", "HeldOutScore", "evaluate_privately", "evaluation_event"]

# Errors and deviations beyond this many (released) scales of the target count as this many.
_WIDEST = 3.0
DISJOINT = (
    "held-out rows were chosen by their position alone and no row is in both parts: a row enters the model or the "
    "score, so that releasing both costs the larger of the two budgets, not their sum"
)


@dataclass(frozen=True, slots=True)
class HeldOutScore:
    """R² or accuracy on held-out rows, with the range that its privacy noise and its sampling leave."""

    estimate: Estimate
    certificate: Certificate


def evaluation_event(n_records: int, budget: Budget, *, regression: bool) -> GaussianRelease:
    """Fix the release: sums that a record enters with bounded numbers.

    Classes: the number of right answers; a record moves it by at most 1. Regression: the sums of z² and of r², with z
    the target's deviation from the released centre and r the model's error, both in released scales and clipped to
    ±3. A record adds a point of [0, 9]², so an exchange or a removal moves the pair by at most 9√2.
    """
    widest = math.sqrt(2) * _WIDEST**2 if regression else 1.0
    inflation = rounding_inflation(n_records, 2, sensitivity=1.0)
    return GaussianRelease(
        sensitivity=widest * inflation,
        noise_std=widest * inflation / calibrate_mu(budget) * (1 + 2.0**-40),
        neighbouring=budget.neighbouring,
        label="score on held-out rows",
    )


def evaluate_privately(estimator: Any, X: NDArray[np.float64], y: NDArray[np.float64], release: Release) -> Estimate:
    """Score a fitted estimator on rows that it was not trained on, inside the release that pays for it.

    **Guarantee**: what is released satisfies `release.budget` with respect to the held-out rows (`evaluation_event`,
    which must be the event of `release`). The estimator is a function of other rows, so both together cost the larger
    of the two budgets: parallel composition, under both relations. `y` are numbers, or positions in `classes_`.
    """
    regression = not hasattr(estimator, "classes_")
    event = evaluation_event(len(y), release.budget, regression=regression)
    if event != release.event:
        raise ValueError("the release must have been made for this evaluation")
    entries = _squares(estimator, X, y) if regression else _hits(estimator, X, y)
    total = np.zeros(entries.shape[1])
    for start in range(0, len(entries), ROWS_PER_CHUNK):
        total += entries[start : start + ROWS_PER_CHUNK].sum(axis=0)
    noisy = release.noise.release(total, event.noise_std)
    value, spread = _from_sums(noisy, event.noise_std, len(y))
    lowest = -1.0 if regression else 0.0
    return Estimate(
        quantity="r_squared" if regression else "accuracy",
        value=value,
        low=min(value, max(lowest, value - 2 * spread)),
        high=min(1.0, value + 2 * spread),
        confidence=0.95,
        samples=len(y),
        method="Gaussian release on held-out rows; the range covers its noise and the sampling",
    )


def _from_sums(noisy: NDArray[np.float64], noise_std: float, rows: int) -> tuple[float, float]:
    """Return the score and its standard deviation from the noisy sums."""
    if len(noisy) == 1:
        share = min(1.0, max(0.0, float(noisy[0]) / rows))
        # A little more than the binomial deviation, which would be 0 for a perfect score.
        return share, math.hypot(noise_std / rows, math.sqrt((share * (1 - share) + 1 / rows) / rows))
    # A total below its own noise says nothing: the score is then reported as 0 with the widest range.
    squares, errors = float(noisy[0]), max(0.0, float(noisy[1]))
    if squares < 2 * noise_std:
        return 0.0, 1.0
    ratio = errors / squares
    # Squares of roughly normal errors vary by √2 of their mean.
    return max(-1.0, 1 - ratio), math.hypot(1, ratio) * noise_std / squares + ratio * math.sqrt(2 / rows)


def _hits(estimator: Any, X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    usable = (y >= 0) & (y < len(estimator.classes_))
    answer = np.asarray(estimator.classes_)[np.where(usable, y, 0).astype(np.int64)]
    rows, valid = _answerable(estimator, X)
    return np.asarray(usable & valid & (np.asarray(estimator.predict(rows)) == answer), dtype=np.float64)[:, None]


def _squares(estimator: Any, X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    fitted = getattr(estimator, "fit_", None) or getattr(estimator, "model_", None)  # linear, additive
    target = estimator.target_scaler_ if fitted is None else fitted.target
    centre, scale = float(target.centre[0]), float(target.scale[0])
    rows, valid = _answerable(estimator, X)
    with np.errstate(all="ignore"):
        deviations = np.column_stack([y - centre, y - estimator.predict(rows)]) / scale
        squares = np.square(np.clip(deviations, -_WIDEST, _WIDEST))
    return np.where(np.isfinite(squares).all(axis=1, keepdims=True) & valid[:, None], squares, 0.0)


def _answerable(estimator: Any, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rows at which `predict` raises nothing, and which of them are the records' own; the others count as nothing."""
    valid = np.asarray(np.isfinite(X).all(axis=1))
    if estimator.on_invalid == "impute":
        return X, np.ones_like(valid)
    return np.where(valid[:, None], X, 0.0), valid
