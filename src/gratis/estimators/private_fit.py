"""What every private estimator does around its training: budget, noise source, ledger, certificate."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from gratis.accounting import issue_certificate
from gratis.estimators.labels import encoded
from gratis.estimators.leaks import note_training, one_of_several, warn_about_fit
from gratis.estimators.persons import refuse_unless_sums, rows_of_persons
from gratis.estimators.released_arrays import arrays_digest, released_arrays
from gratis.estimators.scales import PublicScales
from gratis.ledger import Ledger
from gratis.mechanisms.noise import NoiseSource, noise_source
from gratis.mechanisms.rows import Rows
from gratis.recipes.recipe import Reading, Recipe, left_out
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate, Selection
from gratis.records.errors import GratisError
from gratis.records.events import Composition, Event, FullBatchDescent
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.records.plans import Plan
from gratis.records.progress import RELEASES, ProgressLine, counted, following
from gratis.records.settings import Descent
from gratis.rows.cluster import ClusterTable, cluster_rows, is_dask

if TYPE_CHECKING:
    from gratis.rows.streaming import RowStream

__all__ = ["PrivateFit", "Release", "refuse_text"]


def refuse_text(**tables: Any) -> None:
    """Refuse text, complex numbers and an X that is no table, in our words: scikit-learn's would quote the entries."""
    for name, values in tables.items():
        if hasattr(values, "toarray"):
            continue  # sparse: validation refuses it without quoting
        array = _as_array(name, values)
        _refuse_shape(name, array)
        if array.dtype.kind == "c":
            raise GratisError(f"Complex data not supported: {name} must hold real numbers")
        if array.dtype.kind in "OUS" and array.ndim and _holds_text(array):
            raise GratisError(f"{name} must hold numbers only, but some of its entries are text")


