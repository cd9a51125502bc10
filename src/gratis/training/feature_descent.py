"""Private training on fixed features: one release, by the cheaper of two engines that have the same law (spec 5.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.accounting import unit_descent_event
from gratis.mechanisms.noise import NoiseSource, snap
from gratis.numerics.rounding import rounding_inflation
from gratis.specs.checks import check_count, check_positive
from gratis.specs.errors import GratisError
from gratis.specs.events import FullBatchDescent
from gratis.specs.neighbouring import Neighbouring
from gratis.training.dual import ScoreModel, clipped_factors, primal_parameters
from gratis.training.gram import FeatureMap, Gram, Spectrum, accumulate_gram, decompose
from gratis.training.primal_features import KeptFeatures, averaging_weights, run_primal

__all__ = [
    "DUAL_TOLERANCE",
    "NOISE_TOLERANCE",
    "Engine",
    "EngineChoice",
    "FeatureDescent",
    "choose_engine",
    "descend_features",
    "feature_descent_event",
]

Array = NDArray[Any]

# The dual engine may deviate from Algorithm 1 by rounding: in its scores by at most DUAL_TOLERANCE of the
# sensitivity, which the event pays for, and in the covariance of its noise by NOISE_TOLERANCE/√T. A run that cannot
# be shown to stay within both is done in the primal.
DUAL_TOLERANCE = 2.0**-16
NOISE_TOLERANCE = 2.0**-26
MEMORY_LIMIT = 4e9
_UNIT = 2.0**-53
# A standard normal in m dimensions is longer than √m + 12 with probability below 1e-31.
_TAIL = 12.0


class Engine(StrEnum):
    """Where the descent runs: on θ (primal) or on the scores Φθ (dual)."""

    PRIMAL = "primal"
    DUAL = "dual"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine and why, from public facts alone."""

    engine: Engine
    reason: str


@dataclass(frozen=True, slots=True)
class FeatureDescent:
    """What was released: θ (p, k), the event that pays for it, and the engine that was planned."""

    parameters: NDArray[np.float64]
    event: FullBatchDescent
    choice: EngineChoice


def choose_engine(
    n_records: int,
    n_features: int,
    steps: int,
    *,
    n_inputs: int = 0,
    outputs: int = 1,
    memory_limit: float = MEMORY_LIMIT,
) -> EngineChoice:
    """Choose by operations: n²p + 12n³ + Tn²(80+2k) in the dual, Tnp(80+4k) + features in the primal.

    80 stands for reading two matrix entries from memory, which a product with few columns waits for.

    >>> choose_engine(2000, 40_000, 500, n_inputs=100).engine, choose_engine(50_000, 3969, 40).engine
    (<Engine.DUAL: 'dual'>, <Engine.PRIMAL: 'primal'>)
    """
    n, p = float(check_count("n_records", n_records)), float(check_count("n_features", n_features))
    steps = check_count("steps", steps)
    if p < n:
        return EngineChoice(Engine.PRIMAL, "fewer features than records")
    if 32 * n * n > memory_limit:
        return EngineChoice(Engine.PRIMAL, "a matrix of records by records does not fit in memory")
    passes = 1 if 4 * n * p <= memory_limit else 2 * steps
    primal = steps * n * p * (80 + 4 * outputs) + 2 * passes * n * p * n_inputs
    dual = n * n * p + 12 * n**3 + steps * n * n * (80 + 2 * outputs) + 6 * n * p * n_inputs
    engine = Engine.DUAL if dual < primal else Engine.PRIMAL
    return EngineChoice(engine, f"{dual:.1e} operations in the dual, {primal:.1e} in the primal")


def feature_descent_event(
    n_records: int, n_features: int, outputs: int, steps: int, *, mu: float, neighbouring: Neighbouring
) -> FullBatchDescent:
    """Return the event of T full-batch steps at `mu`-GDP in units of (learning rate × clip norm).

    Each step releases (1/n)Σ clip₁(gᵢ/C) + s·N(0, I), s = κr√T/(nμ), where r covers the rounding of the sum and
    what the dual engine may deviate by (docs/proofs/dual-engine.md); the event is the same for both engines.
    """
    summation = rounding_inflation(n_records, n_features + outputs, sensitivity=neighbouring.sensitivity_factor)
    return unit_descent_event(
        n_records,
        steps,
        mu=mu,
        neighbouring=neighbouring,
        rounding_inflation=summation * (1 + DUAL_TOLERANCE),
        label="descent on fixed features",
    )


