"""A search over settings that is paid for: candidates share the budget, their scores are one release on other rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gratis.accounting import calibrate_mu, issue_certificate, share_of_budget
from gratis.estimators.private_fit import PrivateFit
from gratis.estimators.release import Release
from gratis.mechanisms.noise import NoiseSource, noise_source
from gratis.numerics.rounding import ROWS_PER_CHUNK, rounding_inflation
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.errors import GratisError
from gratis.records.events import Composition, GaussianRelease, Parallel
from gratis.records.neighbouring import Neighbouring

__all__ = ["DISJOINT", "DPSearchCV", "search_scores_event"]

DISJOINT = "disjoint-parts"
_WIDEST = 3.0  # errors beyond so many scales of the target count as that


def search_scores_event(n_rows: int, n_candidates: int, *, budget: Budget) -> GaussianRelease:
    """Return the event of releasing the losses of all candidates on `n_rows` rows, summed, at the whole budget.

    A record adds one loss in [0, 1] for each candidate, or nothing: an exchange or a removal moves the vector by at
    most √candidates.
    """
    sensitivity = math.sqrt(n_candidates) * rounding_inflation(n_rows, n_candidates, sensitivity=1.0)
    return GaussianRelease(
        sensitivity=sensitivity,
        noise_std=sensitivity / calibrate_mu(budget) * (1 + 2.0**-40),
        neighbouring=budget.neighbouring,
        label=f"scores of {n_candidates} candidates",
    )


def _has_probabilities(search: Any) -> bool:
    return hasattr(search.estimator, "predict_proba")


@dataclass(eq=False, repr=False)
class DPSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Choose settings of a private estimator within one budget: for what cannot be planned from public sizes.

    Rows are split once, by their position alone. On the larger part every candidate is trained with an equal share of
    μ²; on the other the losses of all candidates are released together, with the whole μ, and the least is chosen. Its
    model is the result: it is not trained again.

    **Guarantee**: all candidates, all scores and the choice together are (ε, δ)-DP under `neighbouring`. A record is in
    one part: in the first it moves the candidates alone, whose shares of μ² add up to 1; in the second the scores
    alone, for given candidates (docs/proofs/parallel.md). `certificate_` states both, `score_certificate_` the second.

    Parameters
    ----------
    estimator : a private estimator, default None
        Its own epsilon and delta are replaced by the candidates' shares.
    param_grid : mapping or list of mappings, default None
        Settings, as scikit-learn's ParameterGrid takes them; fixed before the rows are seen.
    epsilon, delta : float, default None and None
        The budget of the whole search; both must be given.
    neighbouring : "replace-one" or "zero-out", default "replace-one"
        Which data sets must be hard to tell apart.
    score_share : float, default 0.2
        Share of the rows on which candidates are scored, at most 0.5.
    ledger, dataset : Ledger or path, and str, default None and None
        A ledger and the name of the data set's budget in it; candidates and scores together are reserved there.
    noise_seed, insecure_reproducible : int and bool, default None and False
        For tests only: noise from a seed protects nothing, and the certificate says so.

    Attributes
    ----------
    best_estimator_, best_params_, best_index_ : the chosen candidate.
    noisy_losses_ : released mean losses of all candidates; 1 − accuracy, or squared error over (3 scales)², at most 1.
    certificate_, score_certificate_ : what was proved.

    >>> from gratis import DPLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> grid = {"algorithm": ["full-batch", "one-pass"]}
    >>> search = DPSearchCV(DPLinearRegression(), grid, epsilon=2.0, delta=1e-5).fit(X, X @ [1.0, 2.0, 3.0])
    >>> len(search.noisy_losses_), search.certificate_.guarantee["within_budget"]
    (2, True)
    """

    estimator: Any = None
    param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None
    epsilon: float | None = None
    delta: float | None = None
    _: KW_ONLY
    neighbouring: str = "replace-one"
    score_share: float = 0.2
    ledger: Any = None
    dataset: str | None = None
    noise_seed: int | None = None
    insecure_reproducible: bool = False

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Split, train every candidate, release all losses, choose."""
        budget, candidates = self._budget(), self._candidates()
        rows, target = np.asarray(X), np.asarray(y)
        if rows.ndim != 2 or target.shape[:1] != rows.shape[:1]:
            raise GratisError("X must have one row for each record, and y one entry for each row")
        held = _held_out(len(rows), self.score_share)
        if min(held.sum(), (~held).sum()) < 2:
            raise GratisError(f"{len(rows)} rows are too few to train on some and score on others")
        models = self._models(candidates, share_of_budget(budget, 1 / len(candidates)))
        # What cannot be read is refused here, before anything is spent.
        models[0]._read(rows[~held], target[~held])
        judged = models[0]._read(rows[held], target[held])[:2]
        classes = None if not hasattr(models[0], "predict_proba") else len(models[0].classes)
        plans = [model.plan(int((~held).sum()), rows.shape[1], classes=classes) for model in models]
        training = Composition(tuple(plan.event for plan in plans))
        scoring = search_scores_event(int(held.sum()), len(models), budget=budget)
        noise = self._noise()
        release = Release(
            Parallel((training, scoring)), budget, noise, ledger=models[0]._opened(self.ledger, self.dataset),
            dataset=self.dataset, purpose="search", selection=Selection.INCLUDED, model=type(models[0]).__name__,
        )  # fmt: skip
        with release:
            for model in models:
                model.fit(rows[~held], target[~held])
            losses = _losses(models, *judged)
            total = np.zeros(len(models))
            for start in range(0, len(losses), ROWS_PER_CHUNK):
                total += losses[start : start + ROWS_PER_CHUNK].sum(axis=0)
            noisy = noise.release(total, scoring.noise_std)
            self.best_index_ = int(np.argmin(noisy))
            self.best_estimator_ = models[self.best_index_]
            release.bind(self.best_estimator_)
        self.noisy_losses_ = np.clip(noisy / max(len(losses), 1), 0.0, 1.0)
        self.best_params_ = candidates[self.best_index_]
        self._certify(release, scoring, budget, noise)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict with the chosen candidate."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict(X))

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities by the chosen candidate."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict_proba(X))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """R² or accuracy of the chosen candidate, without noise: for rows that were kept apart."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def _budget(self) -> Budget:
        if self.epsilon is None or self.delta is None:
            raise GratisError("give epsilon and delta: nothing is spent by accident")
        if not 0 < self.score_share <= 0.5:
            raise GratisError(f"score_share must be above 0 and at most 0.5, got {self.score_share}")
        return Budget(epsilon=self.epsilon, delta=self.delta, neighbouring=Neighbouring.parse(self.neighbouring))

    def _candidates(self) -> list[dict[str, Any]]:
        if not isinstance(self.estimator, PrivateFit):
            raise GratisError("DPSearchCV searches settings of an estimator of Gratis, such as DPLinearRegression")
        candidates = list(ParameterGrid(self.param_grid or {}))
        fixed = {"epsilon", "delta", "neighbouring", "ledger", "dataset", "classes", "on_invalid"}
        wrong = sorted({name for one in candidates for name in one} & (fixed | {"noise_seed", "insecure_reproducible"}))
        if wrong:
            raise GratisError(f"{wrong[0]!r} cannot be searched: it is the search's own, or public")
        return candidates

    def _models(self, candidates: list[dict[str, Any]], share: Budget) -> list[Any]:
        own = self.estimator.get_params(deep=False) | {
            "epsilon": share.epsilon, "delta": share.delta, "neighbouring": self.neighbouring,
            "ledger": None, "dataset": None,
            "noise_seed": self.noise_seed, "insecure_reproducible": self.insecure_reproducible,
        }  # fmt: skip
        if "classes" in own and own["classes"] is None:
            raise GratisError("a search must know the classes before it sees them: give the estimator classes=[…]")
        return [type(self.estimator)(**own | candidate) for candidate in candidates]

    def _noise(self) -> NoiseSource:
        return noise_source(self.noise_seed, insecure_reproducible=self.insecure_reproducible)

    def _certify(self, release: Release, scoring: GaussianRelease, budget: Budget, noise: NoiseSource) -> None:
        best = self.best_estimator_
        stated = best.certificate_.assumptions + release.certificate.assumptions
        self.certificate_ = replace(release.certificate, assumptions=stated)
        self.score_certificate_ = issue_certificate(
            event=scoring,
            budget=budget,
            selection=Selection.INCLUDED,
            randomness=noise.describe(),
            assumptions=(DISJOINT,),
        )
        # What is saved of the chosen one states what the whole search cost.
        best.epsilon, best.delta, best.certificate_ = budget.epsilon, budget.delta, self.certificate_


