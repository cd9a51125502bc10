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
    "EVERYTHING",
    "NOTHING",
    "between",
    "kept_by_evidence",
    "kept_share",
    "level_event",
    "level_shrinkage",
    "release_level",
]

Array = NDArray[np.float64]
Evidence = tuple[tuple[float, float], ...]

# With N = nμ/κ = 12 not even the scales of columns are known, and a fit is the mean; from 36 on it is what was fitted
# (validation parts of small tables, docs/results/small.md).
NOTHING, EVERYTHING = 12.0, 36.0
# Of the target's scale: least and largest clip of a residual, noise below which a wider one is no loss, and what a
# clipped mean or descent may err by where targets are skewed.
_NARROWEST, _USUAL, _WIDEST, _SKEW = 1.25, 2.5, 8.0, 0.25
_BEARABLE, _WORTH = 0.07, 0.01  # noise of the level above which clips are narrower than usual, below which wider


def between(records: float, low: float, high: float) -> float:
    """Where N lies between two numbers of records, 0 … 1, on the scale of ln N.

    >>> [round(between(records, NOTHING, EVERYTHING), 2) for records in (10, 20, 36, 100)]
    [0.0, 0.46, 1.0, 1.0]
    """
    return min(max(math.log(records / low) / math.log(high / low), 0.0), 1.0)


def kept_share(energy: float, evidence: Evidence, dimension: float) -> float:
    """Return the share of a fit that is kept, by its energy among those of fits to nothing and to growing signals.

    Fits to nothing are chi-squared of about `dimension` freedoms: what is within a deviation of their mean is no
    evidence. And no fit keeps more energy than those to the strongest signal have.

    >>> evidence = (0.1, 0.0), (0.3, 0.6), (0.7, 0.9)
    >>> [round(kept_share(energy, evidence, 8), 2) for energy in (0.1, 0.15, 0.3, 0.5, 2.8)]
    [0.0, 0.0, 0.6, 0.75, 0.45]
    """
    if not evidence:
        return 1.0
    energies, shares = np.maximum.accumulate(np.array(evidence), axis=0).T
    if energy <= energies[0] * (1 + math.sqrt(2 / max(dimension, 1.0))):
        return 0.0
    return float(np.interp(energy, energies, shares) * min(1.0, math.sqrt(energies[-1] / energy)))


def kept_by_evidence(
    parameters: Array, moved: Preconditioner, *, evidence: Evidence, centre_error: float, doubt: float = 1.0
) -> Array:
    """Return parameters (D, 1), the last of them the intercept, shrunk towards the released mean of the target.

    Slopes by the energy of their predictions under the released second moments; the intercept by how well the mean was
    known before (`centre_error`) against the noise of one direction of the fit. `doubt` is the part of the
    shrinking that is done. Post-processing of releases.
    """
    if moved.basis is None or not evidence:
        return parameters  # no second moments, so no energy; or nobody knows what noise would do
    slopes = parameters.copy()
    slopes[-1] = 0.0
    energy = float(moved.spectrum @ np.square(moved.coordinates(slopes)[:, 0]))
    known, unknown = centre_error**2, evidence[0][0] / moved.effective_dimension
    kept = slopes * (1 - doubt * (1 - kept_share(energy, evidence, moved.effective_dimension)))
    kept[-1] = parameters[-1] * (1 - doubt * unknown / (known + unknown))
    return kept


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
