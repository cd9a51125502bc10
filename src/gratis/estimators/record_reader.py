"""Which records a fit sees: arrays, streams and clusters, checked or made harmless before anything is spent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from gratis.estimators.model_parameters import FitParameters
from gratis.estimators.release import without_ledger
from gratis.estimators.values import as_array, encoded, entries, floats, numbers_of_objects, refuse_shape, refuse_text
from gratis.mechanisms.rows import Rows
from gratis.recipes.recipe import left_out, lone_targets
from gratis.records.errors import GratisError
from gratis.rows.cluster import cluster_rows, is_dask
from gratis.rows.cluster_table import ClusterTable
from gratis.rows.scratch import parsed_once

if TYPE_CHECKING:
    from gratis.rows.streaming import RowStream

__all__ = ["RecordReader"]


class RecordReader(FitParameters, BaseEstimator):
    """The part of an estimator that turns what `fit` is given into records; `on_invalid` says what invalid ones do."""

    def _records(
        self, X: ArrayLike | RowStream, y: ArrayLike | None
    ) -> tuple[Rows, NDArray[Any] | None, tuple[str, ...]]:
        """The records, those that contribute nothing marked; the classes; and what was assumed about them."""
        if is_dask(X) or isinstance(X, ClusterTable):
            return self._on_cluster(X, y)
        if y is None and hasattr(X, "batches"):
            return self._streamed(X)  # type: ignore[arg-type]
        rows, target, classes, assumed = self._read(X, y)  # type: ignore[arg-type]
        return Rows.held(rows, target), classes, assumed

    def _streamed(self, stream: RowStream) -> tuple[Rows, NDArray[Any] | None, tuple[str, ...]]:
        classes, assumed = self._stream_classes()
        impute = self._handling() == "impute"
        self.n_features_in_ = stream.n_features
        if self._handling() == "raise":
            stream.validate()
        source = parsed_once(stream)

        def batches() -> Iterator[tuple[NDArray[Any], NDArray[np.float64]]]:
            for X, y in source.batches():
                yield left_out(self._known(X), y if classes is None else encoded(y, classes), impute=impute)

        if self._handling() == "raise":
            if not all(np.isfinite(X).all() and np.isfinite(y).all() for X, y in batches()):
                raise GratisError("the rows hold levels or labels outside the declared ones; nothing was spent")
        elif sum(len(y) for _, y in source.batches()) != stream.n_rows:
            raise GratisError(
                f"the source does not hold the {stream.n_rows} rows that were declared; nothing was spent"
            )
        apart = impute and classes is None and hasattr(source, "targets")
        targets = (lambda: (lone_targets(y) for (y,) in source.targets())) if apart else None
        return Rows(batches, stream.n_rows, stream.n_features, targets=targets), classes, assumed

    def _on_cluster(self, X: Any, y: Any) -> tuple[Rows, NDArray[Any] | None, tuple[str, ...]]:
        if is_dask(X) and y is None:
            raise GratisError("fit needs a target y beside X")
        if hasattr(X, "columns") and all(isinstance(name, str) for name in X.columns):
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        classes, assumed = self._stream_classes()
        if is_dask(X):
            assumed += ("readable-file",)  # what loads its blocks is not ours, and may fail because of a cell
        known = without_ledger(self)._known  # what is sent to workers holds no ledger
        impute = self._handling() == "impute"

        def read(rows: NDArray[Any], target: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
            # Read as in one memory; with "raise" what is no number is refused when the rows are counted below.
            labels = floats("y", target) if classes is None else encoded(target, classes)
            return left_out(known(rows), labels, impute=impute)

        lone = lone_targets if impute and classes is None else None
        rows = X.rows(read, read_targets=lone) if isinstance(X, ClusterTable) else cluster_rows(X, y, read)
        self.n_features_in_ = rows.n_features
        if self._handling() == "raise" and rows.total(_not_finite)[0]:
            raise GratisError("the rows hold values that are missing, infinite or not declared; nothing was spent")
        return rows, classes, assumed  # type: ignore[return-value]

    def _stream_classes(self) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
        """The classes that a stream must know beforehand, None for a regression; and what is assumed about them."""
        return None, ()

    def _read(
        self, X: ArrayLike, y: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[Any] | None, tuple[str, ...]]:
        """Return rows, targets as numbers (NaN: contributes nothing), classes, and what was assumed about them."""
        rows, target = self._contributing(*self._validated(X, y, numeric=True))
        return rows, target, None, ()

    def _validated(
        self, X: ArrayLike, y: ArrayLike, *, numeric: bool, reset: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return rows and targets (numbers, or labels as they came), before anything is spent.

        With on_invalid="raise" scikit-learn checks the values. Otherwise only shapes and types can be refused, and what
        is no finite number is NaN.
        """
        if self._handling() == "raise":
            refuse_text(X=X, **({"y": y} if numeric else {}))
            try:
                with np.errstate(all="ignore"):  # a warning about an extreme row would be about that row
                    rows, target = validate_data(
                        self, X, numbers_of_objects(y) if numeric else y, dtype=np.float64, ensure_min_samples=2,
                        y_numeric=numeric, reset=reset,
                    )  # fmt: skip
            except ValueError as error:
                if not re.search(r"contains (NaN|infinity)", str(error)):
                    raise
                rows = None
            if rows is None:
                # scikit-learn would advise to impute or to drop rows: both depend on the private rows, and leak.
                raise GratisError(
                    "X or y contains NaN, infinity or a value too large for float64; nothing was spent. Neither drop "
                    'rows nor fill them in yourself, which leaks: on_invalid="impute" puts the released centre of its '
                    'column in the place of a feature, and on_invalid="zero" lets such rows contribute nothing'
                )
            return rows, np.asarray(target, dtype=np.float64 if numeric else None).ravel()
        if hasattr(X, "toarray"):
            raise GratisError("X is sparse: pass a dense array")
        rows = floats("X", X)
        refuse_shape("X", rows)
        validate_data(self, X, skip_check_array=True, reset=reset)  # names and number of the columns
        rows = check_array(rows, ensure_all_finite=False, ensure_min_samples=2)
        declared = getattr(self, "classes", None) is not None
        target = floats("y", y) if numeric else entries("y", y) if declared else as_array("y", y)
        if target.ndim == 2 and target.shape[1] == 1:
            target = target[:, 0]
        if target.shape != rows.shape[:1]:
            raise GratisError(f"y must have one entry for each of the {len(rows)} rows, got shape {target.shape}")
        return rows, target

    def _contributing(
        self, rows: NDArray[np.float64], target: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Leave out the records that contribute nothing (their target is NaN from here on), or refuse them."""
        handling, rows = self._handling(), self._known(rows)
        if handling == "raise":
            if not np.isfinite(rows).all():
                raise GratisError("X holds levels outside the declared ones (whole numbers from 0); nothing was spent")
            if np.isnan(target).any():
                raise GratisError("y holds labels outside the given classes; nothing was trained on them")
            return rows, target
        return left_out(rows, target, impute=handling == "impute")

    def _known(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows as the model reads them: what lies outside of what was declared of a column is missing."""
        return rows


def _not_finite(X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many records are not finite."""
    return np.array([(~(np.isfinite(X).all(axis=1) & np.isfinite(y))).sum()], dtype=np.float64)
