"""Private training of torch networks: full batch (exact GDP) and Poisson-subsampled (PLD). Needs the `nn` extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from gratis.accounting.network_descent import MOST_STEPS
from gratis.mechanisms.ghost_clipping import ClippedGradientSum, Loss, cross_entropy
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.ranks import Ranks
from gratis.numerics.network_rounding import network_rounding_inflation
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent, PoissonSubsampledGaussian
from gratis.stages.noisy_gradients import full_batch_gradients, poisson_gradients
from gratis.stages.poisson_sampling import PoissonSampling

__all__ = ["NetworkResult", "checked_arrays", "falling_rates", "train_full_batch", "train_poisson"]

Optimiser = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
_LARGEST_RATE = 1e30  # float32 parameters cannot be moved by more than 3e38


@dataclass(frozen=True, slots=True)
class NetworkResult:
    """What private training released: the module with its new parameters, and the event that pays for them."""

    module: nn.Module
    event: FullBatchDescent | PoissonSubsampledGaussian


def falling_rates(mean_rate: float, steps: int) -> NDArray[np.float64]:
    """Learning rates that fall linearly to 0 with the given mean: η_t = 2η̄(1 − (t−½)/T).

    >>> falling_rates(2.0, 4).tolist()
    [3.5, 2.5, 1.5, 0.5]
    """
    mean_rate, steps = check_positive("mean_rate", mean_rate), _steps(steps)
    return 2 * mean_rate * (1 - (np.arange(steps) + 0.5) / steps)


def train_full_batch(
    module: nn.Module,
    X: Tensor,
    y: Tensor,
    *,
    event: FullBatchDescent,
    clip_norm: float,
    learning_rates: ArrayLike,
    noise: NoiseSource,
    loss: Loss = cross_entropy,
    optimiser: Optimiser | None = None,
    average: bool = False,
    micro_batch: int = 2048,
) -> NetworkResult:
    """Train in place: T steps with G_t = C·[(1/n)Σ clip₁(gᵢ/C) + s·N(0, I)], θ_t = θ_{t−1} − η_t·G_t.

    **Guarantee**: all T noised gradients, hence all iterates and anything made of them (momentum, Adam, averages),
    satisfy what `accounting.account(event)` proves under the event's relation, if X and y hold one record a row made
    by a public map, and clip norm, learning rates and initial weights do not depend on the private data. Noise follows
    the rate: it is added to the gradient. Nothing is spent, and no private value is read, before all checks passed.
    Buffers of the module keep the values that they had: what a forward pass writes there is private.

    Parameters
    ----------
    module : torch.nn.Module
        See `ClippedGradientSum` for what is understood.
    X, y : arrays or tensors
        Records along the first dimension; float32 saves a conversion in every step.
    event : FullBatchDescent
        From a plan, or `accounting.network_descent.network_descent_event`; fixes T and s.
    clip_norm : float
        C.
    learning_rates : float or (T,)
        η.
    noise : NoiseSource
        Where the noise comes from; `NoiseSource.secure()` for a release.
    loss : callable
        (outputs, targets) → (m,) losses.
    optimiser : callable, optional
        Makes a torch optimiser from the list of parameters, e.g. `partial(torch.optim.Adam, lr=1)`; its rate is set
        to η_t before every step. Plain descent when left out.
    average : bool
        Mean of the last ⌈T/2⌉ iterates instead of the last one.
    micro_batch : int
        Records in one forward pass: bounds the memory.

    >>> from gratis.accounting.network_descent import network_descent_event
    >>> from gratis.records.neighbouring import Neighbouring
    >>> X = np.random.default_rng(0).standard_normal((500, 2)).astype(np.float32)
    >>> event = network_descent_event(500, 20, mu=20.0, neighbouring=Neighbouring.ZERO_OUT)
    >>> run = train_full_batch(torch.nn.Linear(2, 2), X, (X[:, 0] > 0).astype(int), event=event, clip_norm=1.0,
    ...                        learning_rates=2.0, noise=NoiseSource.insecure(0))
    >>> bool((run.module(torch.from_numpy(X)).argmax(1).numpy() == (X[:, 0] > 0)).mean() > 0.9)
    True
    """
    if not isinstance(event, FullBatchDescent):
        raise GratisError("event must be a FullBatchDescent, as network_descent_event makes it")
    _check_helpers(noise, optimiser)
    gradient = ClippedGradientSum(module, loss, clip_norm=clip_norm, micro_batch=micro_batch)
    rates = _rates(learning_rates, event.steps)
    X, y = checked_arrays(X, y)
    n = len(X)
    if n != event.n_records:
        raise GratisError(f"the event was made for {event.n_records} records; make one for the number in X")
    units = event.learning_rates.array() * event.clip_norm
    if not units.min() > 0:
        raise GratisError("the event must have a positive learning rate in every step")
    _check_inflation(event.rounding_inflation, n, event)
    gradient.check(X, y)

    released = full_batch_gradients(gradient, X, y, event, noise=noise, ranks=Ranks())
    _descend(gradient, released, rates, optimiser, average)
    return NetworkResult(module, event)


def train_poisson(
    module: nn.Module,
    X: Tensor,
    y: Tensor,
    *,
    sampling: PoissonSampling,
    clip_norm: float,
    learning_rates: ArrayLike,
    noise: NoiseSource,
    loss: Loss = cross_entropy,
    optimiser: Optimiser | None = None,
    average: bool = False,
    micro_batch: int = 2048,
) -> NetworkResult:
    """Train in place by DP-SGD: G_t = [Σ_{i in batch t} clip_C(gᵢ) + σC·r·N(0, I)]/(qn), θ_t = θ_{t−1} − η_t·G_t.

    **Guarantee**: as `train_full_batch`, with `sampling.event` accounted by its privacy loss distribution. Batches come
    from `sampling` with the noise source's secret randomness; r is the rounding inflation, so that σ stays the
    event's noise multiplier. Sums are divided by the expected batch size, which is public, never by the realised one.

    >>> event = PoissonSubsampledGaussian(sampling_rate=0.2, noise_multiplier=0.5, steps=60, neighbouring="zero-out")
    >>> X = np.random.default_rng(0).standard_normal((500, 2)).astype(np.float32)
    >>> run = train_poisson(torch.nn.Linear(2, 2), X, (X[:, 0] > 0).astype(int), sampling=PoissonSampling(500, event),
    ...                     clip_norm=1.0, learning_rates=1.0, noise=NoiseSource.insecure(0), average=True)
    >>> bool((run.module(torch.from_numpy(X)).argmax(1).numpy() == (X[:, 0] > 0)).mean() > 0.9)
    True
    """
    if not isinstance(sampling, PoissonSampling):
        raise GratisError("sampling must be a PoissonSampling, which holds the number of records and the event")
    _check_helpers(noise, optimiser)
    gradient = ClippedGradientSum(module, loss, clip_norm=clip_norm, micro_batch=micro_batch)
    event = sampling.event
    rates = _rates(learning_rates, event.steps)
    X, y = checked_arrays(X, y)
    if len(X) != sampling.n_records:
        raise GratisError(f"the sampling was made for {sampling.n_records} records; make one for the number in X")
    gradient.check(X, y)

    released = poisson_gradients(gradient, X, y, sampling, noise=noise, ranks=Ranks())
    _descend(gradient, released, rates, optimiser, average)
    return NetworkResult(module, event)


def _descend(
    gradient: ClippedGradientSum,
    released: Iterable[NDArray[np.float64]],
    rates: NDArray[np.float64],
    optimiser: Optimiser | None,
    average: bool,
) -> None:
    """Walk along released gradients: everything here is post-processing."""
    parameters = gradient.parameters
    stepper = torch.optim.SGD(parameters, lr=1.0) if optimiser is None else optimiser(parameters)
    kept = (len(rates) + 1) // 2
    totals = [torch.zeros_like(p, dtype=torch.float64) for p in parameters] if average else []
    for step, (rate, noised) in enumerate(zip(rates, released, strict=True)):
        for parameter, part in zip(parameters, gradient.split(noised), strict=True):
            parameter.grad = part
        for group in stepper.param_groups:
            group["lr"] = float(rate)
        stepper.step()
        if average and step >= len(rates) - kept:
            for total, parameter in zip(totals, parameters, strict=True):
                total += parameter.detach()
    for parameter in parameters:
        parameter.grad = None
    with torch.no_grad():
        for total, parameter in zip(totals, parameters, strict=False):
            parameter.copy_(total / kept)


def _rates(learning_rates: ArrayLike, steps: int) -> NDArray[np.float64]:
    steps = _steps(steps)
    try:
        rates = np.asarray(learning_rates, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        rates = np.array(np.nan)
    # Written so that NaN is refused.
    if rates.shape not in ((), (steps,)) or not np.all((rates >= 0) & (rates <= _LARGEST_RATE)):
        raise GratisError(
            f"learning_rates must be one number from 0 to {_LARGEST_RATE:g}, or one for each of the {steps} steps"
        )
    return np.broadcast_to(rates, (steps,))


def _steps(steps: int) -> int:
    steps = check_count("steps", steps)
    if steps > MOST_STEPS:
        raise GratisError(f"steps must be at most {MOST_STEPS}, got {steps}")
    return steps


def _check_helpers(noise: object, optimiser: object) -> None:
    if not isinstance(noise, NoiseSource):
        raise GratisError(f"noise must be a NoiseSource, e.g. NoiseSource.secure(), got a {type(noise).__name__}")
    if optimiser is not None and not callable(optimiser):
        raise GratisError("optimiser must make a torch optimiser from a list of parameters, e.g. torch.optim.Adam")


def checked_arrays(X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Records and targets as tensors or arrays of one positive length."""
    try:
        X, y = (values if torch.is_tensor(values) else np.ascontiguousarray(values) for values in (X, y))
        ragged = False
    except ValueError:
        ragged = True
    if ragged:  # raised outside the handler, so that no context holds the other error
        raise GratisError("X and y must be arrays, but the rows of one of them have different lengths")
    if not X.ndim or not y.ndim or len(X) != len(y) or len(X) == 0:
        raise GratisError("X and y must have the same positive number of records")
    return X, y


def _check_inflation(found: float, n: int, event: FullBatchDescent) -> None:
    if found < network_rounding_inflation(n, sensitivity=event.neighbouring.sensitivity_factor):
        raise GratisError("the event's rounding_inflation is too small for networks; use network_descent_event")
