"""Many trainings for one audit: in parallel, with progress, and the direction in which their outputs differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.progress import tracked

__all__ = ["Progress", "Trainer", "discriminant", "run_trainings"]

Array = NDArray[np.float64]
Trainer = Callable[[int], NDArray[Any]]
Progress = Callable[[Iterable[Any]], Iterable[Any]]

# Portions of the work: small enough for a progress line, large enough that passing them costs nothing.
_PORTIONS = 50
_MOST_WORKERS = 1000
# Beyond this many parameters a covariance costs more than the runs, and the difference of means has to do.
_LARGEST_COVARIANCE = 1000


def run_trainings(
    trainers: Sequence[Trainer], runs: int, *, workers: int = 1, progress: Progress = iter
) -> list[Array]:
    """Call every trainer with 0 … runs − 1; return one array (runs, parameters) for each.

    With several workers the trainers go to other processes: they must open their noise source inside the call, since
    a noise source refuses to be copied.

    >>> outputs = run_trainings([lambda i: np.full(2, i), lambda i: np.zeros(2)], 3)
    >>> outputs[0].tolist()
    [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    """
    runs = check_count("runs", runs)
    if (
        isinstance(workers, bool)
        or not isinstance(workers, int)
        or not (workers == -1 or 1 <= workers <= _MOST_WORKERS)
    ):
        raise GratisError(f"workers must be 1 to {_MOST_WORKERS} processes, or -1 for all cores, got {workers!r}")
    portions = [range(runs)[k::_PORTIONS] for k in range(min(_PORTIONS, runs))]

    def run(portion: range) -> list[Array]:
        return [np.array([np.ravel(train(i)) for i in portion], dtype=np.float64) for train in trainers]

    finished: Iterable[list[Array]]
    if workers == 1:
        finished = (run(portion) for portion in portions)
    else:
        from joblib import Parallel, delayed

        finished = Parallel(n_jobs=workers, return_as="generator")(delayed(run)(portion) for portion in portions)
    results = list(tracked(progress(finished), "audit", len(portions)))
    if not all(np.isfinite(part).all() for result in results for part in result):
        raise GratisError("a training returned numbers that are not finite: an audit cannot score them")
    outputs = []
    for k in range(len(trainers)):
        output = np.empty((runs, results[0][k].shape[1]))
        for portion, result in zip(portions, results, strict=True):
            output[portion.start :: _PORTIONS] = result[k]
        outputs.append(output)
    return outputs


def discriminant(first: Array, second: Array) -> Array:
    """Return Σ⁻¹(mean₂ − mean₁) with Ledoit–Wolf's covariance: the best linear score for normal outputs.

    Independent noise of one size makes Σ nearly a multiple of I, and the shrinkage finds that; noise that cancels
    between parameters (a seed used twice) makes Σ nearly singular, and Σ⁻¹ finds that.

    >>> rng = np.random.default_rng(0)
    >>> z = rng.standard_normal(400)
    >>> pair = np.column_stack([z, z + 1e-3 * rng.standard_normal(400)])
    >>> w = discriminant(pair, pair + [0.1, -0.1])
    >>> bool(abs(w[0] + w[1]) < 0.1 * abs(w[0]))
    True
    """
    difference = second.mean(axis=0) - first.mean(axis=0)
    if not 1 < difference.size <= _LARGEST_COVARIANCE:
        return np.asarray(difference)
    from sklearn.covariance import ledoit_wolf

    centred = np.vstack([first - first.mean(axis=0), second - second.mean(axis=0)])
    scale = np.sqrt(np.mean(np.square(centred)))
    if not scale > 0:
        return np.asarray(difference)
    covariance, _ = ledoit_wolf(centred / scale, assume_centered=True)
    # A covariance of rank one less than full still has an inverse after this, far below anything sampled.
    covariance[np.diag_indices_from(covariance)] += 1e-9
    return np.asarray(np.linalg.solve(covariance, difference))
