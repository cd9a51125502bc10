"""S2's tracing attack (5.27): does the released θ̂ correlate with its own records more than with fresh ones?

    A_i = (y_i − x_iᵀθ*)·x_iᵀ(θ̂ − θ*)

It needs θ*, so it runs on simulated problems only. It is the attack behind the minimax lower bound of S2, Theorem 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from gratis.accounting import account
from gratis.audits.distinguishing import Audit, audit_scores, check_runs
from gratis.audits.runs import Progress
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import Event
from gratis.records.guarantees import GDPGuarantee
from gratis.records.predictions import Estimate
from gratis.records.progress import tracked
from gratis.records.record import JsonObject

__all__ = ["Tracing", "audit_tracing", "tracing_scores"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tracing:
    """The per-record test (`audit`) and the mean of A over members and over fresh records, across runs."""

    audit: Audit
    members: Estimate
    fresh: Estimate

    @property
    def alarm(self) -> bool:
        """Whether the attack did better than the proof allows."""
        return self.audit.alarm

    def to_json(self) -> JsonObject:
        """Return plain data for JSON."""
        return {"members": self.members.to_json(), "fresh": self.fresh.to_json(), **self.audit.to_json()}


def tracing_scores(X: Array, y: Array, estimate: Array, true_parameters: Array) -> Array:
    """Return A_i for every row.

    >>> tracing_scores(np.array([[1.0, 0.0]]), np.array([3.0]), np.array([2.5, 0.0]), np.array([2.0, 0.0])).tolist()
    [0.5]
    """
    return np.asarray((y - X @ true_parameters) * (X @ (np.ravel(estimate) - true_parameters)))


def audit_tracing(
    train: Callable[[Array, Array, int], Array],
    draw: Callable[[np.random.Generator, int], tuple[Array, Array]],
    true_parameters: Array,
    event: Event,
    *,
    n_records: int,
    rng: np.random.Generator,
    runs: int = 500,
    position: int = 0,
    delta: float = 1e-5,
    confidence: float = 0.95,
    progress: Progress = iter,
) -> Tracing:
    """Train on fresh data in every run, and trace one member and one fresh record of it.

    One pair a run is judged, so that the scores are independent: this is the test of a record against an independent
    one in its place, a pair of replace-one neighbours. The means use all records, with intervals across runs.

    Parameters
    ----------
    train : callable
        `train(X, y, i)` returns the released parameters of run i.
    draw : callable
        `draw(rng, n)` draws n records from the law of which `true_parameters` is the truth.
    true_parameters : array
        θ*.
    event : Event
        What one training claims; replace-one, or zero-out with the fresh record counted twice (2μ).
    n_records : int
        Records of one training.
    rng : Generator
        Draws the problems.
    runs : int
        Trainings.
    position : int
        Which member is traced; in one pass the last is the freshest.
    delta, confidence : float
        Of the bounds that are compared.
    progress : callable
        Wraps the iterable of runs.
    """
    runs, n_records = check_runs(runs, confidence), check_count("n_records", n_records)
    if not -n_records <= position < n_records:
        raise GratisError(f"position must name one of the {n_records} records, got {position}")
    guarantee = account(event)
    if not isinstance(guarantee, GDPGuarantee):
        raise GratisError("a tracing audit compares with a Gaussian-DP guarantee; this event has none")
    # Exchanging a record is zeroing one out and putting another in.
    proved = guarantee.mu * 2 / guarantee.neighbouring.sensitivity_factor
    traced, means = np.empty((2, runs)), np.empty((2, runs))
    for i in tracked(progress(range(runs)), "audit", runs):
        X, y = draw(rng, n_records)
        other_X, other_y = draw(rng, n_records)
        released = train(X, y, i)
        members = tracing_scores(X, y, released, true_parameters)
        fresh = tracing_scores(other_X, other_y, released, true_parameters)
        traced[:, i] = fresh[position], members[position]
        means[:, i] = fresh.mean(), members.mean()
    half = float(stdtrit(runs - 1, (1 + confidence) / 2)) / math.sqrt(runs)

    def mean(name: str, values: Array) -> Estimate:
        centre, reach = float(values.mean()), half * float(values.std(ddof=1))
        return Estimate(
            quantity=f"mean of A over {name}", value=centre, low=centre - reach, high=centre + reach,
            confidence=confidence, samples=runs, method="t interval over runs",
        )  # fmt: skip

    return Tracing(
        audit=audit_scores(traced[0], traced[1], proved_mu=proved, delta=delta, confidence=confidence),
        members=mean("members", means[1]),
        fresh=mean("fresh records", means[0]),
    )
