"""The dual engine: full-batch DP-GD in the n coordinates of the features' row space, at n² a step whatever p is.

docs/proofs/dual-engine.md has the theorem, the bound on every error, and why no data set needs another engine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from gratis.mechanisms.noise import NoiseSource, snap
from gratis.stages.dual import ScoreModel, clipped_factors
from gratis.stages.gram import FeatureMap, accumulate_gram

__all__ = ["OWN_COORDINATE", "row_space_excess", "run_row_space"]

Array = NDArray[Any]

# Every record gets one coordinate of its own, worth this share of a typical ‖φ‖²: it keeps K's eigenvalues away from 0
# whatever the records are, and is dropped before the release. Small beside the noise of any private fit.
OWN_COORDINATE = 2.0**-8
_UNIT = 2.0**-53
_BLOCK = 1024  # the most features in a block of a FeatureMap
_COARSE = 2.0**-26  # half the bits of a float64
# Gaussian vectors are longer than √m + √(2x), and their quadratic forms deviate by more than 2‖A‖_F√x + 2‖A‖x, with
# probability e^−x (Laurent & Massart 2000): 1e-100 here, which no budget can tell from 0.
_TAIL = 230.0


def row_space_excess(
    features: FeatureMap,
    n_records: int,
    outputs: int,
    *,
    rates: Array,
    noise_std: float,
    clip_norm: float,
    mu: float,
    kappa: float,
    gain: float = 1.0,
) -> float:
    """Return by which share of μ rounding may enlarge the loss of privacy, whatever the records are.

    **Guarantee**: an upper bound from public facts alone (docs/proofs/dual-engine.md, "Every error, bounded before
    the data is seen"); ∞ where nothing is proved, as for features whose Gram matrix is not exact. `gain` bounds how
    often a step is in an iterate: 1/(1 − β) with momentum β.
    """
    n, k = n_records, outputs
    own = OWN_COORDINATE * features.typical_square_norm
    if not (features.exact_gram and own > 0 and math.isfinite(features.largest_square_norm)):
        return math.inf
    square = features.largest_square_norm + own
    ratio = square / own
    backward = _gamma(n + 1)  # of the Cholesky factor, entry by entry in units of the records' norms
    departure = backward * n * ratio
    if departure > 1 / 8 or not mu > 0:
        return math.inf
    # 1. The noise has covariance I + E, ‖E‖_F ≤ unknown: a bound on likelihood ratios, then on μ.
    unknown = departure**2 + (8 * backward * n * _COARSE + 4 * _UNIT) * math.sqrt(n) * ratio
    likelihood = 2 * unknown * (math.sqrt(k * _TAIL) + _TAIL + k * unknown)
    if likelihood > mu / 500 or mu > 30:
        return math.inf
    covariance = 1.15 * likelihood * (2.51 + 2.54 * math.exp(mu * mu / 8)) / mu
    # 2. Scores and own coordinates deviate: what all other records' clipped gradients move by.
    path, spread = gain * float(rates.sum()) * clip_norm, math.sqrt(n * k) + math.sqrt(2 * _TAIL)
    noise = gain * clip_norm * noise_std * math.sqrt(float(np.square(rates).sum())) * spread
    moved = backward * math.sqrt(n * ratio)
    scores = moved * (path / math.sqrt(n) + noise) + (2 * backward + 8 * len(rates) * _UNIT) * (path + 2 * noise)
    spill = 4 * n * (moved + square * scores / clip_norm) / kappa
    # 3. Rounding of the last products, as a shift in units of the noise given the path; and of the sums over records.
    long, root = math.sqrt(features.n_features * k) + math.sqrt(2 * _TAIL), math.sqrt(n * ratio)
    chain = _gamma(_BLOCK + features.n_features / _BLOCK + 2)
    shift = backward * spread * (root + 4 * n * ratio) + chain * root * long
    sums = 2 * (len(rates) * _UNIT + 2 * backward) * n * root / kappa
    return covariance + spill + 2 * shift / mu + sums


def run_row_space(
    features: FeatureMap,
    X: Array,
    model: ScoreModel,
    targets: Array,
    *,
    clip_norm: float,
    rates: Array,
    noise_std: float,
    weights: Array,
    noise: NoiseSource,
    momentum: float = 0.0,
) -> NDArray[np.float64]:
    """Return a draw from the law of `run_primal` on features (φᵢ, √τ·eᵢ), without the coordinates that are dropped.

    **Guarantee**: as Algorithm 1, with momentum or without, with noise `noise_std`·η·C a step, up to the share of μ
    that `row_space_excess` bounds. No branch, shape or order depends on the rows: every Gram matrix has the factor.
    """
    n, k, p = len(X), model.outputs, features.n_features
    own = OWN_COORDINATE * features.typical_square_norm
    gram = accumulate_gram(features, X).train
    gram[np.diag_indices(n)] += own
    norms = np.sqrt(np.diag(gram))[:, None]
    # K + τI = RᵀR: column i of R is record i in an orthonormal basis of the row space.
    R = cholesky(gram, lower=False, check_finite=False)
    own_error = _residual(R, gram, features.largest_square_norm + own)
    stds, clips = rates * (clip_norm * noise_std), np.array([clip_norm])
    v, velocity, used, drawn = (np.zeros((n, k)) for _ in range(4))
    for t in range(len(rates)):
        ahead = v + momentum * velocity
        factors = clipped_factors(model, (R.T @ ahead)[:, None, :], targets, norms, clips)[:, 0] * (rates[t] / n)
        g = noise.normal(float(stds[t]), (n, k))
        velocity = momentum * velocity + (g - R @ factors)
        v += velocity
        used += weights[t] * factors
        drawn += weights[t] * g
    # Noise of the whole space with the row space's part replaced by what the path has drawn.
    total_std = math.sqrt(float(np.square(stds * weights).sum()))
    fresh, own_noise = noise.normal(total_std, (p, k)), noise.normal(total_std, (n, k))
    # (RᵀR − K)^½ to first order: with it the covariance is that of the factor as it was computed.
    seen = math.sqrt(own) * own_noise + own_error @ own_noise / (2 * math.sqrt(own))
    for columns, values in features.blocks(X):
        seen += values.astype(np.float64) @ fresh[columns]
    replaced = drawn - solve_triangular(R, seen, trans=1, check_finite=False)
    combined = solve_triangular(R, replaced, check_finite=False) - used
    for columns, values in features.blocks(X):
        fresh[columns] += values.astype(np.float64).T @ combined
    return snap(np.nan_to_num(fresh, nan=0.0, posinf=0.0, neginf=0.0), total_std)


def _residual(R: Array, gram: Array, square: float) -> Array:
    """Return RᵀR − gram, far more exactly than R itself is known: the products of the coarse part have no error.

    Its entries are multiples of g with g² ≥ 2⁻⁵²·square, and columns of R have squared norms at most `square`, so by
    Cauchy–Schwarz all partial sums fit into 53 bits, in whatever order they are added.
    """
    step = 2.0 ** math.ceil(math.log2(math.sqrt(square) * _COARSE))
    coarse = np.rint(R / step) * step
    fine = R - coarse
    cross = coarse.T @ fine
    residual = coarse.T @ coarse
    residual -= gram
    residual += cross
    residual += cross.T
    residual += fine.T @ fine
    return residual


def _gamma(roundings: float) -> float:
    return roundings * _UNIT / (1 - roundings * _UNIT) if roundings * _UNIT < 0.5 else math.inf
