"""A score on held-out private rows is a release like any other: clipped, noised, paid for and certified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.estimators.persons import rows_of_persons
from gratis.estimators.release import Release, without_ledger
from gratis.mechanisms.rows import Rows
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate
from gratis.records.events import GaussianRelease
from gratis.records.predictions import Estimate
from gratis.stages.held_out_scores import ClassSums, ErrorSums, held_out_event

__all__ = ["DISJOINT", "HeldOutScore", "evaluate_privately", "evaluate_rows", "evaluation_event"]

Array = NDArray[np.float64]

DISJOINT = (
    "held-out rows were chosen by their position alone and no row is in both parts: a row enters the model or the "
    "score, so that releasing both costs the larger of the two budgets, not their sum"
)


@dataclass(frozen=True, slots=True)
class HeldOutScore:
    """Scores on held-out rows, each with the range that its privacy noise and its sampling leave.

    The first is accuracy or R². Classifiers: balanced accuracy, AUC, log loss, and `base_rate` and `base_log_loss`,
    what a model reaches that knows the shares of the classes only. Regressors: mean absolute error, and that of a
    model that always answers the released centre of the target.
    """

    estimates: tuple[Estimate, ...]
    certificate: Certificate

    @property
    def estimate(self) -> Estimate:
        """Accuracy, or R²."""
        return self.estimates[0]


def evaluation_event(n_records: int, budget: Budget, *, classes: int | None) -> GaussianRelease:
    """Fix the release: sums that a record enters with bounded numbers, of a classifier or (None) of a regressor."""
    # A hair less than the budget's μ, for the roundings of whoever converts it back.
    mu = calibrate_mu(budget) / (1 + 2.0**-40)
    return held_out_event(_sums(classes), n_records, mu=mu, neighbouring=budget.neighbouring)


def evaluate_privately(
    estimator: Any, X: Array, y: Array, release: Release, *, groups: Any = None
) -> tuple[Estimate, ...]:
    """Score a fitted estimator on rows that it was not trained on, inside the release that pays for it.

    **Guarantee**: what is released satisfies `release.budget` with respect to the held-out rows (`evaluation_event`,
    which must be the event of `release`). The estimator is a function of other rows, so both together cost the larger
    of the two (docs/proofs/parallel.md), under both relations. `y` are numbers, or positions in `classes_`; a
    record without a usable target, or at which the model cannot answer, contributes nothing. With `groups`, ids of
    persons, a record is a person and enters with the mean over the own rows; the model must not know anyone of them.
    """
    held = Rows.held(X, y)
    if groups is not None:
        held = rows_of_persons(held, groups, refuse_missing=False)
    return evaluate_rows(estimator, held, release)


def evaluate_rows(estimator: Any, held: Rows, release: Release) -> tuple[Estimate, ...]:
    """`evaluate_privately` on rows (X, y), wherever they are, with the same guarantee: the score is one sum."""
    classes, records = len(estimator.classes_) if hasattr(estimator, "classes_") else None, held.n_rows
    event, sums = evaluation_event(records, release.budget, classes=classes), _sums(classes)
    if event != release.event:
        raise ValueError("the release must have been made for this evaluation")
    entries: Any = _class_entries if isinstance(sums, ClassSums) else _error_entries
    model = without_ledger(estimator)  # it may be sent to a cluster
    with np.errstate(all="ignore"):
        total = held.total(lambda rows, target: entries(model, sums, rows, target))
    noisy = release.noise.release(total, event.noise_std)
    if isinstance(sums, ClassSums):
        return tuple(sums.estimates(noisy, event.noise_std, records))
    return tuple(sums.estimates(noisy, event.noise_std, records, _target_scale(estimator)[1]))


def _sums(classes: int | None) -> ClassSums | ErrorSums:
    return ErrorSums() if classes is None else ClassSums(classes)


def _class_entries(estimator: Any, sums: ClassSums, X: Array, y: Array) -> Array:
    rows, valid = _answerable(estimator, X)
    scores = np.asarray(estimator.decision_function(rows), dtype=np.float64)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros_like(scores), scores])
    return sums.entries(scores, np.where(valid, y, np.nan))


def _error_entries(estimator: Any, sums: ErrorSums, X: Array, y: Array) -> Array:
    centre, scale = _target_scale(estimator)
    rows, valid = _answerable(estimator, X)
    target = np.where(valid & np.isfinite(y), y, np.nan)
    return sums.entries((target - centre) / scale, (target - estimator.predict(rows)) / scale)


def _target_scale(estimator: Any) -> tuple[float, float]:
    """Released centre and scale of the target."""
    fitted = getattr(estimator, "fit_", None) or getattr(estimator, "model_", None)  # linear, additive
    target = estimator.target_scaler_ if fitted is None else fitted.target
    return float(target.centre[0]), float(target.scale[0])


def _answerable(estimator: Any, X: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Rows at which `predict` raises nothing, and which of them are the records' own; the others count as nothing."""
    valid = np.asarray(np.isfinite(X).all(axis=1))
    if estimator.on_invalid == "impute":
        return X, np.ones_like(valid)
    return np.where(valid[:, None], X, 0.0), valid
