"""A floor under small fits: what noise could have made is taken back to the released mean, and the level set last."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring

__all__ = [
    "kept_by_evidence",
    "level_event",
    "level_shrinkage",
    "release_level",
]

Array = NDArray[np.float64]

# Variances that predictions may have, in units of the target's; what sampling is reckoned with of it (validation parts
# of nine small tables, splits 9800 and later, among 0 … 1: a good part of a target is explained); and the least that a
# direction is taken to have of the spectrum: cleaning may have left nothing where there is something.
_SIGNALS = np.geomspace(1e-3, 3.0, 33)
_SAMPLING, _LEAST_SPECTRUM = 0.3, 0.02
# Of the target's scale: least and largest clip of a residual, noise below which a wider one is no loss, and what a
# clipped mean or descent may err by where targets are skewed.
_NARROWEST, _USUAL, _WIDEST, _SKEW = 1.25, 2.5, 8.0, 0.25
_BEARABLE, _WORTH = 0.07, 0.01  # noise of the level above which clips are narrower than usual, below which wider


def kept_by_evidence(
    parameters: Array, moved: Preconditioner, noise: Array, *, travel: float, n_records: int, centre_error: float
) -> Array:
    """Return parameters (D, 1), the last of them the intercept, shrunk towards the released mean of the target.

    A descent of length `travel` ends, in every direction of the released spectrum λ, at a = 1 − e^{−λ·travel} of the
    slope there, with privacy noise of variance `noise` and that of sampling. Slopes have together some variance of the
    predictions, between a thousandth of the target's and three times it, that all directions tell (empirical Bayes, the
    mean over a grid). Each direction then has a best factor, at most 1; all slopes get the mean of these, weighted by
    what they add to the predictions: a descent that stopped early has shrunk directions among each other already. And
    predictions of more than three times the target's variance are cut to that.
    The intercept is shrunk by its noise against how well the mean was known before (`centre_error`).
    Post-processing of releases.

    >>> moved, slopes = Preconditioner(np.eye(5), np.ones(5)), np.array([[1.0], [-1.0], [0.5], [0.8], [0.0]])
    >>> known = {"travel": 9.0, "n_records": 1000, "centre_error": 0.1}
    >>> for size in (0.02, 0.1, 0.5):
    ...     kept = kept_by_evidence(size * slopes, moved, np.full(5, 1e-3), **known)
    ...     print(round(float(kept[0, 0]) / size, 2))
    0.35
    0.79
    0.99
    """
    if moved.basis is None:
        return parameters  # plain descent: nothing is known of the spectrum
    slopes, intercept = parameters.copy(), np.zeros_like(parameters)
    slopes[-1], intercept[-1] = 0.0, 1.0
    found, seen = moved.coordinates(slopes)[:, 0], np.maximum(moved.spectrum, _LEAST_SPECTRUM)
    along = moved.transform(intercept.T)[0]
    part = 1 - along * moved.coordinates(intercept)[:, 0]  # of a direction that is slopes; the rest is the intercept
    reached = -np.expm1(-travel * seen)
    signals = _SIGNALS[:, None] / (seen @ part)
    sampling = _SAMPLING * np.maximum(1 - _SIGNALS, 0.1)[:, None] * np.square(reached) / (n_records * seen)
    variance = np.square(reached) * signals + noise + sampling
    fits = -0.5 * (np.square(found) / (variance * np.maximum(part, 1e-3)) + np.log(variance)) @ part
    likely = np.exp(fits - fits.max())
    factors = likely @ np.minimum(reached * signals / variance, 1.0) / likely.sum()
    energy = moved.spectrum * np.square(found)
    whole = max(float(energy.sum()), 1e-300)
    slopes *= min(float(energy @ factors) / whole, math.sqrt(_SIGNALS[-1] / whole))
    unknown = float(np.square(along) @ noise) + 1 / n_records
    slopes[-1] = parameters[-1] * centre_error**2 / (centre_error**2 + unknown)
    return slopes


def level_event(n_records: int, *, mu: float, neighbouring: Neighbouring) -> GaussianRelease:
    """Return the event of releasing the mean of residuals clipped to [−1, 1] at `mu`-GDP: sensitivity κ/n."""
    kappa = neighbouring.sensitivity_factor
    sensitivity = kappa * rounding_inflation(n_records, 16, sensitivity=kappa) / n_records
    return GaussianRelease(
        sensitivity=sensitivity, noise_std=sensitivity / mu, neighbouring=neighbouring, label="level of the predictions"
    )


def release_level(residuals: Rows, event: GaussianRelease, *, centre_error: float, noise: NoiseSource) -> float:
    """Return by how much predictions are too low on average, in units of the target's scale, shrunk by its noise.

    A clipped descent ends nearer to the median than to the mean, and few records leave its intercept noisy. One number
    with a clip wide enough for its noise repairs both.

    **Guarantee**: the release is that of `event` if the predictions are functions of earlier releases and of the
    record's own features: a record adds clip(r/W, ±1)/n, and nothing if its residual is not finite. The clip W and the
    factor are public.

    Parameters
    ----------
    residuals : Rows
        One number a record.
    centre_error : float
        Deviation of what the level is expected to be.
    """
    width = _level_clip(event)

    def clipped(left: Array) -> Array:
        return np.where(np.isfinite(left), np.clip(left / width, -1, 1), 0.0).sum(keepdims=True)

    with np.errstate(all="ignore"):
        mean = residuals.total(clipped) / residuals.n_rows
    found = width * float(noise.release(mean, event.noise_std)[0])
    return found * level_shrinkage(event, centre_error=centre_error)[0]


def level_shrinkage(event: GaussianRelease, *, centre_error: float) -> tuple[float, float]:
    """Return the part of the level that is kept, and the deviation of the noise that comes with it. Both are public."""
    unknown = (_level_clip(event) * event.noise_std) ** 2
    kept = (centre_error**2 + _SKEW**2) / (centre_error**2 + _SKEW**2 + unknown)
    return kept, kept * math.sqrt(unknown)


def _level_clip(event: GaussianRelease) -> float:
    narrow = min(max(_BEARABLE / event.noise_std, _NARROWEST), _USUAL)
    return min(max(_WORTH / event.noise_std, narrow), _WIDEST)
