"""Reconstruction of training points from the parameters of a random-features model (S1; Iurada et al., 2026).

A model trained from zero without noise lies in the span of its training features. Points whose features span it are
the training points once p ≫ nd:

    minimise ‖P⊥ θ‖²/‖θ‖² over ‖x̂ᵢ‖ = √d,   P⊥ the projection off span{φ(Vx̂₁), …, φ(Vx̂ₙ)}.

With the coefficients c = (Φ̂Φ̂ᵀ)⁻¹Φ̂θ and the residual r = θ − Φ̂ᵀc the gradient is −2cᵢVᵀ(φ′(Vx̂ᵢ) ∘ r): two matrix
products, nothing is differentiated by a tape. The authors take up to 10⁶ momentum steps; L-BFGS takes three to eleven
thousand in their setting, most of them on a part of the features, since any part of θ is spanned by the same part of
the features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import erf

from gratis.specs.checks import check_count, check_positive
from gratis.specs.errors import GratisError

__all__ = [
    "FrozenLayer",
    "Matching",
    "Reconstruction",
    "chance_error",
    "match_points",
    "reconstruct",
    "span_residual",
]

Array = NDArray[Any]

# Features of the first stage, in units of nd.
_FIRST_STAGE = 3
_FIRST_HOPS = 2
_HISTORY = 20
_STARTS, _ASCENTS = 16, 30


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


_ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(z.dtype)),
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
        blocks, found, block = [], 0, 0
        while found < features.n_features:
            blocks.append(features.weights(block))
            found, block = found + len(blocks[-1]), block + 1
        return cls.of(np.vstack(blocks), features.activation.name)

    def part(self, count: int) -> FrozenLayer:
        """Return the first `count` features."""
        return FrozenLayer(self.weights[:count], self.function, self.derivative)


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """The points found, the share of ‖θ‖² that they leave unexplained, and how many gradients it took."""

    points: NDArray[np.float64]
    residual: float
    gradients: int


@dataclass(frozen=True, slots=True)
class Matching:
    """Truth matched with reconstruction: `points` in the order (and sign) of the truth, ‖x − x̂‖/√d for each."""

    points: NDArray[np.float64]
    errors: NDArray[np.float64]

    @property
    def mean_error(self) -> float:
        """Mean of ‖x − x̂‖/√d."""
        return float(self.errors.mean())


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
    n = len(points)
    # Features by rows: a tall matrix times a few columns is what BLAS does best.
    scores = layer.weights @ points.astype(np.float32).T
    features = np.asarray(layer.function(scores), dtype=np.float32)
    gram = (features.T @ features).astype(np.float64)
    gram[np.diag_indices(n)] += 1e-7 * np.trace(gram) / n + 1e-30
    inverse = np.linalg.inv(gram)
    coefficients = inverse @ (features.T @ parameters).astype(np.float64)
    small = coefficients.astype(np.float32)
    residual = parameters - features @ small
    total = float(np.vdot(parameters, parameters))
    weighted = np.asarray(layer.derivative(scores), dtype=np.float32)
    if parameters.shape[1] == 1:
        weighted *= residual
        gradient = small * (weighted.T @ layer.weights)
    else:
        weighted *= residual @ small.T
        gradient = weighted.T @ layer.weights
    # Leaving point i out raises the residual by c_i²/(K⁻¹)_ii.
    explained = np.square(coefficients).sum(axis=1) / np.diag(inverse) / total
    return float(np.vdot(residual, residual)) / total, gradient * np.float32(-2 / total), explained


class _Attack:
    """One attack in progress: counts gradients and keeps the best points."""

    def __init__(self, layer: FrozenLayer, parameters: Array, n_points: int) -> None:
        self.layer, self.parameters, self.n = layer, parameters, n_points
        self.d = layer.weights.shape[1]
        self.gradients = 0

    def sphere(self, points: Array) -> Array:
        return np.asarray(points * (math.sqrt(self.d) / np.linalg.norm(points, axis=1, keepdims=True)))

    def descend(self, points: Array, features: int, steps: int, tolerance: float) -> tuple[float, Array]:
        layer, parameters = self.layer.part(features), self.parameters[:features]
        root = math.sqrt(self.d)

        def objective(flat: Array) -> tuple[float, Array]:
            free = flat.reshape(self.n, self.d)
            norms = np.linalg.norm(free, axis=1, keepdims=True)
            unit = free / norms
            value, gradient, _ = span_residual(root * unit, layer, parameters)
            self.gradients += 1
            tangent = gradient - (gradient * unit).sum(axis=1, keepdims=True) * unit
            return value, np.ravel(tangent * (root / norms)).astype(np.float64)

        def enough(intermediate_result: Any) -> None:
            if intermediate_result.fun < tolerance:
                raise StopIteration

        found = minimize(
            objective, self.sphere(points).ravel(), jac=True, method="L-BFGS-B", callback=enough,
            options={"maxiter": steps, "maxfun": 2 * steps, "maxcor": _HISTORY, "ftol": 1e-10, "gtol": 1e-9},
        )  # fmt: skip
        return float(found.fun), self.sphere(found.x.reshape(self.n, self.d))

    def search(
        self, points: Array, features: int, steps: int, hops: int, tolerance: float, rng: np.random.Generator
    ) -> tuple[float, Array]:
        best, points = self.descend(points, features, steps, tolerance)
        for hop in range(hops):
            if best < tolerance:
                break
            layer, parameters = self.layer.part(features), self.parameters[:features]
            least = np.argsort(span_residual(points, layer, parameters)[2])
            chosen, tried = int(least[(hop // 2) % self.n]), points.copy()
            tried[chosen] = -points[chosen] if hop % 2 else self.pursue(points, chosen, features, rng)
            value, tried = self.descend(tried, features, steps // 2, tolerance)
            if value < best:
                best, points = value, tried
        return best, points

    def pursue(self, points: Array, chosen: int, count: int, rng: np.random.Generator) -> Array:
        """Return the point whose features explain most of what the others leave of θ, by power ascent."""
        V, function, derivative = self.layer.weights[:count], self.layer.function, self.layer.derivative
        parameters = self.parameters[:count]
        others = np.asarray(function(np.delete(points, chosen, axis=0).astype(np.float32) @ V.T), dtype=np.float32)
        basis = np.linalg.qr(others.T)[0]
        left = parameters - basis @ (basis.T @ parameters)
        # The output that is explained worst has most to say.
        left = left[:, int(np.argmax(np.square(left).sum(axis=0)))]
        starts = rng.standard_normal((_STARTS, self.d)).astype(np.float32)
        found = self.sphere(np.vstack([starts, -starts])).astype(np.float32)
        for _ in range(_ASCENTS):
            scores = found @ V.T
            # Ascent of (φ(Vx)ᵀr)²: the gradient carries the sign of φ(Vx)ᵀr.
            signs = np.sign(np.asarray(function(scores), dtype=np.float32) @ left)[:, None]
            step = (np.asarray(derivative(scores), dtype=np.float32) * left) @ V
            found = self.sphere(signs * step + 1e-12 * found).astype(np.float32)
        features = np.asarray(function(found @ V.T), dtype=np.float32)
        features -= (features @ basis) @ basis.T
        gain = np.square(features @ left) / np.maximum(np.square(features).sum(axis=1), 1e-30)
        return np.asarray(found[int(np.argmax(gain))], dtype=np.float64)


def reconstruct(
    parameters: Array,
    layer: FrozenLayer,
    n_points: int,
    *,
    rng: np.random.Generator,
    steps: int = 3000,
    hops: int = 10,
    tolerance: float = 1e-8,
) -> Reconstruction:
    """Search n points whose features span θ.

    A search that stalls above the tolerance has most often one point in the wrong place or with the wrong sign (odd and
    even activations leave the sign open, ReLU makes it a local minimum): a hop takes the points that explain
    least in turn, moves one to where it would explain most, or mirrors it, and is kept if that helps.

    Parameters
    ----------
    parameters : (p,) or (p, k)
        What was released.
    layer : FrozenLayer
        The public features.
    n_points : int
        How many training points to look for.
    rng : Generator
        Starts and hops.
    steps : int
        L-BFGS iterations of one descent.
    hops : int
        Attempts to leave a local minimum once all features are used.
    tolerance : float
        Residual at which the search ends.
    """
    n_points, steps = check_count("n_points", n_points), check_count("steps", steps)
    hops = check_count("hops", hops, minimum=0)
    tolerance = check_positive("tolerance", tolerance)
    theta = np.asarray(parameters, dtype=np.float32)
    theta = np.ascontiguousarray(theta[:, None] if theta.ndim == 1 else theta)
    p, d = layer.weights.shape
    if theta.ndim != 2 or len(theta) != p:
        raise GratisError(f"the parameters have shape {np.shape(parameters)} but the layer has {p} features")
    if p < n_points:
        raise GratisError(
            f"{p} features cannot hold {n_points} points: the span of any {p} of them is everything; "
            "reconstruction needs p well above n·d"
        )
    if not np.isfinite(theta).all() or not theta.any():
        raise GratisError("the parameters must be finite and not all zero")
    attack = _Attack(layer, theta, n_points)
    points = rng.standard_normal((n_points, d))
    first = _FIRST_STAGE * n_points * d
    if 2 * first <= p:
        _, points = attack.search(points, first, steps, min(hops, _FIRST_HOPS), tolerance, rng)
    best, points = attack.search(points, p, steps, hops, tolerance, rng)
    return Reconstruction(points, best, attack.gradients)


def match_points(truth: Array, points: Array, *, up_to_sign: bool = False) -> Matching:
    """Match reconstructed with true points at the least total distance (Hungarian algorithm).

    >>> match_points(np.eye(2), -np.eye(2)[::-1], up_to_sign=True).mean_error
    0.0
    """
    truth, points = np.asarray(truth, dtype=np.float64), np.asarray(points, dtype=np.float64)
    if truth.shape != points.shape:
        raise GratisError(f"truth and reconstruction must have one shape, got {truth.shape} and {points.shape}")
    squares = np.add.outer(np.square(truth).sum(axis=1), np.square(points).sum(axis=1))
    inner = truth @ points.T
    distances = np.sqrt(np.maximum(squares - 2 * (np.abs(inner) if up_to_sign else inner), 0))
    rows, columns = linear_sum_assignment(distances)
    signs = np.where(inner[rows, columns] < 0, -1.0, 1.0) if up_to_sign else np.ones(len(rows))
    matched = points[columns] * signs[:, None]
    return Matching(matched, np.linalg.norm(truth - matched, axis=1) / math.sqrt(truth.shape[1]))


def chance_error(truth: Array, rng: np.random.Generator, *, draws: int = 20) -> float:
    """Mean error of random points on the sphere after matching: what an attack must beat (√2 before matching)."""
    n, d = truth.shape
    errors = []
    for _ in range(check_count("draws", draws)):
        points = rng.standard_normal((n, d))
        points *= math.sqrt(d) / np.linalg.norm(points, axis=1, keepdims=True)
        errors.append(match_points(truth, points).mean_error)
    return float(np.mean(errors))
