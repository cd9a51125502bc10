"""Full-batch DP-GD on features, run in the primal: for p < n and where the dual is not proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.rows import Rows
from gratis.stages.dual import ScoreModel, clipped_factors
from gratis.stages.gram import FeatureMap

__all__ = ["KeptFeatures", "averaging_weights", "run_primal"]

Array = NDArray[Any]

_CACHED_ENTRIES = 2**16
_CHUNK_BYTES = 2**30  # of features that a chunk may hold while its part of one gradient is computed


class KeptFeatures:
    """Features of the rows of a chunk, computed once and kept in float32 when they fit, made anew otherwise.

    >>> from gratis.models.random_features import RandomFeatures
    >>> kept = KeptFeatures(RandomFeatures(n_inputs=2, n_features=5), np.eye(2), memory_limit=1e9)
    >>> kept.products(np.ones((5, 1))).shape, kept.transposed_products(np.ones((2, 1))).shape
    ((2, 1), (5, 1))
    """

    def __init__(self, features: FeatureMap, X: Array, *, memory_limit: float) -> None:
        self._features, self._rows, self._stored = features, X, None
        self.shape = len(X), features.n_features
        if 4.0 * len(X) * features.n_features <= memory_limit:
            self._stored = list(self._single_precision())

    def _single_precision(self) -> Any:
        for columns, values in self._features.blocks(self._rows):
            with np.errstate(over="ignore"):
                single = values.astype(np.float32)
            # What single precision cannot hold counts as 0: an infinity would spread to all records' sum.
            yield columns, np.nan_to_num(single, copy=False, nan=0.0, posinf=0.0, neginf=0.0)

    def _blocks(self) -> Any:
        return self._single_precision() if self._stored is None else self._stored

    def norms(self) -> NDArray[np.float64]:
        """Return ‖φᵢ‖."""
        squares = np.zeros(self.shape[0])
        for _, values in self._blocks():
            squares += np.einsum("ij,ij->i", values, values, dtype=np.float64)
        return np.sqrt(squares)

    def products(self, parameters: Array) -> NDArray[np.float64]:
        """Return Φθ."""
        scores = np.zeros((self.shape[0], parameters.shape[1]))
        for columns, values in self._blocks():
            part = np.ascontiguousarray(parameters[columns])
            for rows, double in _in_cache(values):
                scores[rows] += double @ part
        return scores

    def transposed_products(self, factors: Array) -> NDArray[np.float64]:
        """Return Φᵀf, added up in float64."""
        total = np.zeros((self.shape[1], factors.shape[1]))
        for columns, values in self._blocks():
            for rows, double in _in_cache(values):
                total[columns] += double.T @ factors[rows]
        return total


def _in_cache(values: Array) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield rows in double precision, as many at once as stay in the cache until they are multiplied.

    Sixteen rows at least: a chain of roundings (within, then between) is shorter than one row after the other.
    """
    together = max(16, _CACHED_ENTRIES // max(1, values.shape[1]))
    buffer = np.empty((min(together, len(values)), values.shape[1]))
    for start in range(0, len(values), together):
        rows = slice(start, start + together)
        double = buffer[: len(values[rows])]
        np.copyto(double, values[rows])
        yield rows, double


def averaging_weights(steps: int, *, average: bool, momentum: float = 0.0) -> NDArray[np.float64]:
    """Return c_t with (returned θ) = Σ_t c_t·(step t): for the last iterate, or for the mean of the last half.

    With momentum β step t is in the iterate j steps later 1 + β + … + β^j times.

    >>> averaging_weights(4, average=True).tolist(), averaging_weights(3, average=False, momentum=0.5).tolist()
    ([1.0, 1.0, 1.0, 0.5], [1.75, 1.5, 1.0])
    """
    since = np.arange(steps - 1, -1, -1)
    if not average:
        return np.ones(steps) if momentum == 0 else np.asarray((1 - momentum ** (since + 1)) / (1 - momentum))
    kept = (steps + 1) // 2
    if momentum == 0:
        return np.minimum(1.0, (since + 1) / kept)
    lived = np.concatenate([np.zeros(steps), np.cumsum((1 - momentum ** (np.arange(steps) + 1)) / (1 - momentum))])
    # Over the iterates kept: those from step t on that are among the last half.
    return np.asarray((lived[steps + since] - lived[steps + since - kept]) / kept)


def run_primal(
    rows: Rows,
    features: FeatureMap,
    model: ScoreModel,
    *,
    clip_norm: float,
    rates: Array,
    weights: Array,
    add_noise: Callable[[Array], Array],
    momentum: float = 0.0,
    memory_limit: float = 0.0,
) -> NDArray[np.float64]:
    """Return Σ_t c_t·(step t) with step t = −η_t·C·add_noise((1/n)Σ clip₁(gᵢ/C)), gradients at θ_{t−1} + βv_{t−1}.

    v_t = βv_{t−1} + (step t) and θ_t = θ_{t−1} + v_t: Nesterov's momentum, or Algorithm 1 for β = 0. Gradients are
    sums over `rows` (X, y), wherever these are; features of rows in memory are kept up to `memory_limit` bytes.

    **Guarantee**: each record adds a matrix of norm at most 1/n to what `add_noise` receives, so its ℓ2 sensitivity
    is κ/n times `rounding_inflation(n, p + k, sensitivity=κ)`. A record with a target or an entry of X that is not
    finite adds nothing. Nothing but the noisy gradients leaves this function.
    """
    p, clips = features.n_features, np.array([clip_norm])
    seen = _with_features(rows, features, model, memory_limit)
    parameters, velocity, combined = (np.zeros((p, model.outputs)) for _ in range(3))
    for t in range(len(rates)):
        place = parameters + momentum * velocity

        def clipped(kept: Any, targets: Array, norms: Array, place: Array = place) -> Array:
            scores = kept.products(place)[:, None, :]
            factors = clipped_factors(model, scores, targets, norms, clips)[:, 0] / clip_norm
            return np.asarray(kept.transposed_products(factors))

        step = -rates[t] * clip_norm * add_noise(seen.total(clipped) / rows.n_rows)
        velocity = momentum * velocity + step
        parameters += velocity
        combined += weights[t] * step
    return combined


def _with_features(rows: Rows, features: FeatureMap, model: ScoreModel, memory_limit: float) -> Rows:
    """Rows (X, y) as (features of a chunk, targets, ‖φᵢ‖)."""
    kept = rows.in_memory and 4.0 * rows.n_rows * features.n_features <= memory_limit
    limit = memory_limit if kept else _CHUNK_BYTES

    def seen(X: Array, y: Array) -> tuple[Any, ...]:
        finite = np.asarray(np.isfinite(X).all(axis=1))
        found = KeptFeatures(features, np.where(finite[:, None], X, 0), memory_limit=limit)
        return found, np.where(finite[:, None, None], model.targets(y), np.nan), found.norms()[:, None]

    if rows.in_memory and not kept:  # as a stream is, whose maps are made anew at every reading
        rows = Rows(rows.chunks, rows.n_rows, rows.n_features, chunks=rows.chunks)
    return rows.mapped(seen)
