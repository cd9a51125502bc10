from __future__ import annotations

import math

import numba
import numpy as np
import pytest
from scipy import stats
from scipy.special import erf

from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis.records.sequences import Runs
from gratis_papers.one_pass_runs import simulate_one_pass


def event_of(n, eta, clip, std, **changes):
    k = np.arange(n)
    return OnePassIteration(
        step_sizes=Runs.of(eta * (1 - k // 10 * 10 / n)), clip_norms=Runs.constant(clip, n),
        noise_stds=Runs.of(np.where(k % 10 == 9, std, 0.0)), neighbouring="replace-one", **changes,
    )  # fmt: skip


def plain_loop(event, spectrum, target, label_std, repetitions, record, rng):
    """All repetitions at once in NumPy, one step at a time."""
    theta = np.zeros((repetitions, len(spectrum)))
    result = []
    sequences = zip(event.step_sizes.array(), event.clip_norms.array(), event.noise_stds.array(), strict=True)
    for k, (eta, clip, std) in enumerate(sequences, start=1):
        move = np.zeros_like(theta)
        for _ in range(event.batch_size):
            X = rng.standard_normal(theta.shape) * np.sqrt(spectrum)
            slope = np.sum(X * (theta - target), axis=1) - label_std * rng.standard_normal(repetitions)
            norm = np.linalg.norm(X, axis=1)
            slope = np.clip(slope, -clip / norm, clip / norm) * np.minimum(eta, 2 / norm**2)
            move += slope[:, None] * X
        theta = theta - move / event.batch_size + std * rng.standard_normal(theta.shape)
        if k in record:
            result.append(0.5 * np.sum(spectrum * (theta - target) ** 2, axis=1))
    return np.stack(result, axis=1)


DISTINCT = np.array([3.0, 1.0, 0.5, 0.25, 0.0])
REPEATED = np.repeat([2.0, 1.0, 0.5, 0.1], [1, 2, 3, 14])  # χ² with 0, 1, 2 and 13 degrees of freedom


@pytest.mark.slow(but=["2.0-spectrum0-1", "0.02-spectrum0-1", "0.02-spectrum1-3"])
@pytest.mark.parametrize(("spectrum", "batch"), [(DISTINCT, 1), (DISTINCT, 3), (REPEATED, 1), (REPEATED, 3)])
@pytest.mark.parametrize("eta", [0.02, 2.0])
def test_agrees_with_a_plain_loop(spectrum, batch, eta):
    """At η = 2 the cap acts on nearly every row; 99.99 % bands on means, and the whole law at the end."""
    n, target = 60, np.resize([0.5, -0.5, 1.0, 0.1, 0.3], spectrum.size) / 2
    event, record, runs = event_of(n, eta, 1.5, 0.05, batch_size=batch), [20, 60], 4000
    got = simulate_one_pass(
        [event], eigenvalues=spectrum, target=target, label_noise_variance=0.09, repetitions=runs,
        record_steps=record, rng=np.random.default_rng(0),
    )[0]  # fmt: skip
    expected = plain_loop(event, spectrum, target, 0.3, runs, record, np.random.default_rng(1))
    spread = np.sqrt((got.var(axis=0) + expected.var(axis=0)) / runs)
    assert np.all(np.abs(got.mean(axis=0) - expected.mean(axis=0)) < 4 * spread)
    assert stats.ks_2samp(got[:, 1], expected[:, 1]).pvalue > 1e-3


def test_agrees_with_the_deterministic_equivalent_of_spec_3_2():
    """Isotropic, constant step, output perturbation: one scalar ODE, integrated here."""
    n, d, rate, c, zeta2, rho = 4000, 400, 2.0, 0.5, 0.25, 0.5
    gamma, clip = d / n, c * math.sqrt(d)
    event = OnePassIteration(
        step_sizes=Runs.constant(rate / n, n), clip_norms=Runs.constant(clip, n),
        noise_stds=Runs((0.0, 2 * rate / n * clip / rho), (n - 1, 1)), neighbouring="replace-one",
    )  # fmt: skip
    risk = simulate_one_pass(
        [event], eigenvalues=np.ones(d), target=np.full(d, d**-0.5), label_noise_variance=zeta2, repetitions=40,
        record_steps=[n - 1, n], rng=np.random.default_rng(0),
    )[0]  # fmt: skip
    R, pieces = 0.5, 4000
    for _ in range(pieces):
        P = R + zeta2 / 2
        u = c / math.sqrt(2 * P)
        descent = erf(u / math.sqrt(2))
        variance = descent - math.sqrt(2 / math.pi) * u * math.exp(-u * u / 2) + u * u * (1 - descent)
        R += (-2 * rate * descent * R + gamma * rate**2 * variance * P) / pieces
    assert risk[:, 0].mean() == pytest.approx(R, rel=0.02)
    assert risk[:, 1].mean() == pytest.approx(R + 2 * gamma**2 * c**2 * rate**2 / rho**2, rel=0.02)


def test_runs_depend_on_the_seed_only_not_on_threads():
    event = event_of(50, 0.05, 1.0, 0.1)
    options = {
        "eigenvalues": np.ones(6), "target": np.ones(6), "label_noise_variance": 0.1, "repetitions": 5,
        "record_steps": [0, 10, 50],
    }  # fmt: skip
    first = simulate_one_pass([event, event], rng=np.random.default_rng(3), **options)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        second = simulate_one_pass([event, event], rng=np.random.default_rng(3), **options)
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first[:, :, 0], 3.0, rtol=1e-6)
    assert len(np.unique(first[:, :, 2])) == 10


def test_bad_requests_are_refused():
    event, other = event_of(50, 0.05, 1.0, 0.1), event_of(40, 0.05, 1.0, 0.1)
    good = {
        "eigenvalues": np.ones(3), "target": np.ones(3), "label_noise_variance": 0.1, "repetitions": 1,
        "record_steps": [50], "rng": np.random.default_rng(0),
    }  # fmt: skip
    for events, change in (
        ([], {}), ([event, other], {}), ([event], {"eigenvalues": -np.ones(3)}), ([event], {"target": np.ones(2)}),
        ([event], {"record_steps": [51]}), ([event], {"record_steps": [5, 5]}), ([event], {"repetitions": 0}),
        ([event], {"label_noise_variance": -1.0}),
    ):  # fmt: skip
        with pytest.raises(GratisError):
            simulate_one_pass(events, **(good | change))
