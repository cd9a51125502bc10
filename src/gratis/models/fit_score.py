"""How good the fit is, paid for: one last release of a score, and the range that it leaves for fresh rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.column_shapes import HIGHEST
from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Prediction

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "SCORE_SHARE",
    "ReleasedScore",
    "between",
    "expected_accuracy",
    "expected_r_squared",
    "kept_by_score",
    "plan_score",
    "release_score",
    "score_widths",
    "shrunk_r_squared",
]

Array = NDArray[np.float64]
Gains = Callable[[Array, Array], Array]

# With N = nμ/κ = 12 not even the scales of columns are known, and a fit is the mean; from 36 on it is what was fitted
# (validation parts of small tables, docs/results/small.md).
NOTHING, EVERYTHING = 12.0, 36.0
SCORE_SHARE = 0.03  # of μ²
COVERED = 0.8  # of the range
# Where squares of residuals and targets are clipped, in units of the variance that is left and of the target's: as far
# as noise of .01 allows (a clip of eight deviations has no bias to speak of), and not below eight variances, whose
# bias `_MODEL_ERROR` holds. Not chosen on data.
_LEAST_WIDTH, _MOST_WIDTH, _BEARABLE = 8.0, 64.0, 0.01
# N = nμ/κ up to which a fit must speak for itself, and from which it need not. Validation parts of ten small tables.
_SCARCE, _MANY = 15.0, 1000.0
# Least deviation of what is not modelled (clipped squares, the step after the last gradient), what scales and clipping
# add to it, in units of 1/√N with N = nμ/κ, and the relative variance of mean squares: training rows and a quarter as
# many fresh ones. Before the score is seen: little N learns little, and a fit below the mean predictor is unlikely.
# All chosen by coverage on validation parts (splits 9000 to 9004) of ten small and four larger tables, additive and
# linear fits together (.85 of 400 with a third more).
_MODEL_ERROR, _SCALES_ERROR, _ACCURACY_ERROR = 0.01, 0.6, 0.008
_SAMPLING = 15.0
_LITTLE_LEARNT, _BELOW = 60.0, 0.3
# Squares of targets have mean 1 where their scale was found. Noise of at most .15 shows that, so a mean within three
# deviations of 0 says, where the centre is twenty scales or more from zero, that the scale is only the finest that
# could be told so far away, and the centre no better. (Nearer by, a few large values make squares small.) Chosen on
# normal targets with offsets of 0 to 10⁵ deviations, not on tables.
_CLEAR, _SEEN, _FAR = 0.15, 3.0, 20.0


def between(records: float, low: float, high: float) -> float:
    """Where N lies between two numbers of records, 0 … 1, on the scale of ln N.

    >>> [round(between(records, NOTHING, EVERYTHING), 2) for records in (10, 20, 36, 100)]
    [0.0, 0.46, 1.0, 1.0]
    """
    return min(max(math.log(records / low) / math.log(high / low), 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class ReleasedScore:
    """Means of the parts of a score, and the deviation of their noise."""

    means: Array
    deviations: Array


def plan_score(n_records: int, parts: int, *, mu: float, neighbouring: Neighbouring) -> GaussianRelease:
    """Fix the release of the mean of vectors in [0, 1]^parts at `mu`-GDP.

    A record adds one such vector over n, or nothing: both relations move the mean by at most √parts/n, for the
    difference of two vectors in the cube is no longer than its diagonal.
    """
    size = math.sqrt(parts)
    # In units of the longest vector, √parts, the sensitivity is 1.
    sensitivity = size * rounding_inflation(n_records, parts + 16, sensitivity=1.0) / n_records
    return GaussianRelease(
        sensitivity=sensitivity, noise_std=sensitivity / mu, neighbouring=neighbouring, label="score of the fit"
    )


def score_widths(left: float, noise_std: float) -> Array:
    """Return where squares of residuals, with about the share `left` of the variance, and of targets are clipped."""
    wide = min(_BEARABLE / noise_std, _MOST_WIDTH)
    return np.maximum(_LEAST_WIDTH * np.array([left, 1.0]), wide)


def release_score(
    rows: Rows, gains: Gains, widths: Array, n_records: int, event: GaussianRelease, *, noise: NoiseSource
) -> ReleasedScore:
    """Return the means of clip(gains/widths, 0, 1)·widths with noise.

    **Guarantee**: the release is that of `event`, if `gains` (rows and targets to (m, parts)) uses released values
    only, and row by row. What is not finite counts as 0, so a record without a target adds nothing.
    """

    def clipped(X: Array, y: Array) -> Array:
        found = np.where(np.isfinite(y)[:, None], gains(X, np.where(np.isfinite(y), y, 0.0)), 0.0)
        shares = np.clip(np.nan_to_num(found / widths, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
        return np.asarray(shares.sum(axis=0))

    with np.errstate(all="ignore"):
        total = rows.total(clipped)
    released = noise.release(total / n_records, event.noise_std)
    return ReleasedScore(released * widths, event.noise_std * widths)


def expected_r_squared(
    score: ReleasedScore, target: Standardiser, n_records: int, records: float, freedoms: float
) -> Prediction:
    """R² on fresh rows, from the mean squares of residuals and of the target (about its released mean).

    `records` is N = nμ/κ of the whole fit. With `freedoms` f, the trace of what maps targets to fitted values, the
    error on fresh rows is larger than that on the training rows by 2f/n of the variance that is left (Mallows 1973).
    """
    square = max(float(score.means[1]), float(score.deviations[1]), 1e-12)
    left = float(score.means[0]) / square * (1 + 2 * freedoms / n_records)
    noise = math.hypot(score.deviations[0], left * score.deviations[1]) / square
    found = _expected("r_squared", 1 - left, noise, n_records, records, low=-0.5, mean=0.0)
    doubt = ""
    far = abs(float(target.centre[0])) >= _FAR * float(target.scale[0])
    if far and score.deviations[1] <= _CLEAR and score.means[1] <= _SEEN * score.deviations[1]:
        doubt = "the target lies so far from zero that its spread could not be told at this budget"
    if abs(float(target.centre[0])) + float(target.window[0]) >= 2.0**HIGHEST:
        doubt = f"the target has values beyond {2.0**HIGHEST:.0e}, which are not told apart"
    if not doubt:
        return found
    advice = "subtract a public number from the target, divide it by another, or give public scales"
    source = f"{found.source}; {doubt}, and predictions may be far off: {advice}"
    return replace(found, source=source, details=found.details | {"doubt": doubt})


def kept_by_score(expected: float, signal: float, records: float) -> float:
    """How much of a fit is kept: all of it with many records; with few, as much as its own paid score speaks for.

    Scores of variance q that take R² off the error are best when multiplied by ½(1 + R²/q): 1 where R² = q.

    >>> [round(kept_by_score(0.02, 0.5, records), 2) for records in (10, 20, 50, 1000)]
    [0.0, 0.26, 0.66, 1.0]
    """
    # With N = `NOTHING` the score is all noise, too: a fit is the mean.
    some, many = between(records, NOTHING, EVERYTHING), between(records, _SCARCE, _MANY)
    return some * (many + (1 - many) * min(max((1 + expected / max(signal, 0.02)) / 2, 0.0), 1.0))


def shrunk_r_squared(expected: Prediction, share: float, signal: float, level_error: float) -> Prediction:
    """What is expected once scores of variance `signal` are multiplied by `share`: sR² + s(1 − s)·signal.

    What is left of the fit is its level, with an error of deviation `level_error` in units of the target's: the lower
    end of the range counts twice that, as far as the fit is not kept.

    >>> nothing = Prediction(quantity="r_squared", value=0.3, low=0.0, high=0.5, source="a score")
    >>> shrunk_r_squared(nothing, 0.0, 0.5, 0.25).range
    (-0.25, 0.0)
    """

    def moved(value: float) -> float:
        return share * value + share * (1 - share) * min(signal, 1.0)

    low = moved(expected.low) - (1 - share) * (2 * level_error) ** 2
    return replace(expected, value=moved(expected.value), low=low, high=moved(expected.high))


def expected_accuracy(score: ReleasedScore, n_records: int, records: float, largest_share: float) -> Prediction:
    """Accuracy on fresh rows, from the share of records that are predicted rightly."""
    value, noise = float(score.means[0]), float(score.deviations[0])
    return _expected("accuracy", value, noise, n_records, records, low=0.0, mean=largest_share)


def _expected(
    quantity: str, value: float, noise: float, n_records: int, records: float, *, low: float, mean: float
) -> Prediction:
    """The posterior of a score on fresh rows on a grid: flat above what `mean` predicts, unless records are few."""
    grid = np.linspace(low, 1.0, 1201)
    if quantity == "accuracy":
        sampling = np.sqrt(5 * np.maximum(grid * (1 - grid), 1e-3) / n_records)  # rows, and a quarter as many
        error = _ACCURACY_ERROR**2
    else:
        sampling = (1 - grid) * math.sqrt(_SAMPLING / n_records)
        error = _MODEL_ERROR**2 + _SCALES_ERROR**2 / records
    deviation = np.sqrt(noise**2 + np.square(sampling) + error)
    weights = -0.5 * np.square((value - grid) / deviation) - np.log(deviation) - np.maximum(mean - grid, 0.0) / _BELOW
    weights -= _LITTLE_LEARNT / records * np.maximum(grid - mean, 0.0)
    share = np.exp(weights - weights.max())
    below = np.cumsum(share) / share.sum()
    at = [float(np.interp(q, below, grid)) for q in ((1 - COVERED) / 2, 0.5, (1 + COVERED) / 2)]
    return Prediction(
        quantity=quantity,
        value=at[1],
        low=at[0],
        high=at[2],
        source="a score of the training rows, released with the model",
        assumptions=(
            "fresh rows come from where the training rows came from; a quarter as many of them",
            f"the range is to hold in {COVERED:.0%} of fits; squares beyond a few deviations are clipped",
        ),
        details={"noise": noise},
    )
