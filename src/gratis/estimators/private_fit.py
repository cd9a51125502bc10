"""What every private estimator does around its training: budget, noise source, ledger, certificate."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.estimators.leaks import note_training, one_of_several, warn_about_fit
from gratis.estimators.persons import refuse_unless_sums, rows_of_persons
from gratis.estimators.record_reader import RecordReader
from gratis.estimators.release import Release
from gratis.estimators.values import CLASSES_OCCUR, ROWS_A_CLASS, refuse_text
from gratis.estimators.worth import warn_if_worthless
from gratis.ledger import Ledger
from gratis.mechanisms.noise import NoiseSource, noise_source
from gratis.recipes.recipe import Recipe
from gratis.records.certificates import Selection
from gratis.records.errors import GratisError
from gratis.records.events import Event, FullBatchDescent
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.predictions import Prediction
from gratis.records.progress import RELEASES, ProgressLine, counted, following
from gratis.rows.person_ids import ids_name

if TYPE_CHECKING:
    from gratis.rows.streaming import RowStream

__all__ = ["PrivateFit", "Release", "refuse_text"]


@dataclass(eq=False, repr=False)
class PrivateFit(RecordReader):
    """What every private estimator shares: its parameters, and the one way from rows to a certified model.

    Parameters
    ----------
    epsilon, delta : float, default None and None
        The budget, under `neighbouring`; both must be given, so that nothing is spent by accident.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        What a neighbour is: one record exchanged for any other, or for one that contributes nothing. The null record
        of zero-out is a record without a target: in every mode it contributes nothing to any release. One without
        features is not, under on_invalid="impute": it is a record at the centre of all columns.
    preprocessing : "private", "public" or "none", default "private"
        "private" spends a stated share of the budget on location and scale of every column and of the target, found
        on a public logarithmic grid; "public" takes them from `public`; "none" assumes that columns and
        target are on a scale of about 1 already.
    public : PublicScales, default None
        Means and scales, or those of a public sample (`PublicScales.from_sample`).
    descent : Descent, default None
        Settings of the descent that are not to be planned.
    on_invalid : "raise", "zero" or "impute", default "raise"
        What becomes of a record with an invalid feature (missing, infinite, no number) or an invalid target
        (the same, or a label outside the declared classes). "raise": refused before anything is spent; that answer
        depends on the data and is not private. "zero": the record contributes nothing to any release. "impute":
        an invalid feature counts as the released or public centre of its column, and a record with an invalid
        target contributes nothing. The last two neither raise nor warn because of a value.
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger (the path of its file, or opened) and the name of the data set's budget in it; the run is
        reserved there before the data is touched.
    noise_seed, insecure_reproducible : int and bool, default None and False
        For tests only: a seed is refused unless `insecure_reproducible=True`, and the certificate then says that
        nothing is protected.
    verbose : bool, default False
        Write to the standard error how far planning, readings and training are and how long the rest will take.
    """

    def fit(
        self, X: ArrayLike | RowStream, y: ArrayLike | None = None, *, plan: Plan | None = None, groups: Any = None
    ) -> Self:
        """Plan, reserve, train, certify. A `plan` made before is run if it is the one that would be made now.

        X and y are arrays or data frames; or X alone is a stream of rows (`gratis.rows.streaming.open_rows`), read anew
        for every release in constant memory. The released model has the same bits in either case. A stream is read
        once more before anything is spent, so that a row that cannot be read, or another number of rows than declared,
        is refused there; with on_invalid="raise" twice.

        `groups` says whose row each is, one id a row: then the unit of privacy is a person with all rows, every person
        counts once, however many rows there are, and "rows" in a plan are persons (docs/howto/persons.md). Rows without
        an id contribute nothing, or are refused with on_invalid="raise". For linear, logistic and additive models.
        """
        self._budget()  # refused before a row is looked at
        warn_about_fit(self)
        with following(ProgressLine()) if self.verbose else nullcontext():
            return self._fit(X, y, plan, groups)

    def _fit(self, X: ArrayLike | RowStream, y: ArrayLike | None, plan: Plan | None, groups: Any) -> Self:
        rows, classes, assumed = self._records(X, y)
        if groups is not None:
            rows = rows_of_persons(rows, groups, refuse_missing=self._handling() == "raise")
        facts = Facts(rows=rows.n_rows, columns=rows.n_features, classes=None if classes is None else len(classes))
        if CLASSES_OCCUR in assumed:
            _refuse_labels_of_few(facts)
        recipe = self._recipe(facts)
        if groups is not None:
            refuse_unless_sums(recipe)
        planned = recipe.plan
        if plan is not None:
            _refuse_another(plan, planned)
        if rows.in_memory and hasattr(recipe, "check_memory"):
            recipe.check_memory()
        if recipe.needs_arrays and not rows.in_memory:
            raise GratisError("this model needs all rows in memory: pass arrays instead of a stream")
        if getattr(recipe, "needs_order", False) and rows.only_sums:
            raise GratisError("one pass takes the rows in their order, on one machine: take another algorithm")
        if hasattr(recipe, "prepare"):
            recipe.prepare()
        release = self._release(planned, recipe, assumptions=assumed, persons=ids_name(groups))
        warn_if_worthless(planned, facts)
        with release, np.errstate(all="ignore"), counted(RELEASES, _releases(planned.event)):
            self._keep(planned, recipe.run(rows, noise=release.noise), classes)
            release.bind(self)
        self.certificate_ = release.certificate
        note_training(self, X)
        return self

    @property
    def expected_score_(self) -> Prediction:
        """R² or accuracy to be expected on fresh rows, with a range that holds in 80 % of fits: paid for in the fit."""
        found: Prediction | None = getattr(self, "prediction_", None)
        if found is None or found.quantity not in ("r_squared", "accuracy"):
            raise AttributeError("this fit has paid for no score of its own")
        return found

    def _publish(self, released: Any) -> None:
        """Set the fitted attributes from what was released."""
        raise NotImplementedError

    def fit_rows(self, stream: RowStream) -> Self:
        """`fit` on a stream."""
        return self.fit(stream)

    def _keep(self, plan: Plan, released: Any, classes: NDArray[Any] | None) -> None:
        if classes is not None:
            self.classes_ = classes
        self.plan_, self.prediction_ = plan, plan.prediction
        self._publish(released)

    def _noise_source(self) -> NoiseSource:
        return noise_source(self.noise_seed, insecure_reproducible=self.insecure_reproducible)

    @staticmethod
    def _opened(ledger: Any, dataset: str | None) -> Ledger | None:
        if (ledger is None) != (dataset is None):
            raise GratisError("give both ledger (a file) and dataset (the name of its budget), or neither")
        return ledger if ledger is None or isinstance(ledger, Ledger) else Ledger.open(ledger)

    def _release(
        self, plan: Plan, recipe: Recipe, *, assumptions: tuple[str, ...] = (), persons: str | None = None
    ) -> Release:
        """Return what reserves, certifies and commits the plan; nothing is spent yet.

        Settings are fixed by public facts, and the certificate says that nothing was selected; or they are chosen from
        earlier releases of the same event, and the certificate says that the selection is included in it. One clone of
        several is likely to have been chosen among them: that is not covered, and the certificate says so.
        """
        return Release(
            plan.event, plan.budget, self._noise_source(), ledger=self._opened(self.ledger, self.dataset),
            dataset=self.dataset, plan=plan, selection=self._selection(recipe), assumptions=assumptions,
            persons=persons, model=type(self).__name__,
        )  # fmt: skip

    def _selection(self, recipe: Recipe) -> Selection:
        if one_of_several(self):
            return Selection.NOT_COVERED
        return Selection.INCLUDED if recipe.chosen_from_releases else Selection.NONE


def _releases(event: Event) -> int:
    """How many releases an event makes: fixed by the plan. One pass makes a single one."""
    leaves = event.leaves()
    return sum(leaf.steps if isinstance(leaf, FullBatchDescent) else getattr(leaf, "count", 1) for leaf in leaves)


def _refuse_labels_of_few(facts: Facts) -> None:
    """Refuse to take labels of few records each for public classes; with persons, those are the records."""
    if (facts.classes or 0) > 2 and facts.rows < ROWS_A_CLASS * (facts.classes or 0):
        raise GratisError(
            "y has fewer than five records for each of its labels, and a model publishes its classes: list those that "
            "are public, classes=[…], or predict a number with a regression"
        )


def _refuse_another(plan: Plan, planned: Plan) -> None:
    """Refuse a plan that is not the one for these facts, this budget and these settings."""
    if not isinstance(plan, Plan):
        raise GratisError("plan must be a Plan, from gratis.plan or a plan file")
    if (plan.event, plan.budget, plan.settings) != (planned.event, planned.budget, planned.settings):
        raise GratisError("this plan is for other rows, columns, classes, budget or settings: make it anew")
