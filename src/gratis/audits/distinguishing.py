"""Distinguishing audit: train many times on two neighbours, tell them apart, bound μ and ε from below.

A lower bound above the proved upper bound is an alarm: the proof, or the program, is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri
from scipy.stats import nct

from gratis.accounting import account, gdp_epsilon_upper_bound
from gratis.audits.runs import Progress, Trainer, discriminant, run_trainings
from gratis.records.checks import check_count, check_delta, check_non_negative
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.guarantees import GDPGuarantee
from gratis.records.predictions import Estimate
from gratis.records.record import JsonObject, plain

__all__ = [
    "Audit",
    "audit_scores",
    "audit_trainer",
    "binomial_upper_bound",
    "binomial_upper_bounds",
    "check_runs",
    "normal_shift_lower_bound",
]

Array = NDArray[np.float64]

# Share of the runs that choose direction and threshold; they are not judged.
_CALIBRATION = 0.2
# Share of the allowed error that the bound on μ takes; the rest is for the bound on ε in the tails.
_ERROR_FOR_MU = 0.8


def binomial_upper_bounds(successes: NDArray[np.int64], trials: int, confidence: float) -> NDArray[np.float64]:
    """Clopper–Pearson upper bounds on a probability, one-sided, for several counts."""
    failures = np.maximum(trials - successes, 1)  # all successes: the bound is 1, whatever the formula says
    return np.where(successes >= trials, 1.0, betaincinv(successes + 1, failures, confidence))


def binomial_upper_bound(successes: int, trials: int, *, confidence: float) -> float:
    """Clopper–Pearson upper bound on a probability, one-sided.

    >>> round(binomial_upper_bound(0, 100, confidence=0.95), 4)
    0.0295
    """
    return float(binomial_upper_bounds(np.array([successes]), trials, confidence)[0])


def normal_shift_lower_bound(
    first: NDArray[np.float64], second: NDArray[np.float64], confidence: float
) -> tuple[float, float]:
    """Return the estimate of (mean₂ − mean₁)/std and its lower bound, exact for normal samples of equal variance.

    t = shift·√(N/2) of two samples of N has the non-central t law with 2N − 2 degrees of freedom and non-centrality
    (true shift)·√(N/2); the bound inverts it.

    >>> rng = np.random.default_rng(0)
    >>> estimate, low = normal_shift_lower_bound(rng.standard_normal(500), 1 + rng.standard_normal(500), 0.95)
    >>> 0.8 < low < estimate < 1.2
    True
    """
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    pooled = math.sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / 2)
    difference = float(np.mean(second) - np.mean(first))
    if pooled == 0 or not math.isfinite(pooled):
        # Constant scores are not normal: nothing is claimed.
        return (math.inf if difference > 0 else 0.0), 0.0
    shift, scale, freedom = difference / pooled, math.sqrt(size / 2), 2 * size - 2
    if shift <= 0:
        return 0.0, 0.0
    statistic = shift * scale
    if statistic > 1e3:  # the law is normal to all digits, its standard error that of the shift
        spread = math.sqrt(2 / size + shift**2 / (4 * size))
        return shift, max(0.0, shift + spread * float(ndtri(1 - confidence)))

    def excess(centre: float) -> float:
        return float(nct.sf(statistic, freedom, centre)) - (1 - confidence)

    if excess(0.0) > 0:
        return shift, 0.0
    return shift, brentq(excess, 0.0, statistic, xtol=1e-9) / scale


@dataclass(frozen=True, slots=True)
class Audit:
    """The outcome: lower bounds on μ and on ε at δ, the proved values, and the verdict.

    `mu` (through the Gaussian trade-off curve, as the proof claims it) and `epsilon` (of (ε, δ)-DP, nothing else
    used) assume nothing about the outputs and hold together with their confidence; the alarm uses these two.
    `mu_if_normal` is sharper and assumes scores with normal laws of equal variance: it shows tightness, it alarms
    nobody.
    """

    mu: Estimate
    epsilon: Estimate
    mu_if_normal: Estimate
    proved_mu: float
    proved_epsilon: float
    delta: float
    scores: tuple[Array, Array] = field(repr=False, compare=False)

    @property
    def alarm(self) -> bool:
        """Whether the attack did better than the proof allows."""
        return self.mu.low > self.proved_mu or self.epsilon.low > self.proved_epsilon

    @property
    def epsilon_by_curve(self) -> float:
        """ε at δ of the μ that was shown: a mechanism with this Gaussian curve leaks at least so much."""
        return gdp_epsilon_upper_bound(mu=self.mu.low, delta=self.delta) if self.mu.low > 0 else 0.0

    @property
    def largest_possible_mu(self) -> float:
        """The bound on μ that so many trainings give if no answer of the attack is wrong: more cannot be shown."""
        total = len(self.scores[0]) + len(self.scores[1])
        return _mu_from_errors(0, total, 1 - _ERROR_FOR_MU * (1 - self.mu.confidence))

    @property
    def tightness(self) -> float:
        """Audited over proved ε, both through the Gaussian curve; close to 1 where the proof is tight."""
        return self.epsilon_by_curve / self.proved_epsilon if 0 < self.proved_epsilon < math.inf else 0.0

    @property
    def verdict(self) -> str:
        """One sentence."""
        seen = (
            f"audited mu ≥ {self.mu.low:.3g} (proved ≤ {self.proved_mu:.3g}), that is epsilon ≥ "
            f"{self.epsilon_by_curve:.3g} (proved ≤ {self.proved_epsilon:.3g}) at delta {self.delta:g}, "
            f"{100 * self.mu.confidence:g} % confidence, {self.mu.samples} trainings, which can show mu ≥ "
            f"{self.largest_possible_mu:.3g} at most"
        )
        if self.alarm:
            return f"ALARM: the attack does better than the proof allows; {seen}"
        return f"consistent with the proof; {seen}"

    def roc(self) -> tuple[Array, Array]:
        """Return false positive and true positive rates over all thresholds, for a picture."""
        without, with_record = self.scores
        thresholds = np.unique(np.concatenate(self.scores))[::-1]
        rates = [1 - np.searchsorted(np.sort(s), thresholds, side="left") / len(s) for s in (without, with_record)]
        return np.append(0.0, rates[0]), np.append(0.0, rates[1])

    def to_json(self) -> JsonObject:
        """Return plain data for JSON."""
        names = [*("alarm", "verdict", "mu", "epsilon", "mu_if_normal", "epsilon_by_curve", "tightness")]
        names += ["largest_possible_mu", "proved_mu", "proved_epsilon", "delta"]
        return {name: plain(getattr(self, name)) for name in names}


def check_runs(runs: int, confidence: float) -> int:
    """Refuse, before anything is trained, runs of which no bound of this confidence could come."""
    if not 0 < confidence < 1:
        raise GratisError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    runs, least = check_count("runs", runs), math.ceil(8 * math.log(4 / (1 - confidence)))
    if runs < least:
        raise GratisError(f"{runs} runs are too few for {100 * confidence:g} % confidence: run at least {least}")
    return runs


def audit_scores(
    without: Array,
    with_record: Array,
    *,
    proved_mu: float,
    delta: float = 1e-5,
    confidence: float = 0.95,
) -> Audit:
    """Lower bounds from two samples of scores, larger meaning "the record was there".

    Thresholds are chosen on the first fifth of the runs and judged on the rest, so that the choice costs no
    confidence. Every test of a μ-GDP output has error rates with α + β ≥ 2Φ(−μ/2), so an upper bound e on
    (α + β)/2, Clopper–Pearson on all errors at once, gives μ ≥ −2Φ⁻¹(e). Every test of an (ε, δ)-DP output
    has 1 − β ≤ e^ε·α + δ, so ε ≥ ln((1 − δ − β̂)/α̂), and the same with the roles exchanged. The bounds on μ and ε
    share the error, four to one, and hold together with probability `confidence`.

    >>> rng = np.random.default_rng(0)
    >>> audit = audit_scores(rng.standard_normal(2000), 1 + rng.standard_normal(2000), proved_mu=1.0)
    >>> audit.alarm, 0.8 < audit.mu.low <= 1
    (False, True)
    """
    check_delta(delta)
    proved_mu = check_non_negative("proved_mu", proved_mu, allow_infinite=True)
    trials = check_runs(min(len(without), len(with_record)), confidence)
    first = int(_CALIBRATION * trials)
    chosen = (np.sort(without[:first]), np.sort(with_record[:first]))
    judged = (np.asarray(without[first:trials]), np.asarray(with_record[first:trials]))
    error = 1 - confidence
    mu_low = _gaussian_bound(chosen, judged, 1 - _ERROR_FOR_MU * error)
    mirrored = (-chosen[1][::-1], -chosen[0][::-1]), (-judged[1], -judged[0])
    side = 1 - (1 - _ERROR_FOR_MU) * error / 2
    epsilon_low = max(_tail_bound(chosen, judged, delta, side), _tail_bound(*mirrored, delta, side))
    shift, shift_low = normal_shift_lower_bound(np.asarray(without), np.asarray(with_record), confidence)

    def shown(quantity: str, value: float, low: float, method: str) -> Estimate:
        return Estimate(
            quantity=quantity, value=value, low=low, high=math.inf, confidence=confidence, samples=2 * trials,
            method=method,
        )  # fmt: skip

    curve = gdp_epsilon_upper_bound
    return Audit(
        mu=shown("mu", shift, mu_low, "Gaussian trade-off, Clopper–Pearson"),
        epsilon=shown(
            "epsilon",
            curve(mu=shift, delta=delta) if 0 < shift < math.inf else shift,
            epsilon_low,
            f"Clopper–Pearson at delta={delta:g}",
        ),
        mu_if_normal=shown("mu", shift, shift_low, "non-central t; assumes normal scores"),
        proved_mu=proved_mu,
        proved_epsilon=curve(mu=proved_mu, delta=delta) if proved_mu > 0 else 0.0,
        delta=delta,
        scores=judged,
    )


def _gaussian_bound(chosen: tuple[Array, Array], judged: tuple[Array, Array], confidence: float) -> float:
    """Lower bound on μ from the errors of both kinds at one threshold."""
    size = len(chosen[0])
    candidates = np.concatenate(chosen)
    errors = size - np.searchsorted(chosen[0], candidates) + np.searchsorted(chosen[1], candidates)
    # For laws of one shape the middle is best and known far better than the minimum of a noisy curve.
    threshold = (np.median(chosen[0]) + np.median(chosen[1])) / 2
    middle = np.sum(chosen[0] >= threshold) + np.sum(chosen[1] < threshold)
    best = int(np.argmin(errors))
    if errors[best] + 3 * math.sqrt(errors[best] + 1) < middle:
        threshold = candidates[best]
    wrong = int(np.sum(judged[0] >= threshold) + np.sum(judged[1] < threshold))
    return _mu_from_errors(wrong, len(judged[0]) + len(judged[1]), confidence)


def _mu_from_errors(wrong: int, total: int, confidence: float) -> float:
    # Hoeffding 1956: a sum of unlike Bernoulli variables has lighter tails than the binomial of their mean, from
    # one below that mean; hence the maximum.
    rate = max(binomial_upper_bound(wrong, total, confidence=confidence), (wrong + 1) / total)
    return max(0.0, float(-2 * ndtri(rate))) if rate < 1 else 0.0


def _tail_bound(chosen: tuple[Array, Array], judged: tuple[Array, Array], delta: float, confidence: float) -> float:
    """Lower bound on ε at δ from a threshold in the upper tail; both rates bounded at (1 + confidence)/2."""
    each, size = (1 + confidence) / 2, len(chosen[0])
    # Candidates are compared by bounds that hold for all of them at once (union bound), so that a threshold in the
    # tails, whose few counts were lucky, does not win.
    strict = 1 - (1 - each) / (4 * size)
    candidates = np.unique(np.concatenate(chosen))
    alpha = binomial_upper_bounds(size - np.searchsorted(chosen[0], candidates), size, strict)
    beta = binomial_upper_bounds(np.searchsorted(chosen[1], candidates), size, strict)
    threshold = candidates[int(np.argmax(np.log(np.maximum(1 - delta - beta, 1e-300)) - np.log(alpha)))]
    alpha_up = binomial_upper_bound(int(np.sum(judged[0] >= threshold)), len(judged[0]), confidence=each)
    beta_up = binomial_upper_bound(int(np.sum(judged[1] < threshold)), len(judged[1]), confidence=each)
    return max(0.0, math.log((1 - delta - beta_up) / alpha_up)) if beta_up < 1 - delta else 0.0


def audit_trainer(
    train_without: Trainer,
    train_with: Trainer,
    event: Event,
    *,
    runs: int = 1000,
    direction: Array | None = None,
    exchanged: bool = False,
    delta: float = 1e-5,
    confidence: float = 0.95,
    workers: int = 1,
    progress: Progress = iter,
) -> Audit:
    """Audit a training procedure on a pair of neighbours.

    Parameters
    ----------
    train_without, train_with : callables
        `train(i)` trains afresh, with fresh noise, on one of the two data sets and returns the released parameters.
    event : Event
        What the procedure claims to have done; its Gaussian-DP guarantee is the proved value.
    runs : int
        Trainings on each side.
    direction : array, optional
        The likelihood-ratio direction where it is known; otherwise a shrunken linear discriminant of the first
        quarter of the runs, which are not judged.
    exchanged : bool
        Whether the two data sets differ in an exchanged record also where the event is about one zeroed out: two
        steps between neighbours, so that twice the proved μ is what an honest trainer may show.
    delta, confidence : float
        Of the bounds that are compared.
    workers : int
        Processes; −1 for all cores.
    progress : callable
        Wraps the iterable of finished portions.
    """
    runs = check_runs(runs, confidence)
    guarantee = account(event)
    if not isinstance(guarantee, GDPGuarantee):
        raise GratisError("a distinguishing audit compares with a Gaussian-DP guarantee; this event has none")
    outputs = run_trainings((train_without, train_with), runs, workers=workers, progress=progress)
    if direction is None:
        first = int(_CALIBRATION * runs)
        direction = discriminant(outputs[0][:first], outputs[1][:first])
    scores = [output @ np.ravel(direction) for output in outputs]
    proved = guarantee.mu * (2 / guarantee.neighbouring.sensitivity_factor if exchanged else 1)
    return audit_scores(scores[0], scores[1], proved_mu=proved, delta=delta, confidence=confidence)