def _as_array(name: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        pass
    # Outside the handler: inside it, the refusal would carry the error that quotes an entry.
    raise GratisError(f"the rows of {name} must have equal lengths")


def _refuse_shape(name: str, array: NDArray[Any]) -> None:
    if name == "X" and array.ndim != 2:
        raise GratisError(f"X must have one row for each record, got {array.ndim} dimensions. Reshape your data")


def _holds_text(array: NDArray[Any]) -> bool:
    try:
        array.astype(np.float64)
    except (ValueError, OverflowError):
        return True
    except TypeError:
        pass  # no numbers at all: validation says so without quoting
    return False


def _as_numbers(y: ArrayLike) -> ArrayLike:
    """Targets as numbers where they came as objects: scikit-learn overlooks a None there, as a number it is NaN."""
    array = np.asarray(y)
    try:
        return array.astype(np.float64) if array.dtype.kind == "O" and y is not None else y
    except TypeError:
        return y  # validation refuses it


def _entries(name: str, values: Any) -> NDArray[Any]:
    """An array in which no entry changes how others are read: NumPy would turn 1 into "1" beside a text."""
    if not isinstance(values, (list, tuple)):
        return _as_array(name, values)
    try:
        array = np.array(values, dtype=object)
    except ValueError:  # arrays of several shapes among the entries: each is one entry
        array = np.empty(len(values), dtype=object)
        for place, entry in enumerate(values):
            array[place] = entry
    if array.ndim == 1:
        # A column of lists in which one has another length: the others are read as if it had not.
        for place, entry in enumerate(array):
            if isinstance(entry, (list, tuple)) and len(entry) == 1:
                array[place] = entry[0]
    return array


def _floats(name: str, values: Any) -> NDArray[np.float64]:
    """Numbers, NaN for an entry that is none or not finite; no entry raises or warns."""
    array = _entries(name, values)
    if array.dtype.kind not in "OUSbiuf":
        raise GratisError(f"{name} must hold real numbers, got the type {array.dtype}")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            found = np.array([_number(entry) for entry in array.ravel()]).reshape(array.shape)
    return np.where(np.isfinite(found), found, np.nan)


def _number(entry: Any) -> float:
    try:
        return float(entry)
    except Exception:  # of whatever an object's own conversion raises
        return float("nan")


@dataclass(eq=False, repr=False)
class PrivateFit(BaseEstimator):
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

    epsilon: float | None = None
    delta: float | None = None
    _: KW_ONLY
    neighbouring: str = "replace-one"
    preprocessing: str = "private"
    public: PublicScales | None = None
    descent: Descent | None = None
    on_invalid: str = "raise"
    ledger: Any = None
    dataset: str | None = None
    noise_seed: int | None = None
    insecure_reproducible: bool = False
    verbose: bool = False

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
        release = self._release(planned, recipe, assumptions=assumed, persons=groups is not None)
        with release, np.errstate(all="ignore"), counted(RELEASES, _releases(planned.event)):
            released = recipe.run(rows, noise=release.noise)
        self._keep(planned, released, classes, release)
        note_training(self, X)
        return self

    def plan(self, rows: int, columns: int, *, classes: int | None = None) -> Plan:
        """Return what `fit` would release for a table of these sizes; nothing is opened or spent."""
        return self._recipe(Facts(rows=rows, columns=columns, classes=classes)).plan

    def _recipe(self, facts: Facts) -> Recipe:
        """The model's private steps for these facts."""
        raise NotImplementedError

    def _publish(self, released: Any) -> None:
        """Set the fitted attributes from what was released."""
        raise NotImplementedError

    def fit_rows(self, stream: RowStream) -> Self:
        """`fit` on a stream."""
        return self.fit(stream)

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

        def batches() -> Iterator[tuple[NDArray[Any], NDArray[np.float64]]]:
            for X, y in stream.batches():
                yield left_out(self._known(X), y if classes is None else encoded(y, classes), impute=impute)

        if self._handling() == "raise":
            stream.validate()
            if not all(np.isfinite(X).all() and np.isfinite(y).all() for X, y in batches()):
                raise GratisError("the rows hold levels or labels outside the declared ones; nothing was spent")
        elif sum(len(y) for _, y in stream.batches()) != stream.n_rows:
            raise GratisError(
                f"the source does not hold the {stream.n_rows} rows that were declared; nothing was spent"
            )
        return Rows(batches, stream.n_rows, stream.n_features), classes, assumed

    def _on_cluster(self, X: Any, y: Any) -> tuple[Rows, NDArray[Any] | None, tuple[str, ...]]:
        if is_dask(X) and y is None:
            raise GratisError("fit needs a target y beside X")
        if hasattr(X, "columns") and all(isinstance(name, str) for name in X.columns):
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        classes, assumed = self._stream_classes()
        known = replace(self, ledger=None)._known  # what is sent to workers holds no ledger
        impute = self._handling() == "impute"

        def read(rows: NDArray[Any], target: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64]]:
            return left_out(known(rows), target if classes is None else encoded(target, classes), impute=impute)

        rows = X.rows(read) if isinstance(X, ClusterTable) else cluster_rows(X, y, read)
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

    def _keep(self, plan: Plan, released: Any, classes: NDArray[Any] | None, release: Release) -> None:
        if classes is not None:
            self.classes_ = classes
        self.plan_, self.prediction_ = plan, plan.prediction
        self._publish(released)
        release.certify(self)

    def _reading(self, facts: Facts) -> Reading:
        """How rows are read: from `preprocessing`, `public` and `on_invalid`."""
        how = self._choice("preprocessing", ("private", "public", "none"))
        if (self.public is not None) != (how == "public"):
            raise GratisError("give public scales with preprocessing='public', and only then")
        impute = self._handling() == "impute"
        if self.public is None:
            return Reading(standardise=how == "private", impute=impute)
        target = self.public.target() if facts.classes is None else None
        return Reading(standardise=False, features=self.public.features(facts.columns), target=target, impute=impute)

    def _descent(self) -> Descent:
        if self.descent is not None and not isinstance(self.descent, Descent):
            raise GratisError("descent must be a Descent (gratis.Descent), or None")
        return self.descent or Descent()

    def _budget(self) -> Budget:
        if self.epsilon is None or self.delta is None:
            raise GratisError("give epsilon and delta: nothing is spent by accident")
        return Budget(epsilon=self.epsilon, delta=self.delta, neighbouring=Neighbouring.parse(self.neighbouring))

    def _noise_source(self) -> NoiseSource:
        return noise_source(self.noise_seed, insecure_reproducible=self.insecure_reproducible)

    def _ledger(self) -> Ledger | None:
        return self._opened(self.ledger, self.dataset)

    @staticmethod
    def _opened(ledger: Any, dataset: str | None) -> Ledger | None:
        if (ledger is None) != (dataset is None):
            raise GratisError("give both ledger (a file) and dataset (the name of its budget), or neither")
        return ledger if ledger is None or isinstance(ledger, Ledger) else Ledger.open(ledger)

    def _release(
        self, plan: Plan, recipe: Recipe, *, assumptions: tuple[str, ...] = (), persons: bool = False
    ) -> Release:
        """Return what reserves, certifies and commits the plan; nothing is spent yet.

        Settings are fixed by public facts, and the certificate says that nothing was selected; or they are chosen from
        earlier releases of the same event, and the certificate says that the selection is included in it. One clone of
        several is likely to have been chosen among them: that is not covered, and the certificate says so.
        """
        return Release(
            plan.event, plan.budget, self._noise_source(), ledger=self._ledger(), dataset=self.dataset, plan=plan,
            selection=self._selection(recipe), assumptions=assumptions, persons=persons,
        )  # fmt: skip

    def _selection(self, recipe: Recipe) -> Selection:
        if one_of_several(self):
            return Selection.NOT_COVERED
        return Selection.INCLUDED if recipe.chosen_from_releases else Selection.NONE

    def _handling(self) -> str:
        """What is done with invalid records: the checked `on_invalid`."""
        return self._choice("on_invalid", ("raise", "zero", "impute"))

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
                        self, X, _as_numbers(y) if numeric else y, dtype=np.float64, ensure_min_samples=2,
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
        rows = _floats("X", X)
        _refuse_shape("X", rows)
        validate_data(self, X, skip_check_array=True, reset=reset)  # names and number of the columns
        rows = check_array(rows, ensure_all_finite=False, ensure_min_samples=2)
        declared = getattr(self, "classes", None) is not None
        target = _floats("y", y) if numeric else _entries("y", y) if declared else _as_array("y", y)
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

    def _choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = getattr(self, name)
        if value not in allowed:
            raise GratisError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
        return str(value)


