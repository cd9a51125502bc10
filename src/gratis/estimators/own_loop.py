"""`gratis.privatise`: a user's own PyTorch loop over noisy gradients, with ledger, certificate and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gratis.accounting import account, calibrate_mu, epsilon_upper_bound
from gratis.accounting.network_descent import MOST_STEPS, network_descent_event
from gratis.estimators.private_loop import PrivateLoop
from gratis.ledger import Ledger
from gratis.mechanisms.noise import noise_source
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent, PoissonSubsampledGaussian
from gratis.records.extras import missing_extra
from gratis.stages.poisson_sampling import PoissonSampling

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["privatise"]


def privatise(
    module: nn.Module,
    X: Any,
    y: Any = None,
    *,
    budget: Budget,
    steps: int,
    clip_norm: float,
    batch_size: float | None = None,
    noise_multiplier: float | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    micro_batch: int = 2048,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    purpose: str = "training",
    selection: Selection | str = Selection.NONE,
    noise_seed: int | None = None,
    insecure_reproducible: bool = False,
    distributed: bool = False,
) -> PrivateLoop:
    """Return the steps of a private training; after each of them `p.grad` holds a noisy gradient for your optimiser.

    **Guarantee**: all gradients that the loop hands out, and everything made of them (weights, momentum, Adam's
    moments, schedules, averages, checkpoints), satisfy what `accounting.account(loop.event)` proves within `budget`,
    whenever the loop is stopped and however often it is resumed. It rests on what the certificate lists: module and
    loss treat records one by one and raise on none, settings and initial weights do not depend on the private rows,
    and your loop lets nothing else out that was computed from them (a logged loss is not covered).

    Nothing is spent by this call. Steps, noise, sampling rate and clip norm are fixed here and reserved in the ledger,
    all of it, before the first step; modules that mix records or keep private values are refused before that.

    Parameters
    ----------
    module : torch.nn.Module
        What is trained; float32 or float64 on the CPU (`docs/howto/networks.md` says what is understood).
    X, y : arrays or tensors, or one map-style torch Dataset of pairs in the place of X
        One record along the first dimension: images, tables, or token ids. A dataset is read once, into memory.
    budget : Budget
        In ε and δ, or for full batches also in μ.
    steps : int
        T: how many noisy gradients there will be at most.
    clip_norm : float
        C, the longest gradient of one record.
    batch_size : float, optional
        Expected size of a Poisson batch; every record enters every step when left out (exact Gaussian DP, no
        amplification needed).
    noise_multiplier : float, optional
        σ of Poisson batches; left out: the least that meets the budget, whose search takes some seconds. One that does
        not meet it is refused.
    loss : callable, optional
        (outputs, targets) → (m,) losses, e.g. `torch.nn.MSELoss(reduction="none")` on flat outputs. Left out:
        cross-entropy, for which a label that is no class makes the record count as absent.
    micro_batch : int
        Records in one forward pass: bounds the memory.
    ledger, dataset : Ledger and str, optional
        Where the run is reserved, and under which name. Without a ledger a run cannot be resumed.
    purpose : str
        For the ledger.
    selection : Selection
        How the settings were selected, for the certificate.
    noise_seed, insecure_reproducible : int and bool
        For tests and simulations only: they void the guarantee.
    distributed : bool
        Every process of the default `torch.distributed` group (gloo) calls this with its own records and the same
        settings; rank 0 keeps the ledger and adds the noise.

    >>> import numpy as np, torch, gratis
    >>> X = np.random.default_rng(0).standard_normal((500, 2)).astype(np.float32)
    >>> module = torch.nn.Linear(2, 2)
    >>> loop = gratis.privatise(module, X, (X[:, 0] > 0).astype(int), budget=Budget(mu=5.0), steps=20, clip_norm=1.0)
    >>> optimiser = torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.5)
    >>> for step in loop:
    ...     optimiser.step()
    >>> step, loop.certificate.mu <= 5.0
    (20, True)
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise missing_extra("networks need PyTorch", "nn") from None
    from gratis.mechanisms.ghost_clipping import ClippedGradientSum, cross_entropy
    from gratis.mechanisms.ranks import Ranks, TorchRanks
    from gratis.stages.networks import checked_arrays

    ranks = TorchRanks() if distributed else Ranks()
    problem, found = None, None
    try:
        if not isinstance(budget, Budget):
            raise GratisError("budget must be a gratis.Budget, e.g. Budget(epsilon=2, delta=1e-5)")
        if (ledger is None) != (dataset is None):
            raise GratisError("ledger and dataset belong together: the ledger, and the name of the data set in it")
        if check_count("steps", steps) > MOST_STEPS:
            raise GratisError(f"steps must be at most {MOST_STEPS}, got {steps}")
        if noise_seed is not None:  # one stream a rank
            noise_seed = check_count("noise_seed", noise_seed, minimum=0) * ranks.size + ranks.rank
        noise = noise_source(noise_seed, insecure_reproducible=insecure_reproducible)
        gradient = ClippedGradientSum(
            module, _loss_of(loss) or cross_entropy, clip_norm=clip_norm, micro_batch=micro_batch
        )
        X, y = checked_arrays(*_tensors(X, y))
        gradient.check(X, y)
        found = {
            "records": len(X), "clip_norm": gradient.clip_norm, "steps": steps, "batch_size": batch_size,
            "noise_multiplier": noise_multiplier, "budget": budget.to_json(),
            "shapes": [tuple(p.shape) for p in gradient.parameters],
            "types": [str(p.dtype) for p in gradient.parameters], "record": (tuple(X.shape[1:]), tuple(y.shape[1:])),
        }  # fmt: skip
    except GratisError as error:
        problem = str(error)
    ranks.refuse_any(problem)
    said = ranks.gathered(found)
    if any({**other, "records": 0} != {**said[0], "records": 0} for other in said):
        raise GratisError("the processes have different settings or modules; nothing was spent")
    n_records = sum(other["records"] for other in said)
    schedule = _schedule(n_records, budget, steps, batch_size, noise_multiplier)
    ranks.align(module)
    return PrivateLoop(
        gradient, X, y, schedule, budget=budget, noise=noise, ranks=ranks, ledger=ledger if ranks.is_first else None,
        dataset=dataset, purpose=purpose, selection=Selection(selection), resumable=ledger is not None,
    )  # fmt: skip


