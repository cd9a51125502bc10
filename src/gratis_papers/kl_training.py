"""Training with the T and σ of `gratis plan network`: noisy gradient descent without clipping, under a KL bound (S3).

W ← W − η∇L(W; D) + √(2ησ²)·Z on the linearised ReLU network, which the bound is proved for. What it gives is KL and not
(ε, δ): no certificate is issued and no ledger is written. Needs the `nn` extra.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gratis.accounting.kl import total_variation_upper_bound
from gratis.mechanisms.noise import NoiseSource
from gratis.planning.bounds.initialization import (
    excess_risk_tradeoff,
    gradient_norm_constant,
    layer_variances,
    layer_widths,
    lazy_training_distance,
    linearised_kl_upper_bound,
)
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis_papers.noisy_gd import mean_gradient
from gratis_papers.relu_network import ReluNetwork, logistic_residual, softmax_residual

__all__ = ["KLPlan", "KLTraining", "plan_under_kl", "train_under_kl"]

_MICRO_BATCH = 1024
_MOST_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class KLPlan:
    """A run of noisy descent from public sizes alone: shape, T = steps × step size, σ, and the KL that it states."""

    scheme: str
    widths: tuple[int, ...]
    time: float
    noise_std: float
    steps: int
    kl: float
    neighbouring: Neighbouring

    @property
    def step_size(self) -> float:
        """η = T/steps."""
        return self.time / self.steps

    @property
    def caption(self) -> str:
        """What is proved, and what is not."""
        return (
            f"KL ≤ {self.kl:.4g} between the runs of neighbours ({self.neighbouring}), in expectation over the initial "
            f"weights, for the linearised network and inputs of norm at most √{self.widths[0]}: no membership test "
            f"gains more than {total_variation_upper_bound(kl=self.kl):.3g} on average. This is KL, not (ε, δ)-DP: not "
            "certified, no ledger entry, and one rare run may give a record away"
        )


def plan_under_kl(
    n_records: int,
    n_inputs: int,
    n_classes: int,
    *,
    width: int,
    depth: int,
    kl_budget: float,
    scheme: str = "lecun",
    steps: int | None = None,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
) -> KLPlan:
    """Return T and σ of Corollary 6.4 (those of `gratis plan network`) and a number of steps that descends.

    The bound depends on T alone. Cross-entropy bends by at most ½ in the scores, so the loss by about B/2 in the
    weights: steps of 2/B and less descend, T·B/2 of them are taken unless `steps` says otherwise.

    Parameters
    ----------
    n_records, n_inputs, n_classes : int
        n, d, and the outputs: 1 is one logistic output, 2 and more softmax.
    width, depth : int
        Hidden width and number of weight matrices.
    kl_budget : float
        Largest KL between runs on neighbours; not an ε of DP.

    >>> plan = plan_under_kl(1000, 10, 2, width=32, depth=3, kl_budget=1.0)
    >>> round(plan.kl, 9), "not (ε, δ)" in plan.caption
    (1.0, True)
    """
    shape = layer_widths(n_inputs, width, depth, n_classes)
    variances = layer_variances(scheme, shape)
    constant, relation = gradient_norm_constant(shape, variances), Neighbouring.parse(neighbouring)
    found = excess_risk_tradeoff(
        constant,
        lazy_training_distance(shape, variances, n_records),
        n_records=n_records,
        kl_budget=kl_budget,
        n_outputs=n_classes,
        neighbouring=relation,
    )
    count = math.ceil(found.time * constant / 2) if steps is None else check_count("steps", steps)
    if count > _MOST_STEPS:
        raise GratisError(f"this plan needs {count} steps, more than {_MOST_STEPS}; give steps, or a smaller network")
    bound = linearised_kl_upper_bound(
        constant,
        time=found.time,
        noise_std=found.noise_std,
        n_records=n_records,
        n_outputs=n_classes,
        neighbouring=relation,
    )
    return KLPlan(str(scheme), shape, found.time, found.noise_std, max(1, count), bound.kl, relation)


@dataclass(frozen=True, slots=True)
class KLTraining:
    """A linearised network trained by noisy descent: start and end weights, and what its plan states."""

    plan: KLPlan
    network: ReluNetwork = field(repr=False)
    noise_is_secure: bool

    def scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return f(x) of the linearised network, rows brought to norm √d at most as in training."""
        with torch.no_grad():
            found: NDArray[np.float64] = self.network.scores(_limited(X, self.plan.widths[0])).numpy()
        return found

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the class 0 … o−1 with the largest score; 0 or 1 by the sign of one output."""
        scores = self.scores(X)
        return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)

    def weights(self) -> dict[str, NDArray[np.float64]]:
        """Return start_1 … start_L and trained_1 … trained_L, which together are the linearised network."""
        anchors = self.network.anchor or []
        named = [(f"start_{i + 1}", w) for i, w in enumerate(anchors)]
        named += [(f"trained_{i + 1}", w) for i, w in enumerate(self.network.weights)]
        return {name: w.numpy() for name, w in named}


def train_under_kl(X: ArrayLike, y: ArrayLike, plan: KLPlan, *, noise: NoiseSource) -> KLTraining:
    """Run the plan on records X with classes y = 0 … o−1 (0 and 1 for one output).

    **Guarantee**: start and every iterate together have KL ≤ `plan.kl` between data sets that are neighbours by
    `plan.neighbouring`, in expectation over the initial weights, which are drawn here from `noise` (S3, Corollary 4.2,
    corrected; docs/theory/initialization.md). Rows longer than √d are scaled down to it, each by itself, and classes
    that do not exist become the nearest. The number of rows, the columns and the classes are public. This bounds total
    variation and is not (ε, δ)-DP.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 4))
    >>> plan = plan_under_kl(200, 4, 2, width=16, depth=2, kl_budget=5.0)
    >>> trained = train_under_kl(X, X[:, 0] > 0, plan, noise=NoiseSource.insecure(1))
    >>> trained.predict(X).shape
    (200,)
    """
    d, outputs = plan.widths[0], plan.widths[-1]
    rows = _limited(X, d)
    given = np.asarray(y, dtype=np.float64)
    if given.shape != (len(rows),):
        raise GratisError("expected one class for each row")
    # A class that does not exist becomes the nearest that does: no error may depend on a record.
    labels = np.clip(np.nan_to_num(given), 0, max(2, outputs) - 1).astype(np.int64)
    targets, rule = torch.from_numpy(labels), softmax_residual
    if outputs == 1:
        targets, rule = 2 * targets - 1, logistic_residual
    variances = layer_variances(plan.scheme, plan.widths)
    eta, std = plan.step_size, math.sqrt(2 * plan.step_size) * check_positive("noise_std", plan.noise_std)
    start = [
        torch.from_numpy(noise.normal(math.sqrt(beta), (after, before)))
        for before, after, beta in zip(plan.widths[:-1], plan.widths[1:], variances, strict=True)
    ]
    network = ReluNetwork.from_weights(start, linearised=True)
    with torch.no_grad():
        for _ in range(plan.steps):
            mean = mean_gradient(network, rows, targets, rule, _MICRO_BATCH)
            network.weights = [
                torch.from_numpy(noise.release((w - eta * g).numpy(), std))
                for w, g in zip(network.weights, mean, strict=True)
            ]
    return KLTraining(plan, network, noise.is_secure)


def _limited(X: ArrayLike, d: int) -> Any:
    """Rows in float64, none longer than √d; what is not finite counts as 0, so that no row can stop a release."""
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != d or not len(rows):
        raise GratisError(f"expected rows of {d} columns")
    rows = np.where(np.isfinite(rows), rows, 0.0)
    # The largest entry first: squares of very large entries would overflow.
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0)
    unit = rows / largest
    lengths = np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-300)
    return torch.from_numpy(unit * np.minimum(largest, math.sqrt(d) / lengths))