def _releases(event: Event) -> int:
    """How many releases an event makes: fixed by the plan. One pass makes a single one."""
    leaves = event.leaves() if isinstance(event, Composition) else (event,)
    return sum(leaf.steps if isinstance(leaf, FullBatchDescent) else getattr(leaf, "count", 1) for leaf in leaves)


def _not_finite(X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many records are not finite."""
    return np.array([(~(np.isfinite(X).all(axis=1) & np.isfinite(y))).sum()], dtype=np.float64)


def _refuse_another(plan: Plan, planned: Plan) -> None:
    """Refuse a plan that is not the one for these facts, this budget and these settings."""
    if not isinstance(plan, Plan):
        raise GratisError("plan must be a Plan, from gratis.plan or a plan file")
    if (plan.event, plan.budget, plan.settings) != (planned.event, planned.budget, planned.settings):
        raise GratisError("this plan is for other rows, columns, classes, budget or settings: make it anew")


class Release(AbstractContextManager["Release"]):
    """From reservation to certificate: spent on entry, even if the process dies inside; certified on success.

    >>> from gratis.records.events import GaussianRelease
    >>> event = GaussianRelease(sensitivity=1.0, noise_std=10.0, neighbouring="replace-one")
    >>> with Release(event, Budget(mu=0.5), NoiseSource.secure()) as release:
    ...     noisy = release.noise.release([0.0], event.noise_std)
    >>> release.certificate.guarantee["within_budget"]
    True
    """

    def __init__(
        self,
        event: Event,
        budget: Budget,
        noise: NoiseSource,
        *,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        purpose: str = "training",
        plan: Plan | None = None,
        selection: Selection = Selection.NONE,
        assumptions: tuple[str, ...] = (),
        persons: bool = False,
    ) -> None:
        self.event, self.budget, self.noise = event, budget, noise
        self._ledger, self._dataset, self._purpose = ledger, dataset, purpose
        self._plan, self._selection, self._assumptions, self._persons = plan, selection, assumptions, persons
        self._reservation: Any = None
        self._certificate: Certificate | None = None

    @property
    def certificate(self) -> Certificate:
        """The certificate, once the block has ended well."""
        if self._certificate is None:
            raise GratisError("there is no certificate before the training has ended")
        return self._certificate

    def certify(self, estimator: Any) -> None:
        """Give a fitted estimator its certificate, bound to the arrays that it now holds."""
        estimator.certificate_ = replace(self.certificate, released=arrays_digest(released_arrays(estimator)))

    def __enter__(self) -> Release:
        if self._ledger is not None and self._dataset is not None:
            self._reservation = self._ledger.reserve(self._dataset, self.event, purpose=self._purpose)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return  # what was reserved stays spent
        if self._ledger is not None and self._reservation is not None:
            self._reservation = self._ledger.commit(self._reservation.id, self.event)
        self._certificate = issue_certificate(
            event=self.event,
            budget=self.budget,
            selection=self._selection,
            randomness=self.noise.describe(),
            assumptions=self._assumptions,
            plan=None if self._plan is None else self._plan.to_json(),
            ledger_entry=None if self._reservation is None else self._reservation.to_json(),
            persons=self._persons,
        )
