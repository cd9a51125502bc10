"""Reconstruction of training points from the parameters of a random-features model (S1; Iurada et al. 2026).

A model trained from zero without noise lies in the span of its training features. Points whose features span it are
the training points once p ≫ nd:

    minimise ‖P⊥ θ‖²/‖θ‖² over ‖x̂ᵢ‖ = √d,   P⊥ the projection off span{φ(Vx̂₁), …, φ(Vx̂ₙ)}.

The authors take up to 10⁶ momentum steps; L-BFGS with the analytic gradient (`span_projection`) takes a few thousand in
their setting, most of them on a part of the features, since any part of θ is spanned by the same part of the features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize

from gratis.audits.span_projection import FrozenLayer, SpanResidual, span_residual
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.progress import counted, tracked

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
_FIRST_HOPS = 4
# A descent goes on below the tolerance, down to what features rounded to a grid and float32 leave.
_FLOOR = 1e-9
_HISTORY = 20
_STARTS, _ASCENTS = 16, 30


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """The points found, the share of ‖θ‖² that they leave unexplained, and how many gradients it took.

    `whole_gradients` of them used all features, the others a part.
    """

    points: NDArray[np.float64]
    residual: float
    gradients: int
    whole_gradients: int


@dataclass(frozen=True, slots=True)
class Matching:
    """Truth matched with reconstruction: `points` in the order (and sign) of the truth, ‖x − x̂‖/√d for each."""

    points: NDArray[np.float64]
    errors: NDArray[np.float64]

    @property
    def mean_error(self) -> float:
        """Mean of ‖x − x̂‖/√d."""
        return float(self.errors.mean())


class _Attack:
    """One attack in progress: counts gradients and keeps the best points."""

    def __init__(self, layer: FrozenLayer, parameters: Array, n_points: int, known: Array | None) -> None:
        self.layer, self.parameters, self.n, self.known = layer, parameters, n_points, known
        self.d = layer.weights.shape[1]
        self.gradients = self.whole_gradients = 0

    def residual(self, features: int) -> SpanResidual:
        known = None if self.known is None else self.known[:features]
        return SpanResidual(self.layer.part(features), self.parameters[:features], known)

    def sphere(self, points: Array) -> Array:
        return np.asarray(points * (math.sqrt(self.d) / np.linalg.norm(points, axis=1, keepdims=True)))

    def descend(self, points: Array, residual: SpanResidual, steps: int) -> tuple[float, Array]:
        root = math.sqrt(self.d)

        def objective(flat: Array) -> tuple[float, Array]:
            free = flat.reshape(self.n, self.d)
            norms = np.linalg.norm(free, axis=1, keepdims=True)
            unit = free / norms
            value, gradient, _ = residual(root * unit)
            self.gradients += 1
            self.whole_gradients += residual.n_features == len(self.parameters)
            tangent = gradient - (gradient * unit).sum(axis=1, keepdims=True) * unit
            return value, np.ravel(tangent * (root / norms)).astype(np.float64)

        with counted("descent", steps) as advance:

            def enough(intermediate_result: Any) -> None:
                advance(1)
                if intermediate_result.fun < _FLOOR:
                    raise StopIteration

            found = minimize(
                objective, self.sphere(points).ravel(), jac=True, method="L-BFGS-B", callback=enough,
                options={"maxiter": steps, "maxfun": 2 * steps, "maxcor": _HISTORY, "ftol": 1e-10, "gtol": 1e-9},
            )  # fmt: skip
        return float(found.fun), self.sphere(found.x.reshape(self.n, self.d))

    def search(
        self, points: Array, features: int, steps: int, hops: int, tolerance: float, rng: np.random.Generator
    ) -> tuple[float, Array]:
        residual = self.residual(features)
        best, points = self.descend(points, residual, steps)
        for hop in tracked(range(hops), "hops"):
            if best < tolerance:
                break
            least = np.argsort(residual(points)[2])
            chosen, tried = int(least[(hop // 2) % self.n]), points.copy()
            tried[chosen] = -points[chosen] if hop % 2 else self.pursue(points, chosen, features, rng)
            value, tried = self.descend(tried, residual, steps // 2)
            if value < best:
                best, points = value, tried
        return best, points

    def pursue(self, points: Array, chosen: int, count: int, rng: np.random.Generator) -> Array:
        """Return the point whose features explain most of what the others leave of θ, by power ascent."""
        V, function, derivative = self.layer.weights[:count], self.layer.function, self.layer.derivative
        parameters = self.parameters[:count]
        others = np.asarray(function(np.delete(points, chosen, axis=0).astype(np.float32) @ V.T), dtype=np.float32)
        spanned = others.T if self.known is None else np.hstack([others.T, self.known[:count]])
        basis = np.linalg.qr(spanned)[0]
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
    tolerance: float = 1e-7,
    known: Array | None = None,
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
        Residual below which all points count as found; features rounded to a grid leave about 10⁻⁸.
    known : (p, q), optional
        Directions that lie in the span whatever the points are, as the released mean of centred features.
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
    if known is not None:
        known = np.asarray(known, dtype=np.float32)
        if known.ndim != 2 or len(known) != p:
            raise GratisError(f"known directions must be columns of {p} entries, got the shape {known.shape}")
    attack = _Attack(layer, theta, n_points, known)
    points = rng.standard_normal((n_points, d))
    first = _FIRST_STAGE * n_points * d
    # With few features first; most of the work is in the hops, which end as soon as the points are found.
    stages = [(first, min(hops, _FIRST_HOPS))] if 2 * first <= p else []
    for features, most in tracked([*stages, (p, hops)], "attack"):
        best, points = attack.search(points, features, steps, most, tolerance, rng)
    return Reconstruction(points, best, attack.gradients, attack.whole_gradients)


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


def chance_error(truth: Array, rng: np.random.Generator, *, draws: int = 20, up_to_sign: bool = False) -> float:
    """Mean error of random points on the sphere after matching: what an attack must beat (√2 before matching)."""
    n, d = truth.shape
    errors = []
    for _ in range(check_count("draws", draws)):
        points = rng.standard_normal((n, d))
        points *= math.sqrt(d) / np.linalg.norm(points, axis=1, keepdims=True)
        errors.append(match_points(truth, points, up_to_sign=up_to_sign).mean_error)
    return float(np.mean(errors))
