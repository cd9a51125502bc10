"""What follows from a released step: clips, the estimate, its sandwich covariance. All of it is post-processing.

θ = θ₀ + J⁻¹g and V = J⁻¹[s_g²I + (s_J²/2)(‖δ‖²I + δδᵀ) + S/n]J⁻¹, δ = J⁻¹g: noise of the gradient, noise of the
Jacobian to first order, and the sampling variance, which S makes robust to heteroscedasticity. Constants in this module
are those of a prototype that was measured on 90 cells of Gaussian, mixed and correlated synthetic tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.stages.one_step import OneStepPlan, ReleasedStep, ResidualSizes

__all__ = ["Clips", "SolvedStep", "choose_clips", "combined", "shrunk", "solve_curved_step", "solve_step"]

Array = NDArray[np.float64]

# Clips of residuals in units of their mean size; the least is 1.9 Gaussian deviations.
_CLIPS = (2.4, 3.0, 3.75, 5.0, 6.25, 7.5, 10.0)
_LEAST_SHARE = 0.25  # of what equal variances give, that is left in every direction
_SKEWED = 0.3  # of what a clip takes off errors, the part that may differ between rows and so bias a slope


@dataclass(frozen=True, slots=True)
class Clips:
    """Clip of residuals, the share of residuals inside it, their deviation, and the wide clip of the level."""

    residual: float
    inside: float
    deviation: float
    level: float


def choose_clips(sizes: ResidualSizes, radius: float, plan: OneStepPlan) -> Clips:
    """Choose from released sizes the clip of least error: noise, sampling, and the most that clipping may bias."""
    noise, candidates = radius * plan.gradient.noise_std, [multiple * sizes.mean for multiple in _CLIPS]
    costs = []
    for clip in candidates:
        inside, square, lost = sizes.clipped(clip)
        costs.append(((noise * clip) ** 2 + square / plan.n_records) / inside**2 + (_SKEWED * lost) ** 2)
    clip = candidates[int(np.argmin(costs))]
    # Noise against the bias of a tail like r⁻⁵.
    level = 3.75 * sizes.mean * max(1.0, 1 / (25 * plan.level.noise_std)) ** 0.25
    return Clips(clip, sizes.clipped(clip)[0], sizes.deviation, level)


@dataclass(frozen=True, slots=True)
class SolvedStep:
    """δ = J⁻¹g, and what its covariance is made of; `trusted` unless noise hides the smallest eigenvalue of J."""

    move: Array
    inverse: Array
    jacobian: Array
    privacy: Array  # of g, the noise of J included
    squares: Array  # S, steadied
    released: Array  # S as it was released, and the deviation of its noise in any direction
    squares_noise: float
    trusted: bool
    inside: float

    def move_noise(self) -> Array:
        """Covariance of δ that is privacy's."""
        return self.inverse @ self.privacy @ self.inverse.T

    def mean_weight(self, level: Array) -> float:
        """E w, from the Jacobian along `level`, the direction that moves every prediction by one."""
        return min(max(float(level @ self.jacobian @ level) / self.inside, 0.2), 1.0)

    def sampling(self, through: Array, n_records: int) -> Array:
        """Sampling covariance of `through`·g, each variance at most one deviation of noise from what was released.

        S as released is unbiased in every direction, steadied it is less noisy but knows less of unequal variances: a
        limited translation (Efron & Morris 1972) keeps what stands out along the coefficients that are asked for.
        """
        covariance = through @ self.squares @ through.T
        found = np.maximum(np.diag(covariance), 1e-300)
        released = np.einsum("ij,jk,ik->i", through, self.released, through, optimize=True)
        noise = self.squares_noise * np.square(through).sum(axis=1)
        wanted = np.maximum(np.clip(found, released - noise, released + noise), _LEAST_SHARE * found)
        factors = np.sqrt(wanted / found)
        return np.asarray(covariance * np.outer(factors, factors) / n_records)

    def covariances(
        self, change: Array, level: Array, level_noise: float, deviation: float, n_records: int
    ) -> tuple[Array, Array]:
        """Covariances (privacy, sampling) of change·(θ₀ + δ + level·ℓ/E w), ℓ the released mean of w·r at θ₀ + δ."""
        weight = self.mean_weight(level)
        kept = np.eye(len(level)) - np.outer(level, level @ self.jacobian) / (self.inside * weight)
        through, along = change @ kept @ self.inverse, change @ level / weight
        spread = max(deviation**2 * weight, float(level @ self.squares @ level)) / n_records
        privacy = through @ self.privacy @ through.T + np.outer(along, along) * level_noise**2
        return privacy, self.sampling(through, n_records) + np.outer(along, along) * spread


