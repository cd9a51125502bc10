"""A whole linear fit as one mechanism, on worst-case neighbours at small n.

Every release is Gaussian given what came before, so a run on D can be replayed on its neighbour D′ with the
released values forced: that gives the exact distance of the two worlds at every release, and the exact
log-likelihood ratio, which is the best attack there is.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.stats import beta, norm

from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.models import linear as module
from gratis.models.linear import linear
from gratis.private import bounds
from gratis.private.reading import Reading
from gratis.private.session import plan, run
from gratis.recipes.logistic import StagedLogistic
from gratis.recipes.recipe import left_out
from gratis.records.budget import Budget
from gratis.records.facts import Facts
from gratis.records.neighbouring import Neighbouring
from gratis.records.settings import Descent

MU = 2.0
RELATIONS = list(Neighbouring)


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


def fit_of(relation, *, steps, standardise=True):
    """A linear fit of 6 × 2 as a function of rows and noise."""
    model = partial(linear, mu=MU, reading=Reading(standardise=standardise), descent=Descent(steps=steps))
    planned = plan(model, 6, 2, relation)
    return lambda data, noise: run(model, Rows.held(*data), relation, noise, planned=planned)


def transcript(fit, data, other, seed, noise_scale=1.0):
    """Return (Σ‖Δ‖²/σ², log-likelihood ratio of data against other)."""
    recorder = Recorder(seed, noise_scale)
    fit(data, recorder)
    replay = Replay(recorder.tape)
    fit(other, replay)
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
@pytest.mark.parametrize("way", ["whole", "wide", "public scales"])
def test_every_transcript_stays_within_mu(relation, way, monkeypatch):
    if way == "wide":
        monkeypatch.setattr(module, "second_moments_pay", lambda *_: False)
    fit = fit_of(relation, steps=6, standardise=way != "public scales")
    worst = 0.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        data, other = neighbours(relation, value=10.0 ** rng.integers(-6, 7))
        if seed % 3 == 0 and relation is Neighbouring.REPLACE_ONE:
            other[0][0] = rng.choice([0.0, 1e300, np.inf, np.nan, -1e-300], 2)
            other[1][0] = rng.choice([0.0, 1e300, np.inf, np.nan])
        distance, _ = transcript(fit, data, other, seed)
        assert distance <= MU**2 * (1 + 1e-9)
        worst = max(worst, distance)
    assert worst > 0.3 * MU**2  # the neighbours do stress it


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_transcript_of_a_classifier_stays_within_mu(relation):
    facts, budget = Facts(rows=6, columns=2, classes=3), Budget(mu=MU, neighbouring=relation)
    recipe = StagedLogistic(facts, budget, Reading(), Descent(steps=6))

    def fit(data, noise):
        return recipe.run(Rows.held(*left_out(*data, impute=False)), noise=noise)

    for seed in range(40):
        (X, _), (X2, _) = neighbours(relation, value=10.0 ** (seed % 9 - 4))
        labels = np.arange(6) % 3
        labels2 = labels.astype(float)
        labels2[0] = [2, np.nan, 7, -1][seed % 4]
        distance, _ = transcript(fit, (X, labels), (X2, labels2), seed)
        assert distance <= MU**2 * (1 + 1e-9)


def audited_mu(relation, noise_scale, runs):
    """Return a 99 % lower bound on μ from the likelihood-ratio attack (μ ≥ Φ⁻¹(power) − Φ⁻¹(size))."""
    fit = fit_of(relation, steps=4)
    data, other = neighbours(relation)
    inside = [transcript(fit, data, other, s, noise_scale)[1] for s in range(runs)]
    outside = [-transcript(fit, other, data, runs + s, noise_scale)[1] for s in range(runs)]
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


def test_negative_control_a_step_without_clipping_is_caught(monkeypatch):
    monkeypatch.setattr(bounds, "_in_ball", lambda rows, present: np.nan_to_num(rows))
    data, other = neighbours(Neighbouring.REPLACE_ONE)
    fit = fit_of(Neighbouring.REPLACE_ONE, steps=2, standardise=False)
    assert transcript(fit, data, other, 0)[0] > MU**2
