"""Worst-case neighbours for the full-batch descent of a plan: the pair on which its accounting is tight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import leaf_mu
from gratis.audits.distinguishing import Audit, audit_trainer
from gratis.audits.runs import Trainer
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.linear import LinearModel
from gratis.records.errors import GratisError
from gratis.records.events import Composition, FullBatchDescent
from gratis.records.plans import Plan
from gratis.stages.full_batch import descend, descent_event

__all__ = ["audit_full_batch"]


_MOST_ROWS = 200


def audit_full_batch(plan: Plan, *, runs: int, delta: float = 1e-5, confidence: float = 0.999) -> Audit:
    """Train the plan's descent many times on the neighbours that its bound is tight for, and attack it.

    All rows are zero but one, whose gradient is clipped in every step: exchanged for its negative (replace-one) or
    for nothing (zero-out), it moves the last iterate by the whole sensitivity in every step. Beyond 200 rows, 200 are
    taken with the same μ and steps: zero rows add nothing, and shift and noise both scale with 1/n.

    The bound is tight on this pair, so an honest program raises an alarm in a share 1 − confidence of all audits:
    hence the high confidence, for it runs unasked.
    """
    leaves = plan.event.leaves() if isinstance(plan.event, Composition) else (plan.event,)
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
