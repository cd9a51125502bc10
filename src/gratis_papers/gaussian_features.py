"""Private descent on random features in their linear-plus-noise form: n·d operations a step, no test rows.

For d ≪ n ≪ d^{3/2} (where S0's Theorem 2 lives) features act like φ(Vx) = μ₁Vx + μ_>g, with g ~ N(0, I_p) of its own
for every row, μ₁ = Eφ(G)G and μ_>² = Eφ(G)² − μ₁² (Mei & Montanari 2022, Hu & Lu 2023; φ with μ₀ = μ₂ = 0, as S0
asks). Then only b = Vᵀθ and h_i = g_iᵀθ move, VᵀV = (p/d)·I and g_iᵀg_j = p·1{i = j} up to 1/√p, and for ‖x‖ = √d,
y = sign(uᵀx), m = E|uᵀx|

    test loss = 1 − 2μ₁m·uᵀb + μ₁²‖b‖² + μ_>²‖θ‖²,   ‖θ‖² = (d/p)‖b‖² + ‖h‖²/p + noise in p − n − d others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, roots_hermitenorm

__all__ = ["GaussianFeatures"]

Array = NDArray[Any]


def _hermite(power: int) -> float:
    """E tanh(G)^a·G^b for (a, b) = (1, 1) or (2, 0), by quadrature."""
    points, weights = roots_hermitenorm(101)
    values = np.tanh(points) * (points if power == 1 else np.tanh(points))
    return float(weights @ values / weights.sum())


_LINEAR = _hermite(1)
_SQUARE = _hermite(2)
_REST = math.sqrt(_SQUARE - _LINEAR**2)


@dataclass(frozen=True)
class GaussianFeatures:
    """Rows of length √d, labels sign(uᵀx) with u the first axis, p features of tanh in their Gaussian form."""

    X: Array
    y: Array
    p: int

    @classmethod
    def draw(cls, n: int, d: int, p: int, rng: np.random.Generator) -> GaussianFeatures:
        """Draw n rows."""
        X = rng.standard_normal((n, d), dtype=np.float32)
        X *= (math.sqrt(d) / np.linalg.norm(X, axis=1))[:, None]
        return cls(X, np.sign(X[:, 0]), p)

    def _loss(self, b: Array, squares: Array) -> Array:
        d = self.X.shape[1]
        first = math.sqrt(d / math.pi) * math.exp(float(gammaln(d / 2) - gammaln((d + 1) / 2)))  # E|uᵀx|
        return np.asarray(
            1 - 2 * _LINEAR * first * b[0] + _LINEAR**2 * np.square(b).sum(axis=0) + _REST**2 * squares, np.float64
        )

    def interpolant_loss(self) -> float:
        """Test loss of θ*: the least ‖θ‖ with μ₁Xb + μ_>h = y, a ridge regression."""
        d = self.X.shape[1]
        gram = (self.X.T @ self.X).astype(np.float64)
        b = np.linalg.solve(_LINEAR**2 * gram + d * _REST**2 * np.eye(d), _LINEAR * (self.X.T @ self.y))
        h = (self.y - _LINEAR * (self.X @ b)) / _REST
        return float(self._loss(b[:, None], np.array([(d * (b @ b) + h @ h) / self.p]))[0])

    def private_losses(
        self, clip_norms: Array, flows: Array, total_noises: Array, rng: np.random.Generator, *, fewest: int = 60
    ) -> Array:
        """Test losses of Algorithm 1 for each (C, ηT, √T·s)."""
        (n, d), p = self.X.shape, self.p
        steps = max(fewest, math.ceil(8 * float(flows.max()) * self._steepness()))
        rates, stds = (flows / steps).astype(np.float32), (total_noises / math.sqrt(steps)).astype(np.float32)
        limits = (clip_norms / math.sqrt(p * _SQUARE)).astype(np.float32)  # of 2|r|
        b, h = np.zeros((d, len(flows)), np.float32), np.zeros((n, len(flows)), np.float32)
        targets = self.y[:, None].astype(np.float32)
        for _ in range(steps):
            residuals = np.float32(_LINEAR) * (self.X @ b) + np.float32(_REST) * h - targets
            w = np.clip(2 * residuals, -limits, limits)
            b += stds * math.sqrt(p / d) * rng.standard_normal(b.shape, dtype=np.float32)
            b -= rates * np.float32(p * _LINEAR / (n * d)) * (self.X.T @ w)
            h += stds * math.sqrt(p) * rng.standard_normal(h.shape, dtype=np.float32)
            h -= rates * np.float32(p * _REST / n) * w
        inside = (d * np.square(b).sum(axis=0) + np.square(h).sum(axis=0, dtype=np.float64)) / p
        return self._loss(b.astype(np.float64), inside + total_noises**2 * max(p - n - d, 0))

    def unclipped_path(
        self, clip_norm: float, flow: float, total_noises: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array, float]:
        """Follow the process without clipping for each √T·s, the first of them 0; C is only compared with.

        Returns the largest |residual| of all records and steps, the largest |residual − that without noise|, the share
        of records whose gradient reaches C at some step, and the share at the start.
        """
        (n, d), p = self.X.shape, self.p
        steps = max(60, math.ceil(8 * flow * self._steepness()))
        rate, stds = flow / steps, (total_noises / math.sqrt(steps)).astype(np.float32)
        limit = clip_norm / math.sqrt(p * _SQUARE) / 2
        b, h = np.zeros((d, len(stds)), np.float32), np.zeros((n, len(stds)), np.float32)
        largest, added, over = np.zeros(len(stds)), np.zeros(len(stds)), np.zeros(h.shape, bool)
        at_once = 0.0
        for step in range(steps + 1):
            residuals = np.float32(_LINEAR) * (self.X @ b) + np.float32(_REST) * h - self.y[:, None].astype(np.float32)
            largest = np.maximum(largest, np.abs(residuals).max(axis=0))
            added = np.maximum(added, np.abs(residuals - residuals[:, :1]).max(axis=0))
            over |= np.abs(residuals) >= limit
            if step == 0:
                at_once = float(over.mean())
            b += stds * math.sqrt(p / d) * rng.standard_normal(b.shape, dtype=np.float32)
            b -= np.float32(2 * rate * p * _LINEAR / (n * d)) * (self.X.T @ residuals)
            h += stds * math.sqrt(p) * rng.standard_normal(h.shape, dtype=np.float32)
            h -= np.float32(2 * rate * p * _REST / n) * residuals
        return largest, added, over.mean(axis=0), at_once

    def _steepness(self) -> float:
        """λ_max/n of K, nearly: (p/d)μ₁²(1 + √(d/n))² + pμ_>²/n; steps with 2ηλ_max/n ≤ ¼ are near the flow."""
        (n, d), p = self.X.shape, self.p
        return p / d * _LINEAR**2 * (1 + math.sqrt(d / n)) ** 2 + p * _REST**2 / n
