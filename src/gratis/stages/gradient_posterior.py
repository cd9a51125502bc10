"""What all released gradients together say about the coefficients: a Gaussian posterior with learnt variances.

Every gradient g_t at θ_t is, up to noise, H(θ* − θ_t); so b_t = g_t + Hθ_t = Hθ* + noise, and the released history is
one Gaussian regression. Smoothness and relevance of every curve are variances that it estimates (empirical Bayes).
All of it is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

__all__ = ["GradientHistory", "Posterior", "Preconditioner", "precondition"]

Array = NDArray[np.float64]
Groups = NDArray[np.int64]

_FLOOR, _CEILING = 1e-9, 10.0  # of variances, for targets of variance 1
_WRONG = 1.0  # relative error of second moments, as far as old gradients are concerned; validation parts, .15 … 2
# What noise beside that of the gradients does to curves, as a share of what shrinking leaves open. By simulation on six
# synthetic cells of benchmarks/shape_bands.py (30 to 60 replicates, three of classes): with 0 they cover .88 to .96.
_BESIDE = 1 / 3
_PSEUDO_COEFFICIENTS = 10.0  # recipe D: how strongly a group's variance is drawn to that of its kind


@dataclass(frozen=True, slots=True)
class Preconditioner:
    """M = root·rootᵀ and its inverse; z = inverse_root·φ. `effective_dimension`: tr(M⁻¹H), at least 1."""

    root: Array
    inverse_root: Array
    inverse: Array
    effective_dimension: float


def precondition(
    moments: Array, ridge: float, variances: Array, *, noise_unit: float, sampling: float, curvature: float
) -> Preconditioner:
    """Return the basis of M = H + ridge + s²/(curvature·variances): noise only where signal can be.

    s² is what one gradient does not know: sampling noise, and privacy noise of (`noise_unit`)² a unit of effective
    dimension, which depends on M itself (three rounds).
    """
    square = sampling + 5 * noise_unit**2
    for _ in range(3):
        root = _cholesky(moments + np.diag(ridge + square / (curvature * variances)))
        inverse = _inverse(root)
        dimension = max(1.0, float(np.einsum("ij,ij->", inverse, moments)))
        square = sampling + noise_unit**2 * dimension
    inverse_root = solve_triangular(root, np.eye(len(root)), lower=True)
    return Preconditioner(root, inverse_root, inverse, dimension)


@dataclass(frozen=True, slots=True)
class Posterior:
    """Mean of one output's coefficients, and the variance of every group."""

    mean: Array
    variances: Array


@dataclass(frozen=True, slots=True)
class _Taken:
    """A released gradient: where it was taken, in which basis, and M⁻¹ times it in the basis of the features."""

    basis: Preconditioner
    std: float
    position: Array
    pulled: Array

    def variance(self, reference: Array, output: int, curvature: float) -> float:
        """Of an entry, as seen from `reference`: noise, and what wrong second moments make of the way there."""
        way = self.basis.root.T @ (self.position[:, output] - reference[:, output])
        return self.std**2 + (_WRONG * curvature) ** 2 * float(way @ way) / self.basis.effective_dimension


