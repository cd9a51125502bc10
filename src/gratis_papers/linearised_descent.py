"""Noisy descent on linearised networks, simulated in the space of outputs: any width, every replace-one neighbour (S3).

The linearised network f(W) = f(W₀) + J(W − W₀) moves on the records by f ← f − (η/n)·K·r + √(2ησ²)·K^{1/2}ξ with the
tangent kernel K = JJᵀ at the initial weights and the residuals r: exactly the law of descent in the weights, at the
price of the number of records squared. For records z and z′, g_z = J_zᵀr_z, so that ⟨g_z, g_z′⟩ = r_zᵀK_zz′r_z′ and
∇L(D) − ∇L(D′) = (g_z − g_z′)/n when z′ replaces z. Computed without noise from the records: a diagnostic, not a
release. Needs the `nn` extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gratis.records.checks import check_count, check_positive
from gratis_papers.noisy_gd import measured_steps
from gratis_papers.relu_network import ReluNetwork, softmax_residual

__all__ = ["ReplacedRecords", "linearised_divergences", "tangent_kernel_of_outputs"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReplacedRecords:
    """Of every pair (record of D, new record): KL by run and checkpoint, and the mean squared gradient difference.

    `largest_difference` is max over measured steps and pairs of the mean over runs of ‖∇L(D) − ∇L(D′)‖².
    """

    steps: tuple[int, ...]
    kl: Array
    largest_difference: float


def tangent_kernel_of_outputs(network: ReluNetwork, x: Any) -> Any:
    """K of all outputs of all records, (N·o, N·o), record by record: Σ_l ⟨a_i, a_i′⟩·⟨b_i^j, b_i′^j′⟩.

    >>> network = ReluNetwork([3, 4, 2], [1.0, 1.0], generator=torch.Generator().manual_seed(0))
    >>> tangent_kernel_of_outputs(network, torch.ones(5, 3)).shape
    torch.Size([10, 10])
    """
    layers, scores = network.forward(x)
    outputs = scores.shape[1]
    unit = torch.eye(outputs, dtype=scores.dtype)
    by_output = [network.backward(layers, unit[j].expand_as(scores).clone()) for j in range(outputs)]
    kernel = torch.zeros(scores.numel(), scores.numel(), dtype=torch.float64)
    for place, a in enumerate(layers):
        b = torch.stack([back[place] for back in by_output], dim=1).reshape(scores.numel(), -1)
        inputs = (a @ a.T).repeat_interleave(outputs, dim=0).repeat_interleave(outputs, dim=1)
        kernel += inputs * (b @ b.T)
    return kernel


def linearised_divergences(
    X: ArrayLike,
    y: ArrayLike,
    X_new: ArrayLike,
    y_new: ArrayLike,
    *,
    widths: Sequence[int],
    variances: Sequence[float],
    step_size: float,
    noise_std: float,
    checkpoints: Sequence[int],
    runs: int = 6,
    seed: int = 0,
    thinning: float = 0.0,
) -> ReplacedRecords:
    """KL of noisy descent on the linearised network against every D′ in which a new record replaces one of D.

    Each run draws initial weights and noise anew; softmax cross-entropy, labels 0 … o−1. `thinning` as in
    `noisy_descent_divergences`.

    >>> rng = np.random.default_rng(0)
    >>> found = linearised_divergences(rng.standard_normal((8, 3)), np.arange(8) % 2, rng.standard_normal((2, 3)),
    ...     [0, 1], widths=(3, 16, 2), variances=(1 / 3, 1 / 16), step_size=0.1, noise_std=0.5, checkpoints=[1, 4])
    >>> found.kl.shape, bool((found.kl[:, 1] > found.kl[:, 0]).all())
    ((6, 2, 8, 2), True)
    """
    eta, sigma = check_positive("step_size", step_size), check_positive("noise_std", noise_std)
    n, outputs = len(np.asarray(X)), widths[-1]
    rows = torch.as_tensor(np.concatenate([np.asarray(X), np.asarray(X_new)])).float()
    labels = torch.as_tensor(np.concatenate([np.asarray(y), np.asarray(y_new)]))
    marks = sorted(set(checkpoints))
    places = {step: place for place, step in enumerate(sorted(set(measured_steps(marks, thinning))))}
    kl = np.empty((check_count("runs", runs), len(marks), n, len(rows) - n))
    mean_gaps = np.zeros((len(places), n, len(rows) - n))
    with torch.no_grad():
        for run in range(runs):
            generator = torch.Generator().manual_seed(check_count("seed", seed, minimum=0) * 1_000_003 + run)
            network = ReluNetwork(widths, variances, generator=generator)
            kernel = tangent_kernel_of_outputs(network, rows)
            scores = network.scores(rows).double()
            values, vectors = torch.linalg.eigh(kernel)
            # Rounding may leave eigenvalues just below 0.
            shake = (vectors * values.clamp_min(0).sqrt() * ((2 * eta) ** 0.5 * sigma)).float()
            move = (kernel[:, : n * outputs] * (eta / n)).float()
            scores = scores.float()
            blocks = kernel.reshape(len(rows), outputs, len(rows), outputs)
            total, last, before = np.zeros(kl.shape[2:]), np.zeros(kl.shape[2:]), 0
            for step in range(1, marks[-1] + 1):
                residual = softmax_residual(scores, labels)
                if step in places:
                    gaps = _replaced_gaps(blocks, residual.double(), n)
                    mean_gaps[places[step]] += gaps / (runs * n**2)
                    since = step - before
                    total += since * last + (gaps - last) * ((since + 1) / 2) if before else gaps
                    last, before = gaps, step
                noise = torch.randn(scores.numel(), generator=generator)
                scores = scores + (shake @ noise - move @ residual[:n].reshape(-1)).reshape(scores.shape)
                if step in marks:
                    kl[run, marks.index(step)] = eta / (4 * sigma**2 * n**2) * total
    return ReplacedRecords(tuple(marks), kl, float(mean_gaps.max()))


def _replaced_gaps(blocks: Any, residual: Any, n: int) -> Array:
    """‖g_z − g_z′‖² for z among the first n records and z′ among the others."""
    products = torch.einsum("iajb,ia,jb->ij", blocks, residual, residual)
    own = products.diagonal()
    gaps = own[:n, None] + own[None, n:] - 2 * products[:n, n:]
    found: Array = gaps.clamp_min(0).numpy()
    return found
