"""A private multi-layer perceptron with scikit-learn's interface (needs the `nn` extra)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from gratis.accounting import calibrate_mu, split_mu
from gratis.estimators.classification import PrivateClassifier, encoded
from gratis.estimators.private_fit import PrivateFit, refuse_text, zero_rows
from gratis.estimators.scales import PublicScales
from gratis.mechanisms.location_scale import Standardiser, plan_standardisation, release_location_scale
from gratis.planner.networks import plan_network
from gratis.specs.budget import Budget
from gratis.specs.checks import check_count
from gratis.specs.errors import GratisError, MissingExtraError
from gratis.specs.events import Composition

__all__ = ["DPMLPClassifier"]

_SCALE_SHARE = 0.2  # of μ², for private location and scale


class DPMLPClassifier(PrivateClassifier, PrivateFit, BaseEstimator):
    """Fully connected ReLU network trained by full-batch DP-GD under (ε, δ), settings planned from public facts.

    **Guarantee**: as `DPLinearRegression`: the weights are a function of Gaussian releases under `neighbouring`; all
    iterates may be released. Initial weights come from `initial_seed`, which is public.

    Parameters: those of `DPLogisticRegression`, and

    width, depth : hidden units a layer, and number of hidden layers.
    progress : show a bar with step and share of the budget (never a loss on private rows).
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        width: int = 1000,
        depth: int = 1,
        steps: int = 75,
        initial_seed: int = 0,
        progress: bool = False,
        classes: ArrayLike | None = None,
        neighbouring: str = "replace-one",
        preprocessing: str = "private",
        public: PublicScales | None = None,
        on_invalid: str = "raise",
        ledger: str | None = None,
        dataset: str | None = None,
        noise_seed: int | None = None,
        insecure_reproducible: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.width = width
        self.depth = depth
        self.steps = steps
        self.initial_seed = initial_seed
        self.progress = progress
        self.classes = classes
        self.neighbouring = neighbouring
        self.preprocessing = preprocessing
        self.public = public
        self.on_invalid = on_invalid
        self.ledger = ledger
        self.dataset = dataset
        self.noise_seed = noise_seed
        self.insecure_reproducible = insecure_reproducible

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Plan, reserve, train, certify."""
        try:
            import torch
        except ImportError:
            raise MissingExtraError("networks need torch; install it with: pip install 'gratis[nn]'") from None
        from gratis.models.mlp import build_mlp
        from gratis.training.networks import falling_rates, train_full_batch

        budget = self._budget()
        rows, labels = self._validated(X, y, numeric=False)
        classes, assumed = self._read_classes(labels)
        rows, position = self._contributing(rows, encoded(labels, classes))
        mu, scale_plan, scaler = self._scales(rows, budget)
        scaler = self._filling(scaler)
        rest = Budget(mu=mu, neighbouring=budget.neighbouring)
        plan = plan_network(
            len(rows), rows.shape[1], len(classes), budget=rest, width=self.width, depth=self.depth, steps=self.steps
        )
        settings = plan.settings
        seed = check_count("initial_seed", self.initial_seed, minimum=0)
        if seed >= 2**63:
            raise GratisError("initial_seed must be below 2^63")
        try:
            module = build_mlp(settings["widths"], seed=seed)
        except (MemoryError, RuntimeError):
            raise GratisError("there is not enough memory for this network; lower width or depth") from None
        descent = plan.event
        paid = () if scale_plan is None else (scale_plan.event,)
        plan = replace(plan, budget=budget, event=Composition((*paid, descent)))
        release = self._release(plan, assumptions=assumed)
        with release, np.errstate(all="ignore"):
            if scale_plan is not None:
                scaler = release_location_scale(rows, scale_plan, noise=release.noise, impute=scaler.impute)
            result = train_full_batch(
                module,
                torch.as_tensor(zero_rows(scaler.transform(rows), position), dtype=torch.float32),
                torch.as_tensor(np.where(np.isfinite(position), position, -1).astype(np.int64)),
                event=descent,  # type: ignore[arg-type]
                clip_norm=settings["clip_norm"],
                learning_rates=falling_rates(settings["mean_rate"], settings["steps"]),
                noise=release.noise,
                average=settings["average"],
                progress=self.progress,
            )
        self.classes_, self.scaler_ = classes, scaler
        self.coefs_ = [p.detach().numpy().T.copy() for p in result.module.parameters()]
        self.plan_, self.prediction_ = plan, plan.prediction
        release.certify(self)
        return self

    def _scales(self, X: NDArray[np.float64], budget: Budget) -> tuple[float, Any, Standardiser]:
        choice = self._choice("preprocessing", ("private", "public", "none"))
        if (self.public is not None) != (choice == "public"):
            raise GratisError("give public scales with preprocessing='public', and only then")
        mu = calibrate_mu(budget)
        if choice == "private":
            scale_mu, mu = split_mu(mu, [_SCALE_SHARE, 1 - _SCALE_SHARE])
            plan = plan_standardisation(*X.shape, mu=scale_mu, neighbouring=budget.neighbouring)
            return mu, plan, Standardiser.identity(X.shape[1])
        scaler = Standardiser.identity(X.shape[1]) if self.public is None else self.public.features(X.shape[1])
        return mu, None, scaler

    def _class_scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "coefs_")
        refuse_text(X=X)
        finite = not self.scaler_.impute
        hidden = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=finite))
        for weights in self.coefs_[:-1]:
            hidden = np.maximum(hidden @ weights, 0.0)
        return np.asarray(hidden @ self.coefs_[-1])
