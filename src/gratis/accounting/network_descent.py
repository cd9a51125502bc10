"""The event of full-batch private training of a network, known before any data is read."""

from __future__ import annotations

from gratis.accounting.calibration import calibrate_descent_noise
from gratis.numerics.network_rounding import network_rounding_inflation
from gratis.specs.checks import check_count
from gratis.specs.events import FullBatchDescent
from gratis.specs.neighbouring import Neighbouring
from gratis.specs.sequences import Runs

__all__ = ["network_descent_event"]


def network_descent_event(n_records: int, steps: int, *, mu: float, neighbouring: Neighbouring) -> FullBatchDescent:
    """Return the event of T full-batch steps at `mu`-GDP, in units of learning rate × clip norm.

    Every step releases (1/n)Σclip₁(gᵢ/C) + s·N(0, I), s = κr√T/(nμ), r the rounding inflation of float32 networks.
    Learning rates, clip norm, momentum and averaging only rescale and combine what is released: post-processing.

    **Guarantee**: the event is at most μ-GDP under `neighbouring` (the noise is rounded up).

    >>> event = network_descent_event(50_000, 75, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE)
    >>> f"{event.noise_stds.values[0]:.6f}"
    '0.001173'
    """
    steps, n_records = check_count("steps", steps), check_count("n_records", n_records)
    inflation = network_rounding_inflation(n_records, sensitivity=neighbouring.sensitivity_factor)
    noise_std = calibrate_descent_noise(
        mu=mu,
        steps=steps,
        learning_rate=1.0,
        clip_norm=1.0,
        n_records=n_records,
        neighbouring=neighbouring,
        rounding_inflation=inflation,
    )
    return FullBatchDescent(
        learning_rates=Runs.constant(1.0, steps),
        noise_stds=Runs.constant(noise_std, steps),
        clip_norm=1.0,
        n_records=n_records,
        rounding_inflation=inflation,
        neighbouring=neighbouring,
        label="network training, in units of learning rate × clip norm",
    )
