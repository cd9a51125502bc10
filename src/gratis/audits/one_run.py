"""Canary audit in one training: many records, each in or out by a fair coin, guessed from what was released.

Steinke, Nasr & Jagielski 2023, Theorem 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from gratis.accounting import account, epsilon_upper_bound
from gratis.records.checks import check_count, check_delta, check_non_negative
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.predictions import Estimate
from gratis.records.record import JsonObject, plain

__all__ = [
    "EpsilonAudit",
    "audit_one_run",
    "guess_membership",
    "one_run_epsilon_lower_bound",
    "one_run_p_value",
]

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EpsilonAudit:
    """A lower bound on ε at δ beside the proved one."""

    epsilon: Estimate
    proved_epsilon: float
    delta: float
    details: JsonObject = field(default_factory=dict, hash=False)

    @property
    def alarm(self) -> bool:
        """Whether the attack did better than the proof allows."""
        return self.epsilon.low > self.proved_epsilon

    @property
    def verdict(self) -> str:
        """One sentence."""
        seen = (
            f"audited epsilon ≥ {self.epsilon.low:.3g} (proved ≤ {self.proved_epsilon:.3g}) at delta {self.delta:g}, "
            f"{self.epsilon.confidence:.0%} confidence"
        )
        if self.alarm:
            return f"ALARM: the attack does better than the proof allows; {seen}"
        return f"consistent with the proof; {seen}"

    def to_json(self) -> JsonObject:
        """Return plain data for JSON."""
        return {
            "alarm": self.alarm,
            "verdict": self.verdict,
            "epsilon": self.epsilon.to_json(),
            "proved_epsilon": plain(self.proved_epsilon),
            "delta": self.delta,
            **self.details,
        }


def one_run_p_value(canaries: int, guesses: int, correct: int, *, epsilon: float, delta: float) -> float:
    """Largest probability that (ε, δ)-DP leaves for so many correct guesses.

    P(W ≥ v) ≤ P(B ≥ v) + 2mδ·max_i P(v − i ≤ B < v)/i, where B ~ Binomial(r, e^ε/(1 + e^ε)), m canaries, r
    guesses.

    >>> round(one_run_p_value(100, 100, 60, epsilon=0.0, delta=0.0), 4)
    0.0284
    """
    chance = 1 / (1 + math.exp(-min(epsilon, 700.0)))
    tail = float(binom.sf(correct - 1, guesses, chance))
    if delta == 0 or correct == 0:
        return min(1.0, tail)
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance))
    return min(1.0, tail + 2 * canaries * delta * float(np.max(below / np.arange(1, correct + 1))))


def one_run_epsilon_lower_bound(canaries: int, guesses: int, correct: int, *, delta: float, confidence: float) -> float:
    """Return the ε below which (ε, δ)-DP is refuted at this confidence; 0 if none is.

    >>> round(one_run_epsilon_lower_bound(1000, 100, 98, delta=1e-5, confidence=0.95), 2)
    2.71
    """
    canaries, guesses = check_count("canaries", canaries), check_count("guesses", guesses)
    check_delta(delta, allow_zero=True)
    if not 0 <= correct <= guesses <= canaries:
        raise GratisError("correct guesses cannot exceed guesses, nor guesses canaries")

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, correct, epsilon=epsilon, delta=delta) < 1 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < 500:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guess_membership(scores: Array, guesses: int) -> NDArray[np.int8]:
    """Guess +1 for the `guesses`/2 largest scores, −1 for as many smallest, 0 (no guess) between."""
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    guessed = np.zeros(len(scores), dtype=np.int8)
    guessed[order[:half]] = -1
    guessed[order[len(scores) - half :]] = 1
    return guessed


def audit_one_run(
    train: Callable[[Coins], Any],
    score: Callable[[Any], Array],
    n_canaries: int,
    event: Event,
    *,
    rng: np.random.Generator,
    delta: float = 1e-5,
    confidence: float = 0.95,
    guesses: tuple[int, ...] | None = None,
) -> EpsilonAudit:
    """Train once with every canary in or out by a fair coin, guess the coins, and bound ε from below.

    What a coin decides must be a pair of neighbours of the event: canary or nothing under zero-out, one of two records
    under replace-one.

    Parameters
    ----------
    train : callable
        `train(coins)` trains once and returns what it releases.
    score : callable
        `score(released)` returns one number a canary, larger meaning that its coin was 1.
    n_canaries : int
        Number of coins.
    event : Event
        What the training claims.
    rng : Generator
        Tosses the coins.
    delta, confidence : float
        Of the bounds that are compared.
    guesses : tuple of int, optional
        How many guesses to make; each is judged at a share of the error (Bonferroni) and the best bound is kept.
        An eighth, a quarter, a half and all of the canaries by default.
    """
    n_canaries = check_count("n_canaries", n_canaries, minimum=8)
    coins = rng.integers(0, 2, n_canaries).astype(bool)
    scores = np.asarray(score(train(coins)), dtype=np.float64)
    if scores.shape != (n_canaries,):
        raise GratisError(f"score must return one number for each of the {n_canaries} canaries, got {scores.shape}")
    proved = epsilon_upper_bound(account(event), delta=delta)
    wanted = guesses if guesses is not None else tuple(max(2, n_canaries // k) for k in (8, 4, 2, 1))
    return judge_guesses(
        [(coins, scores)], wanted, proved_epsilon=proved, delta=delta, confidence=confidence, method="one run"
    )


def judge_guesses(
    runs: list[tuple[Coins, Array]],
    wanted: tuple[int, ...],
    *,
    proved_epsilon: float,
    delta: float,
    confidence: float,
    method: str,
    details: JsonObject | None = None,
) -> EpsilonAudit:
    """Bound ε from guesses in independent runs; counts add up, since each run's are dominated given the others."""
    check_non_negative("proved_epsilon", proved_epsilon, allow_infinite=True)
    share = 1 - (1 - confidence) / len(wanted)
    best, accuracy, made = 0.0, 0.5, 0
    for count in wanted:
        right = total = 0
        for coins, scores in runs:
            guessed = guess_membership(scores, min(count, len(scores)))
            right += int(np.sum(guessed[coins] == 1) + np.sum(guessed[~coins] == -1))
            total += int(np.sum(guessed != 0))
        canaries = sum(len(coins) for coins, _ in runs)
        low = one_run_epsilon_lower_bound(canaries, total, right, delta=delta, confidence=share)
        if low >= best:
            best, accuracy, made = low, right / total, total
    value = math.log(accuracy / (1 - accuracy)) if 0.5 <= accuracy < 1 else (0.0 if accuracy < 1 else math.inf)
    estimate = Estimate(
        quantity="epsilon", value=value, low=best, high=math.inf, confidence=confidence, samples=made,
        method=f"{method}, binomial domination (Steinke–Nasr–Jagielski)",
    )  # fmt: skip
    return EpsilonAudit(estimate, proved_epsilon, delta, {"guesses": made, "accuracy": accuracy, **(details or {})})
