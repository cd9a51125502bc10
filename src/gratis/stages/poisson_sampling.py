"""Poisson subsampling: the sampler and the event it is accounted with are one object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gratis.accounting.calibration import calibrate_subsampled_noise_multiplier
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.checks import check_count, check_positive
from gratis.records.errors import GratisError
from gratis.records.events import PoissonSubsampledGaussian

__all__ = ["PoissonSampling"]


@dataclass(frozen=True, slots=True)
class PoissonSampling:
    """n records, each in each of T batches independently with probability q; `event` says q, T and the noise.

    **Guarantee**: `batches` draws by the event's own sampling rate, exactly `event.steps` times, with the release's
    secret randomness: who knew the batches could undo the amplification. The size of a batch is random and private
    (running time shows it, which the guarantee does not cover); sums are divided by `expected_batch_size`.

    >>> event = PoissonSubsampledGaussian(sampling_rate=0.5, noise_multiplier=1.0, steps=3, neighbouring="zero-out")
    >>> sampling = PoissonSampling(10, event)
    >>> sampling.expected_batch_size, len(list(sampling.batches(NoiseSource.insecure(0))))
    (5.0, 3)
    """

    n_records: int
    event: PoissonSubsampledGaussian

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_records", check_count("n_records", self.n_records))
        if not isinstance(self.event, PoissonSubsampledGaussian):
            raise GratisError("Poisson sampling is accounted with a PoissonSubsampledGaussian event")

    @classmethod
    def calibrated(
        cls, n_records: int, *, expected_batch_size: float, steps: int, budget: Budget, label: str = ""
    ) -> PoissonSampling:
        """Return the sampling whose T noisy steps meet the budget (epsilon, delta) under the budget's relation."""
        if budget.epsilon is None or budget.delta is None:
            raise GratisError("subsampled training is calibrated to epsilon and delta; give a budget with both, not mu")
        n_records = check_count("n_records", n_records)
        rate = check_positive("expected_batch_size", expected_batch_size) / n_records
        if rate > 1:
            raise GratisError(f"expected_batch_size must be at most n_records = {n_records}, got {expected_batch_size}")
        steps = check_count("steps", steps)
        multiplier = calibrate_subsampled_noise_multiplier(
            epsilon=budget.epsilon,
            delta=budget.delta,
            sampling_rate=rate,
            steps=steps,
            neighbouring=budget.neighbouring,
        )
        return cls(
            n_records,
            PoissonSubsampledGaussian(
                sampling_rate=rate,
                noise_multiplier=multiplier,
                steps=steps,
                neighbouring=budget.neighbouring,
                label=label,
            ),
        )

    @property
    def expected_batch_size(self) -> float:
        """q·n, the public number that sums are divided by."""
        return self.event.sampling_rate * self.n_records

    def batches(self, noise: NoiseSource) -> Iterator[NDArray[np.intp]]:
        """Yield the rows of each of the T batches."""
        for _ in range(self.event.steps):
            yield np.flatnonzero(noise.generator.random(self.n_records) < self.event.sampling_rate)
