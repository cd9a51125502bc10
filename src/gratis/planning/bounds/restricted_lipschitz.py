"""What private descent pays for dimensions that gradients hardly use: S4's bound, explicit and minimised.

Formulas: docs/theory/gradient-spectra.md, statement 2.

A loss has restricted Lipschitz coefficients G_0 ≥ G_1 ≥ … ≥ G_d = 0 if for every k some k-dimensional subspace leaves
at most G_k of its gradients outside, wherever they are taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

__all__ = [
    "LipschitzCoefficients",
    "RiskBound",
    "minimised_excess_risk_upper_bound",
    "power_law_rate",
    "rank_rate",
]

Array = NDArray[np.float64]
_ALL_DIMENSIONS = 4096
_STABILITY = 4.0


@dataclass(frozen=True, slots=True)
class LipschitzCoefficients:
    """G_1 ≥ … ≥ G_{d−1} of the mean loss (`tail`), and the bound G_0 on every record's gradient (`per_record`).

    `source` says where they come from; measured ones hold on the visited points only.
    """

    per_record: float
    tail: Array
    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_record", check_positive("per_record", self.per_record))
        tail = np.asarray(self.tail, dtype=np.float64)
        if tail.ndim != 1 or not np.all(np.isfinite(tail)) or np.any(tail < 0) or np.any(np.diff(tail) > 0):
            raise GratisError("Lipschitz coefficients must be finite, non-negative and non-increasing")
        object.__setattr__(self, "tail", np.minimum(tail, self.per_record))

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.tail) + 1

    def at(self, k: NDArray[np.int64]) -> Array:
        """Return G_k; zero from d on."""
        if self.dimension == 1:
            return np.where(k < 1, self.per_record, 0.0)
        inside = self.tail[np.clip(k - 1, 0, self.dimension - 2)]
        return np.where(k < 1, self.per_record, np.where(k < self.dimension, inside, 0.0))

    @classmethod
    def of_matrix(cls, matrix: ArrayLike) -> LipschitzCoefficients:
        """For mean ‖x − x_i‖_A: G_k = λ_{k+1}(A^{1/2}); A as a symmetric matrix or its diagonal.

        >>> LipschitzCoefficients.of_matrix([1.0, 0.25, 0.04]).tail.round(6).tolist()
        [0.5, 0.2]
        """
        roots = np.sqrt(_eigenvalues(matrix))
        return cls(float(roots[0]), roots[1:], "matrix of the Mahalanobis norm")

    @classmethod
    def of_covariance(
        cls, second_moments: ArrayLike, *, largest_norm: float, loss_slope: float = 1.0
    ) -> LipschitzCoefficients:
        """For mean ℓ(xᵀθ), |ℓ′| ≤ s: G_k = s·√λ_{k+1}(E xxᵀ) by Cauchy–Schwarz, and G_0 = s·max‖x‖ for one record.

        The second moments must be public or a twin's; those of private data have to be paid for.
        """
        slope = check_positive("loss_slope", loss_slope)
        roots = slope * np.sqrt(_eigenvalues(second_moments))
        largest = slope * check_positive("largest_norm", largest_norm)
        if largest < roots[0] * (1 - 1e-9):
            raise GratisError("largest_norm must be at least the root of the largest second moment")
        return cls(max(largest, float(roots[0])), roots[1:], "second moments of the features")

    @classmethod
    def of_gradient_spectrum(
        cls, singular_values: ArrayLike, *, clip_norm: float, dimension: int
    ) -> LipschitzCoefficients:
        """From singular values of recorded mean gradients (rows): none leaves more than σ_{k+1} outside the top k.

        Values beyond those given count as the last one. A diagnostic: it speaks of the visited points alone.
        """
        values = np.sort(np.asarray(singular_values, dtype=np.float64))[::-1]
        dimension = check_count("dimension", dimension)
        if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or values[-1] < 0:
            raise GratisError("singular values must be a non-empty list of finite numbers >= 0")
        tail = np.full(dimension - 1, values[-1])
        known = min(len(values) - 1, dimension - 1)
        tail[:known] = values[1 : known + 1]
        clip_norm = check_positive("clip_norm", clip_norm)
        return cls(clip_norm, np.minimum(tail, clip_norm), "measured gradient spectrum (visited points only)")

    def decay_exponent(self) -> float:
        """Largest c with G_k ≤ G_0·k^{−c} for 2 ≤ k < d; ∞ when G_2 = 0. The theorem's rate needs c > ½."""
        k = np.arange(2, self.dimension)
        values = self.tail[1:]
        if not k.size or values[0] == 0:
            return math.inf
        with np.errstate(divide="ignore"):
            return max(0.0, float(np.min(np.log(self.per_record / values) / np.log(k))))