def descend_features(
    features: FeatureMap,
    X: Array,
    y: ArrayLike,
    model: ScoreModel,
    *,
    steps: int,
    clip_norm: float,
    learning_rate: float | Array,
    mu: float,
    neighbouring: Neighbouring,
    noise: NoiseSource,
    average: bool = False,
    engine: Engine | None = None,
    memory_limit: float = MEMORY_LIMIT,
) -> FeatureDescent:
    """Run Algorithm 1 of S0 on fixed features from θ₀ = 0 and release θ_T (or the mean of the last half).

    θ_t = θ_{t−1} − η_t·[(1/n)Σ clip_C(gᵢ) + C·s·N(0, I)], gᵢ = φᵢ(mean(φᵢᵀθ) − yᵢ)ᵀ.

    **Guarantee**: `mu`-GDP under `neighbouring`, if the features of a row depend on that row and public facts only
    and steps, clip norm and learning rates were fixed from public facts or earlier releases. The primal engine
    computes Algorithm 1 itself; the dual engine draws from its law (docs/proofs/dual-engine.md), and falls back to
    the primal, silently, when rounding could exceed what the event pays for. Running time is not protected.

    Parameters
    ----------
    features : FeatureMap
    X, y : (n, d), (n,) or (n, k)
    learning_rate : float or (T,)
    engine : Engine, optional
        Overrides `choose_engine`.

    >>> from gratis.models.random_features import RandomFeatures, SquaredErrorModel
    >>> X = np.random.default_rng(0).standard_normal((40, 3))
    >>> run = descend_features(RandomFeatures(n_inputs=3, n_features=200), X, np.sign(X[:, 0]), SquaredErrorModel(),
    ...     steps=50, clip_norm=5.0, learning_rate=0.01, mu=1.0, neighbouring=Neighbouring.ZERO_OUT,
    ...     noise=NoiseSource.insecure(0))
    >>> run.parameters.shape, run.choice.engine
    ((200, 1), <Engine.DUAL: 'dual'>)
    """
    rows = np.asarray(X)
    targets = model.targets(y)
    if rows.ndim != 2 or len(rows) != len(targets):
        raise GratisError("X must be a matrix with one row for each target")
    if not np.isfinite(rows).all():
        raise GratisError("X must be finite: fill or clip by a public rule first")
    event = feature_descent_event(
        len(rows), features.n_features, model.outputs, steps, mu=mu, neighbouring=neighbouring
    )
    clip_norm = check_positive("clip_norm", clip_norm)
    rates = np.asarray(learning_rate, dtype=np.float64)
    if (
        rates.ndim > 1
        or (rates.ndim == 1 and len(rates) != event.steps)
        or not (np.isfinite(rates) & (rates >= 0)).all()
    ):
        raise GratisError("learning_rate must be non-negative and finite, one number or one for each step")
    rates = np.broadcast_to(rates, event.steps)
    weights = averaging_weights(event.steps, average=average)
    choice = choose_engine(
        len(rows),
        features.n_features,
        event.steps,
        n_inputs=rows.shape[1],
        outputs=model.outputs,
        memory_limit=memory_limit,
    )
    if engine is not None:
        choice = EngineChoice(Engine(engine), "chosen by the caller")
    noise_std = event.noise_stds.values[0]
    stds = rates * (clip_norm * noise_std)
    parameters = None
    if choice.engine is Engine.DUAL:
        kappa = neighbouring.sensitivity_factor
        parameters = _run_dual(features, rows, model, targets, kappa, clip_norm, rates, stds, weights, noise)
    if parameters is None:
        parameters = run_primal(
            KeptFeatures(features, rows, memory_limit=memory_limit), model, targets, clip_norm=clip_norm,
            rates=rates, weights=weights, add_noise=lambda gradient: noise.release(gradient, noise_std),
        )  # fmt: skip
    # Both engines end on one public grid: otherwise the finest bit would tell which of them ran, and that depends on
    # whether the private Gram matrix is near singular.
    total_std = math.sqrt(float(np.square(stds * weights).sum()))
    parameters = snap(np.nan_to_num(parameters, nan=0.0, posinf=0.0, neginf=0.0), total_std)
    return FeatureDescent(parameters, event, choice)


