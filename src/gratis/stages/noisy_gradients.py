"""The released gradients of a network's training, one a step: clipped sum, over all ranks, plus noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gratis.mechanisms.ghost_clipping import ClippedGradientSum
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.ranks import Ranks
from gratis.numerics.network_rounding import network_rounding_inflation
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.stages.poisson_sampling import PoissonSampling

__all__ = ["full_batch_gradients", "noise_in_gradients", "poisson_gradients"]

Rows = NDArray[np.intp] | None


def full_batch_gradients(
    gradient: ClippedGradientSum, X: Tensor, y: Tensor, event: FullBatchDescent, *, noise: NoiseSource, ranks: Ranks
) -> Iterator[NDArray[np.float64]]:
    """Yield G_t = C·[(1/n)Σ clip₁(gᵢ/C) + s_t·N(0, I)] at the parameters that the module then has, T times.

    **Guarantee**: what is yielded satisfies `accounting.account(event)` together, if the event's n and rounding
    inflation are those of all ranks' records (`train_full_batch` and `gratis.privatise` check it).
    """
    scale = event.n_records * gradient.clip_norm
    for std in _unit_stds(event):
        total = _total(gradient, X, y, None, ranks)
        yield gradient.clip_norm * _noised(total / scale, float(std), noise, ranks)


def poisson_gradients(
    gradient: ClippedGradientSum, X: Tensor, y: Tensor, sampling: PoissonSampling, *, noise: NoiseSource, ranks: Ranks
) -> Iterator[NDArray[np.float64]]:
    """Yield G_t = [Σ_{i in batch t} clip_C(gᵢ) + σC·r·N(0, I)]/(qn) at the module's parameters, T times.

    **Guarantee**: what is yielded satisfies `accounting.account(sampling.event)` together. Every rank draws the batch
    of its own records with its own secret source; r is the rounding inflation of all n records.
    """
    std = _inflated(sampling)
    scale = gradient.clip_norm / sampling.expected_batch_size
    own = sampling if len(X) == sampling.n_records else replace(sampling, n_records=len(X))
    for rows in own.batches(noise):
        total = _total(gradient, X, y, rows, ranks)
        yield scale * _noised(total / gradient.clip_norm, std, noise, ranks)


def noise_in_gradients(schedule: FullBatchDescent | PoissonSampling, clip_norm: float) -> float:
    """Return the standard deviation of the noise in every coordinate of what the first step yields; it is public."""
    if isinstance(schedule, PoissonSampling):
        return clip_norm / schedule.expected_batch_size * _inflated(schedule)
    return clip_norm * float(_unit_stds(schedule)[0])


def _unit_stds(event: FullBatchDescent) -> NDArray[np.float64]:
    return event.noise_stds.array() / (event.learning_rates.array() * event.clip_norm)


def _inflated(sampling: PoissonSampling) -> float:
    kappa = sampling.event.neighbouring.sensitivity_factor
    return sampling.event.noise_multiplier * network_rounding_inflation(sampling.n_records, sensitivity=kappa)


def _total(gradient: ClippedGradientSum, X: Tensor, y: Tensor, rows: Rows, ranks: Ranks) -> NDArray[np.float64]:
    problem, own = None, np.zeros(gradient.size)
    try:
        with _buffers_kept(gradient.module):
            own = gradient(X, y, rows)
    except GratisError as error:
        problem = str(error)
    ranks.refuse_any(problem)  # outside the handler; the message quotes no record
    return ranks.total(own)


def _noised(value: NDArray[np.float64], std: float, noise: NoiseSource, ranks: Ranks) -> NDArray[np.float64]:
    return ranks.shared(noise.release(value, std) if ranks.is_first else np.zeros_like(value))


@contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    """Restore all buffers, also after an exception: those that were overwritten, exchanged, added or removed.

    `ClippedGradientSum.check` sees only what synthetic records trigger.
    """
    before = [(part, dict(part._buffers)) for part in module.modules()]
    copies = {tensor: tensor.clone() for _, buffers in before for tensor in buffers.values() if tensor is not None}
    try:
        yield
    finally:
        for part, buffers in before:
            part._buffers.clear()
            part._buffers.update(buffers)
        with torch.no_grad():
            for tensor, copy in copies.items():
                tensor.copy_(copy)
