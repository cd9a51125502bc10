"""Plan private training on random features from (n, d, p) and the budget alone (spec 5.3, S0 Theorem 2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.simulation.random_features_twin import (
    SignTwin,
    draw_sign_twin,
    feature_second_moment,
    parse_activation,
    planned_descent,
    planned_engine,
    shrunken,
)
from gratis.specs.budget import Budget
from gratis.specs.checks import check_count
from gratis.specs.plans import Plan
from gratis.specs.predictions import Prediction
from gratis.theory.early_stopping import EarlyStopping

__all__ = ["plan_random_features", "theorem_2_terms"]

Array = NDArray[np.float64]

# C in units of the feature norm √(p·Eφ²), and ηTp·Eφ²/d. S0's choices for tanh are .8 and about 2 (CT ≈ 5).
_CLIPS = np.geomspace(0.4, 3.2, 7)
# Down to .01, where a small budget still gains something over the trivial predictor.
_TIMES = np.geomspace(0.01, 10.0, 24)
_FEWEST_STEPS, _MOST_STEPS = 50, 5000
_TEST_RECORDS = 2000  # of one twin


def theorem_2_terms(n_records: int, n_inputs: int, *, epsilon: float) -> dict[str, float]:
    """Return the three terms of S0's Theorem 2 without constants and logarithms.

    |R_P| = Õ(d/(nε) + √(d/n) + √(n/d^{3/2})): privacy noise, early stopping, and the plateau's next staircase.

    >>> terms = theorem_2_terms(2000, 100, epsilon=4.0)
    >>> {name: round(value, 4) for name, value in terms.items()}
    {'noise': 0.0125, 'early_stopping': 0.2236, 'plateau': 1.4142}
    """
    n, d = float(n_records), float(n_inputs)
    noise = d / (n * epsilon) if epsilon > 0 else math.inf
    return {"noise": noise, "early_stopping": math.sqrt(d / n), "plateau": math.sqrt(n / d**1.5)}


def plan_random_features(
    n_records: int,
    n_inputs: int,
    n_features: int,
    budget: Budget,
    *,
    activation: Any = "tanh",
    rng: np.random.Generator | None = None,
    twins: int = 2,
    twin_records: int = 2000,
) -> Plan:
    """Choose clip norm, steps, learning rate and noise for f(x) = φ(Vx)ᵀθ with loss (f − y)².

    Twins of the same d/n, p/n and μ are trained at every (C, ηT) of a grid in S0's scale-free units, C/√(p·Eφ²) and
    ηTp·Eφ²/d; the pair with the least mean test loss is planned. No data is opened.

    Parameters
    ----------
    n_records, n_inputs, n_features : n, d, p.
    budget : Budget
    activation : name or function of arrays
    rng : for the twins; fixed by default, so that a plan can be made again.
    twins : data sets to average over.
    twin_records : largest n of a twin.

    >>> plan = plan_random_features(300, 15, 2000, Budget(epsilon=4.0, delta=1 / 300), twins=1)
    >>> plan.settings["steps"] >= 50, plan.prediction.quantity
    (True, 'test_loss')
    """
    n, d = check_count("n_records", n_records), check_count("n_inputs", n_inputs)
    p, twins = check_count("n_features", n_features), check_count("twins", twins)
    phi = parse_activation(activation)
    mu = calibrate_mu(budget)
    rng = rng if rng is not None else np.random.default_rng(0)
    small_n, small_d, small_p = shrunken(n, d, p, check_count("twin_records", twin_records))
    drawn = [draw_sign_twin(small_n, small_d, small_p, phi, rng=rng, n_test=_TEST_RECORDS) for _ in range(twins)]
    power = feature_second_moment(phi)
    clips, times = (grid.ravel() for grid in np.meshgrid(_CLIPS, _TIMES, indexing="ij"))
    losses = np.array([_twin_losses(twin, clips, times, power, budget, rng, mu=mu) for twin in drawn])
    best = int(np.argmin(losses.mean(axis=0)))
    clip, time = float(clips[best]), float(times[best])

    # Twin and problem share λ_max·(ηT)/n, hence the number of steps that keeps the descent close to its flow.
    steps = max(_steps(twin, time, power) for twin in drawn)
    clip_norm = clip * math.sqrt(p * power)
    learning_rate = time * d / (p * power * steps)
    event = planned_descent(n, p, 1, steps, mu=mu, neighbouring=budget.neighbouring)
    engine = planned_engine(n, d, p, steps)
    nonprivate = float(np.mean([twin.interpolant_loss for twin in drawn]))
    value = float(losses[:, best].mean())
    unclipped = np.mean([_unclipped(twin, clip, time, power, budget, mu=mu) for twin in drawn])
    regime = {
        "n_over_d": n / d,
        "n_over_d_to_three_halves": n / d**1.5,
        "p_over_n": p / n,
        "p_over_n_squared": p / n**2,
        "inside": bool(d < n < d**1.5 and p > n),
    }
    prediction = Prediction(
        quantity="test_loss",
        value=value,
        low=float(losses[:, best].min()),
        high=float(losses[:, best].max()),
        source=f"{twins} twins of n={small_n}, d={small_d}, p={small_p}, trained by the dual engine",
        assumptions=(
            "rows are N(0, I) and labels sign(uᵀx) without noise",
            "the best setting of a grid is reported at its own twins, which flatters it slightly",
            *(() if small_n == n else ("the loss depends on (d/n, p/n, μ) and not on n itself",)),
            *(("features are Gaussian given the rows, with their covariance",) if drawn[0].gaussian else ()),
        ),
        details={
            "predicted_nonprivate_loss": nonprivate,
            "gap": value - nonprivate,
            "unclipped_loss": float(unclipped),
            "theorem_2": theorem_2_terms(n, d, epsilon=budget.epsilon if budget.epsilon is not None else mu),
            "regime": regime,
        },
    )
    outside = "" if regime["inside"] else " Theorem 2 asks for d ≪ n ≪ d^{3/2} and p ≫ n, which these sizes miss."
    return Plan(
        algorithm="full-batch-descent-on-features",
        schedule="constant",
        settings={
            "n_features": p,
            "activation": phi.name,
            "clip_norm": clip_norm,
            "steps": steps,
            "learning_rate": learning_rate,
            "noise_std": learning_rate * clip_norm * event.noise_stds.values[0],
            "engine": str(engine.engine),
        },
        budget=budget,
        event=event,
        prediction=prediction,
        reasons=(
            f"C = {clip:g}·√(p·Eφ²), ηTp·Eφ²/d = {time:.3g}: the least mean test loss of {losses.shape[1]} settings.",
            f"Predicted test loss {value:.3f} against {nonprivate:.3f} of the non-private interpolant.{outside}",
            f"The {engine.engine} engine: {engine.reason}.",
        ),
        alternatives=tuple(
            {"clip": float(clips[i]), "time": float(times[i]), "test_loss": float(losses[:, i].mean())}
            for i in np.argsort(losses.mean(axis=0))[1:4]
        ),
    )


def _steps(twin: SignTwin, time: float, power: float) -> int:
    """Return T with 2ηλ_max/n ≤ ¼: near the flow, far from instability."""
    flow = time * twin.n_inputs / (twin.n_features * power)
    return int(np.clip(math.ceil(8 * flow * twin.largest_eigenvalue / len(twin.y)), _FEWEST_STEPS, _MOST_STEPS))


def _total_noise(twin: SignTwin, clips: Any, times: Any, power: float, budget: Budget, *, mu: float) -> Any:
    """Return √T·s = κ·ηT·C/(nμ)."""
    flow = times * twin.n_inputs / (twin.n_features * power)
    return (
        budget.neighbouring.sensitivity_factor * flow * clips * math.sqrt(twin.n_features * power) / (len(twin.y) * mu)
    )


def _twin_losses(
    twin: SignTwin, clips: Array, times: Array, power: float, budget: Budget, rng: np.random.Generator, *, mu: float
) -> Array:
    steps = _steps(twin, float(times.max()), power)
    return twin.losses(
        steps=steps,
        learning_rates=times * twin.n_inputs / (twin.n_features * power * steps),
        clip_norms=clips * math.sqrt(twin.n_features * power),
        noise_stds=_total_noise(twin, clips, times, power, budget, mu=mu) / math.sqrt(steps),
        n_seeds=2,
        rng=rng,
    ).mean(axis=1)


def _unclipped(twin: SignTwin, clip: float, time: float, power: float, budget: Budget, *, mu: float) -> float:
    """Closed-form loss of the same setting if nothing were clipped."""
    noise = _total_noise(twin, clip, time, power, budget, mu=mu)
    flow = time * twin.n_inputs / (twin.n_features * power)
    terms = EarlyStopping(**twin.modes()).predict_flow(flow, total_noise_variances=noise**2)
    return float(terms.total)
