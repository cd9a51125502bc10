"""How gradients of classes answer and vary where a fit ended: second moments weighted with p(1−p), clips included.

A fit of classes steps with the curvature at its start, the shares of the classes. Where the model is surer than that
the loss is flatter, and a clipped record does not answer at all: noise moves curves farther. What is here says how far,
from released numbers alone: records are simulated from the released histograms, columns apart, with scores of the
variance that the released second moments give them. Post-processing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.special import expit, softmax

from gratis.stages.curve_basis import CurveBasis

__all__ = ["class_responses"]

Array = NDArray[np.float64]

_ROWS, _SEED = 2048, 20261117  # public: simulated alike by everybody
_RIDGE = 1e-6  # of the mean square of a feature; indicators of all levels add up to a constant


def class_responses(
    basis: CurveBasis, parameters: Array, offset: Array, moments: Array, *, inverse_root: Array, clip_norm: float
) -> list[tuple[Array, Array]]:
    """Return for every output the derivative of gradients at `parameters`, and the variance of a record's.

    Gradients are those of `stages.clipped_gradients`: f·φ with f = 1(class) − p, shortened where ‖f‖‖inverse_root·φ‖
    exceeds `clip_norm`; such a record is taken not to answer. Simulated matrices are carried over to the released
    second moments M: with E φφᵀ = LLᵀ in the simulation and M = RRᵀ, A becomes RL⁻¹·A·L⁻ᵀRᵀ, which is exact where
    columns are independent or the weights of φφᵀ are the same everywhere.
    """
    rows = basis.features(_places(basis))
    at = offset + _as_wide(rows @ parameters, np.einsum("ik,ij,jk->k", parameters[1:], moments[1:, 1:], parameters[1:]))
    reach = clip_norm / np.linalg.norm(rows @ inverse_root.T, axis=1)
    answers, squares = _weights(expit(at) if parameters.shape[1] == 1 else softmax(at, axis=1), reach)
    ridge = _RIDGE * float(np.square(rows).mean())
    own = _root(rows.T @ rows / len(rows), ridge)
    change = solve_triangular(own, _root(moments, ridge).T, lower=True, trans="T").T

    def moved(weights: Array) -> Array:
        found = (rows * weights[:, None]).T @ rows / len(rows)
        found[np.diag_indices_from(found)] += ridge * float(weights.mean())
        return np.asarray(change @ found @ change.T)

    return [(moved(answer), moved(square)) for answer, square in zip(answers.T, squares.T, strict=True)]


def _weights(p: Array, reach: Array) -> tuple[Array, Array]:
    """Return −∂f/∂score and E f², (m, outputs) each, of residuals f that are shortened to `reach`.

    >>> _weights(np.array([[0.5]]), np.array([9.0])), _weights(np.array([[0.8]]), np.array([0.5]))[0].round(3)
    ((array([[0.25]]), array([[0.25]])), array([[0.128]]))
    """
    shares = np.hstack([1 - p, p]) if p.shape[1] == 1 else p
    answers, squares = np.zeros_like(p), np.zeros_like(p)
    for label in range(shares.shape[1]):
        f = -p.copy()
        if p.shape[1] > 1 or label:
            f[:, label if p.shape[1] > 1 else 0] += 1
        kept = np.minimum(reach / np.maximum(np.linalg.norm(f, axis=1), 1e-300), 1.0)
        share = shares[:, label]
        answers += (share * (kept == 1))[:, None] * p * (1 - p)
        squares += (share * np.square(kept))[:, None] * np.square(f)
    if p.shape[1] > 1:
        # Scores of classes move so that they add up to 0: where one rises, others fall, exactly so for equal shares.
        answers *= p.shape[1] / (p.shape[1] - 1)
    return answers, squares


def _as_wide(scores: Array, variances: Array) -> Array:
    """Scores with the variances that released second moments give them: columns may move together."""
    middle = scores.mean(axis=0)
    factor = np.sqrt(np.maximum(variances, 0.0) / np.maximum(scores.var(axis=0), 1e-12))
    return np.asarray(middle + (scores - middle) * np.clip(factor, 0.5, 2.0))


def _places(basis: CurveBasis) -> NDArray[np.int64]:
    """Places of simulated records: every column has each place as often as its released share says, in random order."""
    rng = np.random.default_rng(_SEED)
    count = max(_ROWS, 2 * basis.width)
    at = (np.arange(count) + 0.5) / count
    found = [np.minimum(np.searchsorted(np.cumsum(share), at), len(share) - 1) for share in basis.shares.columns]
    return np.column_stack([rng.permutation(places) for places in found])


def _root(matrix: Array, ridge: float) -> Array:
    """Lower root; the matrix was released, so its least eigenvalues may be anything: they are lifted to the ridge."""
    values, vectors = np.linalg.eigh(matrix)
    ridge = max(ridge, 1e-12 * float(values[-1]))
    if values[0] < ridge:
        matrix = (vectors * np.maximum(values, ridge)) @ vectors.T
    return np.asarray(cholesky(matrix + ridge * np.eye(len(matrix)), lower=True))
