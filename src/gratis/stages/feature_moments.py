"""Second moments of features, released once with rows clipped to a norm that earlier releases suggest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.clipped_gradient import row_norms
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.columns import Columns

__all__ = ["MomentsPlan", "plan_feature_moments", "release_feature_moments"]

Array = NDArray[np.float64]
Features = Callable[[NDArray[np.int64]], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsPlan:
    """One release of at most `width`² second moments, in units of the squared clip norm."""

    n_records: int
    width: int
    event: GaussianRelease = field(repr=False)


def plan_feature_moments(
    n_records: int, width: int, *, mu: float, neighbouring: Neighbouring, label: str
) -> MomentsPlan:
    """Fix the release of (1/n)Σ φφᵀ/R², ‖φ‖ ≤ R, at `mu`-GDP.

    Sensitivity in Frobenius norm: zero-out 1/n; an exchange √2/n (`mechanisms.second_moments`). The clip norm R and
    the number of features may come from earlier releases: the unit is R², and `width` only bounds the roundings.
    """
    factor = 1.0 if neighbouring is Neighbouring.ZERO_OUT else math.sqrt(2.0)
    # A row of norm 1 + s has an outer product of norm (1 + s)²: twice the columns cover the square.
    inflation = rounding_inflation(n_records, 2 * width + 16, sensitivity=factor)
    sensitivity = factor * inflation / n_records
    event = GaussianRelease(sensitivity=sensitivity, noise_std=sensitivity / mu, neighbouring=neighbouring, label=label)
    return MomentsPlan(n_records=n_records, width=width, event=event)


def release_feature_moments(
    rows: Rows, columns: Columns, features: Features, plan: MomentsPlan, *, clip_norm: float, noise: NoiseSource
) -> tuple[Array, float]:
    """Return the symmetric matrix, and the deviation of the noise in an entry off its diagonal.

    **Guarantee**: the release is that of `plan.event`, if columns, features and clip norm are public or were released
    before. Records that are not usable add nothing.
    """

    def products(X: Array, y: Array) -> Array:
        found = features(columns.places(X))
        weights = np.minimum(1.0, clip_norm / row_norms(found)) / clip_norm
        found *= np.where(columns.usable(X, y), weights, 0.0)[:, None]
        return np.asarray(found.T @ found)

    total = rows.total(products)
    assert len(total) <= plan.width, "more features than the bound on rounding errors was made for"
    released = noise.release(total / plan.n_records, plan.event.noise_std)
    unit = clip_norm**2
    return unit * (released + released.T) / 2, unit * plan.event.noise_std / math.sqrt(2)
