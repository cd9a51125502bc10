"""Private additive models with selected pairs, as scikit-learn estimators that show what they learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.estimators.classification import PrivateClassifier, before_weights
from gratis.estimators.leaks import Watched
from gratis.estimators.model_parameters import AdditiveClassifierParameters, AdditiveParameters
from gratis.estimators.private_fit import PrivateFit
from gratis.estimators.shapes import Shapes, shapes_of
from gratis.estimators.values import refuse_text
from gratis.recipes.additive import AdditiveRelease
from gratis.records.checks import check_count
from gratis.records.errors import GratisError

__all__ = ["DPAdditiveClassifier", "DPAdditiveRegressor"]

Array = NDArray[np.float64]


class PrivateAdditiveModel(PrivateFit, AdditiveParameters):
    """Common ground of the two: declared columns, streams, and what the model shows afterwards."""

    def _publish(self, released: AdditiveRelease) -> None:
        self.model_, self.prediction_ = released.model, released.prediction

    def _known(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows in which levels outside the declared ones are missing."""
        return _unknown_levels_missing(rows, self._levels(rows.shape[1]))

    @property
    def _names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", range(self.n_features_in_))]

    @property
    def shapes_(self) -> Shapes:
        """The curves and surfaces with their bands, in the units of the table."""
        check_is_fitted(self, "model_")
        return shapes_of(self.model_, self._names)

    @property
    def term_importances_(self) -> dict[str, float]:
        """Deviation of every term's effect over the released distribution of its columns, the largest first."""
        return self.shapes_.importances

    def plot_shapes(self, terms: int | None = None) -> Any:
        """Draw the most important terms (all by default) and return the matplotlib figure. No row is in the picture."""
        from gratis.estimators.shape_pictures import draw_shapes

        shapes = self.shapes_
        classes = None if not hasattr(self, "classes_") else [str(label) for label in self.classes_]
        return draw_shapes(shapes, len(shapes) if terms is None else check_count("terms", terms), classes=classes)

    def explain(self, row: ArrayLike) -> dict[str, Any]:
        """Return what every term adds to the prediction of one row; the values sum to `_explained_total(row)`.

        That is the prediction (regression), the log-odds (two classes) or the scores (several, one entry a class).
        "constant" is the prediction where every term is 0; "limit of the target" is there where one was reached.
        """
        rows = self._readable(np.asarray(row).reshape(1, -1) if np.ndim(row) == 1 else row)
        if len(rows) != 1:
            raise GratisError(f"explain takes one row, got {len(rows)}")
        model, unit = self.model_, float(self.model_.target.scale[0])
        parts = unit * model.contributions(rows)[0]
        constant = unit * model.constant + float(model.target.centre[0])
        found = {"constant": constant, **dict(zip([term.name for term in self.shapes_], parts, strict=True))}
        beyond = self._totals(rows)[0] - constant - parts.sum(axis=0)
        rounding = 1e-9 * (np.abs(parts).sum() + np.abs(constant).sum())
        if model.n_classes is None and np.abs(beyond).max() > rounding:
            found["limit of the target"] = beyond
        return {name: float(value[0]) if model.outputs == 1 else value for name, value in found.items()}

    def _readable(self, X: Any) -> Array:
        check_is_fitted(self, "model_")
        refuse_text(X=X)
        impute = self.model_.basis.columns.features.impute
        rows = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=not impute)
        return _unknown_levels_missing(rows, self.model_.basis.columns.levels)

    def _totals(self, rows: Array) -> Array:
        """Scores in the units of the target; numbers stay inside its released window."""
        model = self.model_
        scores = model.scores(rows)
        if model.n_classes is not None:
            return scores
        reach = model.target.window / model.target.scale
        return model.target.inverse(np.clip(scores, -reach, reach))