def _losses(models: list[Any], X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """One loss in [0, 1] for each record and candidate; a record without a target, or left out, adds nothing."""
    valid, first = np.isfinite(y), models[0]
    answerable = X if first.on_invalid == "impute" else np.where(np.isfinite(X), X, 0.0)
    found = np.zeros((len(y), len(models)))
    for place, model in enumerate(models):
        with np.errstate(all="ignore"):
            answers = np.asarray(model.predict(answerable))
            if hasattr(model, "predict_proba"):
                found[:, place] = answers != np.asarray(model.classes_)[np.where(valid, y, 0).astype(np.int64)]
            else:
                error = (np.where(valid, y, 0.0) - answers) / (_WIDEST * _target_scale(first))
                found[:, place] = np.where(np.isfinite(error), np.minimum(np.square(error), 1.0), 1.0)
    return np.where(valid[:, None], found, 0.0)


def _held_out(n_rows: int, share: float) -> NDArray[np.bool_]:
    from gratis.rows.encoding import held_out_rows  # brings pyarrow

    return held_out_rows(0, n_rows, share)


def _target_scale(estimator: Any) -> float:
    """The target's scale, as the first candidate released or was told it."""
    fitted = getattr(estimator, "fit_", None) or getattr(estimator, "model_", None)
    target = estimator.target_scaler_ if fitted is None else fitted.target
    return float(target.scale[0])
