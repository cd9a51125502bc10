"""The releases of a one-step estimator of bounded influence: a Newton step whose covariance is known.

From a private start θ₀ one more step solves the estimating equation E w(x)·u·clip_c(t − uᵀθ) = 0: its Jacobian, its
value and the outer squares of its summands are released, which is all that a sandwich covariance needs
(`stages.sandwich`). Weights w = min(1, K²/‖u‖²) depend on x alone and the clip c is one for all records: neither biases
slopes where E[y|x] is linear and errors do not depend on x, however skewed they are. A mean of residuals with a wide
clip sets the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from gratis.mechanisms.clipped_gradient import row_norms
from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.mechanisms.second_moments import Preconditioner
from gratis.numerics.rounding import rounding_inflation
from gratis.records.checks import check_count, check_positive
from gratis.records.events import GaussianRelease
from gratis.records.neighbouring import Neighbouring

__all__ = [
    "BoundedRows",
    "OneStepPlan",
    "ReleasedStep",
    "ResidualSizes",
    "plan_one_step",
    "release_mean_residual",
    "release_residual_sizes",
    "release_step",
]

Array = NDArray[np.float64]

# Residual sizes in half octaves of the target's scale, 2⁻¹⁰ to 2⁶; what lies outside counts at the ends.
BINS, _TOP = 32, 6
# A count's noise as a share of all records above which the bins drown, and one clipped mean says more.
_DROWNED = 0.02
_WIDEST_SIZE = 2.5  # clip of that mean


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStepPlan:
    """The five releases, fixed by public facts; all are of numbers in units of their own clips."""

    n_records: int
    n_columns: int
    residuals: GaussianRelease
    jacobian: GaussianRelease
    gradient: GaussianRelease
    squares: GaussianRelease
    level: GaussianRelease
    in_octaves: bool

    @property
    def events(self) -> tuple[GaussianRelease, ...]:
        """In the order of their release."""
        return self.residuals, self.jacobian, self.gradient, self.squares, self.level


def plan_one_step(
    n_records: int,
    n_columns: int,
    *,
    residuals: float,
    jacobian: float,
    gradient: float,
    squares: float,
    level: float,
    neighbouring: Neighbouring,
) -> OneStepPlan:
    """Fix the releases for D columns (the one among them), each at its own μ.

    Sensitivities, κ = 2 for replace-one and 1 for zero-out. Let v = √w·u/K, so ‖v‖ ≤ 1, and s = √w ≤ 1:

    * sizes of residuals: a record is in one of the bins, √κ; or the mean of min(|r|/2.5, 1), which lies in [0, 1]: 1/n
      under both relations.
    * Jacobian, (1/n)Σ vvᵀ·1(|r| ≤ c): Frobenius norm of vvᵀ − v′v′ᵀ is at most √2, of vvᵀ at most 1: √κ/n.
    * gradient, (1/n)Σ s·v·clip(r/c, ±1): vectors of norm ≤ 1: κ/n.
    * their outer squares: √κ/n.
    * level, (1/n)Σ clip(w·r/c₀, ±1): κ/n.

    K and the clips are functions of earlier releases, and the normalised numbers do not depend on them.

    >>> plan = plan_one_step(1000, 4, residuals=0.1, jacobian=0.1, gradient=0.1, squares=0.1, level=0.1,
    ...                      neighbouring=Neighbouring.ZERO_OUT)
    >>> [round(event.sensitivity, 6) for event in plan.events]
    [1.0, 0.001, 0.001, 0.001, 0.001]
    """
    n, columns = check_count("n_records", n_records), check_count("n_columns", n_columns)
    kappa = neighbouring.sensitivity_factor
    outer = math.sqrt(kappa)

    def release(label: str, sensitivity: float, mu: float) -> GaussianRelease:
        # Twice the columns, as for second moments: outer products square the error of a norm.
        inflation = rounding_inflation(n, 2 * columns + 32, sensitivity=sensitivity)
        bound = sensitivity * inflation / n
        noise_std = bound / check_positive("mu", mu)
        return GaussianRelease(sensitivity=bound, noise_std=noise_std, neighbouring=neighbouring, label=label)

    in_octaves = outer / residuals <= _DROWNED * n
    if in_octaves:  # counts are exact, but for those of persons whose rows count in part
        counts = outer * rounding_inflation(n, 1, sensitivity=outer)
        sizes = GaussianRelease(
            sensitivity=counts, noise_std=counts / residuals, neighbouring=neighbouring, label="sizes of residuals"
        )
    else:
        sizes = release("mean size of residuals", 1.0, residuals)
    return OneStepPlan(
        n_records=n,
        n_columns=columns,
        residuals=sizes,
        jacobian=release("Jacobian of the step", outer, jacobian),
        gradient=release("gradient of the step", kappa, gradient),
        squares=release("outer squares of gradients", outer, squares),
        level=release("level of the step", kappa, level),
        in_octaves=in_octaves,
    )


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """Records as the estimating equation reads them: standardised, in the released basis, bounded.

    Columns are read without their windows unless `winsorised`; the target always is. Every record is treated by itself;
    one that is not finite, or overflows, contributes nothing.
    """

    features: Standardiser
    target: Standardiser
    moved: Preconditioner
    radius: float  # K
    winsorised: bool = False

    def __call__(self, X: Array, y: Array, parameters: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        """Return v (‖v‖ ≤ 1), s = √w, the residual at `parameters` (D,), and which records contribute."""
        Z = np.ones((len(X), X.shape[1] + 1))
        Z[:, :-1] = (self.features if self.winsorised else _without_window(self.features)).transform(X)
        U = self.moved.transform(Z)
        residuals = _without_window(self.target).transform(y[:, None])[:, 0] - U @ parameters
        norms = row_norms(U)
        usable = np.isfinite(norms) & np.isfinite(residuals)
        factors = np.where(usable, np.minimum(1.0, self.radius / norms), 0.0)
        bounded = np.where(usable[:, None], U, 0.0) * (factors / self.radius)[:, None]
        return bounded, factors, np.where(usable, residuals, 0.0), usable


def _without_window(scaler: Standardiser) -> Standardiser:
    return replace(scaler, window=np.full_like(scaler.window, np.inf))


# Upper ends of the bins of sizes.
EDGES = np.exp2((np.arange(BINS) + 1) / 2 + _TOP - BINS / 2)
_GAUSSIAN = math.sqrt(math.pi / 2)  # deviation over mean size
_STUDENT = 2 * math.sqrt(3) / math.pi  # mean size of Student's law with 3 degrees
_UNALIKE = 0.02  # how far shares beyond a size differ between laws of one mean size


@dataclass(frozen=True, slots=True)
class ResidualSizes:
    """What was released of |r|: noisy half-octave counts, up to the last that stands out; or nothing but the mean."""

    mean: float
    shares: Array | None = None  # of the bins; None: only the mean is known, and errors are taken to be normal
    noise: float = 0.0  # deviation of a share

    @classmethod
    def of_counts(cls, noisy: Array, std: float, n_records: int) -> ResidualSizes:
        """Read counts with noise `std`: bins up to the last that stands out, and what lies beyond it in the next."""
        beyond = noisy[::-1].cumsum()[::-1]
        clear = beyond > 4.5 * std * np.sqrt(np.arange(BINS, 0, -1))
        top = int(np.flatnonzero(clear).max(initial=0))
        kept = np.where(np.arange(BINS) <= top, noisy, 0.0)
        if top + 1 < BINS:
            kept[top + 1] = max(float(beyond[top + 1]), 0.0)
        fewer = n_records - noisy.sum() > 3 * std * math.sqrt(BINS)  # records may be left out
        shares = kept / (max(float(noisy.sum()), 0.1 * n_records) if fewer else n_records)
        return cls(max(float(shares @ (0.85 * EDGES)), float(EDGES[0])), shares, std / n_records)

    @property
    def deviation(self) -> float:
        """√E r², no less than normal errors of this mean size have."""
        normal = _GAUSSIAN * self.mean
        if self.shares is None:
            return normal
        return max(normal, math.sqrt(max(float(self.shares @ (0.75 * np.square(EDGES))), 0.0)))

    def clipped(self, clip: float) -> tuple[float, float, float]:
        """Return P(|r| ≤ c), E min(|r|, c)² and E(|r| − c)⁺, the most that clipping may bias."""
        at = clip / (_GAUSSIAN * self.mean)
        inside, density = math.erf(at / math.sqrt(2)), math.exp(-(at**2) / 2) / math.sqrt(2 * math.pi)
        if self.shares is None:
            square = inside - 2 * at * density + at**2 * (1 - inside)
            return inside, square * (clip / at) ** 2, (2 * density - at * (1 - inside)) * clip / at
        part = np.clip(1 + np.log(clip / EDGES) / math.log(math.sqrt(2)), 0.0, 1.0)
        square = float(self.shares @ np.minimum(0.75 * np.square(EDGES), clip**2))
        lost = float(self.shares @ np.maximum(0.85 * EDGES - clip, 0.0))
        # A noisy histogram may not say just anything of the share inside.
        near = float(np.clip(self.shares @ part, inside - 0.08, min(inside + 0.05, 1.0)))
        return near, max(square, 0.0), max(lost, 0.0)

    def law(self) -> Array:
        """Sizes and the share of records up to each of them, (2, bins), both rising.

        The share beyond a size is the released one as far as its noise is below what laws of one mean differ by;
        else that of Student's law with 3 degrees: for normal errors a little too far.
        """
        beyond = np.asarray(2 * stdtr(3, -_STUDENT * EDGES / self.mean))
        if self.shares is not None:  # summed from the top, where little noise adds up
            released = np.append(np.maximum.accumulate(self.shares[:0:-1].cumsum())[::-1], 0.0)
            variance = self.noise**2 * np.arange(BINS - 1, -1, -1)
            beyond += (released - beyond) * _UNALIKE**2 / (_UNALIKE**2 + variance)
        return np.stack([EDGES, np.clip(1 - np.maximum.accumulate(beyond[::-1])[::-1], 0.0, 1.0)])


def release_residual_sizes(
    rows: Rows, read: BoundedRows, parameters: Array, plan: OneStepPlan, *, noise: NoiseSource
) -> ResidualSizes:
    """Release how large residuals at `parameters` are, in units of the target's scale.

    **Guarantee**: one Gaussian release, `plan.residuals`; what follows it is post-processing.
    """

    def counts(X: Array, y: Array) -> Array:
        _, _, residuals, usable = read(X, y, parameters)
        sizes = np.clip(np.abs(residuals[usable]), EDGES[0] / 2, EDGES[-1])
        bins = np.clip(np.floor(2 * np.log2(sizes)).astype(np.int64) + BINS - 2 * _TOP, 0, BINS - 1)
        return np.bincount(bins, minlength=BINS).astype(np.float64)

    def clipped(X: Array, y: Array) -> Array:
        _, _, residuals, _ = read(X, y, parameters)
        return np.minimum(np.abs(residuals) / _WIDEST_SIZE, 1.0).sum(keepdims=True)

    std = plan.residuals.noise_std
    if not plan.in_octaves:
        mean = noise.release(rows.total(clipped) / plan.n_records, std)
        return ResidualSizes(min(max(_WIDEST_SIZE * float(mean[0]), 0.15), 2.0))
    return ResidualSizes.of_counts(noise.release(rows.total(counts), std), std, plan.n_records)


@dataclass(frozen=True, slots=True)
class ReleasedStep:
    """J, g and S in the basis, and the deviations of their noise (of a diagonal entry for the two matrices)."""

    jacobian: Array
    gradient: Array
    squares: Array
    jacobian_noise: float
    gradient_noise: float
    squares_noise: float


def release_step(
    rows: Rows, read: BoundedRows, parameters: Array, clip: float, plan: OneStepPlan, *, noise: NoiseSource
) -> ReleasedStep:
    """Release J = mean w·uuᵀ·1(|r| ≤ c), g = mean w·u·clip_c(r), and S, the mean outer square of g's summands.

    **Guarantee**: three Gaussian releases, `plan.jacobian`, `plan.gradient` and `plan.squares`, of sums that one pass
    over the rows makes; `parameters`, `clip` and `read` are functions of earlier releases.
    """
    columns = plan.n_columns

    def sums(X: Array, y: Array) -> Array:
        bounded, factors, residuals, _ = read(X, y, parameters)
        inside = np.abs(residuals) <= clip
        pulls = bounded * (factors * np.clip(residuals / clip, -1, 1))[:, None]
        return np.hstack([(bounded * inside[:, None]).T @ bounded, pulls.T @ pulls, pulls.sum(axis=0)[:, None]])

    total = rows.total(sums) / plan.n_records
    jacobian = noise.release(total[:, :columns], plan.jacobian.noise_std)
    gradient = noise.release(total[:, -1], plan.gradient.noise_std)
    squares = noise.release(total[:, columns:-1], plan.squares.noise_std)
    square, reach = read.radius**2, read.radius * clip
    return ReleasedStep(
        jacobian=square * (jacobian + jacobian.T) / 2,
        gradient=reach * gradient,
        squares=reach**2 * (squares + squares.T) / 2,
        jacobian_noise=square * plan.jacobian.noise_std,
        gradient_noise=reach * plan.gradient.noise_std,
        squares_noise=reach**2 * plan.squares.noise_std,
    )


def release_mean_residual(
    rows: Rows, read: BoundedRows, parameters: Array, clip: float, plan: OneStepPlan, *, noise: NoiseSource
) -> float:
    """Release the mean of clip(w·r) at `parameters`. **Guarantee**: one Gaussian release, `plan.level`."""

    def clipped(X: Array, y: Array) -> Array:
        _, factors, residuals, _ = read(X, y, parameters)
        return np.clip(np.square(factors) * residuals / clip, -1, 1).sum(keepdims=True)

    return clip * float(noise.release(rows.total(clipped) / plan.n_records, plan.level.noise_std)[0])