@dataclass(eq=False, repr=False, kw_only=True)
class DPAdditiveRegressor(Watched, RegressorMixin, PrivateAdditiveModel):
    """A generalised additive model with selected pairs under (ε, δ)-differential privacy, without tuning on the data.

    Prediction = constant + Σ curve(column) + Σ surface(pair of columns). **Guarantee**: everything that is kept after
    `fit` is a function of Gaussian releases that together are (ε, δ)-DP under `neighbouring`; the unit is one row and
    the number of rows is public. Which pairs were chosen, how smooth every curve is, and which columns have such heavy
    tails that they are read on a logarithmic scale follows from the releases.
    Not covered: predictions at private inputs, and (with on_invalid="raise") the answer whether all values were valid.

    Parameters
    ----------
    epsilon, delta : float, default None and None
        The budget, under `neighbouring`; both must be given, so that nothing is spent by accident.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        Which data sets must be hard to tell apart: with one record exchanged, or with one that contributes nothing.
    categorical : mapping, default None
        Columns (position or name) whose values are levels 0 … k − 1, with their k; public.
    pairs : "auto" or False, default "auto"
        "auto" looks for pairs where records allow it (a public rule); False never does.
    monotone : mapping, default None
        Columns (position or name) whose curve must be "increasing" or "decreasing": the released curve is
        projected. Such columns take no part in pairs.
    on_invalid : "raise", "zero" or "impute", default "raise"
        What becomes of missing and impossible values (a level outside the declared ones too): refused before anything
        is spent (that answer is not private), or the record contributes nothing, or the feature counts as the centre
        of its column (a level: as the average; a record without a target then contributes nothing).
    preprocessing : "private", default "private"
        The scales of the columns are always found privately.
    public, descent : None, default None and None
        Parameters of the other estimators, which an additive model refuses.
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it, where the run is reserved before rows are touched.
    noise_seed, insecure_reproducible : int and bool, default None and False
        For tests only: noise from a seed protects nothing, and the certificate says so.
    verbose : bool, default False
        Write to the standard error how far planning, readings and training are and how long the rest will take.

    Attributes
    ----------
    shapes_, term_importances_ : curves and surfaces with bands, and how much each matters.
    expected_score_ : R² on fresh rows with an 80 % range, from a score that the fit releases.
    plan_, prediction_, certificate_ : what was planned, predicted and proved.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(8000, 3))
    >>> y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.3 * rng.normal(size=8000)
    >>> model = DPAdditiveRegressor(epsilon=2.0, delta=1e-5).fit(X, y)
    >>> bool(model.score(X, y) > 0.7), model.certificate_.guarantee["epsilon"] <= 2.0
    (True, True)
    """

    def predict(self, X: ArrayLike) -> Array:
        """Predict the target for rows of X."""
        return self._totals(self._readable(X))[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None  # fresh noise in every fit
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class DPAdditiveClassifier(PrivateClassifier, PrivateAdditiveModel, AdditiveClassifierParameters):
    """As `DPAdditiveRegressor`, for classes: curves add up to log-odds (two classes) or one score a class (softmax).

    Softmax, not one against the rest: a record then has one gradient of bounded norm for all classes together, where
    K separate models would share the budget, √K times the noise each. The model starts at the released shares of the
    classes, so that rare ones need no learning to be rare.

    Parameters
    ----------
    epsilon, delta : float, default None and None
        The budget, under `neighbouring`; both must be given, so that nothing is spent by accident.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        Which data sets must be hard to tell apart: with one record exchanged, or with one that contributes nothing.
    categorical : mapping, default None
        Columns (position or name) whose values are levels 0 … k − 1, with their k; public.
    pairs : "auto" or False, default "auto"
        "auto" looks for pairs where records allow it (a public rule); False never does.
    monotone : mapping, default None
        Columns (position or name) whose curve must be "increasing" or "decreasing" (two classes only): the released
        curve is projected. Such columns take no part in pairs.
    classes : array, default None
        All classes that may occur, public; left out, those that occur are assumed to be no secret. A label that
        equals none of them is invalid.
    class_weight : "balanced", mapping or None, default None
        How often a record of each class counts, {class: weight}; "balanced" makes the released shares equal. Costs no
        privacy: it moves the intercepts of the released model.
    on_invalid : "raise", "zero" or "impute", default "raise"
        What becomes of missing and impossible values (a level outside the declared ones too): refused before anything
        is spent (that answer is not private), or the record contributes nothing, or the feature counts as the centre
        of its column (a level: as the average; a record without a target then contributes nothing).
    preprocessing : "private", default "private"
        The scales of the columns are always found privately.
    public, descent : None, default None and None
        Parameters of the other estimators, which an additive model refuses.
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it, where the run is reserved before rows are touched.
    noise_seed, insecure_reproducible : int and bool, default None and False
        For tests only: noise from a seed protects nothing, and the certificate says so.
    verbose : bool, default False
        Write to the standard error how far planning, readings and training are and how long the rest will take.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(8000, 3))
    >>> y = np.where(np.abs(X[:, 0]) + 0.3 * rng.normal(size=8000) > 1, "far", "near")
    >>> model = DPAdditiveClassifier(epsilon=2.0, delta=1e-5, classes=["far", "near"]).fit(X, y)
    >>> bool(model.score(X, y) > 0.75)
    True
    """

    def _publish(self, released: AdditiveRelease) -> None:
        shift = self._log_weights(released.prior)
        if shift is not None:
            model = released.model
            moved = shift[1:] - shift[:1] if model.outputs == 1 else shift - shift.mean()
            model = replace(model, offset=model.offset + moved)
            released = replace(released, model=model, prediction=before_weights(released.prediction))
        super()._publish(released)

    def _class_scores(self, X: ArrayLike) -> Array:
        return self._totals(self._readable(X))


def _unknown_levels_missing(rows: Array, levels: Mapping[int, int]) -> Array:
    """Rows in which a declared level is a whole number below its count, and NaN otherwise."""
    if not levels:
        return rows
    found = np.array(rows)
    for j, count in levels.items():
        valid = (rows[:, j] >= 0) & (rows[:, j] < count) & (rows[:, j] == np.floor(rows[:, j]))
        found[~valid, j] = np.nan
    return found
