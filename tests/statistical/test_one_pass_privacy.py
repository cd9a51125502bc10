"""Distinguishing tests of the real trainer on worst-case neighbours, with negative controls that must be caught.

The stream is that of docs/theory/one-pass.md, statement 4: n = d = 100, all noise at the end. Record 1 differs and sets
the runs 2a apart; each later record x_k is long and almost orthogonal to their difference. Under the cap such a step is
too short to matter (the difference stays 2a: the bound ρ is attained); without the cap both runs move a full clipped
step in opposite directions and the difference grows as 2a√k.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gratis.accounting.iteration import amplification_by_iteration
from gratis.mechanisms.noise import NoiseSource
from gratis.records.events import OnePassIteration
from gratis.records.sequences import Runs
from gratis.stages.one_pass import OnePassLoss, OnePassTrainer

N = D = 100
RUNS = 2000
LENGTH, LEAN = 1e3, 1e-2


class HalfNoise(NoiseSource):
    """Negative control: adds half of the noise that the event declares."""

    def normal(self, std, shape):
        return super().normal(std / 2, shape)


def advance_without_cap(theta, pending, X, y, first_row, batch, steps, clips, stds, normals, *_):
    """Negative control: the clipped step of the same stream, without min(η, 2/‖x‖²)."""
    for x, label, eta, clip in zip(X, y, steps, clips, strict=True):
        norm = np.linalg.norm(x)
        theta -= eta * np.clip(x @ theta - label, -clip / norm, clip / norm) * x
    return len(X), 0


def output_perturbation(rho, a=1.0):
    return OnePassIteration(
        step_sizes=Runs.constant(a, N), clip_norms=Runs.constant(1.0, N),
        noise_stds=Runs((0.0, 2 * a / rho * 1.001), (N - 1, 1)), rounding_inflation=1.001, neighbouring="replace-one",
    )  # fmt: skip


def adversarial_stream(capped, a=1.0):
    """Return (X, y, other first label, difference of the two noiseless outputs), computed here step by step."""
    X, y = np.zeros((N, D)), np.zeros(N)
    X[0, 0], y[0] = 1.0, 1e6
    pair = np.zeros((2, D))
    pair[:, 0] = a, -a
    for k in range(1, N):
        difference = pair[0] - pair[1]
        direction = LEAN * difference / np.linalg.norm(difference)
        direction[k] += math.sqrt(1 - LEAN**2)
        X[k] = LENGTH * direction / np.linalg.norm(direction)
        y[k] = X[k] @ pair.mean(axis=0)
        slope = np.clip(pair @ X[k] - y[k], -1 / LENGTH, 1 / LENGTH)
        pair = pair - (min(a, 2 / LENGTH**2) if capped else a) * slope[:, None] * X[k]
    return X, y, -y[0], pair[0] - pair[1]


def scores(event, X, y, direction, source, seed):
    result = np.empty(RUNS)
    for i in range(RUNS):
        trainer = OnePassTrainer(event, OnePassLoss.SQUARED, n_features=D, noise=source.insecure(seed + i))
        trainer.consume(X, y)
        result[i] = trainer.release() @ direction
    return result


def mu_and_lower_bound(first, second, threshold):
    """μ of the test `score > threshold`, and its 99 % lower bound (Clopper–Pearson on both error rates)."""
    hits, false = int(np.sum(first > threshold)), int(np.sum(second > threshold))
    sure = [
        stats.binomtest(hits, len(first)).proportion_ci(0.99).low,
        stats.binomtest(false, len(second)).proportion_ci(0.99).high,
    ]
    smoothed = [(hits + 0.5) / (len(first) + 1), (false + 0.5) / (len(second) + 1)]
    quantile = stats.norm.ppf
    return float(quantile(smoothed[0]) - quantile(smoothed[1])), float(quantile(sure[0]) - quantile(sure[1]))


def distinguish(event, X, y, other, difference, *, source=NoiseSource, middle=None):
    direction = difference / np.linalg.norm(difference)
    neighbour = y.copy()
    neighbour[0] = other
    first = scores(event, X, y, direction, source, 10_000)
    second = scores(event, X, neighbour, direction, source, 50_000)
    middle = (np.median(first) + np.median(second)) / 2 if middle is None else middle
    return mu_and_lower_bound(first, second, middle)


@pytest.mark.statistical(failure=0.01)
@pytest.mark.slow
def test_the_trainer_keeps_its_promise_and_attains_it_on_the_adversarial_stream():
    event = output_perturbation(rho=1.0)
    rho = amplification_by_iteration(event)
    stream = adversarial_stream(capped=True)
    assert np.linalg.norm(stream[3]) == pytest.approx(2.0, rel=1e-4)
    estimate, lower = distinguish(event, *stream)
    assert lower <= rho
    assert estimate >= 0.8 * rho


@pytest.mark.statistical(failure=1e-6)
@pytest.mark.slow
def test_leaving_the_cap_out_is_caught(monkeypatch):
    monkeypatch.setattr("gratis.stages.one_pass_kernels.advance", advance_without_cap)
    monkeypatch.setitem(globals(), "RUNS", 400)
    event = output_perturbation(rho=1.0)
    stream = adversarial_stream(capped=False)
    assert np.linalg.norm(stream[3]) > 0.9 * 2 * math.sqrt(N)  # the true μ is about √n times ρ
    _, lower = distinguish(event, *stream)
    assert lower > 3 * amplification_by_iteration(event)


@pytest.mark.statistical(failure=0.01)
@pytest.mark.slow
def test_the_capped_trainer_does_not_fall_for_the_stream_that_breaks_the_uncapped_one():
    event = output_perturbation(rho=1.0)
    X, y, other, difference = adversarial_stream(capped=False)
    _, lower = distinguish(event, X, y, other, difference)
    assert lower <= amplification_by_iteration(event)


@pytest.mark.statistical(failure=1e-6)
@pytest.mark.slow
def test_half_the_noise_is_caught():
    event = output_perturbation(rho=1.0)
    _, lower = distinguish(event, *adversarial_stream(capped=True), source=HalfNoise)
    assert lower > 1.5 * amplification_by_iteration(event)


def blocks():
    """Five blocks of 20 steps with falling step size and rising clip, and the least noise, worked out here."""
    block = np.arange(N) // 20
    eta, clip = 1 / (1 + block), 1 + 0.2 * block
    square = (2 * eta * clip) ** 2
    variance = square - np.append(square[1:], 0.0)
    assert np.count_nonzero(variance) == 5
    made = OnePassIteration(
        step_sizes=Runs.of(eta), clip_norms=Runs.of(clip), noise_stds=Runs.of(np.sqrt(variance)),
        rounding_inflation=1.001, neighbouring="replace-one",
    )  # fmt: skip
    X, y = np.zeros((N, D)), np.zeros(N)
    X[0, 0], y[0] = 0.1, 1e6  # short enough that the cap is idle at five times the step
    return made, X, y


@pytest.mark.statistical(failure=0.01)
@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 5])
def test_noise_inside_the_pass_counts_as_the_formula_says(batch):
    """Later rows are 0, so nothing is contracted and ρ = κa_1/√Σs² is attained; mini-batches divide a by b."""
    event, X, y = blocks()
    if batch > 1:
        k = np.arange(0, N, batch)
        event = OnePassIteration(
            step_sizes=Runs.of(event.step_sizes.array()[k] * batch), clip_norms=Runs.of(event.clip_norms.array()[k]),
            noise_stds=Runs.of(event.noise_stds.array()[batch - 1 :: batch]), batch_size=batch,
            rounding_inflation=1.001, neighbouring="replace-one",
        )  # fmt: skip
    rho = amplification_by_iteration(event)
    assert rho == pytest.approx(1.001, rel=1e-9)
    estimate, lower = distinguish(event, X, y, -y[0], np.eye(D)[0], middle=0.0)
    assert lower <= rho
    assert estimate >= 0.8 * rho


@pytest.mark.statistical(failure=1e-6)
@pytest.mark.slow
def test_forgetting_the_noise_inside_the_pass_is_caught():
    event, X, y = blocks()
    last_only = replace(event, noise_stds=Runs((0.0, event.noise_stds.values[-1]), (N - 1, 1)))
    _, lower = distinguish(last_only, X, y, -y[0], np.eye(D)[0], middle=0.0)
    assert lower > 1.5 * amplification_by_iteration(event)
