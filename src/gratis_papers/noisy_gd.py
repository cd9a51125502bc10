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

from gratis.records.checks import check_count, check_non_negative, check_positive
from gratis.records.errors import GratisError
from gratis_papers.relu_network import ReluNetwork, Residual, logistic_residual, softmax_residual

__all__ = [
    "DivergedError",
    "NeighbourDivergences",
    "mean_gradient",
    "measured_steps",
    "noisy_descent_divergences",
    "span_coordinates",
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

    `diverged_at` holds the step in which a run stopped being finite (0: it did not); its values are NaN from there on.
    A diagnostic on non-private values: never part of a certificate.
    """

    steps: tuple[int, ...]
    removed: Array
    added: Array
    records: NDArray[np.intp]
    diverged_at: tuple[int, ...] = ()
    label: str = "add/remove one record, mean loss; computed from gradients without noise: diagnostic, not a release"

    @property
    def all(self) -> Array:
        """Removed and added neighbours side by side."""
        return np.concatenate([self.removed, self.added], axis=2)


def span_coordinates(*blocks: ArrayLike) -> list[NDArray[Any]]:
    """Return the blocks of records in an orthonormal basis of what they span together: norms and angles stay.

    First layers that start from N(0, β) and get isotropic noise have the same law in every orthonormal basis, and what
    is orthogonal to all records never acts. With fewer records than inputs the same training costs less.

    >>> first, second = span_coordinates([[3.0, 4.0, 0.0]], [[4.0, -3.0, 0.0]])
    >>> first.shape, round((first @ first.T).item(), 6), round(abs((first @ second.T).item()), 6)
    ((1, 2), 25.0, 0.0)
    """
    rows = [np.asarray(block) for block in blocks]
    stacked = np.concatenate(rows).astype(np.float64)
    if len(stacked) >= stacked.shape[1]:
        return rows
    basis = np.linalg.qr(stacked.T)[0]
    return [np.asarray(block @ basis, dtype=block.dtype) for block in rows]


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
    thinning: float = 0.0,
    keep_diverged: bool = False,
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
    thinning : float
        0 measures the differences in every step. Else in every step up to 1/thinning, then in steps that lie about
        this share apart and at checkpoints; in between they are taken to be linear in the step. Distances are odd, so
        that a descent which oscillates from step to step is not met on one side alone.
    keep_diverged : bool
        Keep what was measured before a run diverged, instead of an error.

    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((20, 3)), rng.integers(2, size=20)
    >>> found = noisy_descent_divergences(X, y, widths=(3, 8, 2), variances=(1 / 3, 1 / 8), step_size=0.1,
    ...                                   noise_std=0.5, steps=4, runs=2)
    >>> found.removed.shape, bool((found.removed > 0).all())
    ((2, 1, 20), True)
    """
    rule = residual or (logistic_residual if widths[-1] == 1 else softmax_residual)
    rows, labels = _records(X, y, widths[0], dtype)
    n = len(rows)
    if n < 2:
        raise GratisError("removing a record needs a data set of at least 2 records")
    if X_added is not None:
        more = _records(X_added, y_added, widths[0], dtype)
        rows, labels = torch.cat([rows, more[0]]), torch.cat([labels, more[1]])
    chosen = _chosen(neighbours, n)
    eta, sigma = check_positive("step_size", step_size), check_positive("noise_std", noise_std)
    marks = _checkpoints(checkpoints, check_count("steps", steps))
    measured = set(measured_steps(marks, check_non_negative("thinning", thinning)))
    found = np.full((check_count("runs", runs), len(marks), len(rows)), np.nan)
    size = check_count("micro_batch", micro_batch)
    # Of ‖g_z − ḡ‖²: a removed record divides by n − 1, an added one by n + 1.
    weight = eta / (4 * sigma**2) / np.where(np.arange(len(rows)) < n, n - 1, n + 1) ** 2.0
    diverged = [0] * len(found)
    with torch.no_grad():
        for run, kept in enumerate(found):
            generator = torch.Generator().manual_seed(check_count("seed", seed, minimum=0) * 1_000_003 + run)
            network = ReluNetwork(widths, variances, generator=generator, linearised=linearised, dtype=dtype)
            total, last, before = np.zeros(len(rows)), np.zeros(len(rows)), 0
            for step in range(1, marks[-1] + 1):
                if step in measured:
                    mean, gaps = _squared_gaps(network, rows, labels, n, rule, size, kept_bytes)
                    finite = bool(np.isfinite(gaps).all()) and all(bool(torch.isfinite(g).all()) for g in mean)
                    # Σ over the steps since the last measured one, linear in between.
                    since = step - before
                    total += since * last + (gaps - last) * ((since + 1) / 2) if before else gaps
                    last, before = gaps, step
                else:
                    mean = mean_gradient(network, rows[:n], labels[:n], rule, size)
                    # What is not finite anywhere below reaches the last layer's gradient.
                    finite = bool(torch.isfinite(mean[-1]).all())
                if not finite:
                    if not keep_diverged:
                        raise DivergedError(step)
                    diverged[run] = step
                    break
                for w, g in zip(network.weights, mean, strict=True):
                    w.sub_(g, alpha=eta)
                    w.add_(torch.randn(w.shape, generator=generator, dtype=dtype), alpha=math.sqrt(2 * eta) * sigma)
                if step in marks:
                    kept[marks.index(step)] = weight * total
    return NeighbourDivergences(marks, found[:, :, :n][:, :, chosen], found[:, :, n:], chosen, tuple(diverged))


def measured_steps(marks: Sequence[int], thinning: float) -> Iterator[int]:
    """Yield the steps in which differences are measured: checkpoints, and steps an odd distance apart that grows."""
    step = 1
    while step <= marks[-1]:
        yield step
        step += max(1, 2 * int((step * thinning - 1) // 2) + 1)
    yield from marks


def mean_gradient(network: ReluNetwork, rows: Any, labels: Any, rule: Residual, size: int) -> list[Any]:
    """Return ∇L by layers, from `size` records at a time."""
    total = [torch.zeros_like(w) for w in network.weights]
    for part in _parts(rows, labels, size):
        layers, b = _pass(network, part, rule)
        for g, a, back in zip(total, layers, b, strict=True):
            g.addmm_(back.T, a)
    return [g.div_(len(rows)) for g in total]


def _squared_gaps(
    network: ReluNetwork, rows: Any, labels: Any, count: int, rule: Residual, size: int, room: int
) -> tuple[list[Any], Array]:
    """Return ḡ of the first `count` records by layers, and ‖g_z − ḡ‖² for all."""
    total = [torch.zeros_like(w) for w in network.weights]
    norms, kept, left = [], [], count
    for part in _parts(rows, labels, size):
        layers, b = _pass(network, part, rule)
        if left > 0:
            for g, a, back in zip(total, layers, b, strict=True):
                g.addmm_(back[:left].T, a[:left])
        left -= len(part[0])
        norms.append(_squared_norms(layers, b))
        room -= sum(t.nbytes for t in (*layers[1:], *b))
        kept.append((layers, b) if room > 0 else None)
    mean = [g.div_(count) for g in total]
    length = sum(float(torch.linalg.vector_norm(g, dtype=torch.float64)) ** 2 for g in mean)
    gaps = [
        squares - 2 * _inner(*(stored or _pass(network, part, rule)), mean)
        for squares, stored, part in zip(norms, kept, _parts(rows, labels, size), strict=True)
    ]
    # Cancellation may leave a tiny negative square.
    return mean, np.maximum(torch.cat(gaps).numpy() + length, 0.0)


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


def _parts(rows: Any, labels: Any, size: int) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size], labels[start : start + size]


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
