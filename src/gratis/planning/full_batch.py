"""Plain full-batch descent before any data: predicted by a twin of an assumed spectrum, as a candidate of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.accounting import calibrate_descent_noise
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.planning.assumptions import LinearFacts
from gratis.planning.twins.problems import Member, draw_coefficients, draw_label_noise, draw_rows
from gratis.planning.twins.twin import TwinSize
from gratis.records.checks import check_count, check_positive
from gratis.records.events import Event, FullBatchDescent
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs
from gratis.records.settings import FullBatchSettings
from gratis.stages.full_batch import descend_many

__all__ = ["FullBatchPrediction", "full_batch_candidate", "predict_full_batch"]

_SEED = 20261115  # public: the twin's synthetic data is the same for everybody
_COARSE: dict[str, Any] = {
    "steps": (10, 40),
    "clips": (0.1, 0.2, 0.4, 0.7, 1.2),
    "travels": (0.7, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0),
    "seeds": 1,
}
_LARGEST_TWIN = 512  # columns of the assumed spectrum handed to the twin, which thins them further


_ALL_STEPS = (5, 10, 20, 40, 80)
_ALL_CLIPS = (0.03, 0.1, 0.2, 0.4, 0.7, 1.2)
_ALL_TRAVELS = (0.35, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.3, 16.0)
_COPIES = 4  # teachers and noises on the same rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FullBatchPrediction:
    """Best predicted excess risk ½E(xᵀθ − xᵀθ*)² and its settings: C = c√(tr Σ), η = travel/(cT).

    `standard_error` is that of the twin's seeds; `null_risk` is that of θ = 0 (S/2).
    """

    excess_risk: float
    standard_error: float
    null_risk: float
    steps: int
    clip: float
    travel: float
    average: bool
    clip_norm: float
    learning_rate: float


def predict_full_batch(
    n_records: int,
    spectrum: NDArray[np.float64],
    member: Member,
    *,
    mu: float,
    neighbouring: Neighbouring,
    rng: np.random.Generator,
    steps: Sequence[int] = _ALL_STEPS,
    clips: Sequence[float] = _ALL_CLIPS,
    travels: Sequence[float] = _ALL_TRAVELS,
    columns: int = 60,
    rows: int = 1600,
    seeds: int = 2,
) -> FullBatchPrediction:
    """Predict the risk of plain full-batch DP-GD at its best settings, by simulation at small d.

    The twin keeps d/n, d/(nμ), the shape of the spectrum, S and ζ². Where d/n cannot be kept (n/d above
    rows/8), the surplus sampling error ½ζ²(d′/n′ − d/n) is taken off.

    Parameters
    ----------
    n_records : int
        n.
    spectrum : (d,)
        Assumed eigenvalues of Σ.
    member : Member
        Signal variance S, label-noise variance ζ², alignment of θ* with the eigenvalues.
    mu : float
        GDP parameter of the descent.
    neighbouring : Neighbouring
        Gives κ.
    rng : numpy Generator
        Public randomness.
    steps, clips, travels : sequences
        The grid.
    columns, rows, seeds : int
        Size of the twin.

    >>> found = predict_full_batch(2000, np.ones(50), Member(1.0, 0.25, skewed=False), mu=0.5, columns=20,
    ...     neighbouring=Neighbouring.ZERO_OUT, steps=(10,), seeds=1, rng=np.random.default_rng(0))
    >>> 0 < found.excess_risk < found.null_risk
    True
    """
    spectrum = np.asarray(spectrum, dtype=np.float64)
    n = check_count("n_records", n_records)
    # Fewer columns where rows are many, so that d/n is kept as long as 8 columns are left.
    affordable = max(8, min(columns, int(rows * spectrum.size / n)))
    size = TwinSize.of(spectrum, n, mu=check_positive("mu", mu), columns=affordable, rows=rows)
    kept = size.spectrum
    grid = np.array([(c, t) for c in clips for t in travels])
    noise_factor = neighbouring.sensitivity_factor / (size.n_records * size.mu)
    scale = math.sqrt(float(kept.sum()))
    risks = np.empty((seeds, len(steps), 2, len(grid), _COPIES))
    for seed in range(seeds):
        X = draw_rows(kept, size.n_records, rng=rng)
        truth = np.stack([draw_coefficients(kept, kept, member, rng=rng) for _ in range(_COPIES)], axis=1)
        labels = X @ truth + draw_label_noise(member, (size.n_records, _COPIES), rng=rng)
        targets = np.tile(labels.astype(np.float32), (1, len(grid)))[:, :, None]
        for index, count in enumerate(steps):
            clip, travel = np.repeat(grid, _COPIES, axis=0).T
            std = np.float32(noise_factor * math.sqrt(count))
            runs = descend_many(
                Rows.one_chunk(X.astype(np.float32), targets),
                lambda scores: scores,
                steps=count,
                outputs=1,
                clip_norms=(clip * scale).astype(np.float32),
                learning_rates=(travel / (clip * count)).astype(np.float32)[None],
                add_noise=lambda g, std=std: g + std * rng.standard_normal(g.shape, dtype=np.float32),  # type: ignore[misc]
            )
            for kind, found in enumerate(runs):
                error = found[:, :, 0].reshape(kept.size, len(grid), _COPIES) - truth[:, None, :]
                risks[seed, index, kind] = 0.5 * np.einsum("j,jsm->sm", kept, np.square(error))
    surplus = 0.5 * member.label_noise_variance * (kept.size / size.n_records - spectrum.size / n)
    mean = risks.mean(axis=(0, 4))
    step, kind, setting = (int(i) for i in np.unravel_index(int(mean.argmin()), mean.shape))
    best = float(mean[step, kind, setting])
    spread = risks[:, step, kind, setting].ravel()
    clip, travel = (float(v) for v in grid[setting])
    return FullBatchPrediction(
        excess_risk=max(best - max(surplus, 0.0), 0.1 * best),
        standard_error=float(spread.std() / math.sqrt(spread.size)),
        null_risk=member.signal_variance / 2,
        steps=int(steps[step]),
        clip=clip,
        travel=travel,
        average=kind == 0,
        clip_norm=clip * math.sqrt(float(spectrum.sum())),
        learning_rate=travel / (clip * int(steps[step])),
    )


def full_batch_candidate(
    facts: LinearFacts,
) -> tuple[str, str, NDArray[np.float64], FullBatchSettings, Event, str]:
    """Return (algorithm, schedule, risks over the members, settings, event, source).

    With several members, each member's best settings are tried on all the others and the least worst regret wins.
    """
    members = facts.members()
    predict = _Predictor(facts)
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
    event = _event(facts, chosen)
    settings = FullBatchSettings(
        steps=chosen.steps, clip_norm=chosen.clip_norm, learning_rate=chosen.learning_rate,
        noise_std=event.noise_stds.values[0],
        output="mean of the last half" if chosen.average else "last iterate",
    )  # fmt: skip
    schedule = f"constant rate, {settings.output}"
    return "full-batch", schedule, risks, settings, event, "twin: synthetic data of the same shape"


class _Predictor:
    def __init__(self, facts: LinearFacts) -> None:
        self._facts = facts

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
            mu=facts.mu * facts.n_records / facts.n_features * columns / n_records,
            neighbouring=facts.budget.neighbouring,
            rng=np.random.default_rng(_SEED),
            **choices,
        )
        return found


def _event(facts: LinearFacts, chosen: FullBatchPrediction) -> FullBatchDescent:
    relation = facts.budget.neighbouring
    clip_norm = chosen.clip * float(np.sqrt(facts.n_features))
    inflation = rounding_inflation(facts.n_records, facts.n_features + 1, sensitivity=relation.sensitivity_factor)
    noise_std = calibrate_descent_noise(
        mu=facts.mu,
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
