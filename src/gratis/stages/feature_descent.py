"""Private training on fixed features: one release, by the cheaper of two engines that have the same law."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.accounting import unit_descent_event
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.checks import check_positive
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.records.neighbouring import Neighbouring
from gratis.stages.dual import ScoreModel
from gratis.stages.gram import FeatureMap
from gratis.stages.primal_features import averaging_weights, run_primal
from gratis.stages.row_space import row_space_excess, run_row_space

__all__ = [
    "DUAL_TOLERANCE",
    "Engine",
    "EngineChoice",
    "FeatureDescent",
    "choose_engine",
    "descend_features",
    "descend_rows",
    "dual_obstacle",
    "feature_descent_event",
]

Array = NDArray[Any]

# The share of μ that the dual engine may lose to rounding: the event pays for it whichever engine runs, and sizes for
# which less cannot be proved beforehand go to the primal.
DUAL_TOLERANCE = 2.0**-10
MEMORY_LIMIT = 4e9
NOT_IN_MEMORY = "it needs the inner products of all records with one another, and these are not in one memory"


class Engine(StrEnum):
    """Where the descent runs: on θ (primal) or in the features' row space (dual)."""

    PRIMAL = "primal"
    DUAL = "dual"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine and why, from public facts alone."""

    engine: Engine
    reason: str


@dataclass(frozen=True, slots=True)
class FeatureDescent:
    """What was released: θ (p, k), the event that pays for it, and the engine that ran."""

    parameters: NDArray[np.float64]
    event: FullBatchDescent
    choice: EngineChoice


def choose_engine(
    features: FeatureMap,
    event: FullBatchDescent,
    *,
    clip_norm: float,
    learning_rate: float | Array,
    mu: float,
    n_inputs: int = 0,
    outputs: int = 1,
    momentum: float = 0.0,
    memory_limit: float = MEMORY_LIMIT,
) -> EngineChoice:
    """Choose by operations, n²p + 6n³ + Tn²(160+4k) in the dual and Tnp(80+4k) + features in the primal.

    80 stands for reading two matrix entries from memory, which a product with few columns waits for. The dual needs
    a proof, from these public facts, that rounding costs less than the event pays for, whatever the records are.

    >>> from gratis.models.random_features import RandomFeatures
    >>> def engine(n: int, p: int) -> Engine:
    ...     event = feature_descent_event(n, p, 1, 500, mu=1.0, neighbouring=Neighbouring.REPLACE_ONE)
    ...     features = RandomFeatures(n_inputs=100, n_features=p)
    ...     return choose_engine(features, event, clip_norm=p**0.5, learning_rate=1 / p, mu=1.0, n_inputs=100).engine
    >>> engine(2000, 40_000), engine(50_000, 4000)
    (<Engine.DUAL: 'dual'>, <Engine.PRIMAL: 'primal'>)
    """
    n, p, steps = float(event.n_records), float(features.n_features), event.steps
    if p < n:
        return EngineChoice(Engine.PRIMAL, "fewer features than records")
    rates = np.broadcast_to(np.asarray(learning_rate, dtype=np.float64), steps)
    obstacle = dual_obstacle(features, event, outputs, clip_norm, rates, mu, momentum, memory_limit)
    if obstacle is not None:
        return EngineChoice(Engine.PRIMAL, obstacle)
    passes = 1 if 4 * n * p <= memory_limit else 2 * steps
    primal = steps * n * p * (80 + 4 * outputs) + 2 * passes * n * p * n_inputs
    dual = n * n * p + 6 * n**3 + steps * n * n * (160 + 4 * outputs) + 6 * n * p * n_inputs
    engine = Engine.DUAL if dual < primal else Engine.PRIMAL
    return EngineChoice(engine, f"{dual:.1e} operations in the dual, {primal:.1e} in the primal")


def dual_obstacle(
    features: FeatureMap,
    event: FullBatchDescent,
    outputs: int,
    clip_norm: float,
    rates: Array,
    mu: float,
    momentum: float = 0.0,
    memory_limit: float = MEMORY_LIMIT,
) -> str | None:
    """Return why the dual engine must not run, from public facts; None if it may."""
    if 48.0 * event.n_records**2 > memory_limit:
        return "a matrix of records by records does not fit in memory"
    excess = row_space_excess(
        features,
        event.n_records,
        outputs,
        rates=rates,
        noise_std=event.noise_stds.values[0],
        clip_norm=clip_norm,
        mu=mu,
        kappa=event.neighbouring.sensitivity_factor,
        gain=1 / (1 - momentum),
    )
    if excess <= DUAL_TOLERANCE:
        return None
    return "rounding in the dual could cost more privacy than is paid for at these sizes"


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


def descend_features(features: FeatureMap, X: Array, y: ArrayLike, model: ScoreModel, **how: Any) -> FeatureDescent:
    """Run Algorithm 1 of S0 on fixed features from θ₀ = 0 and release θ_T (or the mean of the last half).

    θ_t = θ_{t−1} − η_t·[(1/n)Σ clip_C(gᵢ) + C·s·N(0, I)], gᵢ = φᵢ(mean(φᵢᵀθ) − yᵢ)ᵀ. With momentum β the same noisy
    gradients are taken, and combined, as Nesterov's method does (`run_primal`): post-processing of the same releases.

    **Guarantee**: `mu`-GDP under `neighbouring`, if the features of a row depend on that row and public facts only
    and steps, clip norm and learning rates were fixed from public facts or earlier releases. The primal engine
    computes Algorithm 1 itself; the dual engine draws from its law (docs/proofs/dual-engine.md). Which of them runs
    depends on public facts alone. A record with a target or an entry of X that is not finite contributes nothing.

    Parameters
    ----------
    features : FeatureMap
    X, y : (n, d), (n,) or (n, k)
    how : steps, clip_norm, learning_rate, mu, neighbouring, noise, …
        As in `descend_rows`.
    learning_rate : float or (T,)
    momentum : float
        β in [0, 1), of public facts or earlier releases.
    engine : Engine, optional
        Overrides `choose_engine`, for features that the dual can be proved for.

    >>> from gratis.models.random_features import RandomFeatures, SquaredErrorModel
    >>> X = np.random.default_rng(0).standard_normal((40, 3))
    >>> run = descend_features(RandomFeatures(n_inputs=3, n_features=200), X, np.sign(X[:, 0]), SquaredErrorModel(),
    ...     steps=50, clip_norm=5.0, learning_rate=0.01, mu=1.0, neighbouring=Neighbouring.ZERO_OUT,
    ...     noise=NoiseSource.insecure(0))
    >>> run.parameters.shape, run.choice.engine
    ((200, 1), <Engine.DUAL: 'dual'>)
    """
    rows = np.asarray(X)
    if rows.ndim != 2 or len(rows) != len(model.targets(y)):
        raise GratisError("X must be a matrix with one row for each target")
    return descend_rows(features, Rows.held(rows, np.asarray(y)), model, **how)


def descend_rows(
    features: FeatureMap,
    rows: Rows,
    model: ScoreModel,
    *,
    steps: int,
    clip_norm: float,
    learning_rate: float | Array,
    mu: float,
    neighbouring: Neighbouring,
    noise: NoiseSource,
    average: bool = False,
    momentum: float = 0.0,
    engine: Engine | None = None,
    memory_limit: float = MEMORY_LIMIT,
) -> FeatureDescent:
    """`descend_features` on rows (X, y), wherever they are: with the same parameters and guarantee.

    Where the rows are not in memory the primal runs, whose gradients are sums over records. The dual is refused: it
    needs the inner products of all records with one another.
    """
    event = feature_descent_event(
        rows.n_rows, features.n_features, model.outputs, steps, mu=mu, neighbouring=neighbouring
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
    if not 0 <= momentum < 1:
        raise GratisError("momentum must be at least 0 and less than 1")
    if engine is not None:
        choice = EngineChoice(Engine(engine), "chosen by the caller")
        obstacle = dual_obstacle(features, event, model.outputs, clip_norm, rates, mu, momentum, memory_limit)
        if choice.engine is Engine.DUAL and (obstacle or not rows.in_memory):
            raise GratisError(f"the dual engine cannot run here: {obstacle or NOT_IN_MEMORY}")
    elif not rows.in_memory:
        choice = EngineChoice(Engine.PRIMAL, NOT_IN_MEMORY)
    else:
        choice = choose_engine(
            features, event, clip_norm=clip_norm, learning_rate=rates, mu=mu, n_inputs=rows.n_features,
            outputs=model.outputs, momentum=momentum, memory_limit=memory_limit,
        )  # fmt: skip
    noise_std = event.noise_stds.values[0]
    how: dict[str, Any] = {
        "clip_norm": clip_norm, "rates": rates, "momentum": momentum,
        "weights": averaging_weights(event.steps, average=average, momentum=momentum),
    }  # fmt: skip
    if choice.engine is Engine.DUAL:
        X, y = rows.arrays()
        finite = np.asarray(np.isfinite(X).all(axis=1))
        targets = np.where(finite[:, None, None], model.targets(y), np.nan)
        X = np.where(finite[:, None], X, 0)
        parameters = run_row_space(features, X, model, targets, noise_std=noise_std, noise=noise, **how)
    else:
        parameters = run_primal(
            rows, features, model, add_noise=lambda gradient: noise.release(gradient, noise_std),
            memory_limit=memory_limit, **how,
        )  # fmt: skip
    return FeatureDescent(np.nan_to_num(parameters, nan=0.0, posinf=0.0, neginf=0.0), event, choice)
