"""How far and how tightly clipped a private softmax regression descends, and what that costs in cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Prediction

__all__ = [
    "LARGEST_STEP",
    "SIGNALS",
    "ClassFlow",
    "class_flow",
    "class_forecast",
    "class_prediction",
    "flow_steps",
    "largest_factor",
    "mean_curvature",
]

LARGEST_STEP = 1.5  # second moments are at most 1 in the released basis and the softmax's curvature at most ½

# Chosen on validation rows (from the training part of one split) of wine_white, nassCDS, spambase, optdigits,
# pendigits, letter and adult at ε = 1, where the risk is flat around them (docs/results/classifiers.md), and confirmed
# on synthetic problems (tests/recipes/test_logistic.py).
_CLIP, _CLIPS = 0.22, (0.2, 1.5)
# With q coefficients a record a wide clip is for records that the fit would have to learn by heart. Validation rows of
# optdigits (q = .15), pendigits (.02) and letter at ε = 100, where it binds: at ε ≤ 3 noise asks for a narrower one.
_CROWDED_CLIP = 0.035
_NOISE, _LONGEST = 1.3, 30_000.0
_STEPS = (64, 256)


@dataclass(frozen=True, slots=True)
class ClassFlow:
    """`clip` is c with C = c√d_eff, `time` that of the flow, `noise` what privacy adds to a score without curvature."""

    clip: float
    time: float
    noise: float


def mean_curvature(prior: NDArray[np.float64]) -> float:
    """Mean of p(1 − p) over the classes, where a model that knows only the prior starts (for two: that of either)."""
    return float((prior * (1 - prior)).mean())


def class_flow(
    n_records: int, effective_dimension: float, prior: NDArray[np.float64], *, mu: float, neighbouring: Neighbouring
) -> ClassFlow:
    """Choose the clip and the flow time from the noise level and the released shares of the classes.

    A unit of flow time at C = c√d_eff adds noise c·u to a score, u = κd_eff/(nμ). The flatter the loss (curvature h at
    the prior) and the finer the noise, the further it pays to go: until noise of 1.3·(.2/h)^½·(.02/u)^¼ is reached in
    a direction without curvature; directions with curvature forget most of it. The clip grows with the root of h/u:
    clipped gradients bend the probabilities, which a calibration mends, and noise costs accuracy, which nothing does.
    It stays below .035/q with q = d_eff(K − 1)/n coefficients a record.

    >>> flow = class_flow(20_000, 20.0, np.array([0.5, 0.5]), mu=0.2, neighbouring=Neighbouring.REPLACE_ONE)
    >>> round(flow.clip, 2), round(flow.time), round(flow.noise, 2)
    (1.1, 126, 1.38)
    """
    unit = neighbouring.sensitivity_factor * effective_dimension / (n_records * mu)
    curvature = mean_curvature(prior)
    crowding = effective_dimension * (len(prior) - 1) / n_records
    clip = max(min(_CLIP * math.sqrt(curvature / unit), _CROWDED_CLIP / crowding, _CLIPS[1]), _CLIPS[0])
    noise = _NOISE * math.sqrt(0.2 / curvature) * (0.02 / unit) ** 0.25
    time = min(noise / (clip * unit), _LONGEST)
    return ClassFlow(clip, time, time * clip * unit)


def flow_steps(n_records: int, n_columns: int, n_classes: int, *, mu: float, neighbouring: Neighbouring) -> int:
    """T, from public facts, for balanced classes: with momentum T steps reach .19T² of the flow's time, twice of it."""
    even = np.full(n_classes, 1 / n_classes)
    time = class_flow(n_records, n_columns + 1.0, even, mu=mu, neighbouring=neighbouring).time
    return int(min(max(math.sqrt(12 * time), _STEPS[0]), _STEPS[1]))


def largest_factor(n_records: int, effective_dimension: float, n_classes: int) -> float:
    """How much a calibration on the training rows may enlarge scores: less the more was fitted to each row.

    >>> largest_factor(10_000, 10.0, 2), largest_factor(2000, 100.0, 10)
    (1.6, 1.0)
    """
    return min(max(1.76 - 8 * effective_dimension * (n_classes - 1) / n_records, 1.0), 1.6)


Array = NDArray[np.float64]

SIGNALS = (1.0, 4.0, 16.0)  # variance of the scores: from barely separable to almost separable
_DRAWS, _MOST_CLASSES, _SEED = 2000, 30, 20261116


def class_forecast(
    spectrum: Array, prior: Array, n_records: int, *, mu: float, neighbouring: Neighbouring, source: str
) -> Prediction:
    """Predict the excess cross-entropy of `class_flow`'s settings for Gaussian scores of several variances S.

    With curvature h the flow of time t has come to 1 − e^{−ht} of a coefficient, and its noise to (1 − e^{−ht})/h of
    that of a unit of time; the loss is ½h times the squared error. h is the mean of p(1 − p) over the scores' law,
    times the second moment of the direction. Rows in hand err by ½·d_eff(K − 1)/n.

    Parameters
    ----------
    spectrum : (D,)
        Second moments in the basis of the descent.
    prior : (K,)
        Shares of the classes.
    """
    size = max(1.0, float(spectrum.sum()))
    flow = class_flow(n_records, size, prior, mu=mu, neighbouring=neighbouring)
    noise = flow.noise**2 / (flow.time**2 * size)  # of a coefficient, for a unit of time
    risks, null_risks = [], []
    for signal in SIGNALS:
        curvature, known = _scores_of(signal, prior)
        h = np.maximum(curvature * spectrum, 1e-12)
        reached = -np.expm1(-h * flow.time)
        error = signal / size * (1 - reached) ** 2 + noise * (reached / h) ** 2
        sampling = 0.5 * size * (len(prior) - 1) / n_records
        risks.append(min(0.5 * len(prior) * float(h @ error) + sampling, 2 * known))
        null_risks.append(known)
    return class_prediction(risks, null_risks, source)


def class_prediction(risks: Sequence[float], null_risks: Sequence[float], source: str) -> Prediction:
    """Return the median over the signals, with their range."""
    return Prediction(
        quantity="excess_risk",
        value=float(np.median(risks)),
        low=float(min(risks)),
        high=float(max(risks)),
        source=source,
        assumptions=(
            "Gaussian scores; what scales and clipping cost is not in it",
            "variance of the scores: " + ", ".join(f"{signal:g}" for signal in SIGNALS),
            "median over these; the range is over them",
        ),
        details={"unit": "nats of cross-entropy", "null_risk": float(np.median(null_risks))},
    )


def _scores_of(signal: float, prior: Array) -> tuple[float, float]:
    """Return the mean of p(1 − p) for Gaussian scores about the prior, and what knowing them is worth in nats."""
    shares = prior[np.argsort(prior)[::-1][:_MOST_CLASSES]]
    shares = shares / shares.sum()
    draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, len(shares)))
    scores = np.log(shares) + np.sqrt(signal) * draws
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1).mean()
    mean = p.mean(axis=0)
    return float((p * (1 - p)).mean()), max(float(-(mean * np.log(mean)).sum() - entropy), 1e-3)
