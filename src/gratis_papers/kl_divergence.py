"""What noisy descent leaks in KL: estimates over runs, the exact value for linear models, and what KL means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from gratis.accounting.kl import total_variation_upper_bound
from gratis.records.checks import check_count, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis.records.predictions import Estimate

__all__ = ["KLMeaning", "estimate_kl", "explain_kl", "linear_model_kl"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KLMeaning:
    """What a divergence allows an attacker, in words and numbers."""

    kl: float
    total_variation: float
    words: str


def explain_kl(*, kl: float) -> KLMeaning:
    """Total variation, hence membership advantage, is at most min{√(KL/2), √(1−e^{−KL})}; KL is not (ε, δ)-DP.

    >>> round(explain_kl(kl=0.02).total_variation, 6)
    0.1
    """
    bound = total_variation_upper_bound(kl=kl)
    return KLMeaning(
        kl,
        bound,
        f"no test tells the two data sets apart with an advantage (hits minus false alarms) above {bound:.3g}; this is "
        "an average statement and not (ε, δ)-DP: it allows rare outputs that give the record away",
    )


def estimate_kl(divergences: ArrayLike, *, confidence: float = 0.95) -> tuple[Estimate, int]:
    """Return the worst neighbour's KL as an Estimate, and which neighbour that is.

    value = max_z mean over runs. The largest of many noisy means is biased upward, so the bounds use two facts:
    max_z E ≥ E of the neighbour chosen on the first third of the runs, estimated on the others (low), and
    max_z E ≤ E max_z, estimated by the mean of every run's own maximum (high). Both are Student-t bounds, each at
    half of the error probability: they assume that sums over steps are near normal over runs.

    Parameters
    ----------
    divergences : (runs, neighbours)
        KL of each neighbour in each run, for one data set.

    >>> rng = np.random.default_rng(0)
    >>> found, worst = estimate_kl(1 + 0.01 * rng.standard_normal((12, 50)) + np.eye(1, 50, 7))
    >>> worst, found.low < 2.0 < found.high
    (7, True)
    """
    values = np.asarray(divergences, dtype=np.float64)
    if values.ndim != 2 or not values.size or not np.all(np.isfinite(values)):
        raise GratisError("divergences must be a finite matrix of runs by neighbours")
    if not 0 < confidence < 1:
        raise GratisError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    runs = len(values)
    means = values.mean(axis=0)
    worst = int(np.argmax(means))
    tail = (1 - confidence) / 2
    split = max(1, runs // 3)
    chosen = int(np.argmax(values[:split].mean(axis=0)))
    low = max(0.0, _t_bound(values[split:, chosen], tail))
    high = _t_bound(values.max(axis=1), 1 - tail)
    estimate = Estimate(
        quantity="kl_of_worst_neighbour",
        value=float(means[worst]),
        low=min(low, float(means[worst])),
        high=max(high, float(means[worst])),
        confidence=confidence,
        samples=runs,
        method="mean over runs of noisy descent, maximum over neighbours (add/remove, mean loss); Student t",
    )
    return estimate, worst


def _t_bound(sample: Array, level: float) -> float:
    size = len(sample)
    if size < 2:
        return math.inf if level > 0.5 else 0.0
    return float(sample.mean() + student.ppf(level, size - 1) * sample.std(ddof=1) / math.sqrt(size))


def linear_model_kl(
    X: ArrayLike,
    y: ArrayLike,
    X_other: ArrayLike,
    y_other: ArrayLike,
    *,
    step_size: float,
    noise_std: float,
    steps: int,
    start: ArrayLike | None = None,
    start_variance: float = 0.0,
) -> float:
    """KL between all iterates of noisy descent on ½·mean(xᵀw − y)² for two data sets: exact, by Gaussian moments.

    The iterates are Gaussian: mean m ← m − η(Hm − c), covariance S ← (I − ηH)S(I − ηH) + 2ησ²I, H = XᵀX/n,
    c = Xᵀy/n. Gradients differ by ΔH·w − Δc, so E‖·‖² = ‖ΔH·m − Δc‖² + tr(ΔH·S·ΔHᵀ), and
    KL = (η/(4σ²))·Σ_k E‖·‖². S3's 1/(2σ²) would give twice this.

    >>> round(linear_model_kl([[1.0]], [0.0], [[1.0]], [1.0], step_size=0.5, noise_std=1.0, steps=2), 6)
    0.25
    """
    H, c = _moments(X, y)
    H_other, c_other = _moments(X_other, y_other)
    if H.shape != H_other.shape:
        raise GratisError("both data sets must have the same columns")
    eta, variance = check_positive("step_size", step_size), check_positive("noise_std", noise_std) ** 2
    identity = np.eye(len(c))
    mean = np.zeros(len(c)) if start is None else np.asarray(start, dtype=np.float64)
    covariance: Any = check_non_negative("start_variance", start_variance) * identity
    dH, dc, shrink = H - H_other, c - c_other, identity - eta * H
    total = 0.0
    for _ in range(check_count("steps", steps)):
        total += float(np.sum((dH @ mean - dc) ** 2) + np.trace(dH @ covariance @ dH.T))
        mean = shrink @ mean + eta * c
        covariance = shrink @ covariance @ shrink.T + 2 * eta * variance * identity
    return eta * total / (4 * variance)


def _moments(X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    rows, targets = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if rows.ndim != 2 or targets.shape != (len(rows),) or not len(rows):
        raise GratisError("X must be a matrix of records, y one target for each")
    return rows.T @ rows / len(rows), rows.T @ targets / len(rows)
