"""Habits of scikit-learn that leak, noticed from public facts: how an estimator came about, and where it stands.

Nothing here looks at a value or at the call stack, or is written with a model: clones carry the number that
scikit-learn's own hook gives them, the steps of a pipeline are found by who refers to the estimator, and of the
training rows a weak reference is kept in memory.
"""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from gratis.records.errors import PrivacyLeakWarning

__all__ = ["Watched", "note_training", "one_of_several", "warn_about_fit"]

CLONES = (
    "several clones of one private estimator are fitted (cross_val_score, GridSearchCV and the like): every fit is a "
    "release that costs its whole budget, and choosing by scores on private rows is spending that no certificate "
    "covers; plan from public sizes instead, or search with DPSearchCV"
)
PIPELINE = (
    "{step} stands before a private estimator in a pipeline: what it learns from the rows has no noise, and the "
    "guarantee does not cover it; leave it out (private estimators find scales themselves), or use DPTableRegressor or "
    "DPTableClassifier on the raw table"
)
TRAINING_ROWS = (
    "this score is computed without noise on rows that the model was trained on: the guarantee does not cover it, and "
    "it flatters; use rows that were kept apart, or a private score (docs/howto/evaluate.md)"
)
# They need to be fitted to know the number of columns, and learn nothing else.
_LEARN_NOTHING = {"PolynomialFeatures", "FunctionTransformer", "Normalizer", "Binarizer", "FeatureHasher"}

_families: weakref.WeakKeyDictionary[Any, Iterator[int]] = weakref.WeakKeyDictionary()
_rows: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()


class Watched:
    """Mixin, before scikit-learn's own: clones are numbered, and a score on training rows warns."""

    def __sklearn_clone__(self) -> Self:
        made: Any = super().__sklearn_clone__()  # type: ignore[misc]
        family = _families.setdefault(self, itertools.count(1))
        _families[made] = family
        made._clone_number = next(family)  # a number survives the way to another process
        return made

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² or accuracy on rows that are not secret, or were kept apart: nothing protects it."""
        if _is_trained_on(self, X):
            warnings.warn(TRAINING_ROWS, PrivacyLeakWarning, stacklevel=2)
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]


def one_of_several(estimator: Any) -> bool:
    """Say whether other clones were made of the estimator that this one was cloned from."""
    return int(getattr(estimator, "_clone_number", 0)) > 1


def warn_about_fit(estimator: Any) -> None:
    """Warn before a fit if it is one of several, or stands behind something that learns from the rows."""
    if one_of_several(estimator):
        warnings.warn(CLONES, PrivacyLeakWarning, stacklevel=3)
    for step in _steps_before(estimator):
        if _learns(step):
            warnings.warn(PIPELINE.format(step=type(step).__name__), PrivacyLeakWarning, stacklevel=3)


def note_training(estimator: Any, X: Any) -> None:
    """Remember, in memory alone and without keeping them alive, which rows a model was trained on."""
    try:
        _rows[estimator] = weakref.ref(X)
    except TypeError:  # lists have no weak references
        _rows.pop(estimator, None)


def _is_trained_on(estimator: Any, X: Any) -> bool:
    known = _rows.get(estimator)
    rows = None if known is None else known()
    if rows is None or X is rows:
        return rows is not None
    if not (isinstance(rows, np.ndarray) and isinstance(X, np.ndarray)):
        return False
    try:
        return bool(np.shares_memory(rows, X, max_work=1))  # type: ignore[arg-type, unused-ignore]
    except (RuntimeError, ValueError):  # too hard to tell
        return False


def _steps_before(estimator: Any) -> list[Any]:
    """The steps before the estimator in the pipelines that hold it last: lists of (name, step)."""
    found: list[Any] = []
    if not hasattr(gc, "get_referrers"):
        return found
    for pair in gc.get_referrers(estimator):
        if type(pair) is not tuple or len(pair) != 2 or pair[1] is not estimator or not isinstance(pair[0], str):
            continue
        for steps in gc.get_referrers(pair):
            named = type(steps) is list and len(steps) > 1 and steps[-1] is pair
            if named and all(type(one) is tuple and len(one) == 2 and isinstance(one[0], str) for one in steps):
                found += [step for _, step in steps[:-1]]
    return found


def _learns(step: Any) -> bool:
    """Whether a step is a transformer that is fitted to rows, by scikit-learn's own tags."""
    if not hasattr(step, "transform") or hasattr(step, "predict") or type(step).__name__ in _LEARN_NOTHING:
        return False
    try:
        return bool(step.__sklearn_tags__().requires_fit)
    except AttributeError:  # no tags: of another library
        return True