def _run_dual(
    features: FeatureMap,
    X: Array,
    model: ScoreModel,
    targets: Array,
    kappa: int,
    clip_norm: float,
    rates: Array,
    stds: Array,
    weights: Array,
    noise: NoiseSource,
) -> NDArray[np.float64] | None:
    """Return a draw from the law of `run_primal`, or None when rounding could exceed the tolerance."""
    # Equal rows have equal scores: keeping one of each leaves K without exact zeros in its spectrum.
    distinct, place, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    place = place.reshape(-1)
    gram = accumulate_gram(features, distinct)
    spectrum = decompose(gram.train, relative_threshold=0.0)
    if not _is_faithful(gram, spectrum, len(X), model.outputs, int(counts.max()), kappa, clip_norm, rates, stds):
        return None
    n, k = len(X), model.outputs
    factor, K = spectrum.factor(), gram.train
    norms, clips = np.sqrt(np.diag(K))[place][:, None], np.array([clip_norm])
    scores, used, drawn = np.zeros((len(K), k)), np.zeros((len(K), k)), np.zeros((factor.shape[1], k))
    for t in range(len(rates)):
        moved = clipped_factors(model, scores[place][:, None, :], targets, norms, clips)[:, 0] * (rates[t] / n)
        gathered = np.zeros_like(scores)
        np.add.at(gathered, place, moved)
        g = noise.normal(float(stds[t]), drawn.shape)
        scores += factor @ g - K @ gathered
        used += weights[t] * gathered
        drawn += weights[t] * g
    total_std = math.sqrt(float(np.square(stds * weights).sum()))
    fresh = noise.normal(total_std, (features.n_features, k))
    return primal_parameters(features, distinct, spectrum, used, drawn, fresh)


def _is_faithful(
    gram: Gram,
    spectrum: Spectrum,
    n: int,
    outputs: int,
    repeats: int,
    kappa: int,
    clip_norm: float,
    rates: Array,
    stds: Array,
) -> bool:
    """Whether rounding stays within NOISE_TOLERANCE and DUAL_TOLERANCE: the bounds of docs/proofs/dual-engine.md."""
    K, U, values = gram.train, spectrum.vectors, spectrum.values
    if len(values) < len(K) or not np.isfinite(K).all():
        return False
    m, steps, trace = len(K), len(rates), float(np.trace(K))
    largest, smallest = float(values[-1]), float(values[0])
    gram_error = gram.chain * _UNIT * trace
    residual = float(np.linalg.norm(K @ U - U * values)) + gram_error
    skew = float(np.linalg.norm(U.T @ U - np.eye(m)))
    # Q = ΦᵀUΛ^{−1/2} has QᵀQ = I + E with ‖E‖_F at most:
    departure = 2 * residual / smallest + skew * math.sqrt(largest / smallest)
    noise_size = math.sqrt(float(np.square(stds).sum())) * (math.sqrt(m * outputs) + _TAIL)
    reach = float(rates.sum()) / n * clip_norm * repeats * math.sqrt(m / float(np.diag(K).min()))
    products = (gram_error + m * _UNIT * trace) * reach + m * _UNIT * math.sqrt(trace) * noise_size
    inconsistent = (residual / math.sqrt(smallest) + departure * math.sqrt(largest)) * noise_size
    sums = 2 * steps * _UNIT * (largest * reach + math.sqrt(largest) * noise_size)
    # Factors are at most 2-Lipschitz in the scores: an error of the scores moves all records by this much together.
    spill = 2 * repeats * math.sqrt(trace) * (products + inconsistent + sums)
    return departure * math.sqrt(steps) <= NOISE_TOLERANCE and spill <= DUAL_TOLERANCE * kappa * clip_norm / 2