@dataclass(frozen=True, slots=True)
class RiskBound:
    """The explicit bound and the settings that reach it."""

    excess_risk: float
    k: int
    learning_rate: float
    regularisation: float
    steps: int
    noise_multiplier: float


def _tail_sums(coefficients: LipschitzCoefficients, k: NDArray[np.int64]) -> Array:
    """Σ_{s=1}^{S} s²2^s G²_{2^{s−1}k}, S = ⌊log₂(d/k)⌋ + 1; terms with 2^{s−1}k ≥ d vanish by themselves."""
    total = np.zeros(len(k))
    for s in range(1, coefficients.dimension.bit_length() + 1):
        total += s**2 * 2.0**s * coefficients.at(2 ** (s - 1) * k) ** 2
    return total


def minimised_excess_risk_upper_bound(
    coefficients: LipschitzCoefficients,
    *,
    distance: float,
    n_records: int,
    mu: float,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
    steps: int | None = None,
    population: bool = False,
    only_k: int | None = None,
) -> RiskBound:
    """Minimise S4's bound over (k, η, α), and over T when `steps` is left out, at σ = κ√T/(nμ) (full batch).

        E F(x̄) − F(x*) ≤ D²/(2ηT) + 3ηG_0²(1+kσ²) + (α/2)D² + (3/α)Σ_s s²2^s G²_{2^{s−1}k},   ηα ≤ ½

    for the mean x̄ of x⁽⁰⁾ … x⁽ᵀ⁻¹⁾ (S4, (11), prints 1 … T) of x ← x − η(∇F(x) + α(x − x⁽⁰⁾) + G_0·N(0, σ²I)),
    F convex, ‖x⁽⁰⁾ − x*‖ ≤ D.

    With a = G_0²(1+kσ²) and the tail sum Σ: √6·D(√(a/T) + √Σ) where that needs ηα ≤ ½, else the least value on
    ηα = ½, 2·√((D²/(2T) + D²/4)(3a + 6Σ)). The bound falls with T; left out, T is the power of two from which on it
    falls by less than 1 %. `population` adds 4G_0²η(T/n + √T), the stability of the mean iterate (S4, Theorem 3.5).

    >>> flat = LipschitzCoefficients(1.0, np.zeros(999), "rank one")
    >>> round(minimised_excess_risk_upper_bound(flat, distance=1.0, n_records=1000, mu=1.0).excess_risk, 3)
    0.005
    """
    D, n = check_positive("distance", distance), check_count("n_records", n_records)
    kappa = Neighbouring.parse(neighbouring).sensitivity_factor
    mu = check_positive("mu", mu)
    d = coefficients.dimension
    if only_k is not None:
        ks = np.array([check_count("only_k", only_k)])
        if only_k > d:
            raise GratisError(f"k must be at most the dimension {d}, got {only_k}")
    elif d <= _ALL_DIMENSIONS:
        ks = np.arange(1, d + 1)
    else:
        ks = np.unique(np.append(np.geomspace(1, d, _ALL_DIMENSIONS).astype(np.int64), d))
    tails = _tail_sums(coefficients, ks)

    def best(T: int) -> RiskBound:
        sigma = kappa * math.sqrt(T) / (n * mu)
        slope = 3 * coefficients.per_record**2 * (1 + ks * sigma**2)
        if population:
            slope = slope + _STABILITY * coefficients.per_record**2 * (T / n + math.sqrt(T))
        eta, alpha = D / np.sqrt(2 * T * slope), np.sqrt(6 * tails) / D
        bounds = 2 * np.sqrt(D**2 / (2 * T) * slope) + np.sqrt(6 * tails) * D
        tied = eta * alpha > 0.5
        tied_slope, tied_fall = slope + 6 * tails, D**2 * (1 / (2 * T) + 0.25)
        eta = np.where(tied, np.sqrt(tied_fall / tied_slope), eta)
        bounds = np.where(tied, 2 * np.sqrt(tied_fall * tied_slope), bounds)
        alpha = np.where(tied, 0.5 / eta, alpha)
        i = int(np.argmin(bounds))
        return RiskBound(float(bounds[i]), int(ks[i]), float(eta[i]), float(alpha[i]), T, sigma)

    if steps is not None:
        return best(check_count("steps", steps))
    T, found = 1, best(1)
    while T < 2**62:
        longer = best(2 * T)
        # The last test keeps a plateau at the very start (ηα tied) from looking like the end.
        if longer.excess_risk > 0.99 * found.excess_risk and T >= (n * mu / kappa) ** 2 / found.k:
            break
        T, found = 2 * T, longer
    return found


