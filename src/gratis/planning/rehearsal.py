"""A rehearsal of a fit's first releases, of scales and second moments, on tables that anybody can draw.

All noise of these releases is as 1/(nμ): a table of m rows at μ·n/m has the noise, relative to its counts and means,
that n rows have at μ. So few rows show how noisy scales, windows and bases will be for columns of any law. The ridge of
classifiers, 2/n and at least 1e-4, is not noise: here it is 2/m, which moved widths by 6e-4 of themselves at most
(d = 3 and 10, ε = 1 and 8, n = 10⁵ and 10⁶).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.stages.staged import StagedPlan, release_basis

__all__ = ["Rehearsed", "rehearse", "rehearsed_rows"]

Array = NDArray[np.float64]

_SEED = 20261115  # public: the same tables for everybody
_UNITS, _SHIFT = (25.0, 0.01, 25.0, 1.0), 3.0  # of the columns in turn: units that nobody has made alike


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """Rows in a released basis, read without windows; what leads from there to slopes; and the rows as columns."""

    rows: Array
    to_columns: Array
    columns: Array
    effective_dimension: float
    noisy: bool = True  # the basis


def rehearsed_rows(n_columns: int) -> int:
    """Return how many rows a rehearsal draws."""
    return 1024 + 32 * (n_columns + 1)


@lru_cache(maxsize=3)  # the laws of one plan: of 150 columns these are tables of 40 MB
def rehearse(stages: StagedPlan, law: str) -> tuple[Rehearsed, ...]:
    """Draw tables of columns of a `law`, release what `stages` releases before its descent, and read the rows in it.

    `stages` is of `rehearsed_rows` rows, at the μ that has the noise of the fit. Laws: "mixed", in turn log-normal, 0/1
    (one in five) and normal; "correlated", neighbours by .8; "0/1", of which .5 to .08 are ones. **Guarantee**: none is
    needed: no row is private, and the noise is for show.
    """
    found = []
    for seed in range(max(1, 24 // stages.n_columns)):
        rng = np.random.default_rng([_SEED, seed])
        X = _columns(law, stages.n_records, stages.n_columns, rng)
        if stages.features is not None:
            X = (X + _SHIFT) * np.resize(_UNITS, X.shape[1])
        else:
            X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
        target = rng.standard_normal(len(X))
        basis = release_basis(Rows.one_chunk(X, target), stages, noise=NoiseSource.insecure(seed))
        Z = np.column_stack([(X - basis.features.centre) / basis.features.scale, np.ones(len(X))])
        restore = basis.moved.restore(np.eye(Z.shape[1]))
        found.append(Rehearsed(basis.moved.transform(Z), restore, Z, basis.moved.effective_dimension))
    return tuple(found)


def _columns(law: str, rows: int, columns: int, rng: np.random.Generator) -> Array:
    X = rng.standard_normal((rows, columns))
    if law == "mixed":
        X[:, ::3], X[:, 1::3] = np.exp(0.8 * X[:, ::3]), X[:, 1::3] > 0.8
    elif law == "correlated":
        for j in range(1, columns):
            X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    elif law == "0/1":
        X = (rng.random(X.shape) < np.linspace(0.5, 0.08, columns)).astype(np.float64)
    return X
