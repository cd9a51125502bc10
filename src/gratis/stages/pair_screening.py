"""Which pairs of columns act together: one private gradient of the residual on products of their coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.clipped_gradient import TINY_SQUARE
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring
from gratis.stages.clipped_gradients import Residuals
from gratis.stages.columns import Columns
from gratis.stages.curve_basis import CurveBasis

__all__ = ["ScreenedPair", "ScreeningPlan", "plan_pair_screening", "screen_pairs"]

Array = NDArray[np.float64]

COORDINATES = 6  # a side; recipe D
_ENOUGH = 0.9  # share of the gain for which pairs are kept: fewer have finer surfaces (bike_hour gains .04)
_CLEAR = 3.0  # recipe D: energy over its noise, in deviations, above which a pair is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreeningPlan:
    """One release over all candidate pairs, in units of the clip norm, and how many may be chosen."""

    n_records: int
    candidates: tuple[tuple[int, int], ...] = field(repr=False)
    most: int
    outputs: int
    event: GaussianRelease = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScreenedPair:
    """A pair that stood out of the noise, and how much of the target's variance it seems to explain."""

    columns: tuple[int, int]
    gain: float


def plan_pair_screening(
    n_records: int,
    candidates: tuple[tuple[int, int], ...],
    outputs: int,
    *,
    most: int,
    mu: float,
    neighbouring: Neighbouring,
) -> ScreeningPlan:
    """Fix the release at `mu`-GDP; as one clipped gradient, sensitivity κ/n in units of the clip norm."""
    kappa = neighbouring.sensitivity_factor
    width = len(candidates) * COORDINATES**2 + outputs + 32
    sensitivity = kappa * rounding_inflation(n_records, width, sensitivity=kappa) / n_records
    event = GaussianRelease(
        sensitivity=sensitivity, noise_std=sensitivity / mu, neighbouring=neighbouring, label="pair screening"
    )
    return ScreeningPlan(n_records=n_records, candidates=candidates, most=most, outputs=outputs, event=event)


def screen_pairs(
    rows: Rows,
    columns: Columns,
    basis: CurveBasis,
    residuals: Residuals,
    parameters: Array,
    plan: ScreeningPlan,
    *,
    clip_factor: float,
    sampling: float,
    noise: NoiseSource,
) -> list[ScreenedPair]:
    """Release the gradient and return the pairs that stand out, the largest gain first.

    The products of a record are never formed: with coordinates c of all columns side by side, the sum over records is
    cᵀ·diag(w)·c, of which the blocks of candidate pairs are released; the squared norm of a record's products is
    Σ_{i<j} ‖c_i‖²‖c_j‖² over the candidates, a sum of positive terms. `sampling` is the variance of the mean gradient
    by sampling, per unit of a product's variance.

    **Guarantee**: the release is that of `plan.event`, if all arguments but the rows are public or released before.
    The norm is that of the products before they are rounded; the inflation covers both. The choice is post-processing.
    """
    sides = [basis.coordinates(j, COORDINATES) for j in range(columns.n_columns)]
    edges = np.concatenate([[0], np.cumsum([side.shape[1] for side in sides])])
    moments = [basis.coordinate_moments(j, COORDINATES) for j in range(columns.n_columns)]
    left, right = (np.array(side, dtype=np.int64) for side in zip(*plan.candidates, strict=True))
    allowed = np.zeros((columns.n_columns,) * 2)
    allowed[left, right] = 1.0
    traces = np.array([np.trace(block) for block in moments])
    clip_norm = clip_factor * math.sqrt(max(float(traces @ allowed @ traces), 1e-12))

    def products_of_sides(X: Array, y: Array) -> Array:
        places, usable = columns.places(X), columns.usable(X, y)
        factors = residuals(basis.features(places) @ parameters, np.where(usable, y, 0.0))
        found = np.column_stack([side[places[:, j]] for j, side in enumerate(sides)])
        squares = np.add.reduceat(np.square(found), edges[:-1], axis=1)
        products = np.einsum("ij,ij->i", squares, squares @ allowed.T)
        sizes = np.sqrt(np.einsum("ik,ik->i", factors, factors) + TINY_SQUARE)
        lengths = sizes * (np.sqrt(products + TINY_SQUARE) / clip_norm)
        counted = usable & (lengths < np.inf)
        weights = np.where(counted, 1 / (np.maximum(lengths, 1) * clip_norm), 0.0)
        factors = np.where(counted[:, None], factors * weights[:, None], 0.0)
        return np.stack([found.T @ (found * factors[:, k : k + 1]) for k in range(plan.outputs)])

    with np.errstate(all="ignore"):
        total = rows.total(products_of_sides)
    spans = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    blocks = [total[:, spans[i], spans[j]].reshape(plan.outputs, -1) for i, j in plan.candidates]
    flat = np.concatenate(blocks, axis=1) / plan.n_records
    released = clip_norm * noise.release(flat, plan.event.noise_std)
    return _standing_out(released, clip_norm * plan.event.noise_std, sampling, moments, plan)


def _standing_out(
    released: Array, std: float, sampling: float, moments: list[Array], plan: ScreeningPlan
) -> list[ScreenedPair]:
    """Compare the energy of every pair with that of privacy and sampling noise, smooth products first."""
    found = []
    start = 0
    for i, j in plan.candidates:
        # Variances that the products would have if the two columns were independent.
        variances = np.maximum(np.outer(np.diag(moments[i]), np.diag(moments[j])).ravel(), 1e-4)
        weights = variances / variances.max()
        squares = np.square(released[:, start : start + len(variances)])
        start += len(variances)
        noise = std**2 + sampling * variances
        score = float((weights * (squares / noise - 1)).sum())
        score /= math.sqrt(2 * plan.outputs * float(np.square(weights).sum()))
        gain = max(float(((squares - noise) / variances * weights).sum()), 0.0)
        if score > _CLEAR:
            found.append(ScreenedPair((i, j), gain))
    found = sorted(found, key=lambda pair: -pair.gain)[: plan.most]
    # What the weakest would add together costs the others coordinates.
    gains = np.array([pair.gain for pair in found])
    before = np.cumsum(gains) - gains
    return [pair for pair, seen in zip(found, before, strict=True) if seen <= _ENOUGH * gains.sum()]
