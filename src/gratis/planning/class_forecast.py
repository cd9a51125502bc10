"""What privacy will cost a softmax regression in cross-entropy, from its noise level alone, for assumed signals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gratis.planning.class_flow import class_flow
from gratis.records.neighbouring import Neighbouring
from gratis.records.predictions import Prediction

__all__ = ["SIGNALS", "class_forecast", "class_prediction"]

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
