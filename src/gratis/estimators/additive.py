"""Private additive models with selected pairs, as scikit-learn estimators that show what they learnt."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.accounting import calibrate_mu
from gratis.data.streaming import RowStream
from gratis.estimators.classification import PrivateClassifier, encoded
from gratis.estimators.private_fit import PrivateFit, left_out, refuse_text
from gratis.estimators.shapes import Shapes, shapes_of
from gratis.recipes.additive import AdditivePlan, plan_additive, run_additive
from gratis.recipes.released_additive import ReleasedAdditive
from gratis.specs.budget import Budget
from gratis.specs.checks import check_count
from gratis.specs.errors import GratisError
from gratis.specs.plans import Plan
from gratis.specs.predictions import Prediction
from gratis.stages.rows import Rows

__all__ = ["DPAdditiveClassifier", "DPAdditiveRegressor"]

Array = NDArray[np.float64]

_DIRECTIONS = {"increasing": 1, "decreasing": -1}


class PrivateAdditiveModel(PrivateFit, BaseEstimator):
    """Common ground of the two: declared columns, the fit around the recipe, and what it shows afterwards."""

    categorical: Mapping[Any, int] | None
    pairs: str | bool
    monotone: Mapping[Any, str] | None

    def _fit_rows(
        self, rows: Rows, n_rows: int, n_columns: int, *, n_classes: int | None, assumptions: tuple[str, ...] = ()
    ) -> None:
        """Plan, reserve, train, certify."""
        budget = self._budget()
        directions = self._directions(n_columns, n_classes)
        stages = plan_additive(
            n_rows, n_columns, mu=calibrate_mu(budget), neighbouring=budget.neighbouring,
            levels=self._levels(n_columns), n_classes=n_classes, pairs=self._pairs(), alone=frozenset(directions),
        )  # fmt: skip
        plan = _plan(stages, budget)
        release = self._release(plan, chosen_from_releases=True, assumptions=assumptions)
        with release, np.errstate(all="ignore"):
            model = run_additive(rows, stages, noise=release.noise, impute=self.on_invalid == "impute")
        self.plan_, self.prediction_ = plan, _prediction(model)
        self.model_ = model.projected(directions) if directions else model
        release.certify(self)

    def fit_rows(self, stream: RowStream) -> Self:
        """Train on a stream (`gratis.data.streaming.open_rows`) in constant memory; it is read once for each release.

        With on_invalid="raise" it is read once more before anything is spent, to see that all values are valid.
        """
        classes, assumed = self._stream_classes()
        self.n_features_in_ = stream.n_features
        levels, impute = self._levels(stream.n_features), self._handling() == "impute"

        def rows() -> Iterator[tuple[Array, Array]]:
            for X, y in stream.batches():
                known = _unknown_levels_missing(np.asarray(X, dtype=np.float64), levels)
                yield left_out(known, y if classes is None else encoded(y, classes), impute=impute)

        if self._handling() == "raise":
            stream.validate()
            if not all(np.isfinite(y).all() for _, y in rows()):
                raise GratisError("the rows hold levels or labels outside the declared ones; nothing was spent")
        self._fit_rows(
            rows, stream.n_rows, stream.n_features, n_classes=None if classes is None else len(classes),
            assumptions=assumed,
        )  # fmt: skip
        if classes is not None:
            self.classes_ = classes
        return self

    @abstractmethod
    def _stream_classes(self) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
        """The classes that a stream must know beforehand; None for a regression."""

    def _pairs(self) -> bool:
        if self.pairs not in ("auto", False):
            raise GratisError(f"pairs must be 'auto' or False, got {self.pairs!r}")
        return self.pairs == "auto"

    def _column(self, key: Any, n_columns: int) -> int:
        """The position of a column that is given by position or by name."""
        names = list(getattr(self, "feature_names_in_", ()))
        if isinstance(key, str):
            if key not in names:
                raise GratisError(f"there is no column {key!r}" + ("" if names else ": X has no names of columns"))
            return names.index(key)
        position = check_count("a column's position", key, minimum=0)
        if position >= n_columns:
            raise GratisError(f"there is no column {position}: X has {n_columns} columns")
        return position

    def _levels(self, n_columns: int) -> dict[int, int]:
        found = dict(self.categorical or {})
        return {
            self._column(key, n_columns): check_count("the number of levels", count, minimum=2)
            for key, count in sorted(found.items(), key=lambda item: str(item[0]))
        }

    def _directions(self, n_columns: int, n_classes: int | None) -> dict[int, int]:
        found = dict(self.monotone or {})
        if found and n_classes is not None and n_classes > 2:
            raise GratisError("monotone curves need a number or two classes as the target")
        levels = self._levels(n_columns)
        directions = {}
        for key, word in found.items():
            if word not in _DIRECTIONS:
                raise GratisError(f"monotone must say 'increasing' or 'decreasing', got {word!r}")
            column = self._column(key, n_columns)
            if column in levels:
                raise GratisError("a categorical column has no order in which it could be monotone")
            directions[column] = _DIRECTIONS[word]
        return directions

    def _declared(self, rows: Array) -> Array:
        """Rows in which levels outside the declared ones are missing; with on_invalid="raise" they are refused."""
        known = _unknown_levels_missing(rows, self._levels(rows.shape[1]))
        if self._handling() == "raise" and not np.isfinite(known).all():
            raise GratisError("X holds levels outside the declared ones (whole numbers from 0); nothing was spent")
        return known

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
        "constant" is the prediction where every term is 0.
        """
        rows = self._readable(np.asarray(row).reshape(1, -1) if np.ndim(row) == 1 else row)
        if len(rows) != 1:
            raise GratisError(f"explain takes one row, got {len(rows)}")
        model, unit = self.model_, float(self.model_.target.scale[0])
        parts = unit * model.contributions(rows)[0]
        constant = unit * model.constant + float(model.target.centre[0])
        found = {"constant": constant, **dict(zip([term.name for term in self.shapes_], parts, strict=True))}
        beyond = self._totals(rows)[0] - constant - parts.sum(axis=0)
        if model.n_classes is None:
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


