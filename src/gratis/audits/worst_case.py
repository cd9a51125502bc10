"""Neighbours on which the proved bounds are attained: what an audit of a trainer should be run on.

Both pairs differ in one label. Its record pushes with a full clipped gradient, in opposite directions on the two
sides; the other records do nothing, or tempt a trainer that forgot its step cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import leaf_mu
from gratis.audits.distinguishing import Audit, audit_trainer
from gratis.audits.runs import Trainer
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.records.plans import Plan
from gratis.stages.full_batch import descend, descent_event

__all__ = ["Neighbours", "audit_full_batch", "pushing_neighbours", "tempting_neighbours"]

Array = NDArray[np.float64]

# Far beyond any clip norm, so that the sign of the residual never changes.
_FAR = 1e6
_LENGTH, _LEAN = 1e3, 1e-2


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rows X, labels y on one side and `other_y` on the other; `direction` in which outputs differ most, if known."""

    X: Array
    y: Array
    other_y: Array
    direction: Array | None


def pushing_neighbours(n_records: int, n_columns: int) -> Neighbours:
    """One record pushes along the first axis, the others are zero: tight for full batch and for one pass.

    Full batch: every step moves by ±C·η/n, so T steps are √T·κηC/(n·s) noise deviations apart. One pass: the first
    record moves θ by ±a₁, nothing contracts it, and all the noise of the pass lies on it.

    >>> pair = pushing_neighbours(3, 2)
    >>> pair.X.tolist(), float(pair.y[0]) == -float(pair.other_y[0])
    ([[0.1, 0.0], [0.0, 0.0], [0.0, 0.0]], True)
    """
    X = np.zeros((check_count("n_records", n_records), check_count("n_columns", n_columns)))
    y = np.zeros(len(X))
    X[0, 0], y[0] = 0.1, _FAR
    other = y.copy()
    other[0] = -_FAR
    return Neighbours(X, y, other, np.eye(n_columns)[0])


def tempting_neighbours(n_records: int, *, step_size: float, clip_norm: float, capped: bool = True) -> Neighbours:
    """A stream that needs the step cap, d = n: each later row is long and almost orthogonal to the difference so far.

    docs/theory/one-pass.md, statement 4.

    Under the cap 2/‖x‖² such a step is too short to matter: the outputs stay 2a apart, and the bound is attained.
    Without it both runs move a full clipped step in opposite directions and the difference grows as 2a√k.
    `capped` says for which of the two the rows are laid.
    """
    n = check_count("n_records", n_records)
    if n < 2:
        raise GratisError("a stream that tempts needs at least two records")
    a = check_positive("step_size", step_size) * check_positive("clip_norm", clip_norm)
    X, y = np.zeros((n, n)), np.zeros(n)
    X[0, 0], y[0] = 1.0 / math.sqrt(max(step_size, 1.0)), _FAR
    pair = np.zeros((2, n))
    pair[:, 0] = a, -a
    for k in range(1, n):
        difference = pair[0] - pair[1]
        row = _LEAN * difference / np.linalg.norm(difference)
        row[k] += math.sqrt(1 - _LEAN**2)
        X[k] = _LENGTH * row / np.linalg.norm(row)
        y[k] = X[k] @ pair.mean(axis=0)
        slope = np.clip(pair @ X[k] - y[k], -clip_norm / _LENGTH, clip_norm / _LENGTH)
        step = min(step_size, 2 / _LENGTH**2) if capped else step_size
        pair = pair - step * slope[:, None] * X[k]
    other = y.copy()
    other[0] = -_FAR
    difference = pair[0] - pair[1]
    return Neighbours(X, y, other, difference / np.linalg.norm(difference))


_MOST_ROWS = 200


def audit_full_batch(plan: Plan, *, runs: int, delta: float = 1e-5, confidence: float = 0.999) -> Audit:
    """Train the plan's descent many times on the neighbours that its bound is tight for, and attack it.

    All rows are zero but one, whose gradient is clipped in every step: exchanged for its negative (replace-one) or
    for nothing (zero-out), it moves the last iterate by the whole sensitivity in every step. Beyond 200 rows, 200 are
    taken with the same μ and steps: zero rows add nothing, and shift and noise both scale with 1/n.

    The bound is tight on this pair, so an honest program raises an alarm in a share 1 − confidence of all audits:
    hence the high confidence, for it runs unasked.
    """
    leaves = plan.event.leaves()
    descents = [leaf for leaf in leaves if isinstance(leaf, FullBatchDescent)]
    if len(descents) != 1:
        raise GratisError("only plans with one full-batch descent can be audited on their worst case")
    event = descents[0]
    mu, relation = leaf_mu(event), event.neighbouring
    rows = min(event.n_records, _MOST_ROWS)
    X = np.zeros((rows, 2))
    X[0, 0] = 1.0
    far = np.zeros(rows)
    far[0] = 1e9  # never reached, so the record stays clipped
    other = -far if relation.sensitivity_factor == 2 else np.zeros_like(far)
    noise = NoiseSource.secure()

    def trainer(y: NDArray[np.float64]) -> Trainer:
        return lambda _: descend(
            Rows.held(X, y), LinearModel(), steps=event.steps, clip_norm=1.0, learning_rate=1.0, mu=mu,
            neighbouring=relation, noise=noise, average=False,
        ).parameters  # fmt: skip

    direction = np.array([1.0, 0.0])
    claimed = descent_event(rows, 2, 1, event.steps, mu=mu, neighbouring=relation)
    return audit_trainer(
        trainer(other), trainer(far), claimed, runs=runs, direction=direction, delta=delta, confidence=confidence
    )
