"""Membership inference with scores calibrated on shadow models (LiRA: Carlini et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import account, epsilon_upper_bound
from gratis.audits.one_run import EpsilonAudit, judge_guesses
from gratis.audits.runs import Progress
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.predictions import Estimate
from gratis.records.progress import tracked
from gratis.records.record import JsonObject, plain

__all__ = ["MembershipInference", "infer_membership"]

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]

_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class MembershipInference:
    """What the attack achieved: area under the ROC, true positive rate at small false positive rates, a bound on ε."""

    area: Estimate
    true_positive_rates: dict[float, Estimate]
    audit: EpsilonAudit

    @property
    def alarm(self) -> bool:
        """Whether the attack did better than the proof allows."""
        return self.audit.alarm

    def to_json(self) -> JsonObject:
        """Return plain data for JSON."""
        rates = {f"{level:g}": rate for level, rate in self.true_positive_rates.items()}
        return {"area": self.area.to_json(), "true_positive_rates": plain(rates), **self.audit.to_json()}


def infer_membership(
    train: Callable[[Coins, int], Any],
    score: Callable[[Any], Array],
    n_records: int,
    event: Event,
    *,
    rng: np.random.Generator,
    shadows: int = 64,
    targets: int = 32,
    false_positive_rates: tuple[float, ...] = (0.01, 0.1),
    delta: float = 1e-5,
    confidence: float = 0.95,
    progress: Progress = iter,
) -> MembershipInference:
    """Attack `targets` trained models after calibrating every record on `shadows` other models.

    Each model has its records in or out by fair coins. On the shadows, every record gets the mean of its score when in
    and when out, and a pooled variance; on a target its calibrated score is the normal log-likelihood ratio
    of in against out. Intervals resample whole target models, since records within one model are dependent;
    the bound on ε is that of the one-run audit over all targets.

    Parameters
    ----------
    train : callable
        `train(coins, i)` trains model i with fresh noise, on the records whose coin is 1.
    score : callable
        `score(released)` returns one number a record, for instance minus its loss.
    n_records : int
        Candidates, members or not.
    event : Event
        What one training claims.
    rng : Generator
        Tosses the coins and resamples.
    shadows, targets : int
        At least 8 each.
    false_positive_rates : tuple of float
        Where the true positive rate is reported.
    delta, confidence : float
        Of the bounds that are compared.
    progress : callable
        Wraps the iterable of models.
    """
    n_records = check_count("n_records", n_records, minimum=8)
    shadows, targets = check_count("shadows", shadows, minimum=8), check_count("targets", targets, minimum=8)
    proved = epsilon_upper_bound(account(event), delta=delta)
    coins = rng.integers(0, 2, (shadows + targets, n_records)).astype(bool)
    runs = tracked(progress(range(len(coins))), "audit", len(coins))
    scores = np.array([np.asarray(score(train(coins[i], i)), dtype=np.float64) for i in runs])
    if scores.shape != coins.shape:
        raise GratisError(f"score must return one number for each of the {n_records} records")
    calibrated = _calibrated(scores[:shadows], coins[:shadows], scores[shadows:])
    judged = list(zip(coins[shadows:], calibrated, strict=True))

    def estimate(name: str, statistic: Callable[[NDArray[np.int64]], float]) -> Estimate:
        drawn = [statistic(rng.integers(0, targets, targets)) for _ in range(_RESAMPLES)]
        low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
        return Estimate(
            quantity=name, value=statistic(np.arange(targets)), low=float(low), high=float(high),
            confidence=confidence, samples=targets, method="bootstrap over target models",
        )  # fmt: skip

    def split(chosen: NDArray[np.int64]) -> tuple[Array, Array]:
        taken, member = calibrated[chosen], coins[shadows:][chosen]
        return np.sort(taken[~member]), taken[member]

    def area(chosen: NDArray[np.int64]) -> float:
        out, members = split(chosen)
        ranks = (np.searchsorted(out, members, "left") + np.searchsorted(out, members, "right")) / 2
        return float(np.mean(ranks) / len(out))

    def rate_at(level: float) -> Callable[[NDArray[np.int64]], float]:
        def rate(chosen: NDArray[np.int64]) -> float:
            out, members = split(chosen)
            threshold = out[min(len(out) - 1, math.ceil((1 - level) * len(out)))]
            return float(np.mean(members > threshold))

        return rate

    rates = {level: estimate(f"true positive rate at {level:g}", rate_at(level)) for level in false_positive_rates}
    wanted = tuple(max(2, n_records // k) for k in (8, 2))
    return MembershipInference(
        area=estimate("area under the ROC", area),
        true_positive_rates=rates,
        audit=judge_guesses(
            judged, wanted, proved_epsilon=proved, delta=delta, confidence=confidence, method="calibrated scores",
            details={"shadows": shadows, "targets": targets},
        ),
    )  # fmt: skip


def _calibrated(scores: Array, coins: Coins, attacked: Array) -> Array:
    """Normal log-likelihood ratio of in against out, each record by its own shadows."""
    inside = np.where(coins, scores, 0).sum(axis=0) / np.maximum(coins.sum(axis=0), 1)
    outside = np.where(coins, 0, scores).sum(axis=0) / np.maximum((~coins).sum(axis=0), 1)
    variance = np.square(scores - np.where(coins, inside, outside)).mean(axis=0)
    variance = np.maximum(variance, 1e-12 * max(float(variance.max()), 1e-300))
    return np.asarray((inside - outside) * (attacked - (inside + outside) / 2) / variance)
