"""Neural tangent kernels of fully connected networks at initialisation, and minimum-norm models with their sensitivity.

A network f_L = W_Lᵀf_{L−1}, f_l = φ(W_lᵀf_{l−1}), f_0 = x with one output has the Jacobian Gram matrix (S1)

    ΦΦᵀ = Σ_{l=0}^{L−1} F_lF_lᵀ ∘ B_{l+1}B_{l+1}ᵀ,

F_l (n, N_l) the features of layer l and B_l the gradients of the output in the pre-activations of layer l: n²·ΣN_l
operations, and no n×p Jacobian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = [
    "FullyConnected",
    "Smooth",
    "law_of_robustness",
    "linear_regime_losses",
    "random_features_sensitivity",
    "tangent_features_sensitivity",
    "tangent_kernel",
]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Smooth:
    """An activation with its first and second derivative."""

    name: str
    function: Callable[[Array], Array]
    first: Callable[[Array], Array]
    second: Callable[[Array], Array]

    @classmethod
    def parse(cls, name: str) -> Smooth:
        """Read an activation from its name: relu, tanh, softplus, square, cosine (the last two are even)."""
        if name not in _NAMED:
            raise GratisError(f"unknown activation {name!r}; expected one of {', '.join(_NAMED)}")
        return _NAMED[name]


def _sigmoid(z: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(z / 2)))


_NAMED = {
    "relu": Smooth("relu", lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(z.dtype), np.zeros_like),
    "tanh": Smooth("tanh", np.tanh, lambda z: 1 - np.tanh(z) ** 2, lambda z: -2 * np.tanh(z) * (1 - np.tanh(z) ** 2)),
    "softplus": Smooth("softplus", lambda z: np.logaddexp(0, z), _sigmoid, lambda z: _sigmoid(z) * (1 - _sigmoid(z))),
    "square": Smooth("square", lambda z: z**2 / 2, lambda z: z, np.ones_like),
    "cosine": Smooth("cosine", np.cos, lambda z: -np.sin(z), lambda z: -np.cos(z)),
}


@dataclass(frozen=True, slots=True)
class FullyConnected:
    """Weights W_l (N_{l−1}, N_l) of a network with one output, no biases."""

    weights: tuple[Array, ...]
    activation: Smooth

    @classmethod
    def random(
        cls, widths: Sequence[int], activation: str | Smooth, rng: np.random.Generator, *, unit_output: bool = False
    ) -> FullyConnected:
        """Draw W_l ~ N(0, 1/N_{l−1}) for widths d, N_1, …, N_{L−1}; the output layer is added.

        With `unit_output` that layer has entries N(0, 1), as in S1's theorems, so that the kernel grows with the width.

        >>> FullyConnected.random([3, 5, 4], "relu", np.random.default_rng(0)).n_parameters
        39
        """
        sizes = [check_count("a width", width) for width in widths] + [1]
        if len(sizes) < 2:
            raise GratisError("a network needs at least the input width")
        kind = activation if isinstance(activation, Smooth) else Smooth.parse(activation)
        scales = [*(1 / math.sqrt(size) for size in sizes[:-2]), 1.0 if unit_output else 1 / math.sqrt(sizes[-2])]
        shapes = zip(pairwise(sizes), scales, strict=True)
        return cls(tuple(rng.standard_normal(shape) * scale for shape, scale in shapes), kind)

    @property
    def n_parameters(self) -> int:
        """P."""
        return sum(weight.size for weight in self.weights)

    def outputs(self, X: Array) -> Array:
        """Return f(x) for every row."""
        return np.asarray(self._forward(X)[1][-1][:, 0])

    def _forward(self, X: Array) -> tuple[list[Array], list[Array]]:
        features, scores = [np.asarray(X, dtype=np.float64)], []
        for weight in self.weights:
            scores.append(features[-1] @ weight)
            features.append(self.activation.function(scores[-1]))
        return features[:-1], scores

    def layers(self, X: Array) -> tuple[list[Array], list[Array]]:
        """Return (F_0 … F_{L−1}) and (B_1 … B_L)."""
        features, scores = self._forward(X)
        backward = [np.ones((len(X), 1))]
        for weight, score in zip(reversed(self.weights[1:]), reversed(scores[:-1]), strict=True):
            backward.append((backward[-1] @ weight.T) * self.activation.first(score))
        return features, backward[::-1]

    def jacobian(self, X: Array) -> Array:
        """Return Φ (n, p) row by row; for small networks."""
        features, backward = self.layers(X)
        parts = [np.einsum("ia,ib->iab", F, B).reshape(len(X), -1) for F, B in zip(features, backward, strict=True)]
        return np.hstack(parts)

    def input_gradients(self, X: Array) -> Array:
        """Return ∇_x f for every row: S_f(x) = ‖x‖·‖∇_x f‖ of any such network."""
        return np.asarray(self.layers(X)[1][0] @ self.weights[0].T)

    def descend(self, X: Array, y: Array, *, step_size: float, steps: int) -> Array:
        """Train by plain gradient descent on ½‖f − y‖²; return the losses ‖f − y‖², steps + 1 of them."""
        weights = [weight.copy() for weight in self.weights]
        losses = []
        for step in range(steps + 1):
            network = FullyConnected(tuple(weights), self.activation)
            residual = network.outputs(X) - y
            losses.append(float(residual @ residual))
            if step < steps:
                features, backward = network.layers(X)
                for weight, F, B in zip(weights, features, backward, strict=True):
                    weight -= step_size * F.T @ (B * residual[:, None])
        return np.array(losses)


def tangent_kernel(network: FullyConnected, X: Array) -> Array:
    """Return ΦΦᵀ by the Hadamard formula.

    >>> rng = np.random.default_rng(0)
    >>> network, X = FullyConnected.random([3, 5, 4], "tanh", rng), rng.standard_normal((6, 3))
    >>> phi = network.jacobian(X)
    >>> bool(np.allclose(tangent_kernel(network, X), phi @ phi.T))
    True
    """
    features, backward = network.layers(X)
    return np.asarray(sum((F @ F.T) * (B @ B.T) for F, B in zip(features, backward, strict=True)))


def linear_regime_losses(kernel: Array, residual: Array, *, step_size: float, steps: int) -> Array:
    """Predict ‖f − y‖² of gradient descent in the linear regime: r_k = (I − ηK)^k r_0, exactly, for k = 0 … steps.

    The slowest mode gives S1's geometric rate (1 − ηλ_min)^{2k}.
    """
    values, vectors = np.linalg.eigh(kernel)
    modes = np.square(vectors.T @ residual)
    factors = np.abs(1 - step_size * values)
    return np.array([float(modes @ factors ** (2 * k)) for k in range(steps + 1)])


def random_features_sensitivity(X: Array, y: Array, X_test: Array, weights: Array, activation: str | Smooth) -> Array:
    """Return S(x) = ‖x‖·‖Vᵀ(φ′(Vx) ∘ θ*)‖ of the minimum-norm random-features model, for every test row.

    V is (p, d); needs p ≥ n.
    """
    kind = activation if isinstance(activation, Smooth) else Smooth.parse(activation)
    if len(weights) < len(X):
        raise GratisError(f"a minimum-norm interpolant needs p ≥ n, got p={len(weights)}, n={len(X)}")
    features = kind.function(X @ weights.T)
    theta = features.T @ _solve(features @ features.T, y)
    gradients = (kind.first(X_test @ weights.T) * theta) @ weights
    return np.asarray(np.linalg.norm(X_test, axis=1) * np.linalg.norm(gradients, axis=1))


def tangent_features_sensitivity(X: Array, y: Array, X_test: Array, weights: Array, activation: str | Smooth) -> Array:
    """Return S(x) of the minimum-norm model on the tangent features of S1's two-layer network, for every test row.

    f(x, w) = Σφ(⟨w_i, x⟩) − Σφ(⟨w_i′, x⟩) with w = w′ = W (k, d) at initialisation, so p = 2kd, the features are
    ±φ′(Wx) ⊗ x, and with a = (ΦΦᵀ)⁻¹y, u_j = Σ_i a_i φ′(w_jᵀx_i)x_i:

        K = 2·XXᵀ ∘ φ′(XWᵀ)φ′(XWᵀ)ᵀ,   ∇f(x) = 2Σ_j [φ″(w_jᵀx)(u_jᵀx)·w_j + φ′(w_jᵀx)·u_j].

    Nothing of size p is formed.
    """
    kind = activation if isinstance(activation, Smooth) else Smooth.parse(activation)
    slopes = kind.first(X @ weights.T)
    coefficients = _solve(2 * (X @ X.T) * (slopes @ slopes.T), y)
    centres = (slopes * coefficients[:, None]).T @ X  # u, (k, d)
    scores = X_test @ weights.T
    gradients = 2 * ((kind.second(scores) * (X_test @ centres.T)) @ weights + kind.first(scores) @ centres)
    return np.asarray(np.linalg.norm(X_test, axis=1) * np.linalg.norm(gradients, axis=1))


def law_of_robustness(n_records: int, n_inputs: int, n_parameters: float) -> float:
    """√(nd/p): the order of the least Lipschitz constant, times √d·‖x‖⁻¹, of anything that fits below the noise.

    Bubeck & Sellke 2021: Lip(f) ≥ const·√(nd/p) for ‖x‖ of order 1, that is S(x) of that order for ‖x‖ = √d. The
    constant is not known sharply: compare slopes, not heights.

    >>> law_of_robustness(100, 10, 1000)
    1.0
    """
    return math.sqrt(n_records * n_inputs / n_parameters)


def _solve(kernel: Array, y: Array) -> Array:
    """Return K⁻¹y, or the least-norm answer where K is singular to working precision."""
    try:
        return np.asarray(cho_solve(cho_factor(kernel), y))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(kernel, y, rcond=None)[0])
