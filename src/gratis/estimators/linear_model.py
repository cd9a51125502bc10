"""What the private linear and logistic regressions share: full batch or one pass, streams and batches."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.estimators.model_parameters import LinearParameters
from gratis.estimators.private_fit import PrivateFit
from gratis.estimators.values import encoded, refuse_text
from gratis.mechanisms.location_scale import hidden_share
from gratis.recipes.linear import LinearRelease
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.facts import Facts

if TYPE_CHECKING:
    from gratis.estimators.pass_in_progress import PassInProgress

__all__ = ["PrivateLinearModel"]

Array = NDArray[Any]


def _is_one_pass(estimator: Any) -> bool:
    return bool(estimator.algorithm == "one-pass")


class PrivateLinearModel(PrivateFit, LinearParameters):
    """Common ground of `DPLinearRegression` and `DPLogisticRegression`."""

    @available_if(_is_one_pass)
    def partial_fit(self, X: ArrayLike, y: ArrayLike, n_rows: int | None = None) -> Self:
        """Continue one declared pass of n_rows rows; the model appears when the last of them was used.

        The first call declares `n_rows` and reserves the budget. A batch beyond the declared rows is refused, and
        nothing is released before: an early look is not covered by the guarantee. Needs public scales
        (preprocessing "public" or "none"), because private ones would take a pass of their own. With
        on_invalid="raise" a batch that holds invalid values is refused whole, and a corrected one may follow.
        """
        from gratis.estimators.pass_in_progress import PassInProgress

        self._budget()
        current: PassInProgress | None = getattr(self, "_progress", None)
        classes, assumed = self._stream_classes()
        rows, target = self._validated(X, y, numeric=classes is None, reset=current is None)
        rows, target = self._contributing(rows, target if classes is None else encoded(target, classes))
        if current is None:
            if n_rows is None:
                raise GratisError("the first partial_fit must declare n_rows, the number of rows of the whole pass")
            if self._choice("preprocessing", ("private", "public", "none")) == "private":
                raise GratisError(
                    "partial_fit needs preprocessing 'public' or 'none': private scales take other passes"
                )
            n_classes = None if classes is None else len(classes)
            recipe = self._pass(
                Facts(rows=check_count("n_rows", n_rows, minimum=2), columns=rows.shape[1], classes=n_classes)
            )
            current = PassInProgress(recipe, self._release(recipe.plan, recipe, assumptions=assumed))
            self._progress: PassInProgress | None = current
        elif n_rows is not None and n_rows != current.recipe.facts.rows:
            raise GratisError(f"this pass was declared for {current.recipe.facts.rows} rows; n_rows cannot change")
        with np.errstate(all="ignore"):
            current.consume(rows, target)
        if current.is_complete:
            self._progress = None
            released = current.finish()
            self._keep(current.recipe.plan, released, classes)
            current.release.bind(self)
            current.release.__exit__(None, None, None)
            self.certificate_ = current.release.certificate
        return self

    def _publish(self, released: LinearRelease) -> None:
        self.fit_, self.prediction_ = released.fit, released.prediction
        self._publish_coefficients(*released.fit.original_units())

    @abstractmethod
    def _publish_coefficients(self, slopes: NDArray[np.float64], intercept: NDArray[np.float64]) -> None:
        """Set coef_ and intercept_."""

    @property
    def windows_(self) -> NDArray[np.float64]:
        """Released ends of every column, (d, 2): `predict` takes values beyond them for the end, `coef_` holds inside.

        A level of a 0/1 column that few rows have may lie beyond (`hidden_share_`): `coef_` is then a slope per unit of
        a column that was pulled in, and far too steep for the levels themselves.
        """
        check_is_fitted(self, "fit_")
        features = self.fit_.features
        return np.column_stack([features.centre - features.window, features.centre + features.window])

    @property
    def hidden_share_(self) -> float:
        """Levels that a smaller share of the rows has may lie beyond `windows_`; from public sizes, 0: none may."""
        check_is_fitted(self, "fit_")
        return hidden_share(self.fit_.event)

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        rows = self._validated_rows(X)
        return np.asarray(self.fit_.scores(rows))

    def _read_rows(self, X: ArrayLike) -> NDArray[np.float64]:
        """Rows as `params` are for: missing values at the centre; at the windows where intervals are of those."""
        rows, features = self._validated_rows(X), self.fit_.features
        if getattr(self, "inference", False) == "winsorised":
            return np.asarray(features.inverse(features.transform(rows)))
        return np.where(np.isfinite(rows), rows, features.centre) if features.impute else rows

    def _validated_rows(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "fit_")
        refuse_text(X=X)
        return np.asarray(
            validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=not self.fit_.features.impute)
        )
