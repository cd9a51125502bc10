from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gratis_papers import s0_mnist  # noqa: E402


def one_step(clip_norm: float, multiplier: float, seed: int = 3) -> tuple[list[np.ndarray], s0_mnist._Images]:
    """Weights after one step of rate .1, caught before they are scored."""
    images = s0_mnist._images("smoke")
    caught: list[np.ndarray] = []

    def scores(self: object, x: object) -> object:
        caught[:] = [w.numpy().astype(np.float64) for w in self.weights]  # type: ignore[attr-defined]
        return torch.zeros(len(x), 10)  # type: ignore[arg-type]

    from gratis_papers.relu_network import ReluNetwork

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReluNetwork, "scores", scores)
        rng = np.random.default_rng(seed)
        s0_mnist._train(images, 30, 0.1, rng, clip_norm=clip_norm, multiplier=multiplier, most_steps=1)
    return caught, images


def test_a_step_is_the_mean_of_clipped_gradients_of_single_records() -> None:
    still, images = one_step(1e-30, 0.0)
    moved, _ = one_step(0.5, 0.0)
    (X, y), totals = images.train, [np.zeros_like(w) for w in still]
    weights = [torch.tensor(w, requires_grad=True) for w in still]
    for x, label in zip(X.double(), y, strict=True):
        loss = torch.nn.functional.cross_entropy((weights[1] @ torch.relu(weights[0] @ x))[None], label[None])
        parts = [g.numpy() for g in torch.autograd.grad(loss, weights)]
        norm = math.sqrt(sum(float(np.square(g).sum()) for g in parts))
        for total, part in zip(totals, parts, strict=True):
            total += part * min(1.0, 0.5 / norm)
    for before, after, total in zip(still, moved, totals, strict=True):
        np.testing.assert_allclose(after, before - 0.1 * total / len(X), atol=1e-6)


def test_noise_has_the_calibrated_size() -> None:
    clip_norm, multiplier = 2.0, 7.0
    quiet, images = one_step(clip_norm, 0.0)
    noisy, _ = one_step(clip_norm, multiplier)
    difference = np.concatenate([(a - b).ravel() for a, b in zip(noisy, quiet, strict=True)])
    expected = 2 * 0.1 * clip_norm / len(images.train[0]) * multiplier
    assert abs(difference.std() / expected - 1) < 0.05
    assert abs(difference.std() / (expected / 2) - 1) > 0.5  # negative control: κ = 1 is caught
