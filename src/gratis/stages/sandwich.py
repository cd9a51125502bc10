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
    sampling: Array  # of g
    squares: Array
    trusted: bool
    inside: float

    def move_noise(self) -> Array:
        """Covariance of δ that is privacy's."""
        return self.inverse @ self.privacy @ self.inverse.T

    def mean_weight(self, level: Array) -> float:
        """E w, from the Jacobian along `level`, the direction that moves every prediction by one."""
        return min(max(float(level @ self.jacobian @ level) / self.inside, 0.2), 1.0)

    def covariances(self, level: Array, level_noise: float, deviation: float, n_records: int) -> tuple[Array, Array]:
        """Covariances (privacy, sampling) of θ₀ + δ + level·ℓ/E w, ℓ the released mean of w·r at θ₀ + δ."""
        weight = self.mean_weight(level)
        kept = np.eye(len(level)) - np.outer(level, level @ self.jacobian) / (self.inside * weight)
        through = kept @ self.inverse
        along = np.outer(level, level) / weight**2
        spread = max(deviation**2 * weight, float(level @ self.squares @ level)) / n_records
        privacy = through @ self.privacy @ through.T + along * level_noise**2
        return privacy, through @ self.sampling @ through.T + along * spread


def solve_step(step: ReleasedStep, clips: Clips, effective_dimension: float, n_records: int) -> SolvedStep:
    """Solve Jδ = g for residuals of any size; S is no less than a quarter of what equal variances would give."""
    whole = max(np.trace(step.jacobian) / clips.inside, 0.2 * effective_dimension)
    even = max(np.trace(step.squares) / whole, (clips.residual / 6) ** 2)
    return _solved(step, even, 0.2, clips.inside, n_records)


def solve_curved_step(step: ReleasedStep, n_records: int) -> SolvedStep:
    """Solve Jδ = g for two classes, where S is about J: p(1−p) is the variance of y and the slope of p."""
    return _solved(step, 1.0, 0.01, 1.0, n_records)


def _solved(step: ReleasedStep, even: float, least: float, inside: float, n_records: int) -> SolvedStep:
    """Eigenvalues that noise hides are kept away from zero, and nothing is then to be trusted."""
    jacobian, gradient = step.jacobian, step.gradient
    size = len(gradient)
    edge = step.jacobian_noise * math.sqrt(2 * size)  # about the spectral norm of symmetric noise
    values, vectors = np.linalg.eigh(jacobian)
    safe = np.where(np.abs(values) < 0.25 * edge, 0.25 * edge, values)
    inverse = (vectors / safe) @ vectors.T
    move = inverse @ gradient
    # S as released is unbiased in every direction; below a quarter of what equal variances would give, that quarter.
    found, axes = np.linalg.eigh(step.squares)
    floor = 0.25 * even * np.maximum(np.einsum("ij,ik,kj->j", axes, jacobian, axes), least)
    squares = (axes * np.maximum(found, floor)) @ axes.T
    of_jacobian = step.jacobian_noise**2 / 2 * (float(move @ move) * np.eye(size) + np.outer(move, move))
    return SolvedStep(
        move=move,
        inverse=inverse,
        jacobian=jacobian,
        privacy=step.gradient_noise**2 * np.eye(size) + of_jacobian,
        sampling=squares / n_records,
        squares=squares,
        trusted=bool(values[0] > edge),
        inside=inside,
    )


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