class DPAdditiveRegressor(RegressorMixin, PrivateAdditiveModel):
    """A generalised additive model with selected pairs under (ε, δ)-differential privacy, without tuning on the data.

    Prediction = constant + Σ curve(column) + Σ surface(pair of columns). **Guarantee**: everything that is kept after
    `fit` is a function of Gaussian releases that together are (ε, δ)-DP under `neighbouring`; the unit is one row and
    the number of rows is public. Which pairs were chosen, and how smooth every curve is, follows from the releases.
    Not covered: predictions at private inputs, and (with on_invalid="raise") the answer whether all values were valid.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    neighbouring : "replace-one" or "zero-out"
    categorical : mapping, optional
        Columns (position or name) whose values are levels 0 … k − 1, with their k; public.
    pairs : "auto" or False
        "auto" looks for pairs where records allow it (a public rule); False never does.
    monotone : mapping, optional
        Columns (position or name) whose curve must be "increasing" or "decreasing": the released curve is projected.
        Such columns take no part in pairs.
    on_invalid : "raise", "zero" or "impute"
        Whether invalid values (non-finite, a level outside the declared ones) are refused before anything is spent
        (this answer is not private), or their rows contribute nothing, or an invalid feature counts as the centre of
        its column (a level: as the average); a row without a target then contributes nothing.
    ledger, dataset : str, optional
        A ledger file, and the name of this data set's budget in it.
    noise_seed, insecure_reproducible
        For tests only: see `gratis.mechanisms.noise`.

    Attributes
    ----------
    shapes_, term_importances_ : curves and surfaces with bands, and how much each matters.
    plan_, prediction_, certificate_ : what was planned, predicted and proved.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(8000, 3))
    >>> y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.3 * rng.normal(size=8000)
    >>> model = DPAdditiveRegressor(epsilon=2.0, delta=1e-5).fit(X, y)
    >>> bool(model.score(X, y) > 0.7), model.certificate_.guarantee["epsilon"] <= 2.0
    (True, True)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        neighbouring: str = "replace-one",
        categorical: Mapping[Any, int] | None = None,
        pairs: str | bool = "auto",
        monotone: Mapping[Any, str] | None = None,
        on_invalid: str = "raise",
        ledger: str | None = None,
        dataset: str | None = None,
        noise_seed: int | None = None,
        insecure_reproducible: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.categorical = categorical
        self.pairs = pairs
        self.monotone = monotone
        self.on_invalid = on_invalid
        self.ledger = ledger
        self.dataset = dataset
        self.noise_seed = noise_seed
        self.insecure_reproducible = insecure_reproducible

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan, reserve, train, certify."""
        rows, target = self._validated(X, y, numeric=True)
        rows, target = self._contributing(self._declared(rows), target)
        self._fit_rows(lambda: iter(((rows, target),)), *rows.shape, n_classes=None)
        return self

    def _stream_classes(self) -> tuple[None, tuple[str, ...]]:
        return None, ()

    def predict(self, X: ArrayLike) -> Array:
        """Predict the target for rows of X."""
        return self._totals(self._readable(X))[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise_seed is None  # fresh noise in every fit
        tags.regressor_tags.poor_score = True  # on the few rows of scikit-learn's checks nothing can be learned
        return tags


class DPAdditiveClassifier(PrivateClassifier, PrivateAdditiveModel):
    """As `DPAdditiveRegressor`, for classes: curves add up to log-odds (two classes) or one score a class (softmax).

    Softmax, not one against the rest: a record then has one gradient of bounded norm for all classes together, where
    K separate models would share the budget, √K times the noise each. The model starts at the released shares of the
    classes, so that rare ones need no learning to be rare.

    Parameters: those of `DPAdditiveRegressor` (monotone for two classes only), and

    classes : array, optional
        All classes that may occur, public; left out, those that occur are assumed to be no secret.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(8000, 3))
    >>> y = np.where(np.abs(X[:, 0]) + 0.3 * rng.normal(size=8000) > 1, "far", "near")
    >>> model = DPAdditiveClassifier(epsilon=2.0, delta=1e-5, classes=["far", "near"]).fit(X, y)
    >>> bool(model.score(X, y) > 0.75)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        classes: ArrayLike | None = None,
        neighbouring: str = "replace-one",
        categorical: Mapping[Any, int] | None = None,
        pairs: str | bool = "auto",
        monotone: Mapping[Any, str] | None = None,
        on_invalid: str = "raise",
        ledger: str | None = None,
        dataset: str | None = None,
        noise_seed: int | None = None,
        insecure_reproducible: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.neighbouring = neighbouring
        self.categorical = categorical
        self.pairs = pairs
        self.monotone = monotone
        self.on_invalid = on_invalid
        self.ledger = ledger
        self.dataset = dataset
        self.noise_seed = noise_seed
        self.insecure_reproducible = insecure_reproducible

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan, reserve, train, certify."""
        rows, labels = self._validated(X, y, numeric=False)
        classes, assumed = self._read_classes(labels)
        rows, target = self._contributing(self._declared(rows), encoded(labels, classes))
        self.classes_ = classes
        self._fit_rows(lambda: iter(((rows, target),)), *rows.shape, n_classes=len(classes), assumptions=assumed)
        return self

    def _stream_classes(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        return self._read_classes(None)

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


def _plan(stages: AdditivePlan, budget: Budget) -> Plan:
    """What is fixed before the data is touched, in words and numbers."""
    most = 0 if stages.screening is None else stages.screening.most
    pairs = f"up to {most} pairs of columns are chosen by one noisy gradient" if most else "no pairs are looked for"
    return Plan(
        algorithm="additive",
        schedule="posterior mean of all released gradients",
        settings={
            "cosines": stages.n_cosines,
            "steps": len(stages.main.events) + (0 if stages.joint is None else len(stages.joint.events)),
            "most_pairs": most,
            "stages": list(dict.fromkeys((leaf.label or leaf.kind).split(":")[0] for leaf in stages.event.leaves())),
        },
        budget=budget,
        event=stages.event,
        prediction=_forecast(stages, budget),
        reasons=(
            f"{budget.describe()}: scales, histograms, second moments and gradients share the budget; every numeric "
            f"column has a line and {stages.n_cosines} cosines, as many as rows times μ allow, and {pairs}.",
            "Smoothness and relevance of every curve are estimated from the released gradients; nothing is chosen by "
            "looking at scores on the data.",
        ),
    )


def _forecast(stages: AdditivePlan, budget: Budget) -> Prediction:
    """What the noise of the gradients will cost, by public sizes: ½·d_eff·(κ√d_eff/(nμ))² for d_eff coefficients."""
    mu = math.hypot(stages.main_mu, stages.joint_mu)
    unit = budget.neighbouring.sensitivity_factor / (stages.n_records * mu)
    curved = 1 + stages.n_columns * (1 + min(stages.n_cosines, 2))
    counts = (1 + stages.n_columns / 2, float(curved), float(stages.main.width))
    low, value, high = (min(0.5, 0.5 * k * (k * unit**2 + 0.5 / stages.n_records)) for k in sorted(counts))
    return Prediction(
        quantity="excess_risk",
        value=value,
        low=low,
        high=high,
        source="noise of the planned gradients, before the data is touched",
        assumptions=(
            "between half a coefficient a column and all of them can be learnt",
            "what the releases before the gradients cost is not in it",
        ),
        details={
            "unit": "½·variance of the target" if stages.n_classes is None else "nats, for log-odds of variance 1"
        },
    )


def _prediction(model: ReleasedAdditive) -> Prediction:
    """What the posterior says is still unknown: half the expected squared error of the curves."""
    unit = float(model.target.scale[0]) ** 2
    value = 0.5 * unit * model.explained[1]
    return Prediction(
        quantity="excess_risk",
        value=value,
        low=0.5 * value,
        high=2.0 * value,
        source="posterior of the released gradients",
        assumptions=(
            "the truth is a sum of the chosen curves and surfaces, and the residual's variance half of the target's",
            "the range is a factor of two either way",
        ),
        details={
            "unit": "½·squared error" if model.n_classes is None else "squared error of log-odds, halved",
            "variance_of_predictions": unit * model.explained[0],
        },
    )
