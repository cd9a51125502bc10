"""Private gradients in a preconditioned basis, with budgets that grow from step to step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from gratis.mechanisms.clipped_gradient import TINY_SQUARE, clipped_mean_sum, row_norms
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import Composition, GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.columns import Columns

__all__ = ["GradientsPlan", "plan_gradients", "release_gradient"]

Array = NDArray[np.float64]
Features = Callable[[NDArray[np.int64]], Array]
Residuals = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsPlan:
    """A release for each step, in units of the clip norm."""

    n_records: int
    width: int
    outputs: int
    events: tuple[GaussianRelease, ...] = field(repr=False)

    @property
    def event(self) -> Composition:
        """All steps as one event."""
        return Composition(self.events)


def plan_gradients(
    n_records: int,
    width: int,
    outputs: int,
    steps: int,
    *,
    mu: float,
    neighbouring: Neighbouring,
    growth: float,
    label: str,
) -> GradientsPlan:
    """Fix `steps` releases of (1/n)Σ clip₁(g/C), together `mu`-GDP; the share of step k in μ² grows as k^growth.

    A record adds a matrix of norm at most 1/n whatever its values are: sensitivity κ/n. Clip norm, basis and number
    of features may come from earlier releases: the unit is C, and `width` only bounds the roundings.
    """
    weights = np.arange(1.0, steps + 1) ** growth
    # One part in 10¹² less, so that rounding cannot push the sum of squares above μ².
    mus = mu * np.sqrt(weights / weights.sum()) * (1 - 1e-12)
    kappa = neighbouring.sensitivity_factor
    sensitivity = kappa * rounding_inflation(n_records, width + outputs + 16, sensitivity=kappa) / n_records
    events = tuple(
        GaussianRelease(
            sensitivity=sensitivity, noise_std=sensitivity / float(part), neighbouring=neighbouring,
            label=f"{label}: gradient {k + 1}",
        )
        for k, part in enumerate(mus)
    )  # fmt: skip
    return GradientsPlan(n_records=n_records, width=width, outputs=outputs, events=events)


def release_gradient(
    rows: Rows,
    columns: Columns,
    features: Features,
    residuals: Residuals,
    parameters: Array,
    basis: Array,
    plan: GradientsPlan,
    step: int,
    *,
    clip_norm: float,
    noise: NoiseSource,
) -> tuple[Array, float]:
    """Return (1/n)Σ clip_C(zfᵀ) + noise with z = basis·φ and f = residuals(φᵀθ, y), and the noise's deviation.

    **Guarantee**: the release is that of `plan.events[step]`, if all arguments but the rows are public or were released
    before: a record's weight is min(1, C/(‖z‖‖f‖)) with the norms of the very z and f that are added up, however badly
    conditioned the basis is. Records that are not usable, or whose norms overflow, add nothing.

    Parameters
    ----------
    residuals : callable
        Scores (m, outputs) and targets (m,) to factors (m, outputs), row by row.
    parameters : (p, outputs)
    basis : (p, p)
        Lower triangular.
    """
    assert len(basis) <= plan.width, "more features than the bound on rounding errors was made for"
    root = np.asfortranarray(basis)

    def clipped(X: Array, y: Array, each: int = 1) -> Array:
        found = features(columns.places(X))
        usable = columns.usable(X, y)
        factors = residuals(found @ parameters, np.where(usable, y, 0.0))
        # Half the work of a full product, in place; the rows are no longer needed.
        whitened = blas.dtrmm(1.0, root, found.T, lower=1, overwrite_b=1).T
        if each > 1:
            return clipped_mean_sum(whitened, np.where(usable[:, None], factors, 0.0), clip_norm, each)
        sizes = np.sqrt(np.einsum("ik,ik->i", factors, factors) + TINY_SQUARE)
        lengths = sizes * (row_norms(whitened) / clip_norm)
        counted = usable & (lengths < np.inf)
        weights = np.where(counted, 1 / (np.maximum(lengths, 1) * clip_norm), 0.0)
        return np.asarray(whitened.T @ np.where(counted[:, None], factors * weights[:, None], 0.0))

    with np.errstate(all="ignore"):
        total = rows.clipped_total(clipped)
    event = plan.events[step]
    released = noise.release(total / plan.n_records, event.noise_std)
    return clip_norm * released, clip_norm * event.noise_std
