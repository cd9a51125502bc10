"""Full-batch private gradient descent for generalised linear models (S0, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.accounting import unit_descent_event
from gratis.mechanisms.clipped_gradient import clipped_gradient_sum, row_norms, sanitised
from gratis.mechanisms.noise import NoiseSource
from gratis.mechanisms.rows import Rows
from gratis.numerics.rounding import rounding_inflation
from gratis.records.checks import check_positive
from gratis.records.events import FullBatchDescent
from gratis.records.neighbouring import Neighbouring

__all__ = ["Descent", "GeneralisedLinearModel", "descend", "descend_many", "descent_event"]

Array = NDArray[Any]


class GeneralisedLinearModel(Protocol):
    """What the trainer needs of a model with canonical link."""

    @property
    def outputs(self) -> int:
        """Scores a record."""

    def targets(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return targets of shape (n, 1, outputs)."""

    def mean(self, scores: Array) -> Array:
        """Map scores to means; the gradient factor of a record is mean − target."""


@dataclass(frozen=True, slots=True)
class Descent:
    """What a private descent released: parameters (D, outputs), event; if kept, iterates (T + 1, D, outputs)."""

    parameters: NDArray[np.float64]
    event: FullBatchDescent
    path: NDArray[np.float64] | None = None


def descent_event(
    n_records: int, n_columns: int, outputs: int, steps: int, *, mu: float, neighbouring: Neighbouring
) -> FullBatchDescent:
    """Return the event of T full-batch steps at `mu`-GDP, known before any data is read.

    In units of ηC every step releases (1/n)Σclip₁(gᵢ/C) + s·N(0, I): sensitivity κr/n with r the rounding
    inflation, so s = κr√T/(nμ) makes the T steps together μ-GDP. Learning rate and clip norm only rescale what
    is released, so they may be chosen later from earlier releases; the event does not depend on them.

    >>> event = descent_event(1000, 10, 1, 25, mu=0.5, neighbouring=Neighbouring.ZERO_OUT)
    >>> round(event.noise_stds.values[0], 6)
    0.01
    """
    inflation = rounding_inflation(n_records, n_columns + outputs, sensitivity=neighbouring.sensitivity_factor)
    return unit_descent_event(
        n_records, steps, mu=mu, neighbouring=neighbouring, rounding_inflation=inflation, label="descent"
    )


def descend(
    rows: Rows,
    model: GeneralisedLinearModel,
    *,
    steps: int,
    clip_norm: float,
    learning_rate: float | NDArray[np.float64],
    mu: float,
    neighbouring: Neighbouring,
    noise: NoiseSource,
    average: bool = True,
    keep_path: bool = False,
) -> Descent:
    """Run θ_t = θ_{t−1} − η_t·C·[(1/n)Σ clip₁(gᵢ/C) + s·N(0, I)] from 0 and return θ_T or the mean of the last half.

    **Guarantee**: the whole sequence of iterates, hence the result, is `mu`-GDP under `neighbouring`, if X was
    made from the records row by row by a map that is public or was released before, and the clip norm and
    learning rates depend on earlier releases and public facts only. Sensitivity: `clipped_gradient_sum`;
    rows with non-finite entries contribute nothing.

    Parameters
    ----------
    rows : Rows
        (X, y), targets as the model reads them.
    model : GeneralisedLinearModel
        Mean function and target encoding.
    steps : int
        T, fixed before data is touched.
    clip_norm : float
        C.
    learning_rate : float or (T,)
        η, constant or one for each step.
    mu : float
        GDP parameter of the whole descent.
    neighbouring : Neighbouring
        The relation of the guarantee.
    noise : NoiseSource
        Where the noise comes from.
    average : bool
        Mean of the last ⌈T/2⌉ iterates (post-processing) instead of the last one.
    keep_path : bool
        Return every iterate too.

    >>> X = np.column_stack([np.ones(4000), np.linspace(-1, 1, 4000)])
    >>> from gratis.models.generalised_linear import LinearModel
    >>> run = descend(Rows.held(X, 2 * X[:, 1]), LinearModel(), steps=40, clip_norm=1.0, learning_rate=1.0, mu=10.0,
    ...               neighbouring=Neighbouring.ZERO_OUT, noise=NoiseSource.insecure(0))
    >>> bool(np.abs(run.parameters[:, 0] - [0.0, 2.0]).max() < 0.1)
    True
    """
    event = descent_event(rows.n_rows, rows.n_features, model.outputs, steps, mu=mu, neighbouring=neighbouring)
    noise_std = event.noise_stds.values[0]
    path = [np.zeros((rows.n_features, model.outputs))]

    def visit(parameters: NDArray[Any]) -> None:
        if keep_path:
            path.append(parameters[:, 0])

    parameters = descend_many(
        rows.mapped(lambda X, y: (X, model.targets(y))),
        model.mean,
        steps=event.steps,
        outputs=model.outputs,
        clip_norms=np.array([check_positive("clip_norm", clip_norm)]),
        learning_rates=np.asarray(learning_rate, dtype=np.float64).reshape(-1, 1),
        add_noise=lambda gradient: noise.release(gradient, noise_std),
        visit=visit,
    )[0 if average else 1]
    return Descent(parameters[:, 0, :], event, np.array(path) if keep_path else None)


def descend_many(
    rows: Rows,
    mean: Callable[[NDArray[Any]], NDArray[Any]],
    *,
    steps: int,
    outputs: int,
    clip_norms: NDArray[Any],
    learning_rates: NDArray[Any],
    add_noise: Callable[[NDArray[Any]], NDArray[Any]],
    visit: Callable[[NDArray[Any]], None] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Run B descents on the same rows at once; return (mean of the last half, last iterate), each (D, B, k).

    Each of the B runs is a release of its own: on private data use `descend`. Twins use this with many settings.

    Parameters
    ----------
    rows : Rows
        (X, targets), shared by all runs: targets (n, B or 1, k) are what the means are compared with.
    mean : callable
        Scores to means.
    steps, outputs : int
        T and k.
    clip_norms : (B,)
        C of every run.
    learning_rates : (T or 1, B)
        η of every run.
    add_noise : callable
        Adds the noise of one step to the mean clipped gradient, in units of the clip norm.
    visit : callable, optional
        Gets the parameters (D, B, k) after every step.
    """
    prepared = rows.mapped(_with_norms)
    size = clip_norms.size
    parameters = np.zeros((rows.n_features, size, outputs), dtype=clip_norms.dtype)
    total = np.zeros_like(parameters)
    rates = (np.broadcast_to(learning_rates, (steps, size)) * clip_norms).astype(clip_norms.dtype)
    kept = (steps + 1) // 2
    for step in range(steps):
        gradient = prepared.clipped_total(
            partial(clipped_gradient_sum, parameters=parameters, mean=mean, clip_norms=clip_norms)
        )
        parameters = parameters - rates[step][:, None] * add_noise(gradient / rows.n_rows)
        if visit is not None:
            visit(parameters)
        if step >= steps - kept:
            total += parameters
    return total / kept, parameters


def _with_norms(X: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    clean = sanitised(X)
    return clean, row_norms(clean), targets
