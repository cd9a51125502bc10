"""KL of noisy gradient descent on a PyTorch module of one's own, for every neighbour of its data set (S3).

As `noisy_gd`, which knows fully connected ReLU networks only and is faster there. Records' gradients come from
`torch.func`; the numbers are computed from gradients without noise: an audit of the mechanism for whoever may see the
data, never a release. Needs the `nn` extra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis_papers.noisy_gd import DivergedError, NeighbourDivergences

__all__ = ["module_divergences"]

Parameters = dict[str, Any]


def module_divergences(
    make_module: Callable[[], Any],
    X: Any,
    y: Any,
    X_added: Any = None,
    y_added: Any = None,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    step_size: float,
    noise_std: float,
    steps: int,
    runs: int = 6,
    seed: int = 0,
    checkpoints: Sequence[int] | None = None,
    micro_batch: int = 64,
) -> NeighbourDivergences:
    """Train W ← W − η∇L(W; D) + √(2ησ²)·Z and estimate KL = (η/(4σ²))·Σ_k‖∇L(W_k; D) − ∇L(W_k; D′)‖².

    Parameters
    ----------
    make_module:
        Returns a module with fresh initial weights; called once a run, with torch's seed set.
    X, y:
        Tensors of records and their labels; neighbours lack one of them.
    X_added, y_added:
        Records that a neighbour may have in addition.
    loss:
        (outputs of one batch, labels) → mean loss; cross-entropy if left out.
    step_size, noise_std, steps, runs, seed, checkpoints:
        η, σ, T; training runs and their first seed; steps after which KL so far is kept, the last if left out.
    micro_batch:
        Records whose gradients are held at once.

    >>> X, y = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2
    >>> found = module_divergences(lambda: torch.nn.Linear(3, 2), X, y, step_size=0.1, noise_std=0.5, steps=3, runs=2)
    >>> found.removed.shape, bool((found.removed > 0).all())
    ((2, 1, 12), True)
    """
    eta, sigma = check_positive("step_size", step_size), check_positive("noise_std", noise_std)
    steps, runs = check_count("steps", steps), check_count("runs", runs)
    marks = [check_count("a checkpoint", mark) for mark in checkpoints or (steps,)]
    if marks != sorted(set(marks)) or marks[-1] > steps:
        raise GratisError("checkpoints must increase and end with the last step at most")
    if (X_added is None) != (y_added is None):
        raise GratisError("X_added and y_added belong together")
    measure = torch.nn.functional.cross_entropy if loss is None else loss
    n = len(X)
    blocks = [(X, y)] if X_added is None else [(X, y), (X_added, y_added)]
    found = [np.zeros((runs, len(marks), len(labels))) for _, labels in blocks]
    for run in range(runs):
        generator = torch.Generator().manual_seed(seed + run)
        with torch.random.fork_rng():
            torch.manual_seed(seed + run)
            module = make_module()
        weights = {name: value.detach().clone() for name, value in module.named_parameters()}
        buffers = dict(module.named_buffers())

        def one(weights: Parameters, x: Any, label: Any, module: Any = module, buffers: Any = buffers) -> Any:
            return measure(functional_call(module, (weights, buffers), (x[None],)), label[None])

        totals = [np.zeros(len(labels)) for _, labels in blocks]
        for step in range(1, steps + 1):
            mean = _mean_gradient(one, weights, X, y, micro_batch)
            square = sum(float((part**2).sum()) for part in mean.values())
            for total, (rows, labels), others in zip(totals, blocks, (n - 1, n + 1), strict=False):
                lengths, along = _norms(one, weights, mean, rows, labels, micro_batch)
                total += eta / (4 * sigma**2) * np.maximum(lengths - 2 * along + square, 0) / others**2
            if not all(np.isfinite(total).all() for total in totals):
                raise DivergedError(step)
            if step in marks:
                for kept, total in zip(found, totals, strict=True):
                    kept[run, marks.index(step)] = total
            spread = math.sqrt(2 * eta) * sigma
            weights = {
                name: value - eta * mean[name] + spread * torch.randn(value.shape, generator=generator)
                for name, value in weights.items()
            }
    added = found[1] if len(found) > 1 else np.zeros((runs, len(marks), 0))
    return NeighbourDivergences(tuple(marks), found[0], added, np.arange(n))


def _mean_gradient(one: Any, weights: Parameters, X: Any, y: Any, size: int) -> Parameters:
    whole = grad(lambda weights, x, label: vmap(one, (None, 0, 0))(weights, x, label).sum())
    total: Parameters = {name: torch.zeros_like(value) for name, value in weights.items()}
    for i in range(0, len(X), size):
        for name, part in whole(weights, X[i : i + size], y[i : i + size]).items():
            total[name] += part
    return {name: value / len(X) for name, value in total.items()}


def _norms(one: Any, weights: Parameters, mean: Parameters, X: Any, y: Any, size: int) -> tuple[Any, ...]:
    """‖g_z‖² and ⟨g_z, ḡ⟩ of every record."""
    each = vmap(grad(one), (None, 0, 0))
    found: tuple[list[Any], list[Any]] = ([], [])
    for i in range(0, len(X), size):
        own = each(weights, X[i : i + size], y[i : i + size])
        found[0].append(sum(part.flatten(1).square().sum(1) for part in own.values()))
        found[1].append(sum(part.flatten(1) @ mean[name].flatten() for name, part in own.items()))
    return tuple(torch.cat(part).detach().double().numpy() for part in found)
