"""The whole staged fit as one mechanism, on worst-case neighbours at small n.

Every release is Gaussian given what came before, so a run on D can be replayed on its neighbour D′ with the
released values forced: that gives the exact distance of the two worlds at every release, and the exact
log-likelihood ratio, which is the best attack there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import beta, norm

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models.generalised_linear import LinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.records.neighbouring import Neighbouring
from gratis.stages.staged import fit_stages, plan_stages

MU = 2.0
RELATIONS = list(Neighbouring)


@dataclass(frozen=True)
class Fixed:
    learning_rate: float = 0.3
    evidence: tuple = ()

    def clip_norm(self, effective_dimension):
        return 0.5 * math.sqrt(effective_dimension)


class Recorder:
    """Releases with (possibly scaled) noise and keeps what went in and came out."""

    def __init__(self, seed, noise_scale=1.0):
        self.source, self.noise_scale, self.tape = NoiseSource.insecure(seed), noise_scale, []

    def release(self, values, std):
        released = self.source.release(values, std * self.noise_scale)
        self.tape.append((np.array(values), released, std))
        return released


class Replay:
    """Answers with recorded releases and keeps the statistics of the data it sees."""

    def __init__(self, tape):
        self.answers, self.seen = [released for _, released, _ in tape], []

    def release(self, values, std):
        self.seen.append(np.array(values))
        return self.answers[len(self.seen) - 1]


def settings_of(spectrum, plan):
    return Fixed()


def run(plan, data, model, noise):
    return fit_stages(Rows.held(*data), plan, model, settings_of, noise=noise)


def transcript(plan, data, other, model, seed, noise_scale=1.0):
    """Return (Σ‖Δ‖²/σ², log-likelihood ratio of data against other)."""
    recorder = Recorder(seed, noise_scale)
    run(plan, data, model, recorder)
    replay = Replay(recorder.tape)
    run(plan, other, model, replay)
    distance = ratio = 0.0
    for (mine, released, std), theirs in zip(recorder.tape, replay.seen, strict=True):
        distance += float(np.square(mine - theirs).sum()) / std**2
        ratio += float((np.square(released - theirs) - np.square(released - mine)).sum()) / (2 * std**2)
    return distance, ratio


def neighbours(relation, n=6, columns=2, value=1.0):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, columns)) * 0.1, rng.standard_normal(n) * 0.1
    X[0], y[0] = 1e3 * value, 1e3
    X2, y2 = X.copy(), y.copy()
    if relation is Neighbouring.ZERO_OUT:
        X2[0], y2[0] = np.nan, np.nan  # an unusable record is a record that contributes nothing
    else:
        X2[0], y2[0] = np.array([-3.0, 3.0]) * value, -3.0  # another octave, orthogonal, opposite target
    return (X, y), (X2, y2)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("options", [{}, {"precondition": False}, {"standardise": False}])
def test_every_transcript_stays_within_mu(relation, options):
    plan = plan_stages(6, 2, mu=MU, neighbouring=relation, steps=6, **options)
    worst = 0.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        data, other = neighbours(relation, value=10.0 ** rng.integers(-6, 7))
        if seed % 3 == 0 and relation is Neighbouring.REPLACE_ONE:
            other[0][0] = rng.choice([0.0, 1e300, np.inf, np.nan, -1e-300], 2)
            other[1][0] = rng.choice([0.0, 1e300, np.inf, np.nan])
        distance, _ = transcript(plan, data, other, LinearModel(), seed)
        assert distance <= MU**2 * (1 + 1e-9)
        worst = max(worst, distance)
    assert worst > 0.3 * MU**2  # the neighbours do stress it


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_transcript_of_a_classifier_stays_within_mu(relation):
    plan = plan_stages(6, 2, mu=MU, neighbouring=relation, steps=6, outputs=3, regression=False)
    for seed in range(40):
        (X, _), (X2, _) = neighbours(relation, value=10.0 ** (seed % 9 - 4))
        labels = np.arange(6) % 3
        labels2 = labels.astype(float)
        labels2[0] = [2, np.nan, 7, -1][seed % 4]
        distance, _ = transcript(plan, (X, labels), (X2, labels2), SoftmaxModel(3), seed)
        assert distance <= MU**2 * (1 + 1e-9)


def audited_mu(relation, noise_scale, runs):
    """Return a 99 % lower bound on μ from the likelihood-ratio attack (μ ≥ Φ⁻¹(power) − Φ⁻¹(size))."""
    plan = plan_stages(6, 2, mu=MU, neighbouring=relation, steps=4)
    data, other = neighbours(relation)
    inside = [transcript(plan, data, other, LinearModel(), s, noise_scale)[1] for s in range(runs)]
    outside = [-transcript(plan, other, data, LinearModel(), runs + s, noise_scale)[1] for s in range(runs)]
    hits, alarms = int(np.sum(np.array(inside) > 0)), int(np.sum(np.array(outside) > 0))
    power = beta.ppf(0.005, hits, runs - hits + 1)
    size = beta.ppf(0.995, alarms + 1, runs - alarms)
    return float(norm.ppf(power) - norm.ppf(size))


@pytest.mark.statistical(failure=0.01)
@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_audit_stays_below_the_proved_mu(relation):
    assert 0.25 * MU < audited_mu(relation, 1.0, 100) <= MU


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
@pytest.mark.parametrize(("relation", "runs"), [(Neighbouring.REPLACE_ONE, 400), (Neighbouring.ZERO_OUT, 150)])
def test_negative_control_halved_noise_is_caught(relation, runs):
    assert audited_mu(relation, 0.5, runs) > MU


def test_negative_control_a_stage_without_clipping_is_caught(monkeypatch):
    import gratis.mechanisms.second_moments as module

    monkeypatch.setattr(module, "clipped_outer_products", lambda X: np.nan_to_num(X).T @ np.nan_to_num(X))
    plan = plan_stages(6, 2, mu=MU, neighbouring=Neighbouring.REPLACE_ONE, steps=2, standardise=False)
    data, other = neighbours(Neighbouring.REPLACE_ONE)
    assert transcript(plan, data, other, LinearModel(), 0)[0] > MU**2
