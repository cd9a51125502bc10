from __future__ import annotations

import numpy as np
import pytest
import torch

from gratis.planning.bounds.initialization import gradient_norm_constant, layer_variances, linearised_kl_upper_bound
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis_papers.kl_divergence import estimate_kl, linear_model_kl
from gratis_papers.noisy_gd import noisy_descent_divergences
from gratis_papers.relu_network import ReluNetwork, logistic_residual, softmax_residual, squared_residual

WIDTHS = (5, 12, 9, 3)
VARIANCES = layer_variances("he", WIDTHS)


def problem(n: int = 14, d: int = 5, classes: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(n, d)),
        rng.integers(classes, size=n),
        rng.normal(size=(4, d)),
        rng.integers(classes, size=4),
    )


@pytest.mark.parametrize("linearised", [False, True])
@pytest.mark.parametrize("kept_bytes", [0, 2**20])
def test_gaps_of_all_neighbours_equal_those_by_autograd(linearised: bool, kept_bytes: int) -> None:
    """Mean gradients of each neighbouring data set, written out and differentiated by torch."""
    X, y, X_new, y_new = problem()
    eta, sigma = 0.1, 0.3
    settings = {
        "widths": WIDTHS,
        "variances": VARIANCES,
        "step_size": eta,
        "noise_std": sigma,
        "runs": 1,
        "seed": 3,
        "linearised": linearised,
        "dtype": torch.float64,
        "micro_batch": 4,
        "kept_bytes": kept_bytes,
    }
    found = noisy_descent_divergences(X, y, X_new, y_new, steps=3, checkpoints=[1, 3], **settings)
    assert found.removed.shape == (1, 2, 14)
    assert found.added.shape == (1, 2, 4)

    generator = torch.Generator().manual_seed(3 * 1_000_003)
    network = ReluNetwork(WIDTHS, VARIANCES, generator=generator, linearised=linearised, dtype=torch.float64)
    anchor = [w.clone() for w in network.weights]

    def scores(weights: tuple[torch.Tensor, ...], x: torch.Tensor) -> torch.Tensor:
        h = x
        for i, w in enumerate(weights):
            h = h @ w.T
            h = h.relu() if i < len(weights) - 1 else h
        return h

    def gradient(x: np.ndarray, labels: np.ndarray) -> torch.Tensor:
        inputs, targets = torch.tensor(x), torch.tensor(labels)
        weights = tuple(w.clone().requires_grad_() for w in network.weights)
        if linearised:
            moved = tuple(w - a for w, a in zip(weights, anchor, strict=True))
            points = tuple(a.clone().requires_grad_() for a in anchor)
            base = scores(points, inputs)
            weight = torch.zeros_like(base, requires_grad=True)
            pulled = torch.autograd.grad(base, points, weight, create_graph=True)
            # The derivative of ⟨weightᵀJ, moved⟩ in the weight is J·moved.
            product = sum((p * m).sum() for p, m in zip(pulled, moved, strict=True))
            output = base.detach() + torch.autograd.grad(product, weight, create_graph=True)[0]
        else:
            output = scores(weights, inputs)
        loss = torch.nn.functional.cross_entropy(output, targets)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])

    lost, gained = np.zeros(14), np.zeros(4)
    for step in (1, 2, 3):
        mean = gradient(X, y)
        for i in range(14):
            rest = np.delete(np.arange(14), i)
            lost[i] += eta / (4 * sigma**2) * float((mean - gradient(X[rest], y[rest])).square().sum())
        for j in range(4):
            more = gradient(np.vstack([X, X_new[j]]), np.append(y, y_new[j]))
            gained[j] += eta / (4 * sigma**2) * float((mean - more).square().sum())
        if step in (1, 3):
            np.testing.assert_allclose(found.removed[0, step // 2], lost, rtol=1e-9)
            np.testing.assert_allclose(found.added[0, step // 2], gained, rtol=1e-9)
        parts = torch.split(mean, [w.numel() for w in network.weights])
        with torch.no_grad():
            for w, g in zip(network.weights, parts, strict=True):
                w -= eta * g.reshape(w.shape)
                w += (2 * eta) ** 0.5 * sigma * torch.randn(w.shape, generator=generator, dtype=torch.float64)


def test_estimate_on_a_linear_model_meets_the_exact_divergence() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(8, 3)), rng.normal(size=8)
    found = noisy_descent_divergences(
        X,
        y,
        widths=(3, 1),
        variances=(0.5,),
        step_size=0.2,
        noise_std=0.4,
        steps=6,
        runs=600,
        residual=squared_residual,
        dtype=torch.float64,
        neighbours=[2, 5],
    )
    for place, record in enumerate(found.records):
        rest = np.delete(np.arange(8), record)
        exact = linear_model_kl(X, y, X[rest], y[rest], step_size=0.2, noise_std=0.4, steps=6, start_variance=0.5)
        sample = found.removed[:, 0, place]
        assert abs(sample.mean() - exact) < 4 * sample.std() / np.sqrt(len(sample))
        # S3's constant would be seen.
        assert abs(sample.mean() - 2 * exact) > 4 * sample.std() / np.sqrt(len(sample))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("scheme", ["lecun", "he", "xavier", "ntk"])
def test_estimate_stays_below_the_bound_on_linearised_networks(outputs: int, scheme: str) -> None:
    """The bound is replace-one; adding or removing moves the mean loss by (g_z − ḡ)/(n∓1), at most as much for n ≥ 3.

    The zero-out bound (a quarter) need not hold for it: the mean gradient takes part too.
    """
    rng = np.random.default_rng(2)
    n, d = 30, 10
    X = rng.normal(size=(n, d))
    X *= np.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.choice([-1, 1], size=n) if outputs == 1 else rng.integers(outputs, size=n)
    widths = (d, 40, 40, outputs)
    variances = layer_variances(scheme, widths)
    found = noisy_descent_divergences(
        X,
        y,
        X[:5] * -1,
        y[:5],
        widths=widths,
        variances=variances,
        step_size=0.02,
        noise_std=0.2,
        steps=25,
        runs=6,
        linearised=True,
    )
    estimate, _ = estimate_kl(found.all[:, -1])
    bound = linearised_kl_upper_bound(
        gradient_norm_constant(widths, variances),
        time=0.5,
        noise_std=0.2,
        n_records=n - 1,
        n_outputs=outputs,
        neighbouring=Neighbouring.REPLACE_ONE,
    )
    assert 0 < estimate.high < bound.kl


def test_residuals_are_gradients_of_their_losses() -> None:
    scores = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
    torch.testing.assert_close(softmax_residual(scores.detach(), labels), torch.autograd.grad(loss, scores)[0])
    one = torch.randn(6, 1, dtype=torch.float64, requires_grad=True)
    signs = torch.tensor([1, -1, 1, -1, -1, 1])
    loss = torch.nn.functional.softplus(-signs[:, None] * one).sum()
    torch.testing.assert_close(logistic_residual(one.detach(), signs), torch.autograd.grad(loss, one)[0])


def test_runs_are_reproducible_and_different() -> None:
    X, y, *_ = problem()
    settings = {"widths": WIDTHS, "variances": VARIANCES, "step_size": 0.1, "noise_std": 0.3, "steps": 2, "runs": 2}
    a = noisy_descent_divergences(X, y, **settings)
    b = noisy_descent_divergences(X, y, **settings)
    np.testing.assert_array_equal(a.removed, b.removed)
    assert not np.allclose(a.removed[0], a.removed[1])
    assert "diagnostic" in a.label


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"neighbours": [14]}, "neighbours"),
        ({"neighbours": [-1]}, "neighbours"),
        ({"neighbours": [0.5]}, "neighbours"),
        ({"widths": (5,), "variances": ()}, "depth|columns"),
        ({"widths": (5, 0, 3)}, "width"),
        ({"widths": (4, 12, 9, 3)}, "columns"),
        ({"variances": (1.0, 0.0, 1.0)}, "variance"),
        ({"checkpoints": [9]}, "checkpoints"),
        ({"noise_std": 0.0}, "noise_std"),
        ({"step_size": 1e30, "steps": 4}, "not finite"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], words: str) -> None:
    X, y, *_ = problem()
    settings: dict[str, object] = {
        "widths": WIDTHS,
        "variances": VARIANCES,
        "step_size": 0.1,
        "noise_std": 0.3,
        "steps": 2,
        "runs": 1,
    }
    with pytest.raises(GratisError, match=words):
        noisy_descent_divergences(X, y, **(settings | changes))


def test_records_that_are_not_finite_are_refused() -> None:
    X, y, *_ = problem()
    X[0, 0] = np.nan
    with pytest.raises(GratisError, match="not finite"):
        noisy_descent_divergences(X, y, widths=WIDTHS, variances=VARIANCES, step_size=0.1, noise_std=0.3, steps=1)
