"""How wide private intervals for coefficients will be, before any data: a factor over those of least squares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri, stdtrit

from gratis.planning.rehearsal import Rehearsed, rehearse
from gratis.records.neighbouring import Neighbouring
from gratis.stages.logistic_step import LogisticStepPlan
from gratis.stages.one_step import BINS, EDGES, OneStepPlan, ResidualSizes
from gratis.stages.sandwich import choose_clips
from gratis.stages.staged import StagedPlan

__all__ = ["WidthPrediction", "predict_logistic_width", "predict_width", "rows_for_intervals"]

Array = NDArray[np.float64]

# n·μ ≥ 20(d+1)^1.5 (replace-one): there the releases of the estimator itself let 93 to 100 % of fits of normal columns
# have intervals (d = 3, 10, 40; ε = 1), at 16 70 to 100 %, at 12 15 to 50 %, at 8 none; who is below spends all on
# the fit (docs/results/intervals.md). Outer products have noise √κ/(nμ), hence the other relation's constant.
_LEAST = 20.0 / math.sqrt(2.0)
_QUANTILES = 512
_DRAWS = 8  # of noisy counts of residuals
_NOISY = 5  # draws of the Jacobian's noise
# ‖δ‖² over what noise explains of it, for two classes: 1.5 to 2.6 on synthetic tables where noise matters.
_FAR = 2.0
_UNEXPLAINED = 0.5  # the variance of errors, of the target's: decides little
_RADII = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # K²/d_eff of the weights
_WORTH = 0.02  # of the width: what being nearer to plain least squares may cost
_TAIL = 0.02  # of a column, outside its released window
_ROWS, _SEED = 2048, 20261115  # public: the same table for everybody
_MARGIN = 1.1  # settled on widths of the first 73 cells of docs/results/intervals.md, of 1,000 and 5,000 rows
_LAWS = ("mixed", "correlated", "0/1")  # columns that are rehearsed


def rows_for_intervals(n_columns: int, *, mu: float, neighbouring: Neighbouring) -> int:
    """Return how many rows intervals for d slopes need, so that what they are made from rises above its noise.

    >>> rows_for_intervals(3, mu=0.25, neighbouring=Neighbouring.REPLACE_ONE)
    640
    """
    return math.ceil(_LEAST * math.sqrt(neighbouring.sensitivity_factor) * (n_columns + 1) ** 1.5 / mu - 1e-9)


@dataclass(frozen=True, slots=True)
class WidthPrediction:
    """Median standard error of a slope over that without privacy: normal columns and errors, and a family's range.

    `radius`: K²/d_eff of the weights that goes with it. `family`: every member, by its columns and errors, but for
    those whose intervals would be withheld. The range is a tenth wider: so far one table may be from its law.
    """

    value: float
    radius: float
    family: dict[str, float]

    @property
    def low(self) -> float:
        """A tenth below the least of the family."""
        return min(self.family.values()) / _MARGIN

    @property
    def high(self) -> float:
        """A tenth above the largest of the family."""
        return max(self.family.values()) * _MARGIN

    def details(self, unit: str) -> dict[str, Any]:
        """For a plan: the point, the range and the family, in units of the width of `unit`."""
        return {
            f"interval_width_over_{unit}": self.value,
            "interval_width_range": [self.low, self.high],
            "interval_width_family": dict(self.family),
        }


@lru_cache(maxsize=64)
def predict_width(
    plan: OneStepPlan, start_risk: float, rehearsal: StagedPlan | None = None, *, least_radius: float = 1.0
) -> WidthPrediction:
    """Predict the width, and choose the radius of the weights by it; `start_risk` is E(xᵀθ₀ − xᵀθ*)²/var y.

    The radius is the largest that costs no more than 2 % of the least width, on normal columns: far rows then count as
    nearly as much as in least squares as noise allows; the clip of residuals follows by the rule of the fit. The family
    of the range: columns normal, and with a `rehearsal` of the first releases (`planning.rehearsal`) those of `_LAWS`;
    errors normal, of Student's law with 3 degrees, or log-normal; on normal columns also growing with the first one.
    """

    def width(rows: Rehearsed, radius: float, errors: str, draws: int = _DRAWS) -> Array:
        return _width(plan, start_risk, radius, rows, errors, draws)

    normal, errors = _known_basis(plan.n_columns), ("normal", "student", "log-normal")
    radii = [radius for radius in _RADII if radius >= least_radius]
    radius = _widest(radii, lambda radius: float(width(normal, radius, "normal", 0)[0]))
    laws = {f"{law} errors": partial(width, radius=radius, errors=law) for law in errors}
    family = _family(rehearsal, normal, laws)
    family["normal columns, growing errors"] = float(width(normal, radius, "growing")[0])
    return WidthPrediction(family["normal columns, normal errors"], radius, family)


@lru_cache(maxsize=64)
def predict_logistic_width(plan: LogisticStepPlan, rehearsal: StagedPlan | None = None) -> WidthPrediction:
    """Predict the width over that of maximum likelihood, for log-odds of variance 1.

    The family of the range: columns as for `predict_width`; log-odds of deviation 1 and classes even, or one record in
    ten of the second; or log-odds of deviation 3.
    """

    def width(radius: float, rows: Rehearsed, deviation: float, share: float, far: float = _FAR) -> Array:
        return _logistic_width(plan, radius, rows, deviation, share, far)

    normal = _known_basis(plan.n_columns)
    # As if the start were right: long-tailed columns lose more by a small radius than normal ones gain.
    radius = _widest(_RADII, lambda radius: float(width(radius, normal, 1.0, 0.5, 0.0)[0]))
    laws = {
        f"log-odds of deviation {deviation:g}, {100 * share:g} % of the second class": partial(
            width, radius, deviation=deviation, share=share
        )
        for deviation, share in ((1.0, 0.5), (1.0, 0.1), (3.0, 0.5))
    }
    family = _family(rehearsal, normal, laws)
    return WidthPrediction(next(iter(family.values())), radius, family)


def _family(
    rehearsal: StagedPlan | None, normal: Rehearsed, laws: Mapping[str, Callable[[Rehearsed], Array]]
) -> dict[str, float]:
    """The widths of all members that are not withheld; medians over the draws of noise that are not."""
    drawn: dict[str, tuple[Rehearsed, ...]] = {"normal": (normal,)}
    if rehearsal is not None:
        drawn |= {columns: rehearse(rehearsal, columns) for columns in _LAWS}
    found = {
        f"{columns} columns, {said}": np.concatenate([width(rows) for rows in tables])
        for columns, tables in drawn.items()
        for said, width in laws.items()
    }
    given = {member: widths[np.isfinite(widths)] for member, widths in found.items()}
    return {member: float(np.median(widths)) for member, widths in given.items() if widths.size}


def _widest(radii: Sequence[float], width: Callable[[float], float]) -> float:
    widths = [width(radius) for radius in radii]
    return max(radius for radius, found in zip(radii, widths, strict=True) if found <= (1 + _WORTH) * min(widths))


def _width(plan: OneStepPlan, start_risk: float, radius: float, rows: Rehearsed, errors: str, draws: int) -> Array:
    """For errors of variance 1: J = E w·uuᵀ·P(|r| ≤ c), privacy (κKc/(nμ_g))², and E w²uuᵀ·E clip_c(r)²/n.

    The mean over clips that the fit may choose: it reads noisy counts of residuals, and chance decides between two.
    """
    square = radius * rows.effective_dimension
    sizes = _error_sizes(errors)[None]  # of any row; or (rows, sizes), where they differ
    if errors == "growing":
        first = rows.columns[:, 0] - rows.columns[:, 0].mean()
        sizes = np.outer(_growth(np.abs(first) / max(float(first.std()), 1e-9)), sizes[0, ::64])
    without = _variances(rows.columns, np.ones(1), np.square(sizes).mean(axis=1))
    of_jacobian = square * plan.jacobian.noise_std
    through = of_jacobian**2 / 2 * start_risk / _UNEXPLAINED * (1 + 1 / plan.n_columns)
    found = np.zeros(1)
    for clip, share in _likely_clips(plan, radius, errors, draws).items():
        of_gradient = (math.sqrt(square) * clip * plan.gradient.noise_std) ** 2
        inside, clipped = (sizes <= clip).mean(axis=1), np.square(np.minimum(sizes, clip)).mean(axis=1)
        noise = plan.n_records * (of_gradient + through)
        found = found + share * _over_plain(rows, square, inside, clipped, without, noise, of_jacobian)
    return found


def _logistic_width(
    plan: LogisticStepPlan, radius: float, rows: Rehearsed, deviation: float, share: float, far: float = _FAR
) -> Array:
    """J = E w·p(1−p)·uuᵀ, privacy (κK/(nμ_g))², and E w²·p(1−p)·uuᵀ/n.

    J is that of the start, whose log-odds spread wider by the length of the step δ, which J's noise multiplies.
    """
    square, size = radius * rows.effective_dimension, rows.rows.shape[1]
    columns = rows.columns[:, :-1] / np.maximum(rows.columns[:, :-1].std(axis=0), 1e-9)
    scores = columns.sum(axis=1)
    # √(1 + .35s²): how far the logit of a mean probability lies inside that of the mean, for log-odds of deviation s.
    level = math.sqrt(1 + 0.35 * deviation**2) * math.log(share / (1 - share))
    scores = (scores - scores.mean()) / scores.std()

    def steepness(spread: float) -> Array:
        p = expit(spread * scores + level)
        return np.asarray(p * (1 - p))

    steep, stds = steepness(deviation), (plan.approach.noise_std, plan.gradient.noise_std)
    move = far * size * square * sum(std**2 for std in stds) / float(steep.mean()) ** 2
    of_jacobian = square / 4 * plan.jacobian.noise_std
    through = of_jacobian**2 / 2 * move * (1 + 1 / size)
    noise = plan.n_records * (square * plan.gradient.noise_std**2 + through)
    without = _variances(rows.columns, steep, steep)
    return _over_plain(
        rows, square, steepness(math.hypot(deviation, math.sqrt(move))), steep, without, noise, of_jacobian
    )


def _moments(rows: Array, factor: Array) -> Array:
    return np.asarray((rows * factor[:, None]).T @ rows / len(rows))


def _variances(columns: Array, bend: Array, spread: Array) -> Array:
    """Of all slopes, without privacy: the diagonal of a sandwich."""
    bread = np.linalg.inv(_moments(columns, bend))
    return np.asarray(np.diag(bread @ _moments(columns, spread) @ bread)[: max(len(bread) - 1, 1)])


def _over_plain(
    rehearsed: Rehearsed, square: float, bend: Array, spread: Array, without: Array, noise: float, jacobian_noise: float
) -> Array:
    """The terms of `stages.sandwich`, over variances `without` privacy, weights and clips.

    Of a known basis at their expectations, the Jacobian's noise to second order in J⁻¹. In a rehearsed one that noise
    is drawn some times; infinite where it hides an eigenvalue and intervals would be withheld.
    """
    rows, size = rehearsed.rows, rehearsed.rows.shape[1]
    weights = np.minimum(1.0, square / np.square(rows).sum(axis=1))
    jacobian = _moments(rows, bend * weights)
    middle = _moments(rows, spread * np.square(weights)) + noise * np.eye(size)

    def width(inverse: Array, inflated: Array | float = 1.0) -> float:
        back = rehearsed.to_columns[: len(without)] * inflated @ inverse
        return float(np.median(np.sqrt(np.einsum("ij,jk,ik->i", back, middle, back, optimize=True) / without)))

    if not rehearsed.noisy:
        inverse = np.asarray(np.linalg.inv(jacobian))
        second = 1.5 * (size + 1) * jacobian_noise**2 * np.square(np.diag(inverse))
        return np.array([width(inverse, np.sqrt(1 + second))])
    rng, found = np.random.default_rng(_SEED), np.full(_NOISY, math.inf)
    for i in range(_NOISY):
        drawn = rng.standard_normal((size, size))
        noisy = jacobian + jacobian_noise * (drawn + drawn.T) / 2
        if np.linalg.eigvalsh(noisy)[0] > jacobian_noise * math.sqrt(2 * size):
            found[i] = width(np.asarray(np.linalg.inv(noisy)))
    return found


def _growth(distances: Array) -> Array:
    """Deviations of errors that grow with how far a column is from its mean, in its deviations; mean square 1."""
    factors = 0.3 + distances
    return np.asarray(factors / math.sqrt(float(np.square(factors).mean())))


@lru_cache(maxsize=64)
def _likely_clips(plan: OneStepPlan, radius: float, errors: str, draws: int) -> dict[float, float]:
    """Clips that the fit would choose for residuals of this law and variance 1, and how often, of some draws."""
    radius, sizes = math.sqrt(radius * plan.n_columns), _error_sizes(errors)
    if errors == "growing":
        sizes = np.outer(_growth(_error_sizes("normal")), sizes[::64]).ravel()
    scaled = sizes * math.sqrt(_UNEXPLAINED)
    n, known = plan.n_records, [ResidualSizes(float(scaled.mean()))]
    if plan.in_octaves:
        shares = np.bincount(np.minimum(np.searchsorted(EDGES, scaled), BINS - 1), minlength=BINS) / len(scaled)
        rng, std = np.random.default_rng(_SEED), plan.residuals.noise_std
        counts = [rng.poisson(n * shares) + std * rng.standard_normal(BINS) for _ in range(draws)]
        known = [ResidualSizes.of_counts(one, std, n) for one in (n * shares, *counts)]
    multiples = [round(choose_clips(one, radius, plan).residual / one.mean, 6) for one in known]
    unit = known[0].mean / math.sqrt(_UNEXPLAINED)
    chosen = Counter(multiples[1:] or multiples)
    return {multiple * unit: often / chosen.total() for multiple, often in chosen.items()}


@lru_cache(maxsize=8)
def _error_sizes(law: str) -> Array:
    """|r| at equally likely places, of variance 1."""
    at = (np.arange(16 * _QUANTILES) + 0.5) / (16 * _QUANTILES)
    values = ndtri(at)  # "normal", and "growing" with a column
    if law == "student":
        values = stdtrit(3, at)
    elif law == "log-normal":
        values = np.exp(0.8 * values)
    values = values - values.mean()
    return np.abs(values) / values.std()


@lru_cache(maxsize=16)
def _known_basis(size: int) -> Rehearsed:
    """Rows of size − 1 normal columns and a one, in the basis of the second moments of winsorised columns."""
    X = np.random.default_rng(_SEED).standard_normal((_ROWS + 32 * size, size - 1))
    X -= np.median(X, axis=0)
    window = np.maximum(np.quantile(np.abs(X), 1 - _TAIL, axis=0), 1e-9)
    kept = np.clip(X, -window, window)
    centre = kept.mean(axis=0)
    values, vectors = np.linalg.eigh((kept - centre).T @ (kept - centre) / len(X))
    rows = np.column_stack([(X - centre) @ (vectors / np.sqrt(values)) @ vectors.T, np.ones(len(X))])
    return Rehearsed(rows, np.eye(size), rows, size, noisy=False)
