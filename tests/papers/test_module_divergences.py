"""KL of noisy descent on a module of one's own, against gradients of the neighbours themselves."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gratis.records.errors import GratisError  # noqa: E402
from gratis_papers.module_divergences import module_divergences  # noqa: E402
from gratis_papers.noisy_gd import noisy_descent_divergences  # noqa: E402


def convolution() -> object:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 2), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(27, 2)
    )  # fmt: skip


def flat_gradient(module: object, X: object, y: object) -> np.ndarray:
    module.zero_grad()
    torch.nn.functional.cross_entropy(module(X), y).backward()
    return np.concatenate([p.grad.numpy().ravel() for p in module.parameters()])


def test_the_first_step_is_that_of_the_neighbours_own_gradients() -> None:
    generator = torch.Generator().manual_seed(1)
    X, y = torch.randn(7, 1, 4, 4, generator=generator), torch.arange(7) % 2
    new, labels = torch.randn(2, 1, 4, 4, generator=generator), torch.tensor([0, 1])
    eta, sigma = 0.1, 0.3
    found = module_divergences(
        convolution, X, y, new, labels, step_size=eta, noise_std=sigma, steps=3, runs=1, seed=5, checkpoints=[1, 3],
        micro_batch=3,
    )  # fmt: skip
    torch.manual_seed(5)
    module = convolution()
    whole = flat_gradient(module, X, y)
    for z in range(7):
        kept = [i for i in range(7) if i != z]
        off = whole - flat_gradient(module, X[kept], y[kept])
        assert found.removed[0, 0, z] == pytest.approx(eta / (4 * sigma**2) * off @ off, rel=1e-4)
    for z in range(2):
        off = whole - flat_gradient(module, torch.cat([X, new[z : z + 1]]), torch.cat([y, labels[z : z + 1]]))
        assert found.added[0, 0, z] == pytest.approx(eta / (4 * sigma**2) * off @ off, rel=1e-4)
    assert (found.removed[0, 1] > found.removed[0, 0]).all()


def test_relu_networks_have_the_divergences_of_the_program_for_them() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 6)).astype(np.float32), rng.integers(2, size=30)

    def network() -> object:
        layers = [torch.nn.Linear(6, 40, bias=False), torch.nn.ReLU(), torch.nn.Linear(40, 2, bias=False)]
        with torch.no_grad():
            for layer, fan in ((layers[0], 6), (layers[2], 40)):
                layer.weight.normal_(0, fan**-0.5)
        return torch.nn.Sequential(*layers)

    settings = {"step_size": 0.05, "noise_std": 0.2, "steps": 10, "runs": 40}
    own = module_divergences(network, torch.from_numpy(X), torch.from_numpy(y), **settings).removed[:, 0]
    known = noisy_descent_divergences(X, y, widths=(6, 40, 2), variances=(1 / 6, 1 / 40), **settings).removed[:, 0]
    error = np.hypot(own.std(axis=0, ddof=1), known.std(axis=0, ddof=1)) / np.sqrt(40)
    assert (np.abs(own.mean(axis=0) - known.mean(axis=0)) < 5 * error).all()


def test_refusals() -> None:
    X, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    common = {"step_size": 0.1, "noise_std": 0.1, "steps": 2}
    with pytest.raises(GratisError, match="belong together"):
        module_divergences(lambda: torch.nn.Linear(3, 2), X, y, X, **common)
    with pytest.raises(GratisError, match="checkpoints"):
        module_divergences(lambda: torch.nn.Linear(3, 2), X, y, **common, checkpoints=[3])
    with pytest.raises(GratisError, match="not finite"):
        module_divergences(lambda: torch.nn.Linear(3, 2), X * float("inf"), y, **common)
