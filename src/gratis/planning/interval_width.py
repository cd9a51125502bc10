"""How wide private intervals for coefficients will be, before any data: a factor over those of least squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri, stdtrit

from gratis.records.neighbouring import Neighbouring
from gratis.stages.logistic_step import LogisticStepPlan
from gratis.stages.one_step import BINS, EDGES, OneStepPlan, ResidualSizes
from gratis.stages.sandwich import choose_clips

__all__ = ["WidthPrediction", "predict_logistic_width", "predict_width", "rows_for_intervals"]

Array = NDArray[np.float64]

# A prototype's own releases agreed with n·μ ≥ 20(d+1)^1.5 (replace-one) in 89 of 90 synthetic cells on whether the
# smallest eigenvalue stood out of its noise. Outer products have noise √κ/(nμ), hence the other relation's constant.
_LEAST = 20.0 / math.sqrt(2.0)
_QUANTILES = 512
_UNEXPLAINED = 0.5  # the variance of errors, of the target's: decides little
_RADII = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # K²/d_eff of the weights
_WORTH = 0.02  # of the width: what being nearer to plain least squares may cost
_TAIL = 0.02  # of a column, outside its released window
_ROWS, _SEED = 2048, 20261115  # public: the same table for everybody


def rows_for_intervals(n_columns: int, *, mu: float, neighbouring: Neighbouring) -> int:
    """Return how many rows intervals for d slopes need, so that what they are made from rises above its noise.

    >>> rows_for_intervals(3, mu=0.25, neighbouring=Neighbouring.REPLACE_ONE)
    640
    """
    return math.ceil(_LEAST * math.sqrt(neighbouring.sensitivity_factor) * (n_columns + 1) ** 1.5 / mu - 1e-9)


@dataclass(frozen=True, slots=True)
class WidthPrediction:
    """Median standard error of a slope over that of least squares: normal columns and errors, and a family's range.

    `radius`: K²/d_eff of the weights that goes with it. `family`: every member, by its columns and errors.
    """

    value: float
    radius: float
    family: dict[str, float]

    @property
    def low(self) -> float:
        """The least of the family."""
        return min(self.family.values())

    @property
    def high(self) -> float:
        """The largest of the family."""
        return max(self.family.values())


def predict_width(plan: OneStepPlan, start_risk: float, *, least_radius: float = 1.0) -> WidthPrediction:
    """Predict the width, and choose the radius of the weights by it; `start_risk` is E(xᵀθ₀ − xᵀθ*)²/var y.

    The radius is the largest that costs no more than 2 % of the least width, on normal columns: far rows then count as
    nearly as much as in least squares as noise allows; the clip of residuals follows by the rule of the fit. The family
    of the range: columns all normal, or in turn log-normal, 0/1 and normal; errors normal, of Student's law with
    3 degrees, or log-normal.
    """
    radii = [radius for radius in _RADII if radius >= least_radius]
    radius = _widest(radii, lambda radius: _width(plan, start_risk, radius, "normal", "normal"))
    family = {
        f"{columns} columns, {errors} errors": _width(plan, start_risk, radius, columns, errors)
        for columns in ("normal", "mixed")
        for errors in ("normal", "student", "log-normal")
    }
    return WidthPrediction(family["normal columns, normal errors"], radius, family)


def predict_logistic_width(plan: LogisticStepPlan) -> WidthPrediction:
    """Predict the width over that of maximum likelihood, for log-odds of variance 1.

    The family of the range: columns all normal or mixed as for `predict_width`; classes even, or one record in ten of
    the second.
    """
    radius = _widest(_RADII, lambda radius: _logistic_width(plan, radius, "normal", 0.5))
    family = {
        f"{columns} columns, {100 * share:g} % of the second class": _logistic_width(plan, radius, columns, share)
        for columns in ("normal", "mixed")
        for share in (0.5, 0.1)
    }
    return WidthPrediction(next(iter(family.values())), radius, family)


def _widest(radii: Sequence[float], width: Callable[[float], float]) -> float:
    widths = [width(radius) for radius in radii]
    return max(radius for radius, found in zip(radii, widths, strict=True) if found <= (1 + _WORTH) * min(widths))


def _width(plan: OneStepPlan, start_risk: float, radius: float, columns: str, errors: str) -> float:
    """For errors of variance 1: J = E w·uuᵀ·P(|r| ≤ c), privacy (κKc/(nμ_g))², and E w²uuᵀ·E clip_c(r)²/n."""
    square = radius * plan.n_columns
    inside, clipped, clip = _residuals(plan, math.sqrt(square), errors)
    rows = _in_basis(plan.n_columns, columns)
    one = np.ones(len(rows))
    of_gradient = (math.sqrt(square) * clip * plan.gradient.noise_std) ** 2
    of_jacobian = (square * plan.jacobian.noise_std) ** 2 / 2
    through = of_jacobian * start_risk / _UNEXPLAINED * (1 + 1 / plan.n_columns)
    noise = plan.n_records * (of_gradient + through)
    return _over_plain(rows, square, inside * one, clipped * one, one, noise, of_jacobian)


def _logistic_width(plan: LogisticStepPlan, radius: float, columns: str, share: float) -> float:
    """J = E w·p(1−p)·uuᵀ, privacy (κK/(nμ_g))², and E w²·p(1−p)·uuᵀ/n."""
    square = radius * plan.n_columns
    rows = _in_basis(plan.n_columns, columns)
    scores = rows[:, :-1].sum(axis=1)
    p = expit((scores - scores.mean()) / scores.std() + 1.2 * math.log(share / (1 - share)))
    steep = p * (1 - p)
    noise = plan.n_records * (math.sqrt(square) * plan.gradient.noise_std) ** 2
    return _over_plain(rows, square, steep, steep, steep, noise, (square / 4 * plan.jacobian.noise_std) ** 2 / 2)


def _over_plain(
    rows: Array, square: float, bend: Array, spread: Array, plain: Array, noise: float, of_jacobian: float
) -> float:
    """The terms of `stages.sandwich` at their expectations, over the variance without privacy, weights and clips.

    The Jacobian's noise enters to second order in J⁻¹.
    """

    def moments(factor: Array) -> Array:
        return np.asarray((rows * factor[:, None]).T @ rows / len(rows))

    size = rows.shape[1]
    weights = np.minimum(1.0, square / np.square(rows).sum(axis=1))
    inverse, slopes = np.linalg.inv(moments(bend * weights)), slice(max(size - 1, 1))
    private = np.diag(inverse @ (moments(spread * np.square(weights)) + noise * np.eye(size)) @ inverse)[slopes]
    inflated = 1 + 3 * (size + 1) * of_jacobian * np.square(np.diag(inverse)[slopes])
    return float(np.median(np.sqrt(private * inflated / np.diag(np.linalg.inv(moments(plain)))[slopes])))


def _residuals(plan: OneStepPlan, radius: float, errors: str) -> tuple[float, float, float]:
    """P(|r| ≤ c), E clip_c(r)² and c, for errors of variance 1 and the clip that the fit would choose."""
    sizes = _error_sizes(errors)
    scaled = sizes * math.sqrt(_UNEXPLAINED)
    known = ResidualSizes(float(scaled.mean()))
    if plan.in_octaves:
        counts = np.bincount(np.minimum(np.searchsorted(EDGES, scaled), BINS - 1), minlength=BINS).astype(np.float64)
        known = ResidualSizes.of_counts(
            counts * (plan.n_records / len(sizes)), plan.residuals.noise_std, plan.n_records
        )  # fmt: skip
    clip = choose_clips(known, radius, plan).residual / math.sqrt(_UNEXPLAINED)
    return float((sizes <= clip).mean()), float(np.square(np.minimum(sizes, clip)).mean()), clip


@lru_cache(maxsize=8)
def _error_sizes(law: str) -> Array:
    """|r| at equally likely places, of variance 1."""
    at = (np.arange(16 * _QUANTILES) + 0.5) / (16 * _QUANTILES)
    values = {"normal": ndtri, "student": lambda p: stdtrit(3, p), "log-normal": lambda p: np.exp(0.8 * ndtri(p))}[law](
        at
    )
    values = values - values.mean()
    return np.abs(values) / values.std()


@lru_cache(maxsize=16)
def _in_basis(size: int, law: str) -> Array:
    """Rows of size − 1 columns and a one, in the basis of the second moments of winsorised columns, as fits have it."""
    X = np.random.default_rng(_SEED).standard_normal((_ROWS + 32 * size, size - 1))
    if law == "mixed":
        X[:, ::3], X[:, 1::3] = np.exp(0.8 * X[:, ::3]), X[:, 1::3] > 0.8
    X -= np.median(X, axis=0)
    window = np.maximum(np.quantile(np.abs(X), 1 - _TAIL, axis=0), 1e-9)
    kept = np.clip(X, -window, window)
    centre = kept.mean(axis=0)
    values, vectors = np.linalg.eigh((kept - centre).T @ (kept - centre) / len(X))
    return np.column_stack([(X - centre) @ (vectors / np.sqrt(values)) @ vectors.T, np.ones(len(X))])