def solve_step(step: ReleasedStep, clips: Clips, effective_dimension: float) -> SolvedStep:
    """Solve Jδ = g for residuals of any size; with equal variances S would be about E clip(r)²·J/P(|r| ≤ c)."""
    whole = max(np.trace(step.jacobian) / clips.inside, 0.2 * effective_dimension)
    even = max(np.trace(step.squares) / whole, (clips.residual / 6) ** 2)
    return _solved(step, even / clips.inside, clips.inside)


def solve_curved_step(step: ReleasedStep) -> SolvedStep:
    """Solve Jδ = g for two classes, where S is about J: p(1−p) is the variance of y and the slope of p."""
    even = np.trace(step.squares) / max(float(np.trace(step.jacobian)), 1e-300)
    return _solved(step, min(max(float(even), 0.25), 4.0), 1.0)


def _solved(step: ReleasedStep, even: float, inside: float) -> SolvedStep:
    """Eigenvalues that noise hides are kept away from zero, and nothing is then to be trusted."""
    size = len(step.gradient)
    edge = step.jacobian_noise * math.sqrt(2 * size)  # about the spectral norm of symmetric noise
    values, vectors = np.linalg.eigh(step.jacobian)
    safe = np.where(np.abs(values) < 0.25 * edge, 0.25 * edge, values)
    inverse = (vectors / safe) @ vectors.T
    move = inverse @ step.gradient
    of_jacobian = step.jacobian_noise**2 / 2 * (float(move @ move) * np.eye(size) + np.outer(move, move))
    return SolvedStep(
        move=move,
        inverse=inverse,
        jacobian=step.jacobian,
        privacy=step.gradient_noise**2 * np.eye(size) + of_jacobian,
        squares=_steadied(step, even * np.maximum(values, 0.25 * edge), vectors),
        released=step.squares,
        squares_noise=step.squares_noise,
        trusted=bool(values[0] > edge),
        inside=inside,
    )


def _steadied(step: ReleasedStep, even: Array, vectors: Array) -> Array:
    """Draw S to what equal variances would give, T with eigenvalues `even`, as far as noise explains the gap.

    T + k(S − T), k by James and Stein, and no larger than leaves a quarter of T in every direction. T has the trace of
    S, so that intervals do not widen with the noise of S: raising the eigenvalues that noise pushes below zero, one by
    one, widened those of 5000 × 40 at ε = 4 by a sixth to a half.
    """
    size = len(even)
    target = (vectors * even) @ vectors.T
    gap = step.squares - target
    kept = shrunk(float(np.square(gap).sum()), step.squares_noise**2 * size * (size + 1) / 2)
    root = vectors / np.sqrt(even)
    lowest = float(np.linalg.eigvalsh(root.T @ gap @ root)[0])
    return np.asarray(target + min(kept, (1 - _LEAST_SHARE) / max(-lowest, 1 - _LEAST_SHARE)) * gap)


def combined(solved: SolvedStep, start_risk: float) -> tuple[Array, float]:
    """Return the part of δ that improves predictions, from the predicted risk of θ₀ and the noise of δ; and its risk.

    Precision-weighted while δ is of the size that both errors explain. A larger one means that θ₀, fitted to winsorised
    columns as predictions are made, and the step, which reads rows as they are, have different targets: θ₀ stays.
    """
    size = len(solved.move)
    noise = solved.move_noise()
    own = start_risk / size
    explained = min(1.0, (start_risk + float(np.trace(noise))) / max(float(solved.move @ solved.move), 1e-300))
    weights = own * np.linalg.inv(own * np.eye(size) + noise)
    return explained * (weights @ solved.move), float(np.trace(weights @ noise))


def shrunk(estimate: float, noise: float) -> float:
    """Return the factor that takes back what noise explains of an estimate's energy (James–Stein, positive part).

    >>> shrunk(4.0, 1.0), shrunk(0.5, 1.0)
    (0.75, 0.0)
    """
    return max(0.0, 1.0 - noise / max(estimate, 1e-300))
