"""Noisy gradient descent on ReLU networks, and what it tells about every neighbour of its data set (S3).

W ← W − η∇L(W; D) + √(2ησ²)·Z. For a mean loss and a record z, ∇L(D) − ∇L(D∖z) = (g_z − ḡ)/(n−1) and
∇L(D) − ∇L(D∪z) = (ḡ − g_z)/(n+1), so all neighbours need only ‖g_z‖² = Σ_l‖a_{l−1}‖²‖b_l‖² and
⟨g_z, ḡ⟩ = Σ_l b_lᵀ Ḡ_l a_{l−1}. The numbers are computed from gradients without noise: an audit of the mechanism, for
whoever may see the data; nothing here is a release. Needs the `nn` extra.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis_papers.relu_network import ReluNetwork, Residual, logistic_residual, softmax_residual

__all__ = [
    "DivergedError",
    "NeighbourDivergences",
    "noisy_descent_divergences",
]


class DivergedError(GratisError):
    """Gradients became infinite or NaN; `step` says where."""

    def __init__(self, step: int) -> None:
        super().__init__(f"gradients are not finite in step {step}; lower step_size or check the inputs")
        self.step = step


Array = NDArray[np.float64]
_KEPT_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class NeighbourDivergences:
    """KL between the run on D and on each neighbour, from each training run: arrays (runs, checkpoints, neighbours).

    A diagnostic on non-private values: never part of a certificate.
    """

    steps: tuple[int, ...]
    removed: Array
    added: Array
    records: NDArray[np.intp]
    label: str = "add/remove one record, mean loss; computed from gradients without noise: diagnostic, not a release"

    @property
    def all(self) -> Array:
        """Removed and added neighbours side by side."""
        return np.concatenate([self.removed, self.added], axis=2)


def noisy_descent_divergences(
    X: ArrayLike,
    y: ArrayLike,
    X_added: ArrayLike | None = None,
    y_added: ArrayLike | None = None,
    *,
    widths: Sequence[int],
    variances: Sequence[float],
    step_size: float,
    noise_std: float,
    steps: int,
    runs: int = 6,
    seed: int = 0,
    checkpoints: Sequence[int] | None = None,
    neighbours: ArrayLike | None = None,
    linearised: bool = False,
    residual: Residual | None = None,
    micro_batch: int = 1024,
    kept_bytes: int = _KEPT_BYTES,
    dtype: Any = torch.float32,
) -> NeighbourDivergences:
    """Run noisy descent on D and estimate KL = (η/(4σ²))·Σ_k‖∇L(W_k; D) − ∇L(W_k; D′)‖² for every neighbour D′.

    Each run draws new initial weights and noise; expectations are means over runs (`audits.kl.estimate_kl`). Cost a
    step: forward, backward and one product a layer for the mean gradient, one more for the inner products; layers'
    values are kept up to `kept_bytes` and computed again beyond that.

    Parameters
    ----------
    X, y : (n, d), (n,)
        The data set. Labels 0 … o−1 for softmax, ±1 for one logistic output, targets for `squared_residual`.
    X_added, y_added : (n′, d), (n′,)
        Records that a neighbour may have in addition.
    widths, variances : sequence
        Layer widths d … o and initial variances β_1 … β_L (`theory.initialization.layer_variances`).
    step_size, noise_std : float
        η and σ.
    checkpoints : sequence of int
        Steps after which the divergences so far are kept; the last step when left out.
    neighbours : sequence of int
        Records that a neighbour may lack; all when left out.
    linearised : bool
        Train the first-order expansion at the initial weights, which S3's bounds speak of.

    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((20, 3)), rng.integers(2, size=20)
    >>> found = noisy_descent_divergences(X, y, widths=(3, 8, 2), variances=(1 / 3, 1 / 8), step_size=0.1,
    ...                                   noise_std=0.5, steps=4, runs=2)
    >>> found.removed.shape, bool((found.removed > 0).all())
    ((2, 1, 20), True)
    """
    rule = residual or (logistic_residual if widths[-1] == 1 else softmax_residual)
    data = _records(X, y, widths[0], dtype)
    n = len(data[0])
    if n < 2:
        raise GratisError("removing a record needs a data set of at least 2 records")
    extra = None if X_added is None else _records(X_added, y_added, widths[0], dtype)
    chosen = _chosen(neighbours, n)
    eta, sigma = check_positive("step_size", step_size), check_positive("noise_std", noise_std)
    marks = _checkpoints(checkpoints, check_count("steps", steps))
    shape = (check_count("runs", runs), len(marks))
    removed, added = np.zeros((*shape, len(chosen))), np.zeros((*shape, 0 if extra is None else len(extra[0])))
    scale = eta / (4 * sigma**2)
    size = check_count("micro_batch", micro_batch)
    with torch.no_grad():
        for run in range(shape[0]):
            generator = torch.Generator().manual_seed(check_count("seed", seed, minimum=0) * 1_000_003 + run)
            network = ReluNetwork(widths, variances, generator=generator, linearised=linearised, dtype=dtype)
            lost, gained = np.zeros(n), np.zeros(added.shape[2])
            for step in range(1, marks[-1] + 1):
                mean, gaps, more = _squared_gaps(network, data, extra, rule, size, kept_bytes)
                if not all(bool(torch.isfinite(g).all()) for g in mean) or not np.isfinite(gaps).all():
                    raise DivergedError(step)
                lost += scale / (n - 1) ** 2 * gaps
                gained += scale / (n + 1) ** 2 * more
                for w, g in zip(network.weights, mean, strict=True):
                    w.sub_(g, alpha=eta)
                    w.add_(torch.randn(w.shape, generator=generator, dtype=dtype), alpha=math.sqrt(2 * eta) * sigma)
                if step in marks:
                    place = marks.index(step)
                    removed[run, place], added[run, place] = lost[chosen], gained
    return NeighbourDivergences(marks, removed, added, chosen)


def _squared_gaps(
    network: ReluNetwork, data: tuple[Any, Any], extra: tuple[Any, Any] | None, rule: Residual, size: int, room: int
) -> tuple[list[Any], Array, Array]:
    """Return ḡ by layers, and ‖g_z − ḡ‖² for the records of the data set and for those to be added."""
    count = len(data[0])
    total = [torch.zeros_like(w) for w in network.weights]
    norms, kept = [], []
    for part in _parts(data, size):
        layers, b = _pass(network, part, rule)
        for g, a, back in zip(total, layers, b, strict=True):
            g.addmm_(back.T, a)
        norms.append(_squared_norms(layers, b))
        room -= sum(t.nbytes for t in (*layers[1:], *b))
        kept.append((layers, b) if room > 0 else None)
    mean = [g.div_(count) for g in total]
    length = sum(float(torch.linalg.vector_norm(g, dtype=torch.float64)) ** 2 for g in mean)
    gaps = [
        squares - 2 * _inner(*(stored or _pass(network, part, rule)), mean)
        for squares, stored, part in zip(norms, kept, _parts(data, size), strict=True)
    ]
    more = []
    for part in _parts(extra, size) if extra is not None else ():
        layers, b = _pass(network, part, rule)
        more.append(_squared_norms(layers, b) - 2 * _inner(layers, b, mean))
    return mean, _floored(gaps, length), _floored(more, length)


def _pass(network: ReluNetwork, part: tuple[Any, Any], rule: Residual) -> tuple[list[Any], list[Any]]:
    layers, scores = network.forward(part[0])
    return layers, network.backward(layers, rule(scores, part[1]))


def _squared_norms(layers: list[Any], b: list[Any]) -> Any:
    pairs = zip(layers, b, strict=True)
    return sum(_squares(a) * _squares(back) for a, back in pairs)


def _squares(rows: Any) -> Any:
    return torch.linalg.vector_norm(rows, dim=1).double().square_()


def _inner(layers: list[Any], b: list[Any], mean: list[Any]) -> Any:
    total: Any = 0.0
    for a, back, g in zip(layers, b, mean, strict=True):
        # The same product from either side: the narrower result costs less to multiply and add up.
        part = (a @ g.T).mul_(back) if back.shape[1] < a.shape[1] else (back @ g).mul_(a)
        total = total + part.sum(dim=1).double()
    return total


def _floored(parts: list[Any], length: float) -> Array:
    # Cancellation may leave a tiny negative square.
    return np.maximum(torch.cat(parts).numpy() + length, 0.0) if parts else np.zeros(0)


def _parts(data: tuple[Any, Any], size: int) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(data[0]), size):
        yield data[0][start : start + size], data[1][start : start + size]


def _records(X: ArrayLike, y: ArrayLike | None, columns: int, dtype: Any) -> tuple[Any, Any]:
    inputs = torch.as_tensor(np.ascontiguousarray(X)).to(dtype)
    targets = torch.as_tensor(np.ascontiguousarray([] if y is None else y))
    if inputs.ndim != 2 or len(inputs) != len(targets) or inputs.shape[1] != columns:
        raise GratisError(f"expected records of {columns} columns, the first width, and one label for each")
    if not bool(torch.isfinite(inputs).all()):
        raise GratisError("the records hold values that are not finite; remove or impute them first")
    return inputs, targets


def _chosen(neighbours: ArrayLike | None, n: int) -> NDArray[np.intp]:
    if neighbours is None:
        return np.arange(n)
    index = np.atleast_1d(np.asarray(neighbours))
    if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer) or not np.all((index >= 0) & (index < n)):
        raise GratisError(f"neighbours must be indices of records, 0 to {n - 1}")
    return index.astype(np.intp)


def _checkpoints(checkpoints: Sequence[int] | None, steps: int) -> tuple[int, ...]:
    if checkpoints is None:
        return (steps,)
    marks = tuple(sorted({check_count("a checkpoint", mark) for mark in checkpoints}))
    if not marks or marks[-1] > steps:
        raise GratisError(f"checkpoints must be steps from 1 to {steps}")
    return marks
