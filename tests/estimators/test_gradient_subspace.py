"""Recorded gradients: what stands out of the noise, training in k directions, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gratis  # noqa: E402
from gratis.cli.program import run  # noqa: E402
from gratis.estimators.gradient_subspace import read_gradients  # noqa: E402
from gratis.models.mlp import build_mlp  # noqa: E402
from gratis.planning.bounds.gradient_spectrum import spectrum_of_gradients  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 8)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def loop_for(module: Any, **settings: Any) -> Any:
    budget = gratis.Budget(epsilon=8.0, delta=1e-5, neighbouring="zero-out")
    given = {"budget": budget, "steps": 12, "clip_norm": 0.5, "noise_seed": 1, "insecure_reproducible": True}
    return gratis.privatise(module, X, Y, **given | settings)


def spiked(strengths: list[float], noise: float, r: int = 60, p: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    left, right = (np.linalg.qr(rng.standard_normal((size, len(strengths))))[0] for size in (r, p))
    exact = (left * strengths) @ right.T
    return exact, exact + noise * rng.standard_normal((r, p))


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_noise_is_told_from_gradients_and_what_a_subspace_keeps_is_foretold(noise: float) -> None:
    strengths = [100.0, 60.0, 40.0, 25.0, 3.0]
    exact, rows = spiked(strengths, noise)
    spectrum = spectrum_of_gradients(rows, noise_std=noise)
    # The last one lies under the noise's edge (5.5 and 16 at these settings) unless there is none.
    assert spectrum.standing_out() == (5 if noise == 0 else 4)
    np.testing.assert_allclose(spectrum.signal_values(), strengths[: spectrum.standing_out()], rtol=0.04)
    for k in (1, 2, 4):
        inside = exact @ gratis.Subspace.of_gradients(rows, k).directions.T
        assert spectrum.kept(k) == pytest.approx(float((inside**2).sum() / (exact**2).sum()), abs=0.02)
    if noise:
        # Negative control: noise taken for gradients promises more than there is.
        assert spectrum_of_gradients(rows).standing_out() == 60


@pytest.mark.parametrize("noise", [1e-200, 1e200])
def test_noise_of_any_size(noise: float) -> None:
    _, rows = spiked([100.0, 60.0, 40.0, 25.0, 3.0], 0.0)
    spectrum = spectrum_of_gradients(rows, noise_std=noise)
    if noise > 1:
        assert (spectrum.signal_values().size, spectrum.recommended(), spectrum.kept(1)) == (0, None, 0.0)
    else:
        exact = spectrum_of_gradients(rows)
        np.testing.assert_allclose(spectrum.signal_values(), exact.signal_values())
        assert spectrum.kept(2) == pytest.approx(exact.kept(2))


def test_gradients_of_any_type_and_modules_without_any() -> None:
    module = torch.nn.Linear(3, 2).to(torch.bfloat16)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    recorder = gratis.SpectrumRecorder(module)
    recorder.record()
    assert recorder.gradients.dtype == np.float32
    assert recorder.spectrum().singular_values[0] == pytest.approx(8**0.5)
    gratis.Subspace(np.eye(8)).project(module)
    assert all(p.grad is not None and p.grad.dtype == torch.bfloat16 for p in module.parameters())
    for fixed in (torch.nn.ReLU(), torch.nn.Linear(3, 2).requires_grad_(False)):
        with pytest.raises(gratis.GratisError, match="no trainable parameters"):
            gratis.SpectrumRecorder(fixed)
        with pytest.raises(gratis.GratisError, match="no trainable parameters"):
            gratis.Subspace(np.eye(8)).project(fixed)


def test_infinite_gradients_have_no_spectrum_and_no_subspace() -> None:
    module = torch.nn.Linear(3, 2)
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, torch.inf)
    recorder = gratis.SpectrumRecorder(module)
    recorder.record()
    for asked in (recorder.spectrum, lambda: recorder.subspace(1)):
        with pytest.raises(gratis.GratisError, match="finite numbers"):
            asked()


def test_pure_noise_recommends_nothing() -> None:
    rows = np.random.default_rng(1).standard_normal((40, 500))
    spectrum = spectrum_of_gradients(rows, noise_std=1.0)
    assert (spectrum.standing_out(), spectrum.recommended(), spectrum.kept(1)) == (0, None, 0.0)


@pytest.mark.parametrize("settings", [{}, {"batch_size": 60, "noise_multiplier": 2.0}], ids=["full batch", "Poisson"])
def test_the_loop_says_its_noise(settings: dict[str, Any]) -> None:
    """With the targets all invalid every record adds zero: what is released is noise alone, of the stated size."""
    module = build_mlp([8, 200, 2])
    loop = gratis.privatise(
        module, X, np.full(300, -1), budget=gratis.Budget(epsilon=8.0, delta=1e-5, neighbouring="zero-out"), steps=4,
        clip_norm=0.5, noise_seed=3, insecure_reproducible=True, **settings,
    )  # fmt: skip
    recorder = gratis.SpectrumRecorder(module, noise_std=loop.noise_std)
    for _ in loop:
        recorder.record()
    # 8808 coordinates a step: a relative standard error of .0038; five of them are allowed.
    assert recorder.gradients.std() == pytest.approx(loop.noise_std, rel=5 * 0.0038)
    assert recorder.spectrum().standing_out() == 0


def test_recording_and_full_projection_change_nothing_and_a_subspace_is_stayed_in() -> None:
    def trained(k: int | None, directions: Any = None) -> Any:
        module = build_mlp([8, 4, 2], seed=1)
        start = torch.cat([p.detach().flatten() for p in module.parameters()]).numpy().copy()
        loop, optimiser = loop_for(module), torch.optim.SGD(module.parameters(), lr=0.5)
        recorder = gratis.SpectrumRecorder(module, noise_std=loop.noise_std)
        for _ in loop:
            if k is not None:
                recorder.record()
            if directions is not None:
                directions.project(module)
            optimiser.step()
        return recorder, torch.cat([p.detach().flatten() for p in module.parameters()]).numpy() - start

    recorder, moved = trained(3)
    np.testing.assert_array_equal(moved, trained(None)[1])
    whole = gratis.Subspace(np.eye(len(moved)))
    np.testing.assert_allclose(trained(None, whole)[1], moved, atol=1e-6)
    few = recorder.subspace(3)
    inside = trained(None, few)[1]
    np.testing.assert_allclose(few.projected(inside), inside, atol=1e-5)
    assert np.linalg.norm(few.projected(moved)) < np.linalg.norm(moved)


def test_projection_raises_no_norm(rng: np.random.Generator) -> None:
    few = gratis.Subspace.of_gradients(rng.standard_normal((20, 50)), 7)
    for vector in (rng.standard_normal(50), few.directions[0], np.zeros(50)):
        assert np.linalg.norm(few.projected(vector)) <= np.linalg.norm(vector) * (1 + 1e-5)


def test_refusals(tmp_path: Path) -> None:
    module = build_mlp([8, 2])
    recorder = gratis.SpectrumRecorder(module)
    with pytest.raises(gratis.GratisError, match="holds no gradient"):
        recorder.record()
    with pytest.raises(gratis.GratisError, match="nothing was recorded"):
        recorder.spectrum()
    with pytest.raises(gratis.GratisError, match="orthonormal"):
        gratis.Subspace([[1.0, 1.0]])
    with pytest.raises(gratis.GratisError, match="span 1 directions"):
        gratis.Subspace.of_gradients(np.ones((5, 4)), 2)
    with pytest.raises(gratis.GratisError, match="vector of 2"):
        gratis.Subspace([[1.0, 0.0]]).projected([1.0])
    (tmp_path / "x.npy").write_text("no")
    for call in (gratis.Subspace.load, read_gradients):
        with pytest.raises(gratis.GratisError, match=r"x\.npy"):
            call(tmp_path / "x.npy")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = spiked([100.0, 60.0, 40.0, 25.0, 3.0], 0.1)
    np.save(tmp_path / "g.npy", rows)
    bound = ["--clip-norm", "1", "--n", "5000", "--epsilon", "2", "--delta", "1e-6"]
    out = ["--k", "2", "--output", str(tmp_path / "top.npy")]
    assert run(["spectrum", str(tmp_path / "g.npy"), "--noise-std", "0.1", *bound, *out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["standing_out"], found["recommended_k"]) == (4, 3)  # (100² + 60² + 40²) of all: 95.7 %
    assert found["kept"]["3"] > 0.95 > found["kept"]["2"]
    assert found["lipschitz_coefficients"]["1"] >= found["lipschitz_coefficients"]["10"]
    assert len(gratis.Subspace.load(tmp_path / "top.npy")) == 2
    assert run(["spectrum", str(tmp_path / "g.npy"), "--noise-std", "3"]) == 0
    assert "Train in all dimensions" in capsys.readouterr().out
    for bad in (["--k", "2"], ["--n", "5"], ["--share", "2"], ["--noise-std", "-1"]):
        assert run(["spectrum", str(tmp_path / "g.npy"), *bad]) == 2
    assert run(["spectrum", str(tmp_path / "missing.npy")]) == 2
