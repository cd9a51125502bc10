"""Many one-pass runs of private logistic regression on Gaussian data that nobody owns, to check its theory against.

x ~ N(0, diag λ), P(y = 1) = σ(xᵀθ*), θ_0 = 0, logistic loss; step, cap 8/‖x‖², clip and noise as the event says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.planning.one_pass.logistic_moments import logistic_risk
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration

__all__ = ["simulate_classification"]

Array = NDArray[np.float64]


def simulate_classification(
    event: OnePassIteration,
    *,
    eigenvalues: ArrayLike,
    target: ArrayLike,
    repetitions: int,
    record_steps: Sequence[int],
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Return log losses and error rates, both (repetitions, record_steps), of θ after so many steps.

    They are exact functions of θᵀΣθ and θᵀΣθ*, as rows are Gaussian: no test rows are drawn.

    >>> from gratis.records.sequences import Runs
    >>> event = OnePassIteration(step_sizes=Runs.constant(0.1, 50), clip_norms=Runs.constant(1.0, 50),
    ...     noise_stds=Runs.constant(0.0, 50), neighbouring="replace-one")
    >>> losses, errors = simulate_classification(event, eigenvalues=np.ones(4), target=np.ones(4), repetitions=3,
    ...     record_steps=[0, 50], rng=np.random.default_rng(0))
    >>> bool(np.allclose(losses[:, 0], math.log(2))), bool((errors[:, 1] < 0.5).all())
    (True, True)
    """
    spectrum, truth = np.asarray(eigenvalues, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if spectrum.ndim != 1 or spectrum.shape != truth.shape or event.batch_size != 1:
        raise GratisError("eigenvalues and target must be vectors of one length, and steps of one record each")
    S = float(spectrum @ truth**2)
    overlaps = np.zeros((check_count("repetitions", repetitions), len(record_steps), 2))
    for one, seed in zip(overlaps, rng.integers(0, 2**32, size=repetitions), strict=True):
        _run(event.step_sizes.array(), event.clip_norms.array(), event.noise_stds.array(), np.sqrt(spectrum), truth,
             np.asarray(record_steps, dtype=np.int64), int(seed), one)  # fmt: skip
    risks = np.array([[logistic_risk(Q, M, S) for Q, M in one] for one in overlaps])
    return risks[..., 0], risks[..., 1]


@numba.njit(cache=True)
def _run(
    steps: Array, clips: Array, noises: Array, scale: Array, truth: Array, record: NDArray[np.int64], seed: int,
    overlaps: Array,
) -> None:  # fmt: skip
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator, inside compiled code
    d = scale.size
    theta, x = np.zeros(d), np.empty(d)
    written = 0
    for k in range(steps.size + 1):
        if written < record.size and record[written] == k:
            Q, M = 0.0, 0.0
            for i in range(d):
                weighted = scale[i] * scale[i] * theta[i]
                Q += weighted * theta[i]
                M += weighted * truth[i]
            overlaps[written, 0], overlaps[written, 1] = Q, M
            written += 1
        if k == steps.size:
            return
        score, odds, square = 0.0, 0.0, 1e-300
        for i in range(d):
            x[i] = scale[i] * np.random.normal()  # noqa: NPY002
            score += x[i] * theta[i]
            odds += x[i] * truth[i]
            square += x[i] * x[i]
        y = 1.0 if np.random.random() * (1.0 + math.exp(-odds)) < 1.0 else -1.0  # noqa: NPY002
        slope = min(1.0 / (1.0 + math.exp(y * score)), clips[k] / math.sqrt(square))
        weight = min(steps[k], 8.0 / square) * y * slope
        for i in range(d):
            theta[i] += weight * x[i]
        if noises[k] > 0.0:
            for i in range(d):
                theta[i] += noises[k] * np.random.normal()  # noqa: NPY002
