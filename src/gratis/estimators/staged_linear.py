"""What the private linear and logistic regressions share: validation, plan, staged fit, results."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.accounting import calibrate_mu
from gratis.data.streaming import ArrayRows, RowStream
from gratis.estimators.one_pass_fit import OnePassProgress, OnePassStages, fit_one_pass, plan_one_pass
from gratis.estimators.private_fit import PrivateFit, Release, refuse_text
from gratis.estimators.scales import PublicScales
from gratis.mechanisms.location_scale import Standardiser
from gratis.simulation.twin import TwinChoice, twin_settings
from gratis.specs.budget import Budget
from gratis.specs.checks import check_count
from gratis.specs.errors import GratisError
from gratis.specs.neighbouring import Neighbouring
from gratis.specs.plans import Plan
from gratis.specs.predictions import Prediction
from gratis.training.full_batch import GeneralisedLinearModel
from gratis.training.released_linear import ReleasedLinear
from gratis.training.staged import StagedPlan, fit_stages, plan_stages

__all__ = ["PrivateLinearModel", "predict_staged"]

_TWIN_SEED = 20261115  # public: the twin's synthetic data is the same for everybody
_PREPROCESSING = ("private", "public", "none")
_ALGORITHMS = ("auto", "full-batch", "one-pass")


def _is_one_pass(estimator: Any) -> bool:
    return bool(estimator.algorithm == "one-pass")


class PrivateLinearModel(PrivateFit, BaseEstimator):
    """Common ground of `DPLinearRegression` and `DPLogisticRegression`."""

    preprocessing: str
    public: PublicScales | None
    algorithm: str
    on_invalid: str

    def _public_maps(self, n_features: int, *, regression: bool) -> tuple[Standardiser | None, Standardiser | None]:
        preprocessing = self._choice("preprocessing", _PREPROCESSING)
        if (self.public is not None) != (preprocessing == "public"):
            raise GratisError("give public scales with preprocessing='public', and only then")
        if self.public is None:
            return None, None
        return self.public.features(n_features), self.public.target() if regression else None

    def _fit_private(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        model: GeneralisedLinearModel,
        *,
        n_classes: int | None,
        assumptions: tuple[str, ...] = (),
    ) -> None:
        """Plan, reserve, train, certify; sets plan_, prediction_, certificate_ and the coefficients."""
        budget = self._budget()
        regression, impute = n_classes is None, self.on_invalid == "impute"
        maps = self._public_maps(X.shape[1], regression=regression)
        algorithm = self._choice("algorithm", _ALGORITHMS)
        fit: Any
        if algorithm == "one-pass":
            private = self.preprocessing == "private"
            passes = plan_one_pass(*X.shape, budget=budget, standardise=private, n_classes=n_classes)
            plan = passes.plan
        else:
            stages = plan_stages(
                *X.shape,
                mu=calibrate_mu(budget),
                neighbouring=budget.neighbouring,
                outputs=model.outputs,
                regression=regression,
                standardise=self.preprocessing == "private",
            )
            plan = _staged_plan(stages, budget, n_classes)
        release = self._release(plan, chosen_from_releases=algorithm != "one-pass", assumptions=assumptions)
        with release, np.errstate(all="ignore"):
            if algorithm == "one-pass":
                fit = fit_one_pass(
                    ArrayRows(X, y), passes, noise=release.noise, features=maps[0], target=maps[1], impute=impute
                )
                prediction = _in_original_units(plan.prediction, fit)
            else:
                chosen: list[TwinChoice] = []

                def choose(spectrum: NDArray[np.float64], stages: StagedPlan) -> TwinChoice:
                    chosen.append(_twin(spectrum, stages, n_classes))
                    return chosen[-1]

                fit = fit_stages(
                    X, y, stages, model, choose, noise=release.noise, features=maps[0], target=maps[1], impute=impute
                )
                prediction = _in_original_units(_prediction(chosen[0], n_classes, "twin of the released spectrum"), fit)
        self.plan_ = plan
        self.prediction_ = prediction
        self.fit_ = fit
        self._publish(fit)
        release.certify(self)

    @available_if(_is_one_pass)
    def partial_fit(self, X: ArrayLike, y: ArrayLike, n_rows: int | None = None) -> Self:
        """Continue one declared pass of n_rows rows; the model appears when the last of them was used.

        The first call declares `n_rows` and reserves the budget. A batch beyond the declared rows is refused, and
        nothing is released before: an early look is not covered by the guarantee. Needs public scales
        (preprocessing "public" or "none"), because private ones would take a pass of their own. With
        on_invalid="raise" a batch that holds invalid values is refused whole, and a corrected one may follow.
        """
        current: OnePassProgress | None = getattr(self, "_progress", None)
        classes = self._declared_classes()
        rows, target = self._validated(X, y, numeric=classes is None, reset=current is None)
        rows, target = self._contributing(rows, self._encoded(target))
        if current is None:
            if n_rows is None:
                raise GratisError("the first partial_fit must declare n_rows, the number of rows of the whole pass")
            current = self._begin_pass(rows.shape[1], check_count("n_rows", n_rows, minimum=2))
            self._progress: OnePassProgress | None = current
        elif n_rows is not None and n_rows != current.n_rows:
            raise GratisError(f"this pass was declared for {current.n_rows} rows; n_rows cannot change")
        with np.errstate(all="ignore"):
            current.consume(rows, target)
        if current.is_complete:
            self._progress = None
            self._finish_pass(current)
        return self

    def _begin_pass(self, n_features: int, n_rows: int) -> OnePassProgress:
        if self._choice("preprocessing", _PREPROCESSING) == "private":
            raise GratisError("partial_fit needs preprocessing 'public' or 'none': private scales take other passes")
        stages, release, maps = self._pass_to_come(n_rows, n_features)
        return OnePassProgress(
            stages, release, n_rows, n_features,
            features=maps[0], target=maps[1], impute=self.on_invalid == "impute",
        )  # fmt: skip

    def _finish_pass(self, done: OnePassProgress) -> None:
        fit, release = done.finish()
        self._keep_pass(done.stages, fit, release)

    def fit_rows(self, stream: RowStream) -> Self:
        """Train in one pass over a stream (`gratis.data.streaming.open_rows`) in constant memory.

        Private scales read the stream eight more times (four for a classifier). With on_invalid="raise" it is read
        once more before anything is spent (a classifier's twice), to see that all values are valid.
        """
        if self.algorithm == "full-batch":
            raise GratisError("a stream is read in order: use algorithm='one-pass' (or 'auto')")
        handling = self._handling()
        stages, release, maps = self._pass_to_come(stream.n_rows, stream.n_features)
        rows = _Encoded(stream, self._encoded)
        if handling == "raise":
            rows.validate()
        with release, np.errstate(all="ignore"):
            fit = fit_one_pass(
                rows, stages, noise=release.noise, features=maps[0], target=maps[1], impute=handling == "impute"
            )
        self.n_features_in_ = stream.n_features
        self._keep_pass(stages, fit, release)
        return self

    def _pass_to_come(
        self, n_rows: int, n_features: int
    ) -> tuple[OnePassStages, Release, tuple[Standardiser | None, Standardiser | None]]:
        """Plan a pass over rows that arrive in batches; nothing is spent yet."""
        classes = self._declared_classes()
        n_classes = None if classes is None else len(classes)
        budget = self._budget()
        maps = self._public_maps(n_features, regression=classes is None)
        private = self.preprocessing == "private"
        stages = plan_one_pass(n_rows, n_features, budget=budget, standardise=private, n_classes=n_classes)
        return stages, self._release(stages.plan), maps

    def _keep_pass(self, stages: OnePassStages, fit: ReleasedLinear, release: Release) -> None:
        self.plan_ = stages.plan
        self.prediction_ = _in_original_units(self.plan_.prediction, fit)
        self.fit_ = fit
        classes = self._declared_classes()
        if classes is not None:
            self.classes_ = classes
        self._publish(fit)
        release.certify(self)

    @abstractmethod
    def _declared_classes(self) -> NDArray[Any] | None:
        """The classes that a pass must know before it sees them; None for a regression."""

    @abstractmethod
    def _encoded(self, target: NDArray[Any]) -> NDArray[np.float64]:
        """Targets as the trainer reads them."""

    @abstractmethod
    def _publish(self, fit: Any) -> None:
        """Set coef_ and intercept_ from what was released."""

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


def _twin(spectrum: NDArray[np.float64], stages: StagedPlan, n_classes: int | None) -> TwinChoice:
    return twin_settings(
        spectrum,
        stages.n_records,
        mu=stages.descent_mu,
        neighbouring=stages.neighbouring,
        steps=stages.steps,
        rng=np.random.default_rng(_TWIN_SEED),
        n_classes=n_classes,
    )


@lru_cache(maxsize=128)
def _flat_twin(
    width: int, n_records: int, steps: int, neighbouring: Neighbouring, n_classes: int | None, mu: float
) -> TwinChoice:
    """The twin of a flat spectrum: what can be said before the data is touched."""
    return twin_settings(
        np.full(width, 0.9), n_records, mu=mu, neighbouring=neighbouring, steps=steps,
        rng=np.random.default_rng(_TWIN_SEED), n_classes=n_classes,
    )  # fmt: skip


def predict_staged(n_records: int, n_features: int, budget: Budget, n_classes: int | None = None) -> Prediction:
    """Predict the excess risk of the staged fit before any data, in units of the target's variance."""
    stages = plan_stages(
        n_records,
        n_features,
        mu=calibrate_mu(budget),
        neighbouring=budget.neighbouring,
        outputs=n_classes or 1,
        regression=n_classes is None,
    )
    return _staged_plan(stages, budget, n_classes).prediction


def _staged_plan(stages: StagedPlan, budget: Budget, n_classes: int | None) -> Plan:
    """The plan as it is known before the data is touched: the spectrum is still assumed to be flat."""
    assumed = _flat_twin(
        stages.n_columns + 1, stages.n_records, stages.steps, stages.neighbouring, n_classes, stages.descent_mu
    )
    shares = {leaf.label or leaf.kind: leaf.kind for leaf in stages.event.leaves()}
    return Plan(
        algorithm="full-batch",
        schedule="preconditioned, mean of the last half",
        settings={
            "steps": stages.steps,
            "stages": list(shares),
            "descent_mu": stages.descent_mu,
            "second_moments_mu": stages.second_moments_mu,
            "clip_and_rate": "chosen by a twin of the privately released spectrum",
        },
        budget=budget,
        event=stages.event,
        prediction=_prediction(assumed, n_classes, "twin of a flat spectrum (before the data is touched)"),
        reasons=(
            f"{budget.describe()}: location and scale, second moments and descent share the budget; "
            f"{stages.steps} full-batch steps in the basis of the released second moments.",
            "Clip norm and learning rate minimise the worst regret over a family of synthetic problems with the "
            "released spectrum; no setting is chosen by looking at scores on the data.",
        ),
    )


def _prediction(choice: TwinChoice, n_classes: int | None, source: str) -> Prediction:
    risks = np.array(choice.risks)
    if n_classes is None:
        risks = risks / 2  # twins report E(xᵀθ − xᵀθ*)², the excess risk is half of that
    return Prediction(
        quantity="excess_risk",
        value=float(np.median(risks)),
        low=float(risks.min()),
        high=float(risks.max()),
        source=source,
        assumptions=(
            "rows with log-normal lengths, skewed label noise",
            "members: " + "; ".join(f"signal {m.signal_variance:g}, alignment {m.alignment:g}" for m in choice.members),
            "median over the members; the range is over the members",
        ),
        details={
            "unit": "½·variance of the target" if n_classes is None else "nats of cross-entropy",
            "null_risk": float(np.median(choice.null_risks)) / (2 if n_classes is None else 1),
        },
    )


def _in_original_units(prediction: Prediction, fit: ReleasedLinear) -> Prediction:
    """Scale a prediction for targets of variance 1 by the (released or public) scale of the target."""
    factor = float(fit.target.scale[0]) ** 2
    return Prediction(
        quantity=prediction.quantity,
        value=prediction.value * factor,
        low=prediction.low * factor,
        high=prediction.high * factor,
        source=prediction.source,
        assumptions=prediction.assumptions,
        details=prediction.details | {"relative_value": prediction.value, "target_scale": factor**0.5},
    )
