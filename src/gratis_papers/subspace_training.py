"""Private fine-tuning that records its gradients or stays in a subspace, continued after an interruption (S4, 4.2).

A diagnostic on public data: gradients before noise are looked at, noise comes from public seeds (one a step, so that a
run that goes on is the run that would have been), and nothing of it has a certificate.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gratis.accounting import calibrate_mu
from gratis.accounting.network_descent import network_descent_event
from gratis.mechanisms.ghost_clipping import ClippedGradientSum
from gratis.mechanisms.noise import NoiseSource
from gratis.numerics.network_rounding import network_rounding_inflation
from gratis.numerics.subspace_iteration import gram_matrix
from gratis.stages.poisson_sampling import PoissonSampling
from gratis_papers.gradient_spectrum import GradientRecorder
from gratis_papers.s4_tasks import FineTuning
from gratis_papers.spectrum_recording import TappedNoise

__all__ = ["PrivateSteps", "fine_tuned", "gram_of", "random_directions", "top_directions"]

_STEPS_BETWEEN_CHECKPOINTS = 5


class PrivateSteps:
    """How the steps of one run draw their records and how much noise they add, for the task's budget."""

    def __init__(self, task: FineTuning, steps: int, folder: Path) -> None:
        n, relation = len(task.y), task.budget.neighbouring
        self.steps, self.rate = steps, 1.0
        self.size = float(n)
        if task.batch is None:
            event = network_descent_event(n, steps, mu=calibrate_mu(task.budget), neighbouring=relation)
            self.std = event.noise_stds.values[0] / (event.learning_rates.values[0] * event.clip_norm)
            self.words = f"{steps} full batches, exact Gaussian accounting"
            return
        self.rate, self.size = task.batch / n, float(task.batch)
        # The search takes half a minute: it is kept.
        kept = folder / f"noise-{n}-{task.batch}-{steps}-{task.budget.epsilon:g}.json"
        if not kept.is_file():
            sampling = PoissonSampling.calibrated(n, expected_batch_size=task.batch, steps=steps, budget=task.budget)
            kept.write_text(json.dumps(sampling.event.noise_multiplier))
        multiplier = float(json.loads(kept.read_text()))
        inflation = network_rounding_inflation(n, sensitivity=relation.sensitivity_factor)
        self.std = multiplier * inflation / self.size
        self.words = f"{steps} Poisson batches of expected size {task.batch}, noise multiplier {multiplier:.4f} (PLD)"

    def gradient(self, gradient: ClippedGradientSum, task: FineTuning, noise: NoiseSource) -> NDArray[np.float64]:
        """Return one noisy mean of clipped gradients at the module's parameters."""
        rows = None if self.rate == 1 else np.flatnonzero(noise.generator.random(len(task.y)) < self.rate)
        mean = gradient(task.X, task.y, rows) / (self.size * task.clip)
        return np.asarray(task.clip * noise.release(mean, self.std))


def fine_tuned(
    task: FineTuning,
    private: PrivateSteps,
    *,
    seed: int,
    kept: Path,
    gradients: Path | None = None,
    directions: NDArray[Any] | None = None,
) -> Any:
    """Return the module after all steps; state and gradients on disk are found again by a later call.

    Parameters
    ----------
    kept : Path
        Parameters, velocity, the number of steps done and their CPU seconds, every few steps.
    gradients : Path, optional
        A .npy file (steps, p) that gets every mean clipped gradient before its noise.
    directions : (k, p), optional
        Gradients are projected on these before noise is added to all coordinates.
    """
    module = task.module()
    gradient = ClippedGradientSum(module, clip_norm=task.clip, micro_batch=task.micro_batch)
    done, spent, velocity = 0, 0.0, np.zeros(gradient.size)
    if kept.is_file():
        with np.load(kept) as state:
            done, spent, velocity = int(state["done"]), float(state["cpu_seconds"]), state["velocity"]
            _put(gradient, state["parameters"])
    else:
        gradient.check(task.X, task.y)
    record = None
    if gradients is not None:
        shape = (private.steps, gradient.size)
        mode = "r+" if done and gradients.is_file() else "w+"
        record = np.lib.format.open_memmap(gradients, mode=mode, dtype=np.float32, shape=shape)
    start = process_time() - spent
    for step in range(done, private.steps):
        noise = TappedNoise(
            NoiseSource.insecure(int(np.random.default_rng([seed, step]).integers(2**62))),
            recorder=None if record is None else _Row(record, step),
            directions=directions,
            scale=task.clip,
            allow_non_private_diagnostics=True,
        )
        velocity = task.momentum * velocity + private.gradient(gradient, task, noise)
        with torch.no_grad():
            for parameter, part in zip(gradient.parameters, gradient.split(velocity), strict=True):
                parameter -= task.rate * part
        if (step + 1) % _STEPS_BETWEEN_CHECKPOINTS == 0 or step + 1 == private.steps:
            if record is not None:
                record.flush()
            flat = np.concatenate([p.detach().numpy().ravel() for p in gradient.parameters])
            partial = kept.with_suffix(".partial.npz")
            seconds = process_time() - start
            np.savez(partial, done=step + 1, cpu_seconds=seconds, parameters=flat, velocity=velocity)
            partial.replace(kept)
    return module


class _Row:
    """An observer that writes into one row of a file."""

    def __init__(self, record: NDArray[np.float32], step: int) -> None:
        self._record, self._step = record, step

    def observe(self, gradient: Any) -> None:
        self._record[self._step] = gradient


def _put(gradient: ClippedGradientSum, flat: NDArray[np.float32]) -> None:
    with torch.no_grad():
        for parameter, part in zip(gradient.parameters, gradient.split(flat.astype(np.float64)), strict=True):
            parameter.copy_(part)


def gram_of(gradients: Sequence[Path]) -> NDArray[np.float64]:
    """Return the inner products of the recorded gradients of some runs."""
    return gram_matrix(_together(gradients))


def top_directions(gradients: Sequence[Path], count: int) -> NDArray[np.float32]:
    """Return the `count` leading directions as orthonormal rows, computed once and kept beside the gradients."""
    kept = gradients[0].with_name(f"top-{count}-of-{len(gradients)}-{gradients[0].name}")
    if not kept.is_file():
        rows = _together(gradients)
        recorder = GradientRecorder(rows.shape[1], allow_non_private_diagnostics=True)
        for row in rows:
            recorder.observe(row)
        partial = kept.with_name(f"{os.getpid()}-{kept.name}")
        np.save(partial, recorder.directions(count))
        partial.replace(kept)
    return np.asarray(np.load(kept, mmap_mode="r"))


def _together(gradients: Sequence[Path]) -> NDArray[np.float32]:
    files = [np.load(path, mmap_mode="r") for path in gradients]
    return files[0] if len(files) == 1 else np.concatenate(files)


def random_directions(task: FineTuning, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return orthonormal rows of a random subspace of the trainable parameters."""
    size = sum(p.numel() for p in task.module().parameters() if p.requires_grad)
    return np.ascontiguousarray(np.linalg.qr(rng.standard_normal((size, count)).astype(np.float32))[0].T)
