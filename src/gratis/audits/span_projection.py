"""How much of θ the features of given points leave unexplained, with its gradient: one step of the reconstruction.

    F(x̂) = ‖P⊥ θ‖²/‖θ‖²,   P⊥ the projection off span{φ(Vx̂₁), …, φ(Vx̂ₙ)}.

With the coefficients c = (Φ̂Φ̂ᵀ)⁻¹Φ̂θ and the residual r = θ − Φ̂ᵀc the gradient is −2cᵢVᵀ(φ′(Vx̂ᵢ) ∘ r): two matrix
products with V, in float32; what lies between them is done in place in one buffer, which the steps share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from gratis.records.errors import GratisError

__all__ = ["FrozenLayer", "SpanResidual", "span_residual"]

Array = NDArray[Any]


class FeatureWeights(Protocol):
    """What is read of a random-features map (`models.random_features.RandomFeatures`)."""

    @property
    def n_features(self) -> int:
        """P."""

    @property
    def activation(self) -> Any:
        """With a `name`."""

    def weights(self, block: int) -> Array:
        """Return a block of V."""


def _relu(z: Array) -> Array:
    return np.maximum(z, 0)


_ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (_relu, lambda z: (z > 0).astype(z.dtype)),
    "tanh": (np.tanh, lambda z: 1 - np.square(np.tanh(z))),
    "erf": (erf, lambda z: (2 / math.sqrt(math.pi) * np.exp(-np.square(z))).astype(z.dtype)),
}


@dataclass(frozen=True, slots=True)
class FrozenLayer:
    """x ↦ φ(Vx) with V (p, d) whole in memory, and φ′."""

    weights: NDArray[np.float32]
    function: Callable[[Array], Array]
    derivative: Callable[[Array], Array]

    @classmethod
    def of(cls, weights: Array, activation: str) -> FrozenLayer:
        """Take V and the name of an activation: relu, tanh or erf."""
        if activation not in _ACTIVATIONS:
            raise GratisError(
                f"reconstruction knows the derivative of {', '.join(_ACTIVATIONS)}, not of {activation!r}; "
                "build a FrozenLayer with function and derivative"
            )
        return cls(np.ascontiguousarray(weights, dtype=np.float32), *_ACTIVATIONS[activation])

    @classmethod
    def from_features(cls, features: FeatureWeights) -> FrozenLayer:
        """Regenerate V from a random-features map: its seed is public, so the attacker has it."""
        first = features.weights(0)
        weights = np.empty((features.n_features, first.shape[1]), dtype=np.float32)
        found, block, values = 0, 0, first
        while True:
            weights[found : found + len(values)] = values
            found, block = found + len(values), block + 1
            if found >= features.n_features:
                return cls.of(weights, features.activation.name)
            values = features.weights(block)

    def part(self, count: int) -> FrozenLayer:
        """Return the first `count` features."""
        return FrozenLayer(self.weights[:count], self.function, self.derivative)


# Sums may be reordered: this is an attack's arithmetic, no release depends on it.
@numba.njit(cache=True, fastmath=True)
def _weighted_in_place(
    features: NDArray[np.float32], parameters: NDArray[np.float32], coefficients: NDArray[np.float32]
) -> float:
    """Overwrite ReLU features by φ′ ∘ r, return ‖r‖², r = θ − Φc: one reading instead of four."""
    total = 0.0
    for j in range(features.shape[0]):
        inner = np.float32(0)
        for i in range(features.shape[1]):
            inner += features[j, i] * coefficients[i]
        left = parameters[j] - inner
        total += left * left
        for i in range(features.shape[1]):
            features[j, i] = left if features[j, i] > 0 else np.float32(0)
    return total


class SpanResidual:
    """F, its gradient and how much each point explains, for one θ; buffers are kept from step to step.

    `known` (p, q) are directions that every training shares, as the released mean of centred features: they are
    projected out of θ and of the features.
    """

    def __init__(self, layer: FrozenLayer, parameters: Array, known: Array | None = None) -> None:
        self._layer = layer
        self._parameters: Array = np.ascontiguousarray(parameters, dtype=np.float32)
        self._known = None if known is None else np.linalg.qr(np.asarray(known, dtype=np.float32))[0]
        if self._known is not None:
            self._parameters = self._parameters - self._known @ (self._known.T @ self._parameters)
        self._total = float(np.vdot(self._parameters, self._parameters))
        self._scores = np.empty((len(self._parameters), 0), dtype=np.float32)

    @property
    def n_features(self) -> int:
        """How many features F looks at."""
        return len(self._parameters)

    def __call__(self, points: Array) -> tuple[float, Array, Array]:
        """Return F, ∂F/∂x̂ (n, d), and by how much F would rise without each of the points."""
        n, V, theta = len(points), self._layer.weights, self._parameters
        if self._scores.shape[1] != n:
            self._scores = np.empty((len(V), n), dtype=np.float32)
        # Features by rows: a tall matrix times a few columns is what BLAS does best.
        scores = np.matmul(V, points.astype(np.float32).T, out=self._scores)
        fused = self._layer.function is _relu and self._known is None
        features = (
            np.maximum(scores, 0, out=scores) if fused else np.asarray(self._layer.function(scores), dtype=np.float32)
        )
        if self._known is not None:
            # The residual is orthogonal to what is known, so the gradient below needs no second projection.
            features = features - self._known @ (self._known.T @ features)
        gram = (features.T @ features).astype(np.float64)
        gram[np.diag_indices(n)] += 1e-7 * np.trace(gram) / n + 1e-30
        inverse = np.linalg.inv(gram)
        coefficients = inverse @ (features.T @ theta).astype(np.float64)
        small = coefficients.astype(np.float32)
        # Leaving point i out raises the residual by c_i²/(K⁻¹)_ii.
        explained = np.square(coefficients).sum(axis=1) / np.diag(inverse) / self._total
        if fused and theta.shape[1] == 1:
            left = _weighted_in_place(features, theta[:, 0], small[:, 0])
            gradient = small * (features.T @ V)
        else:
            residual = theta - features @ small
            left = float(np.vdot(residual, residual))
            weighted = np.asarray(self._layer.derivative(scores), dtype=np.float32)
            weighted *= residual @ small.T
            gradient = weighted.T @ V
        return left / self._total, gradient * np.float32(-2 / self._total), explained


def span_residual(points: Array, layer: FrozenLayer, parameters: Array) -> tuple[float, Array, Array]:
    """Return ‖P⊥θ‖²/‖θ‖², its gradient in the points, and how much each point explains.

    Parameters
    ----------
    points : (n, d)
        x̂.
    layer : FrozenLayer
        V and φ.
    parameters : (p, k)
        θ in float32; for several outputs the residuals add up.

    >>> layer = FrozenLayer.of(np.eye(3), "relu")
    >>> span_residual(np.array([[1.0, 2.0, 0.0]]), layer, np.array([[2.0], [4.0], [0.0]], dtype=np.float32))[0] < 1e-6
    True
    """
    return SpanResidual(layer, parameters)(points)
