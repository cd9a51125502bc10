"""Many one-pass runs at once on Gaussian data that nobody owns: what theory (S2, Theorem 1) is checked against.

x ~ N(0, diag λ), y = xᵀθ* + z, z ~ N(0, ζ²), θ_0 = 0, squared loss; step, cap, clip and noise as the event says.
Data is drawn inside the compiled loop, never stored. This is public simulation: the generator is fast, not secure.

Where eigenvalues repeat, one number an eigenspace is enough. Within an eigenspace of dimension m the law of x and of
the noise is invariant under rotations, so the risk depends on θ − θ* only through its length ν there, and with
z ~ N(0, 1), k ~ χ²_{m−1} a step of weight w moves ν² to (ν − w√λz)² + w²λk, the noise to (ν + sz)² + s²k. This is exact
in law; an isotropic run then costs the same at any d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gratis.records.checks import check_count, check_non_negative
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis_papers.fast_normals import fill_chi_squares, fill_normals

__all__ = ["simulate_one_pass"]

_FAST: Any = {"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"}
_single = np.float32
_WORTH_GROUPING = 4


def simulate_one_pass(
    events: Sequence[OnePassIteration],
    *,
    eigenvalues: ArrayLike,
    target: ArrayLike,
    label_noise_variance: float,
    repetitions: int,
    record_steps: Sequence[int],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return excess risks ½Σλ_i(θ − θ*)_i² of shape (events, repetitions, record_steps), on all cores.

    Each (event, repetition) has its own stream of randomness, so results do not depend on the number of threads.
    θ is not projected on the trainer's ball: its radius is chosen far away.

    Parameters
    ----------
    events : sequence of OnePassIteration
        Settings to compare; all with the same number of steps.
    eigenvalues, target : array of shape (d,)
        Diagonal of Σ, and θ* in its eigenbasis.
    label_noise_variance : float
        ζ².
    repetitions : int
        Independent runs of each event.
    record_steps : sequence of int
        Numbers of completed steps at which the risk is recorded, increasing; 0 is the start, `steps` the release.
    rng : numpy.random.Generator
        Public randomness; it only seeds the runs.

    >>> from gratis.records.sequences import Runs
    >>> event = OnePassIteration(step_sizes=Runs.constant(0.01, 50), clip_norms=Runs.constant(1.0, 50),
    ...     noise_stds=Runs.constant(0.0, 50), neighbouring="replace-one")
    >>> risk = simulate_one_pass([event], eigenvalues=np.ones(4), target=np.ones(4) / 2, label_noise_variance=0.0,
    ...     repetitions=3, record_steps=[0, 50], rng=np.random.default_rng(0))
    >>> risk.shape, bool(np.all(risk[0, :, 0] == 0.5)), bool(np.all(risk[0, :, 1] < 0.5))
    ((1, 3, 2), True, True)
    """
    spectrum, truth = np.asarray(eigenvalues, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if spectrum.ndim != 1 or spectrum.shape != truth.shape or spectrum.size == 0 or np.any(~(spectrum >= 0)):
        raise GratisError("eigenvalues and target must be vectors of one length, eigenvalues not negative")
    noise_variance = check_non_negative("label_noise_variance", label_noise_variance)
    repetitions = check_count("repetitions", repetitions)
    steps = {event.steps for event in events}
    if len(steps) != 1:
        raise GratisError("the events of one simulation must have the same number of steps, and at least one is needed")
    record = np.asarray(record_steps, dtype=np.int64)
    if (
        record.ndim != 1
        or record.size == 0
        or record[0] < 0
        or record[-1] > steps.pop()
        or np.any(np.diff(record) <= 0)
    ):
        raise GratisError("record_steps must increase from at least 0 to at most the number of steps")
    risks = np.empty((len(events), repetitions, record.size))
    seeds = rng.integers(0, 2**64, size=(len(events), repetitions), dtype=np.uint64)
    batch_sizes = np.array([event.batch_size for event in events])
    values, place, counts = np.unique(spectrum, return_inverse=True, return_counts=True)
    # Directions of several records in one step are not independent of their lengths: those runs stay in coordinates.
    if np.all(batch_sizes == 1) and _WORTH_GROUPING * values.size <= spectrum.size:
        spectrum, truth = values, np.sqrt(np.bincount(place, weights=truth**2))
    else:
        counts = np.ones(0, dtype=np.int64)
    _simulate(
        np.stack([event.step_sizes.array() for event in events]),
        np.stack([event.clip_norms.array() for event in events]),
        np.stack([event.noise_stds.array() for event in events]),
        batch_sizes, spectrum, counts, truth, math.sqrt(noise_variance), record, seeds, risks,
    )  # fmt: skip
    return risks


@numba.njit(cache=True, parallel=True, fastmath=_FAST)
def _simulate(
    step_sizes: NDArray[np.float64], clip_norms: NDArray[np.float64], noise_stds: NDArray[np.float64],
    batch_sizes: NDArray[np.int64], spectrum: NDArray[np.float64], counts: NDArray[np.int64],
    truth: NDArray[np.float64], label_noise_std: float, record: NDArray[np.int64], seeds: NDArray[np.uint64],
    risks: NDArray[np.float64],
) -> None:  # fmt: skip
    repetitions = seeds.shape[1]
    for run in numba.prange(seeds.size):
        e, r = run // repetitions, run % repetitions
        if counts.size:
            _run_in_eigenspaces(
                step_sizes[e], clip_norms[e], noise_stds[e], spectrum, counts, truth, label_noise_std,
                record, seeds[e, r], risks[e, r],
            )  # fmt: skip
        else:
            _run_in_coordinates(
                step_sizes[e], clip_norms[e], noise_stds[e], batch_sizes[e], spectrum, truth, label_noise_std,
                record, seeds[e, r], risks[e, r],
            )  # fmt: skip


@numba.njit(cache=True, fastmath=_FAST)
def _weight(slope: float, square: float, step: float, clip: float) -> float:
    """Return η̄·clip(ℓ′) of squared loss."""
    square = max(square, 1e-30)
    limit = clip / math.sqrt(square)
    return min(step, 2 / square) * min(max(slope, -limit), limit)


@numba.njit(cache=True, fastmath=_FAST)
def _run_in_coordinates(
    step_sizes: NDArray[np.float64], clip_norms: NDArray[np.float64], noise_stds: NDArray[np.float64],
    batch_size: int, spectrum: NDArray[np.float64], truth: NDArray[np.float64], label_noise_std: float,
    record: NDArray[np.int64], seed: np.uint64, risks: NDArray[np.float64],
) -> None:  # fmt: skip
    d = spectrum.shape[0]
    half = (d + 2) // 2
    high, low = np.empty(half, np.int32), np.empty(half, np.int32)
    draw = np.empty(2 * half, np.float32)
    scale = np.sqrt(spectrum).astype(np.float32)
    error = (-truth).astype(np.float32)  # θ − θ*
    move = np.empty(d, np.float32)
    counter, written = seed, 0
    for k in range(step_sizes.shape[0] + 1):
        if written < record.shape[0] and record[written] == k:
            total = 0.0
            for i in range(d):
                total += spectrum[i] * np.float64(error[i]) * np.float64(error[i])
            risks[written] = 0.5 * total
            written += 1
        if k == step_sizes.shape[0]:
            break
        move[:] = 0
        for _ in range(batch_size):
            counter = fill_normals(counter, high, low, draw)
            product, square = _single(0), _single(0)
            for i in range(d):
                draw[i] *= scale[i]
                product += draw[i] * error[i]
                square += draw[i] * draw[i]
            slope = np.float64(product) - label_noise_std * np.float64(draw[d])
            weight = _single(_weight(slope, np.float64(square), step_sizes[k], clip_norms[k]) / batch_size)
            for i in range(d):
                move[i] += weight * draw[i]
        for i in range(d):
            error[i] -= move[i]
        if noise_stds[k] > 0:
            counter = fill_normals(counter, high, low, draw)
            std = _single(noise_stds[k])
            for i in range(d):
                error[i] += std * draw[i]


@numba.njit(cache=True)
def _run_in_eigenspaces(
    step_sizes: NDArray[np.float64], clip_norms: NDArray[np.float64], noise_stds: NDArray[np.float64],
    values: NDArray[np.float64], counts: NDArray[np.int64], lengths: NDArray[np.float64], label_noise_std: float,
    record: NDArray[np.int64], seed: np.uint64, risks: NDArray[np.float64],
) -> None:  # fmt: skip
    groups = values.shape[0]
    block = max(2, 1024 // groups) // 2 * 2  # steps whose randomness is drawn at once
    normals, chi = np.empty((block, 2 * groups + 1), np.float32), np.empty((2 * block, groups))
    high, low = np.empty(normals.size // 2, np.int32), np.empty(normals.size // 2, np.int32)
    scale, length, degrees = np.sqrt(values), lengths.copy(), counts - 1
    counter, written = seed, 0
    for k in range(step_sizes.shape[0] + 1):
        if written < record.shape[0] and record[written] == k:
            risks[written] = 0.5 * np.sum(values * length**2)
            written += 1
        if k == step_sizes.shape[0]:
            break
        i = k % block
        if i == 0:
            counter = fill_normals(counter, high, low, normals.reshape(normals.size))
            counter = fill_chi_squares(counter, degrees, chi)
        slope, square = -label_noise_std * normals[i, 2 * groups], 0.0
        for g in range(groups):
            along = scale[g] * normals[i, g]
            slope += along * length[g]
            square += along * along + values[g] * chi[i, g]
        weight = _weight(slope, square, step_sizes[k], clip_norms[k])
        for g in range(groups):
            moved = length[g] - weight * scale[g] * normals[i, g]
            length[g] = math.sqrt(moved * moved + weight * weight * values[g] * chi[i, g])
        if noise_stds[k] > 0:
            for g in range(groups):
                moved = length[g] + noise_stds[k] * normals[i, groups + g]
                length[g] = math.sqrt(moved * moved + noise_stds[k] ** 2 * chi[block + i, g])
