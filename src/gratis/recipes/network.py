"""Fully connected networks: standardise, then full-batch descent on all weights (needs the `nn` extra)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu, s0_noise_multiplier, split_mu
from gratis.mechanisms.location_scale import (
    StandardisationPlan,
    Standardiser,
    plan_standardisation,
    release_location_scale,
)
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.planning.bounds.initialization import Scheme, layer_variances
from gratis.planning.networks import plan_network
from gratis.recipes.recipe import Reading, zero_rows
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import Composition
from gratis.records.extras import missing_extra
from gratis.records.facts import Facts
from gratis.records.plans import Plan
from gratis.records.settings import Descent, NetworkSettings

__all__ = ["Network", "NetworkRelease"]

_SCALE_SHARE = 0.2  # of μ², for private location and scale


@dataclass(frozen=True, slots=True)
class NetworkRelease:
    """What was released: the map of the columns, and the weights of every layer."""

    features: Standardiser
    weights: list[NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Network:
    """The recipe for given facts; clip norm and rate may be given, the number of steps is `steps`."""

    facts: Facts
    budget: Budget
    reading: Reading
    width: int = 1000
    depth: int = 1
    steps: int = 75
    initial_seed: int = 0
    descent: Descent = field(default_factory=Descent)
    init: str = "he"
    chosen_from_releases: bool = False
    needs_arrays: bool = True

    def __post_init__(self) -> None:
        self.descent.refuse("a network", "engine")
        Scheme.parse(self.init)
        if self.descent.noise == "paper" and (self.budget.epsilon is None or self.budget.delta is None):
            raise GratisError("the paper's noise is stated for a budget in epsilon and delta")
        if isinstance(self.descent.learning_rate, tuple):
            raise GratisError("a network's learning_rate is one number: the mean of rates that fall to 0")
        if check_count("initial_seed", self.initial_seed, minimum=0) >= 2**63:
            raise GratisError("initial_seed must be below 2^63")

    @property
    def _scale(self) -> tuple[StandardisationPlan | None, float]:
        mu = calibrate_mu(self.budget)
        if not self.reading.standardise:
            return None, mu
        scale_mu, mu = split_mu(mu, [_SCALE_SHARE, 1 - _SCALE_SHARE])
        relation = self.budget.neighbouring
        return plan_standardisation(self.facts.rows, self.facts.columns, mu=scale_mu, neighbouring=relation), mu

    @property
    def _training(self) -> tuple[Plan, NetworkSettings]:
        assert self.facts.classes is not None
        mu = self._scale[1]
        if self.descent.noise == "paper":
            assert self.budget.epsilon is not None
            assert self.budget.delta is not None
            mu = min(mu, 1 / s0_noise_multiplier(epsilon=self.budget.epsilon, delta=self.budget.delta))
        rest = Budget(mu=mu, neighbouring=self.budget.neighbouring)
        plan = plan_network(
            self.facts.rows, self.facts.columns, self.facts.classes, budget=rest, width=self.width, depth=self.depth,
            steps=self.descent.steps or self.steps, init=self.init,
        )  # fmt: skip
        settings = plan.settings
        assert isinstance(settings, NetworkSettings)
        if not self.descent.given:
            return plan, settings
        clip_norm = self.descent.clip_norm or settings.clip_norm
        # With another clip norm the total rate stays.
        rate: Any = self.descent.learning_rate or settings.total_rate / (clip_norm * settings.steps)
        settings = replace(
            settings, clip_norm=clip_norm, mean_rate=rate, total_rate=rate * clip_norm * settings.steps,
            average=bool(self.descent.average),
        )  # fmt: skip
        reasons = (f"Given: {', '.join(self.descent.given)}.", *plan.reasons)
        return replace(plan, settings=settings, reasons=reasons), settings

    @property
    def plan(self) -> Plan:
        """Scales, then the network's training."""
        scale, (plan, _) = self._scale[0], self._training
        paid = () if scale is None else (scale.event,)
        return replace(plan, budget=self.budget, event=Composition((*paid, plan.event)))

    def prepare(self) -> Any:
        """Return the initial module: what could fail, fails before anything is spent."""
        try:
            import torch
        except ImportError:
            raise missing_extra("networks need PyTorch", "nn") from None
        from gratis.mechanisms.ghost_clipping import ClippedGradientSum, cross_entropy
        from gratis.models.mlp import build_mlp

        try:
            widths = list(self._training[1].widths)
            module = build_mlp(widths, seed=self.initial_seed, variances=layer_variances(self.init, widths))
        except (MemoryError, RuntimeError):
            raise GratisError("there is not enough memory for this network; lower width or depth") from None
        # Of few neurons all may be dead, and such a network is refused; on synthetic records, so that it is known here.
        gradient = ClippedGradientSum(module, cross_entropy, clip_norm=self._training[1].clip_norm)
        gradient.check(torch.zeros((1, self.facts.columns)), torch.zeros(1, dtype=torch.int64))
        return module

    def run(self, rows: Rows, *, noise: NoiseSource) -> NetworkRelease:
        """Release scales and weights."""
        import torch

        from gratis.stages.networks import falling_rates, train_full_batch

        X, y = rows.arrays()
        scale, (plan, settings) = self._scale[0], self._training
        features = self.reading.public_features(self.facts.columns)
        if scale is not None:
            features = release_location_scale(rows, scale, noise=noise, impute=self.reading.impute)
        result = train_full_batch(
            self.prepare(),
            torch.as_tensor(zero_rows(features.transform(X), y), dtype=torch.float32),
            torch.as_tensor(np.where(np.isfinite(y), y, -1).astype(np.int64)),
            event=plan.event,  # type: ignore[arg-type]
            clip_norm=settings.clip_norm,
            learning_rates=falling_rates(settings.mean_rate, settings.steps),
            noise=noise,
            average=settings.average,
        )
        return NetworkRelease(features, [p.detach().numpy().T.copy() for p in result.module.parameters()])
