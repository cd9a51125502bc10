"""Distinguishing audit: train many times on two neighbours, tell them apart, bound μ and ε from below.

A lower bound above the proved upper bound is an alarm: the proof, or the program, is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from gratis.accounting import account, gdp_epsilon_upper_bound
from gratis.specs.checks import check_count, check_delta
from gratis.specs.errors import GratisError
from gratis.specs.events import Event
from gratis.specs.guarantees import GDPGuarantee
from gratis.specs.predictions import Estimate

__all__ = ["Audit", "audit_scores", "audit_trainer", "binomial_upper_bound"]

Trainer = Callable[[int], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Audit:
    """The outcome: lower bounds on μ and on ε at δ, the proved values, and the verdict."""

    mu: Estimate
    epsilon: Estimate
    proved_mu: float
    proved_epsilon: float
    delta: float

    @property
    def alarm(self) -> bool:
        """Whether the attack did better than the proof allows."""
        return self.mu.low > self.proved_mu or self.epsilon.low > self.proved_epsilon

    @property
    def verdict(self) -> str:
        """One sentence."""
        seen = f"audited mu ≥ {self.mu.low:.3g} (proved ≤ {self.proved_mu:.3g}), {self.mu.confidence:.0%} confidence"
        if self.alarm:
            return f"ALARM: the attack does better than the proof allows; {seen}"
        return f"consistent with the proof; {seen}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "alarm": self.alarm,
            "verdict": self.verdict,
            "mu": self.mu.to_json(),
            "epsilon": self.epsilon.to_json(),
            "proved_mu": self.proved_mu,
            "proved_epsilon": self.proved_epsilon,
            "delta": self.delta,
        }


def binomial_upper_bound(successes: int, trials: int, *, confidence: float) -> float:
    """Clopper–Pearson upper bound on a probability, one-sided.

    >>> round(binomial_upper_bound(0, 100, confidence=0.95), 4)
    0.0295
    """
    return float(_upper_bounds(np.array([successes]), trials, confidence)[0])


def _upper_bounds(successes: NDArray[np.int64], trials: int, confidence: float) -> NDArray[np.float64]:
    failures = np.maximum(trials - successes, 1)  # all successes: the bound is 1, whatever the formula says
    return np.where(successes >= trials, 1.0, betaincinv(successes + 1, failures, confidence))


def audit_scores(
    without: NDArray[np.float64],
    with_record: NDArray[np.float64],
    *,
    proved_mu: float,
    delta: float = 1e-5,
    confidence: float = 0.95,
) -> Audit:
    """Lower bounds from two samples of scores, larger meaning "the record was there".

    The threshold is chosen on the first half of the runs and judged on the second, so that the choice costs no
    confidence: with α̂, β̂ the Clopper–Pearson upper bounds on the two error rates (each at (1 + confidence)/2),
    every μ-GDP output obeys β ≥ Φ(Φ⁻¹(1 − α) − μ), hence μ ≥ Φ⁻¹(1 − α̂) − Φ⁻¹(β̂); the same for the roles exchanged
    gives ε ≥ ln((1 − δ − β̂)/α̂).
    """
    check_delta(delta)
    if not 0 < confidence < 1:
        raise GratisError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    trials = min(len(without), len(with_record))
    least = math.ceil(math.log(2 / (1 - confidence)) * 4)
    if trials < least:
        raise GratisError(f"{trials} runs are too few for {confidence:.0%} confidence: run at least {least}")
    half = trials // 2
    first = (np.sort(without[:half]), np.sort(with_record[:half]))
    second = (without[half:trials], with_record[half:trials])
    each = (1 + confidence) / 2
    # Candidates are compared by bounds that hold for all of them at once (union bound), so that a threshold in the
    # tails, whose few counts were lucky, does not win.
    strict = 1 - (1 - each) / (4 * half)
    candidates = np.unique(np.concatenate(first))
    alpha = _upper_bounds(half - np.searchsorted(first[0], candidates, side="left"), half, strict)
    beta = _upper_bounds(np.searchsorted(first[1], candidates, side="left"), half, strict)

    def judged(score: NDArray[np.float64]) -> tuple[float, float]:
        threshold = candidates[int(np.argmax(score))]
        false_alarms, misses = int(np.sum(second[0] >= threshold)), int(np.sum(second[1] < threshold))
        size = trials - half
        return (
            binomial_upper_bound(false_alarms, size, confidence=each),
            binomial_upper_bound(misses, size, confidence=each),
        )

    alpha_up, beta_up = judged(-ndtri(alpha) - ndtri(beta))
    mu_low = max(0.0, float(-ndtri(alpha_up) - ndtri(beta_up)))
    alpha_up, beta_up = judged(np.log(np.maximum(1 - delta - beta, 1e-300)) - np.log(alpha))
    epsilon_low = max(0.0, math.log((1 - delta - beta_up) / alpha_up)) if beta_up < 1 - delta else 0.0
    # A μ-GDP lower bound is an ε lower bound as well, and for Gaussian outputs by far the sharper one.
    by_curve = gdp_epsilon_upper_bound(mu=mu_low, delta=delta) if mu_low > 0 else 0.0
    pooled = np.sqrt((np.var(without) + np.var(with_record)) / 2)
    point = float(abs(np.mean(with_record) - np.mean(without)) / pooled) if pooled > 0 else 0.0
    common: dict[str, Any] = {"confidence": confidence, "samples": 2 * trials, "high": math.inf}
    return Audit(
        mu=Estimate(quantity="mu", value=point, low=mu_low, method="Gaussian trade-off, Clopper–Pearson", **common),
        epsilon=Estimate(
            quantity="epsilon",
            value=gdp_epsilon_upper_bound(mu=point, delta=delta) if point > 0 else 0.0,
            low=epsilon_low,
            method=f"Clopper–Pearson at delta={delta:g}; through the Gaussian curve {by_curve:.4g}",
            **common,
        ),
        proved_mu=proved_mu,
        proved_epsilon=gdp_epsilon_upper_bound(mu=proved_mu, delta=delta),
        delta=delta,
    )


def audit_trainer(
    train_without: Trainer,
    train_with: Trainer,
    event: Event,
    *,
    runs: int = 1000,
    direction: NDArray[np.float64] | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Audit:
    """Audit a training procedure on a pair of neighbours.

    `train_without(i)` and `train_with(i)` train afresh, with fresh noise, on the two data sets and return the released
    parameters; `direction` is the likelihood-ratio direction where it is known, otherwise the difference of
    the means over the first third of the runs, which are then not judged.
    """
    runs = check_count("runs", runs, minimum=8)
    guarantee = account(event)
    if not isinstance(guarantee, GDPGuarantee):
        raise GratisError("a distinguishing audit compares with a Gaussian-DP guarantee; this event has none")
    samples: tuple[list[Any], list[Any]] = ([], [])
    for index in progress(range(runs)):
        samples[0].append(np.ravel(train_without(index)))
        samples[1].append(np.ravel(train_with(index)))
    outputs = [np.array(sample) for sample in samples]
    if direction is None:
        used = runs // 3
        direction = outputs[1][:used].mean(axis=0) - outputs[0][:used].mean(axis=0)
        outputs = [output[used:] for output in outputs]
    scores = [output @ np.ravel(direction) for output in outputs]
    return audit_scores(scores[0], scores[1], proved_mu=guarantee.mu, delta=delta, confidence=confidence)
