from __future__ import annotations

import numpy as np
import pytest
import torch

from gratis.accounting.network_descent import network_descent_event
from gratis.mechanisms.noise import NoiseSource
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.stages.networks import train_full_batch
from gratis_papers.gradient_spectrum import GradientRecorder
from gratis_papers.spectrum_recording import TappedNoise


def trained(noise: NoiseSource, steps: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    event = network_descent_event(80, steps, mu=5.0, neighbouring=Neighbouring.ZERO_OUT)
    train_full_batch(module, X, y, event=event, clip_norm=0.5, learning_rates=1.0, noise=noise)
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


def tap(**settings: object) -> TappedNoise:
    return TappedNoise(NoiseSource.insecure(1), allow_non_private_diagnostics=True, **settings)  # type: ignore[arg-type]


def test_recording_changes_nothing_that_is_released() -> None:
    recorder = GradientRecorder(47, allow_non_private_diagnostics=True)
    np.testing.assert_array_equal(trained(tap(recorder=recorder, scale=0.5)), trained(NoiseSource.insecure(1)))
    assert len(recorder) == 12
    # What was recorded is the mean clipped gradient: its norm is at most the clip norm.
    assert 0 < max(np.linalg.norm(row) for row in recorder._rows) <= 0.5


def test_projection_keeps_the_noise_isotropic_and_full_rank_changes_nothing() -> None:
    np.testing.assert_allclose(trained(tap(directions=np.eye(47))), trained(NoiseSource.insecure(1)), atol=1e-6)
    direction = np.zeros((1, 3))
    direction[0, 0] = 1.0
    quiet, loud = tap(directions=direction), NoiseSource.insecure(1)
    np.testing.assert_allclose(quiet.release([2.0, 5.0, -7.0], 1.0), loud.release([2.0, 0.0, 0.0], 1.0))


def test_a_second_pass_repeats_the_run_exactly() -> None:
    recorder = GradientRecorder(47, allow_non_private_diagnostics=True, sketch_size=40)
    trained(tap(recorder=recorder))
    second = recorder.second_pass(4)
    trained(tap(recorder=second))
    basis = second.directions()
    np.testing.assert_allclose(basis @ basis.T, np.eye(4), atol=1e-5)


def test_no_flag_no_tap_and_no_certificate() -> None:
    with pytest.raises(GratisError, match="allow_non_private_diagnostics"):
        TappedNoise(NoiseSource.insecure(0))
    with pytest.raises(GratisError, match="no certificate"):
        tap().describe()
    assert not tap().is_secure
    assert "DIAGNOSTIC" in repr(tap())
