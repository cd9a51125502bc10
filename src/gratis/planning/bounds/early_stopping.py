"""DP-GD on features without clipping, in closed form: each eigenmode of K is AR(1), or Ornstein–Uhlenbeck as η → 0.

Without clipping there is no guarantee: this is theory, for twins and for the regime where clipping is inactive. S0,
section 4; docs/theory/random-features.md, statement 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.errors import GratisError

__all__ = ["EarlyStopping", "LossTerms"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LossTerms:
    """E(f − y)² = interpolant + early stopping + noise, for every requested stopping time.

    `early_stopping` is what stopping changes in the loss of the noiseless path (negative: stopping helps);
    `distance` is E(f_τ − f_*)², the quantity that S0 bounds by Õ(d/n + n/d^{3/2}); `noise` is the variance that the
    privacy noise leaves in a prediction, S0's Õ(d²/(nε)²).
    """

    interpolant: float
    early_stopping: Array
    noise: Array
    distance: Array

    @property
    def total(self) -> Array:
        """Predicted test loss."""
        return np.asarray(self.interpolant + self.early_stopping + self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopping:
    """One data set seen through its kernel K = UΛUᵀ: loss (f − y)², θ₀ = 0, no clipping.

    With c = Uᵀy and A = Λ^{−1/2}Uᵀk_test, the mean prediction after T steps is Aᵀ Λ^{−1/2}(1 − q^T)c with
    q = 1 − 2ηλ/n, and the noise of std s a step leaves the variance
    Σ_i A_i² s²(1 − q_i^{2T})/(1 − q_i²) + Ts²(k_test,test − ‖A‖²). Gradient flow: q^T → e^{−2λτ/n}.

    Parameters
    ----------
    n_records : n.
    eigenvalues : (r,), positive.
    modes : (r,), Uᵀy.
    projections : (m, r), the transpose of A at m test points.
    test_diagonal : (m,), k(x, x) at the test points.
    test_targets : (m,).

    >>> flat = EarlyStopping(n_records=2, eigenvalues=np.ones(2), modes=np.ones(2), projections=np.eye(2),
    ...                      test_diagonal=np.ones(2), test_targets=np.ones(2))
    >>> terms = flat.predict_steps([1, 1000], learning_rates=0.5, total_noise_variances=[0.0, 0.5])
    >>> terms.total.round(4).tolist()
    [0.25, 0.0007]
    """

    n_records: int
    eigenvalues: Array
    modes: Array
    projections: Array
    test_diagonal: Array
    test_targets: Array

    def __post_init__(self) -> None:
        r, m = len(self.eigenvalues), len(self.test_targets)
        if self.modes.shape != (r,) or self.projections.shape != (m, r) or self.test_diagonal.shape != (m,):
            raise GratisError("modes, projections and test targets must have matching sizes")
        if not (self.eigenvalues > 0).all():
            raise GratisError("eigenvalues must be positive: leave out those that count as zero")

    @property
    def largest_learning_rate(self) -> float:
        """n/λ_max: the recursion is stable below it."""
        return float(self.n_records / self.eigenvalues.max())

    def predict_steps(
        self, steps: ArrayLike, *, learning_rates: ArrayLike, total_noise_variances: ArrayLike
    ) -> LossTerms:
        """Return the loss after T steps for every (T, η, Ts²), broadcast against each other."""
        count, rate, total = np.broadcast_arrays(
            np.asarray(steps, dtype=np.float64), np.asarray(learning_rates), np.asarray(total_noise_variances)
        )
        if not (count >= 1).all() or not ((rate > 0) & (rate < self.largest_learning_rate)).all():
            raise GratisError("steps must be at least 1 and learning rates within the stable range (0, n/λ_max)")
        q = 1 - np.multiply.outer(2 * self.eigenvalues / self.n_records, rate)
        kept = np.sign(q) ** (count % 2) * np.abs(q) ** count
        return self._terms(kept, (1 - kept**2) / ((1 - q**2) * count), np.asarray(total))

    def predict_flow(self, times: ArrayLike, *, total_noise_variances: ArrayLike) -> LossTerms:
        """Return the loss at times τ = ηT as η → 0, with noise of total variance Σ²τ (S0's SDE)."""
        time, total = np.broadcast_arrays(np.asarray(times, dtype=np.float64), np.asarray(total_noise_variances))
        if not (time > 0).all():
            raise GratisError("times must be positive")
        exponent = np.multiply.outer(2 * self.eigenvalues / self.n_records, time)
        return self._terms(np.exp(-exponent), -np.expm1(-2 * exponent) / (2 * exponent), np.asarray(total))

    def _terms(self, kept: Array, noise_share: Array, total: Array) -> LossTerms:
        """Loss from the share of each mode still to be learned and the share of its noise still present."""
        scaled = self.projections / np.sqrt(self.eigenvalues)
        interpolant = scaled @ self.modes - self.test_targets
        missing = scaled @ (kept * self.modes.reshape(-1, *[1] * (kept.ndim - 1))).reshape(len(kept), -1)
        distance = np.square(missing).mean(axis=0).reshape(total.shape)
        crossed = (interpolant @ missing / len(interpolant)).reshape(total.shape)
        seen = np.square(self.projections).mean(axis=0)
        unseen = max(float(self.test_diagonal.mean() - seen.sum()), 0.0)
        noise = total * (np.tensordot(seen, noise_share, axes=1) + unseen)
        loss = float(np.square(interpolant).mean())
        return LossTerms(loss, np.asarray(distance - 2 * crossed), np.asarray(noise), np.asarray(distance))
