from __future__ import annotations

import json

import numpy as np
import pytest

from gratis.numerics.subspace_iteration import gram_matrix, leading_eigenpairs
from gratis.planning.bounds.gradient_spectrum import fit_decay
from gratis.records.errors import GratisError
from gratis_papers.gradient_spectrum import GradientRecorder


def gradients(r: int, p: int, decay: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((r, r)))[0]
    right = np.linalg.qr(rng.standard_normal((p, r)))[0]
    return (left * np.arange(1.0, r + 1) ** -decay) @ right.T


def recorded(H: np.ndarray, **settings: object) -> GradientRecorder:
    recorder = GradientRecorder(H.shape[1], allow_non_private_diagnostics=True, **settings)  # type: ignore[arg-type]
    for row in H:
        recorder.observe(row)
    return recorder


def test_needs_the_explicit_flag() -> None:
    for flag in (False, 1, "yes"):
        with pytest.raises(GratisError, match="allow_non_private_diagnostics"):
            GradientRecorder(3, allow_non_private_diagnostics=flag)  # type: ignore[arg-type]


def test_subspace_iteration_agrees_with_the_svd() -> None:
    H = gradients(40, 300, 0.7)
    values, vectors = leading_eigenpairs(lambda Q: H.T @ (H @ Q), 300, 12, rng=np.random.default_rng(1))
    exact = np.linalg.svd(H)
    np.testing.assert_allclose(np.sqrt(values), exact.S[:12], rtol=1e-6)
    np.testing.assert_allclose(np.abs(np.sum(vectors[:, :6] * exact.Vh[:6].T, axis=0)), 1, atol=1e-4)
    np.testing.assert_allclose(gram_matrix(H, columns_at_once=7), H @ H.T, atol=1e-12)
    with pytest.raises(ValueError, match="count"):
        leading_eigenpairs(lambda Q: Q, 3, 4, rng=np.random.default_rng(0))


def test_exact_recorder_gives_the_svd() -> None:
    H = gradients(30, 200, 0.6)
    recorder = recorded(H)
    spectrum = recorder.spectrum(10)
    exact = np.linalg.svd(H)
    np.testing.assert_allclose(spectrum.singular_values, exact.S[:10], rtol=1e-5)
    assert spectrum.relative_error == 0
    assert spectrum.captured(10) == pytest.approx(float((exact.S[:10] ** 2).sum() / (exact.S**2).sum()), rel=1e-5)
    basis = recorder.directions(10).astype(float)
    np.testing.assert_allclose(basis @ basis.T, np.eye(10), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(basis @ exact.Vh[:10].T, ord=-2), 1, atol=1e-3)
    assert "non-private" in json.loads(json.dumps(spectrum.to_json()))["label"]


def test_sketch_keeps_the_singular_values_in_less_memory() -> None:
    H = gradients(60, 30_000, 0.6, seed=3)
    recorder = recorded(H, sketch_size=6000)
    assert recorder._rows[0].size == 6000
    spectrum = recorder.spectrum(40)
    exact = np.arange(1.0, 41) ** -0.6
    assert spectrum.relative_error == pytest.approx(0.1)
    assert np.abs(spectrum.singular_values / exact - 1).max() < spectrum.relative_error
    assert spectrum.decay().exponent == pytest.approx(0.6, abs=0.03)
    # Negative control: a sketch far too small for its rows does not.
    poor = recorded(H, sketch_size=80).spectrum(40)
    assert np.abs(poor.singular_values / exact - 1).max() > 2 * spectrum.relative_error


def test_directions_of_sketches_need_and_check_a_second_pass() -> None:
    H = gradients(25, 4000, 1.0, seed=4)
    recorder = recorded(H, sketch_size=2000)
    with pytest.raises(GratisError, match="second_pass"):
        recorder.directions(3)
    second = recorder.second_pass(3)
    for row in H:
        second.observe(row)
    basis = second.directions().astype(float)
    exact = np.linalg.svd(H, full_matrices=False).Vh[:3]
    assert np.linalg.svd(basis @ exact.T)[1].min() > 0.95
    wrong = recorder.second_pass(3)
    with pytest.raises(GratisError, match="does not repeat"):
        wrong.observe(H[1])
    short = recorder.second_pass(3)
    short.observe(H[0])
    with pytest.raises(GratisError, match="saw 1 of 25"):
        short.directions()


def test_directions_beyond_the_rank_are_zero_not_noise() -> None:
    H = np.outer(np.arange(1.0, 7), np.ones(50))
    basis = recorded(H).directions(3)
    np.testing.assert_allclose(np.linalg.norm(basis, axis=1), [1, 0, 0], atol=1e-5)


def test_decay_fit_says_its_range_and_shows_curvature() -> None:
    k = np.arange(1.0, 201)
    bent = np.where(k < 20, k**-0.3, 20**0.7 * k**-1.0)
    fit = fit_decay(bent, first=1, last=200)
    assert (fit.first, fit.last) == (1, 200)
    assert fit.head < 0.4 < 0.9 < fit.tail
    assert fit.root_mean_square_error > 0.05
    straight = fit_decay(k**-0.6, first=3, last=50)
    assert straight.head == pytest.approx(straight.tail) == pytest.approx(0.6)
    recorder = recorded(gradients(40, 90, 0.5))
    assert recorder.spectrum(40).decay().last == 20, "half of the recorded gradients"


@pytest.mark.parametrize("bad", [[1.0, np.nan], [1.0, np.inf], [1.0], [[1.0, 2.0, 3.0]]])
def test_bad_gradients_are_refused(bad: list[float]) -> None:
    recorder = GradientRecorder(2, allow_non_private_diagnostics=True)
    with pytest.raises(GratisError):
        recorder.observe(bad)


def test_empty_and_too_many() -> None:
    recorder = GradientRecorder(2, allow_non_private_diagnostics=True)
    with pytest.raises(GratisError, match="nothing"):
        recorder.spectrum(1)
    recorder.observe([1.0, 0.0])
    with pytest.raises(GratisError, match="at most 1"):
        recorder.spectrum(2)
    with pytest.raises(GratisError, match="at least 4"):
        fit_decay([1.0, 0.5])