class GradientHistory:
    """All released gradients, from which the posterior follows for any second moments and ridge.

    b = g + Hθ holds for true second moments and without clipping. Both err, the more the farther a gradient was taken
    from where the fit is now: so old gradients fade as far as that error exceeds their noise. Without noise the
    last one alone counts, and the fit is Newton's method with the ridge of Levenberg and Marquardt; with much of it all
    of them do.
    """

    def __init__(self, width: int, outputs: int) -> None:
        self._width, self._outputs = width, outputs
        self._taken: list[_Taken] = []
        self._reference = np.zeros((width, outputs))

    def widened(self, width: int) -> GradientHistory:
        """The same history for more features, about which it says nothing."""
        more, rows = width - self._width, ((0, width - self._width), (0, 0))
        found = GradientHistory(width, self._outputs)
        found._reference = np.pad(self._reference, rows)
        wider: dict[int, Preconditioner] = {}
        for taken in self._taken:
            basis = taken.basis
            if id(basis) not in wider:
                root, inverse_root, inverse = (
                    np.pad(part, (0, more)) for part in (basis.root, basis.inverse_root, basis.inverse)
                )
                wider[id(basis)] = Preconditioner(root, inverse_root, inverse, basis.effective_dimension)
            position, pulled = np.pad(taken.position, rows), np.pad(taken.pulled, rows)
            found._taken.append(_Taken(wider[id(basis)], taken.std, position, pulled))
        return found

    def add(self, gradient: Array, std: float, basis: Preconditioner, position: Array, *, best: bool = True) -> None:
        """Add a gradient released in the basis, taken at `position`; unless a `best` one, it is seen from the last."""
        pulled = solve_triangular(basis.root, gradient, lower=True, trans="T")
        self._taken.append(_Taken(basis, std, position, pulled))
        if best:
            self._reference = position

    def posterior(
        self,
        output: int,
        moments: Array,
        ridge: float,
        start: Array,
        groups: tuple[Groups, Groups],
        *,
        curvature: float,
        sampling: float,
        rounds: int,
    ) -> Posterior:
        """Return the mean under variances that are refined for `rounds` − 1 rounds from `start`."""
        evidence, pull = self._regression(output, moments, ridge, curvature=curvature, sampling=sampling)
        return _empirical_bayes(evidence, pull, start, groups, rounds)

    def covariance(self, slope: Array, spread: Array, variances: Array, *, output: int, curvature: float) -> Array:
        """Return how far noise moves the posterior mean, at given variances of the coefficients.

        ΣAΣ + `_BESIDE`·(Σ − ΣAΣ) with the posterior's covariance Σ = (A + 1/variances)⁻¹ and A = H(V + S)⁻¹H: `slope`
        H is the derivative of gradients where the fit ended, `spread` S their variance by sampling. ΣAΣ is what the
        noise of the gradients does to the mean; noisy second moments, histograms and learnt variances do more.
        """
        noise, _ = self._noise(output, curvature)
        half = solve_triangular(_cholesky(noise + spread), slope, lower=True)
        deviations = np.sqrt(variances)
        evidence = half.T @ half
        inner = _inverse(_cholesky(np.eye(len(evidence)) + deviations[:, None] * evidence * deviations))
        return np.asarray(deviations[:, None] * (inner - (1 - _BESIDE) * inner @ inner) * deviations)

    def _regression(
        self, output: int, moments: Array, ridge: float, *, curvature: float, sampling: float
    ) -> tuple[Array, Array]:
        """Return A = H(V + sH)⁻¹H and H(V + sH)⁻¹b, with H the curvature at hand and V the noise of b."""
        width, reference = len(moments), self._reference
        slope = curvature * (moments + ridge * np.eye(width))
        noise, weights = self._noise(output, curvature)
        total = np.zeros(width)
        for taken, weight in zip(self._taken, weights, strict=True):
            known = curvature * (moments @ taken.position[:, output] + ridge * reference[:, output])
            total += weight * (taken.pulled[:, output] + taken.basis.inverse @ known)
        root = _cholesky(noise + sampling * slope)
        half = solve_triangular(root, slope, lower=True)
        known = solve_triangular(root, noise @ total, lower=True)
        return half.T @ half, half.T @ known

    def _noise(self, output: int, curvature: float) -> tuple[Array, list[float]]:
        """Return V, the noise of all gradients together, and how much each counts."""
        weights = [1 / taken.variance(self._reference, output, curvature) for taken in self._taken]
        precision = np.zeros((self._width, self._width))
        for taken, weight in zip(self._taken, weights, strict=True):
            precision += weight * taken.basis.inverse
        jitter = 1e-12 * max(float(np.trace(precision)) / self._width, 1e-300)
        return _inverse(_cholesky(precision + jitter * np.eye(self._width))), weights


def _empirical_bayes(
    evidence: Array, pull: Array, start: Array, groups: tuple[Groups, Groups], rounds: int
) -> Posterior:
    """θ ~ N(0, variance of its group), with MacKay's update; a group's variance is drawn to that of its kind."""
    group, kind = groups
    size = np.bincount(group, minlength=len(kind)).astype(np.float64)
    variances = start
    for left in reversed(range(rounds)):
        each = np.maximum(variances, _FLOOR)[group]
        deviations = np.sqrt(each)
        root = _cholesky(np.eye(len(pull)) + deviations[:, None] * evidence * deviations)
        if left == 0:
            half = solve_triangular(root, deviations * pull, lower=True)
            return Posterior(deviations * solve_triangular(root, half, lower=True, trans="T"), variances)
        inner = _inverse(root)
        mean = deviations * (inner @ (deviations * pull))
        energy = np.bincount(group, np.square(mean), minlength=len(kind))
        unknown = np.bincount(group, each * np.diag(inner), minlength=len(kind))
        determined = np.clip(size - unknown / np.maximum(variances, _FLOOR), 1e-3, size)
        of_kind = (np.bincount(kind, energy) + 1e-6) / np.maximum(np.bincount(kind, determined), 1e-3)
        drawn = _PSEUDO_COEFFICIENTS * np.clip(of_kind, _FLOOR, _CEILING)[kind]
        variances = (energy + drawn) / (determined + _PSEUDO_COEFFICIENTS)
    raise AssertionError("rounds must be positive")


def _cholesky(matrix: Array) -> Array:
    """Lower root of a positive matrix; if rounding made it indefinite, of the matrix with a little more ridge."""
    ridge = 0.0
    for _ in range(40):
        root, failed = lapack.dpotrf(matrix + ridge * np.eye(len(matrix)) if ridge else matrix, lower=1, clean=1)
        if not failed:
            return np.asarray(root)
        ridge = max(10 * ridge, 1e-14 * max(float(np.abs(np.diag(matrix)).max()), 1e-300))
    return np.eye(len(matrix)) * math.sqrt(max(ridge, 1.0))


def _inverse(root: Array) -> Array:
    """Inverse of root·rootᵀ."""
    lower, _ = lapack.dpotri(root, lower=1)
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)