def _loss_of(loss: Any) -> Any:
    """The loss, or None for ours: torch's own cross-entropy raises on a label that is no class, after all is paid."""
    import torch

    if not isinstance(loss, torch.nn.CrossEntropyLoss):
        return loss
    if loss.weight is not None or loss.label_smoothing != 0 or loss.ignore_index != -100:
        raise GratisError("a cross-entropy with weights, smoothing or an ignored class must be a function of its own")
    return None


def _schedule(
    n_records: int, budget: Budget, steps: int, batch_size: float | None, noise_multiplier: float | None
) -> FullBatchDescent | PoissonSampling:
    if batch_size is None:
        if noise_multiplier is not None:
            raise GratisError("noise_multiplier is for Poisson batches: give batch_size too")
        return network_descent_event(n_records, steps, mu=calibrate_mu(budget), neighbouring=budget.neighbouring)
    label = "network training"
    if noise_multiplier is None:
        return PoissonSampling.calibrated(
            n_records, expected_batch_size=batch_size, steps=steps, budget=budget, label=label
        )
    if budget.epsilon is None or budget.delta is None:
        raise GratisError("subsampled training is accounted in epsilon and delta; give a budget with both, not mu")
    rate = check_positive("batch_size", batch_size) / n_records
    event = PoissonSubsampledGaussian(
        sampling_rate=rate, noise_multiplier=noise_multiplier, steps=steps, neighbouring=budget.neighbouring,
        label=label,
    )  # fmt: skip
    if not epsilon_upper_bound(account(event), delta=budget.delta) <= budget.epsilon:
        raise GratisError("this noise_multiplier does not meet the budget; leave it out to find the least that does")
    return PoissonSampling(n_records, event)


def _tensors(X: Any, y: Any) -> tuple[Any, Any]:
    """Records and targets; a dataset of pairs is read once, before anything is spent."""
    if y is not None:
        return X, y
    import torch

    if isinstance(X, torch.utils.data.TensorDataset) and len(X.tensors) == 2:
        return X.tensors
    if not hasattr(X, "__getitem__") or not hasattr(X, "__len__") or len(X) == 0:
        raise GratisError("without y, X must be a map-style torch Dataset of (record, target) pairs")
    try:
        records, targets = zip(*(X[i] for i in range(len(X))), strict=True)
        return torch.stack([torch.as_tensor(r) for r in records]), torch.as_tensor(np.asarray(targets))
    except Exception:
        pass
    # Outside the handler: the other error may quote a record.
    raise GratisError("the dataset must hold (record, target) pairs of equal shapes; nothing was spent")
