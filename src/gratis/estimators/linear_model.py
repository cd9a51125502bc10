"""What the private linear and logistic regressions share: full batch or one pass, streams and batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.estimators.pass_in_progress import PassInProgress
from gratis.estimators.private_fit import PrivateFit, refuse_text
from gratis.recipes.logistic import StagedLogistic
from gratis.recipes.one_pass import OnePassLinear
from gratis.recipes.recipe import Recipe
from gratis.recipes.staged_linear import LinearRelease, StagedLinear
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.rows.streaming import RowStream

__all__ = ["PrivateLinearModel"]


def _is_one_pass(estimator: Any) -> bool:
    return bool(estimator.algorithm == "one-pass")


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearModel(PrivateFit):
    """Common ground of `DPLinearRegression` and `DPLogisticRegression`."""

    algorithm: str = "auto"
    schedule: str = "free"

    def _recipe(self, facts: Facts) -> Recipe:
        if self._choice("algorithm", ("auto", "full-batch", "one-pass")) == "one-pass":
            return self._pass(facts)
        if self.schedule != "free":
            raise GratisError("a schedule is for algorithm='one-pass'")
        staged = StagedLinear if facts.classes is None else StagedLogistic
        return staged(facts, self._budget(), self._reading(facts), self._descent())

    def _pass(self, facts: Facts) -> OnePassLinear:
        self._descent().refuse("one pass", *self._descent().given)
        return OnePassLinear(facts, self._budget(), self._reading(facts), str(self.schedule))

    @available_if(_is_one_pass)
    def partial_fit(self, X: ArrayLike, y: ArrayLike, n_rows: int | None = None) -> Self:
        """Continue one declared pass of n_rows rows; the model appears when the last of them was used.

        The first call declares `n_rows` and reserves the budget. A batch beyond the declared rows is refused, and
        nothing is released before: an early look is not covered by the guarantee. Needs public scales
        (preprocessing "public" or "none"), because private ones would take a pass of their own. With
        on_invalid="raise" a batch that holds invalid values is refused whole, and a corrected one may follow.
        """
        current: PassInProgress | None = getattr(self, "_progress", None)
        classes = self._declared_classes()
        rows, target = self._validated(X, y, numeric=classes is None, reset=current is None)
        rows, target = self._contributing(rows, self._encoded(target))
        if current is None:
            if n_rows is None:
                raise GratisError("the first partial_fit must declare n_rows, the number of rows of the whole pass")
            if self._choice("preprocessing", ("private", "public", "none")) == "private":
                raise GratisError(
                    "partial_fit needs preprocessing 'public' or 'none': private scales take other passes"
                )
            recipe = self._pass_to_come(check_count("n_rows", n_rows, minimum=2), rows.shape[1])
            current = PassInProgress(recipe, self._release(recipe.plan, recipe))
            self._progress: PassInProgress | None = current
        elif n_rows is not None and n_rows != current.recipe.facts.rows:
            raise GratisError(f"this pass was declared for {current.recipe.facts.rows} rows; n_rows cannot change")
        with np.errstate(all="ignore"):
            current.consume(rows, target)
        if current.is_complete:
            self._progress = None
            released = current.finish()
            self._keep(current.recipe.plan, released, classes, current.release)
        return self

    def fit_rows(self, stream: RowStream) -> Self:
        """Train in one pass over a stream (`gratis.rows.streaming.open_rows`) in constant memory.

        Private scales read the stream eight more times (four for a classifier). With on_invalid="raise" it is read
        once more before anything is spent (a classifier's twice), to see that all values are valid.
        """
        if self.algorithm == "full-batch":
            raise GratisError("a stream is read in order: use algorithm='one-pass' (or 'auto')")
        recipe = self._pass_to_come(stream.n_rows, stream.n_features)
        plan = recipe.plan
        release = self._release(plan, recipe)
        rows = _Encoded(stream, self._encoded)
        if self._handling() == "raise":
            rows.validate()
        with release, np.errstate(all="ignore"):
            released = recipe.run_rows(rows, noise=release.noise)
        self.n_features_in_ = stream.n_features
        self._keep(plan, released, self._declared_classes(), release)
        return self

    def _pass_to_come(self, n_rows: int, n_columns: int) -> OnePassLinear:
        """The recipe of a pass over rows that arrive in batches, whose classes must be declared."""
        classes = self._declared_classes()
        return self._pass(Facts(rows=n_rows, columns=n_columns, classes=None if classes is None else len(classes)))

    def _publish(self, released: LinearRelease) -> None:
        self.fit_, self.prediction_ = released.fit, released.prediction
        self._publish_coefficients(*released.fit.original_units())

    @abstractmethod
    def _declared_classes(self) -> NDArray[Any] | None:
        """The classes that a pass must know before it sees them; None for a regression."""

    @abstractmethod
    def _encoded(self, target: NDArray[Any]) -> NDArray[np.float64]:
        """Targets as the trainer reads them."""

    @abstractmethod
    def _publish_coefficients(self, slopes: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
        """Set coef_ and intercept_."""

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "fit_")
        refuse_text(X=X)
        rows = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=not self.fit_.features.impute)
        return np.asarray(self.fit_.scores(rows))


class _Encoded:
    """A stream whose targets are mapped as the trainer reads them."""

    def __init__(self, stream: RowStream, encode: Callable[[NDArray[Any]], NDArray[np.float64]]) -> None:
        self._stream, self._encode = stream, encode
        self.n_rows, self.n_features = stream.n_rows, stream.n_features

    def batches(self) -> Iterator[tuple[NDArray[Any], NDArray[np.float64]]]:
        """Yield (X, encoded y)."""
        return ((X, self._encode(y)) for X, y in self._stream.batches())

    def validate(self) -> None:
        """As the stream does; labels outside the classes are refused too."""
        self._stream.validate()
        if any(np.isnan(y).any() for _, y in self.batches()):
            raise GratisError("y holds labels outside the given classes; nothing was spent")
