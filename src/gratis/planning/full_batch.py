"""The full-batch candidate of a linear plan: settings and risk from a twin of the assumed spectrum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_descent_noise
from gratis.numerics.rounding import rounding_inflation
from gratis.planning.assumptions import LinearFacts
from gratis.planning.twins.assumed import FullBatchPrediction, predict_full_batch
from gratis.planning.twins.problems import Member
from gratis.records.events import Event, FullBatchDescent
from gratis.records.sequences import Runs
from gratis.records.settings import FullBatchSettings

__all__ = ["full_batch_candidate"]

_SEED = 20261115  # public: the twin's synthetic data is the same for everybody
_COARSE: dict[str, Any] = {
    "steps": (10, 40),
    "clips": (0.1, 0.2, 0.4, 0.7, 1.2),
    "travels": (0.7, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0),
    "seeds": 1,
}
_LARGEST_TWIN = 512  # columns of the assumed spectrum handed to the twin, which thins them further


def full_batch_candidate(
    facts: LinearFacts, *, mu: float | None = None
) -> tuple[str, str, NDArray[np.float64], FullBatchSettings, Event, str]:
    """Return (algorithm, schedule, risks over the members, settings, event, source).

    With several members, each member's best settings are tried on all the others and the least worst regret wins.
    """
    budget_mu = facts.mu if mu is None else mu
    members = facts.members()
    predict = _Predictor(facts, budget_mu)
    if len(members) == 1:
        chosen = predict(*members[0])
        risks = np.array([min(chosen.excess_risk, chosen.null_risk)])
    else:
        found = [predict(*member, **_COARSE) for member in members]
        table = np.array(
            [
                [
                    predict(*m, steps=(f.steps,), clips=(f.clip,), travels=(f.travel,), seeds=2).excess_risk
                    for f in found
                ]
                for m in members
            ]
        )
        units = np.array([max(signal + noise, 1e-300) for signal, noise, *_ in members])
        regrets = (table - table.min(axis=1, keepdims=True)) / units[:, None]
        index = int(regrets.max(axis=0).argmin())
        chosen, risks = found[index], table[:, index]
    event = _event(facts, chosen, budget_mu)
    settings = FullBatchSettings(
        steps=chosen.steps, clip_norm=chosen.clip_norm, learning_rate=chosen.learning_rate,
        noise_std=event.noise_stds.values[0],
        output="mean of the last half" if chosen.average else "last iterate",
    )  # fmt: skip
    schedule = f"constant rate, {settings.output}"
    return "full-batch", schedule, risks, settings, event, "twin: synthetic data of the same shape"


class _Predictor:
    def __init__(self, facts: LinearFacts, mu: float) -> None:
        self._facts, self._mu = facts, mu

    def __call__(
        self, signal: float, noise: float, spectrum: Any, alignment: float, **choices: Any
    ) -> FullBatchPrediction:
        facts = self._facts
        columns = min(facts.n_features, _LARGEST_TWIN)
        # Fewer columns of the same shape: n shrinks with d, so that γ and d/(nμ) stay.
        n_records = max(1, round(facts.n_records * columns / facts.n_features))
        found = predict_full_batch(
            n_records,
            spectrum.eigenvalues(columns),
            Member(signal, noise, alignment=alignment, skewed=False),
            mu=self._mu * facts.n_records / facts.n_features * columns / n_records,
            neighbouring=facts.budget.neighbouring,
            rng=np.random.default_rng(_SEED),
            **choices,
        )
        return found


def _event(facts: LinearFacts, chosen: FullBatchPrediction, mu: float) -> FullBatchDescent:
    relation = facts.budget.neighbouring
    clip_norm = chosen.clip * float(np.sqrt(facts.n_features))
    inflation = rounding_inflation(facts.n_records, facts.n_features + 1, sensitivity=relation.sensitivity_factor)
    noise_std = calibrate_descent_noise(
        mu=mu,
        steps=chosen.steps,
        learning_rate=chosen.learning_rate,
        clip_norm=clip_norm,
        n_records=facts.n_records,
        neighbouring=relation,
        rounding_inflation=inflation,
    )
    return FullBatchDescent(
        learning_rates=Runs.constant(chosen.learning_rate, chosen.steps),
        noise_stds=Runs.constant(noise_std, chosen.steps),
        clip_norm=clip_norm,
        n_records=facts.n_records,
        rounding_inflation=inflation,
        neighbouring=relation,
        label="full batch",
    )
