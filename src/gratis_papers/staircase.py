"""The staircase of kernel regression: with d^ℓ ≪ n ≪ d^{ℓ+1} samples the best polynomial of degree ℓ is learnt (S1).

An inner-product kernel k(⟨x, z⟩/d) on the sphere of radius √d has one eigenvalue ξ_l a degree, with the multiplicity
B(d, l) of spherical harmonics. Its ridge regression has a deterministic equivalent at finite n and d:

    Σ_l B_l ξ_l/(ξ_l + κ) + λ/κ = n,
    E(f̂ − f*)² + τ² = (τ² + Σ_l F_l κ²/(ξ_l + κ)²) / (1 − Σ_l B_l ξ_l²/(ξ_l + κ)²/n),

F_l = ‖P_l f*‖². Between the steps this is the plateau Σ_{l > ℓ} F_l; at n ≈ B_l it shows S1's peak (b).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.optimize import brentq

from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError

__all__ = ["SphericalKernel", "harmonic_dimension", "plateau", "predict_kernel_risk", "spherical_kernel"]

Array = NDArray[np.float64]

_NODES = 200


@dataclass(frozen=True, slots=True)
class SphericalKernel:
    """Eigenvalues and multiplicities by degree 0 … L, and the trace that all higher degrees hold together."""

    eigenvalues: Array
    dimensions: Array
    remaining_trace: float


def harmonic_dimension(dimension: int, degree: int) -> int:
    """B(d, l): how many independent spherical harmonics of degree l there are in d dimensions.

    >>> [harmonic_dimension(3, degree) for degree in range(4)]
    [1, 3, 5, 7]
    """
    d, degree = check_count("dimension", dimension, minimum=3), check_count("degree", degree, minimum=0)
    lower = math.comb(d + degree - 3, degree - 2) if degree >= 2 else 0
    return math.comb(d + degree - 1, degree) - lower


def spherical_kernel(kernel: Callable[[Array], Array], dimension: int, *, degrees: int = 6) -> SphericalKernel:
    """Decompose k(t), t = ⟨x, z⟩/d ∈ [−1, 1], by Gauss–Gegenbauer quadrature: ξ_l = E k(t)P_l(t), P_l(1) = 1.

    >>> linear = spherical_kernel(lambda t: t, 5, degrees=2)
    >>> (linear.eigenvalues * linear.dimensions).round(12).tolist()
    [0.0, 1.0, 0.0]
    """
    d, degrees = check_count("dimension", dimension, minimum=3), check_count("degrees", degrees)
    # Golub and Welsch: exact for large d, where evaluating the polynomials themselves overflows.
    k = np.arange(1.0, _NODES)
    nodes, vectors = eigh_tridiagonal(np.zeros(_NODES), np.sqrt(k * (k + d - 3) / ((2 * k + d - 2) * (2 * k + d - 4))))
    weights = vectors[0] ** 2
    values = np.asarray(kernel(nodes), dtype=np.float64) * weights
    eigenvalues = []
    previous, current = np.zeros_like(nodes), np.ones_like(nodes)
    for degree in range(degrees + 1):
        eigenvalues.append(float(values @ current))
        # (l + d − 2)P_{l+1} = (2l + d − 2)t·P_l − l·P_{l−1}
        following = ((2 * degree + d - 2) * nodes * current - degree * previous) / (degree + d - 2)
        previous, current = current, following
    dimensions = np.array([harmonic_dimension(d, degree) for degree in range(degrees + 1)], dtype=np.float64)
    found = np.array(eigenvalues)
    if found.min() < -1e-10 * abs(found).max():
        raise GratisError("the kernel has a negative eigenvalue: it is not positive definite on the sphere")
    found = np.maximum(found, 0)
    trace = float(np.asarray(kernel(np.ones(1)), dtype=np.float64)[0])
    return SphericalKernel(found, dimensions, max(0.0, trace - float(found @ dimensions)))


def plateau(energies: Array, degree: int) -> float:
    """‖P_{>ℓ} f*‖²: where the test error stays while d^ℓ ≪ n ≪ d^{ℓ+1}.

    >>> plateau(np.array([0.0, 0.5, 0.3, 0.2]), 1)
    0.5
    """
    return float(np.sum(energies[degree + 1 :]))


def predict_kernel_risk(
    kernel: SphericalKernel,
    energies: Array,
    n_records: int,
    *,
    ridge: float = 0.0,
    label_noise_variance: float = 0.0,
) -> float:
    """Predict E(f̂(x) − f*(x))² of kernel ridge regression on n uniform points of the sphere.

    Degrees above those decomposed act as a ridge of the size of their trace; f* must have none of them.

    Parameters
    ----------
    kernel : SphericalKernel
        From `spherical_kernel`.
    energies : array
        F_l by degree; the rest are zero.
    n_records : int
        n.
    ridge : float
        λ in (K + λI)⁻¹y.
    label_noise_variance : float
        τ².

    >>> kernel = spherical_kernel(np.exp, 50)
    >>> risks = [predict_kernel_risk(kernel, np.array([0, 0.5, 0.5]), n) for n in (3, 400, 200_000)]
    >>> risks[0] > 0.9, 0.4 < risks[1] < 0.6, risks[2] < 0.01
    (True, True, True)
    """
    n = check_count("n_records", n_records)
    ridge = check_non_negative("ridge", ridge) + kernel.remaining_trace
    noise = check_non_negative("label_noise_variance", label_noise_variance)
    values, dimensions = kernel.eigenvalues, kernel.dimensions
    padded = np.zeros_like(values)
    if len(energies) > len(values):
        raise GratisError(f"energies reach degree {len(energies) - 1}, the kernel was decomposed to {len(values) - 1}")
    padded[: len(energies)] = energies

    def excess(log_kappa: float) -> float:
        kappa = math.exp(log_kappa)
        return float(dimensions @ (values / (values + kappa))) + ridge / kappa - n

    top = math.log(float(values @ dimensions) + ridge + 1e-300) - math.log(n) + 1
    low = top - 1
    while excess(low) < 0:
        low -= 2
        if low < top - 200:
            raise GratisError("without a ridge the kernel's rank is below n: kernel regression is not defined there")
    kappa = math.exp(brentq(excess, low, top, xtol=1e-12))
    shrink = values / (values + kappa)
    freedom = float(dimensions @ shrink**2) / n
    bias = float(padded @ (1 - shrink) ** 2)
    return (noise + bias) / (1 - freedom) - noise
