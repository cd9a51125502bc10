"""The noise source: its law, its grid, and what it refuses. Statistical tests use a fixed insecure seed."""

from __future__ import annotations

import copy
import math
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from gratis.mechanisms import noise
from gratis.mechanisms.noise import DRAWS, GRID_BITS, NoiseSource, noise_source, snap
from gratis.records.errors import GratisError


def looks_normal(sample: np.ndarray, std: float) -> bool:
    return bool(stats.kstest(sample / std, "norm").pvalue > 1e-3)


def test_law_with_negative_control() -> None:
    sample = NoiseSource.insecure(7).normal(3.0, 200_000)
    assert looks_normal(sample, 3.0)
    assert not looks_normal(sample, 3.0 * 1.02)
    assert not looks_normal(sample / 2, 3.0)
    assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 0.01


def test_release_is_unbiased_noise_on_a_public_grid() -> None:
    std = 0.37
    values = np.full(100_000, 1 / 3)
    out = NoiseSource.insecure(8).release(values, std)
    step = 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
    assert np.array_equal(out, np.rint(out / step) * step)
    assert looks_normal(out - 1 / 3, std)


def test_grid_hides_low_order_bits() -> None:
    """Neighbours that differ in low bits reach the same set of outputs; without the grid they do not."""
    a, b = 1.0, 1.0 + 2.0**-40
    noise = NoiseSource.insecure(9).normal(1.0, 2000)

    def low_bits(x: np.ndarray) -> set[int]:
        return set((np.rint(x * 2.0**60).astype(object) % (2**10)).tolist())

    assert low_bits(snap(a + noise, 1.0)) == low_bits(snap(b + noise, 1.0)) == {0}
    assert len(low_bits(a + noise)) > 1  # negative control: raw sums show their bits


def test_non_finite_values_count_as_zero() -> None:
    out = NoiseSource.insecure(1).release(np.array([np.nan, np.inf, -np.inf, 1e308]), 1.0)
    assert np.all(np.isfinite(out))
    assert np.all(np.abs(out[:3]) < 10)


def test_perturb_is_release_before_its_grid() -> None:
    values = np.array([1.0, np.nan, -3.0])
    noised = NoiseSource.insecure(4).perturb(values, 0.7)
    assert np.array_equal(snap(noised, 0.7), NoiseSource.insecure(4).release(values, 0.7))
    assert not np.array_equal(snap(noised, 0.7), noised)
    assert np.allclose(noised - NoiseSource.insecure(4).normal(0.7, 3), [1.0, 0.0, -3.0])


@pytest.mark.secure_noise
def test_two_secure_sources_differ_and_one_does_not_repeat() -> None:
    first, second = NoiseSource.secure(), NoiseSource.secure()
    assert first.is_secure
    draws = [first.normal(1.0, 8), first.normal(1.0, 8), second.normal(1.0, 8)]
    assert len({d.tobytes() for d in draws}) == 3
    assert np.array_equal(NoiseSource.insecure(3).normal(1.0, 4), NoiseSource.insecure(3).normal(1.0, 4))


@pytest.mark.secure_noise
def test_a_seed_is_refused_unless_the_caller_insists() -> None:
    with pytest.raises(GratisError, match="predictable"):
        noise_source(5)
    with pytest.raises(GratisError):
        noise_source(None, insecure_reproducible=True)
    insecure = noise_source(5, insecure_reproducible=True)
    assert not insecure.is_secure
    assert insecure.describe()["secure"] is False
    assert "INSECURE" in repr(insecure)
    assert noise_source().is_secure


@pytest.mark.secure_noise
def test_a_source_cannot_be_copied() -> None:
    source = NoiseSource.secure()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(GratisError, match="copied"):
            duplicate(source)


@pytest.mark.secure_noise
def test_a_forked_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = NoiseSource.secure()
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(GratisError, match="forked"):
        source.normal(1.0, 2)


@pytest.mark.parametrize("std", [1e-300, 1e-5, 1.0, 1e5, 1e300])
def test_snap_is_harmless_at_every_scale(std: float) -> None:
    x = np.array([0.0, std, -1.7 * std, 12.3 * std])
    assert np.all(np.abs(snap(x, std) - x) <= std * 2.0**-GRID_BITS)


def test_zero_noise_is_exact() -> None:
    assert np.array_equal(NoiseSource.insecure(1).release([1.5, 2.5], 0.0), [1.5, 2.5])


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    threaded = NoiseSource.insecure(4).normal(1.0, 1000)
    monkeypatch.setattr(noise, "_WORTH_A_THREAD", 1)
    assert np.array_equal(NoiseSource.insecure(4).normal(1.0, 1000), threaded)


@pytest.mark.statistical(failure=1e-8)
def test_the_draws_of_a_sum_are_different_streams() -> None:
    """Twice the same stream would double one draw: variance 2σ², and a single draw to invert."""
    streams = [g.standard_normal(100_000) for g in NoiseSource.secure()._generators]
    assert len(streams) == DRAWS
    assert abs(np.corrcoef(streams)[0, 1]) < 0.02
    assert not set(streams[0]) & set(streams[1])


@pytest.mark.statistical(failure=1e-8)
def test_large_noise_has_the_announced_scale() -> None:
    drawn = NoiseSource.secure().normal(3.0, 200_000)
    assert drawn.std() == pytest.approx(3.0, rel=0.01)
    assert abs(drawn.mean()) < 0.05