def power_law_rate(
    *, decay: float, n_records: int, epsilon: float, delta: float, dimension: int | None = None
) -> tuple[float, int]:
    """G_k ≤ G_0k^{−c}, c > ½: ((√ln 1/δ)/(εn))^{2c/(1+2c)} in units of G_0D, and the k that gives it. No constants.

    >>> rate, k = power_law_rate(decay=1.0, n_records=10_000, epsilon=1.0, delta=1e-6)
    >>> round(rate, 5), k
    (0.00517, 194)
    """
    c = check_positive("decay", decay)
    if c <= 0.5:
        raise GratisError(f"the rate needs a decay above 1/2, got {c}; use the minimised bound instead")
    signal = check_positive("epsilon", epsilon) * check_count("n_records", n_records)
    signal /= math.sqrt(math.log(1 / check_positive("delta", delta)))
    k = math.ceil(signal ** (2 / (1 + 2 * c)))
    return signal ** (-2 * c / (1 + 2 * c)), k if dimension is None else min(dimension, k)


def rank_rate(*, rank: int, n_records: int, epsilon: float, delta: float) -> float:
    """Gradients in r dimensions: √(r·ln 1/δ)/(εn) in units of G_0D. No constants (S4, Remark 3.4).

    >>> round(rank_rate(rank=4, n_records=1000, epsilon=1.0, delta=1e-6), 5)
    0.00743
    """
    scale = math.sqrt(check_count("rank", rank) * math.log(1 / check_positive("delta", delta)))
    return scale / (check_positive("epsilon", epsilon) * check_count("n_records", n_records))


def _eigenvalues(matrix: ArrayLike) -> Array:
    values: Array = np.asarray(matrix, dtype=np.float64)
    if values.ndim == 2:
        if values.shape[0] != values.shape[1] or not np.all(np.isfinite(values)) or not np.allclose(values, values.T):
            raise GratisError("the matrix must be square, symmetric and finite")
        values = np.asarray(np.linalg.eigvalsh(values), dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)):
        raise GratisError("expected a symmetric matrix or its eigenvalues")
    values = np.sort(values)[::-1]
    if values[0] <= 0 or values[-1] < -1e-9 * values[0]:
        raise GratisError("the matrix must be positive semidefinite and not zero")
    return np.maximum(values, 0.0)
