"""The event of full-batch private training of a network, known before any data is read."""

from __future__ import annotations

from gratis.accounting.calibration import unit_descent_event
from gratis.numerics.network_rounding import network_rounding_inflation
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.events import FullBatchDescent
from gratis.records.neighbouring import Neighbouring

__all__ = ["MOST_STEPS", "network_descent_event"]

MOST_STEPS = 10**7
_MOST_RECORDS = 10**15


def network_descent_event(
    n_records: int, steps: int, *, mu: float, neighbouring: Neighbouring | str
) -> FullBatchDescent:
    """Return the event of T full-batch steps at `mu`-GDP, in units of learning rate × clip norm.

    Every step releases (1/n)Σclip₁(gᵢ/C) + s·N(0, I), s = κr√T/(nμ), r the rounding inflation of float32 networks.
    Learning rates, clip norm, momentum and averaging only rescale and combine what is released: post-processing.

    **Guarantee**: the event is at most μ-GDP under `neighbouring` (the noise is rounded up).

    >>> event = network_descent_event(50_000, 75, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE)
    >>> f"{event.noise_stds.values[0]:.6f}"
    '0.001173'
    """
    relation = Neighbouring.parse(neighbouring)
    n_records, steps = check_count("n_records", n_records), check_count("steps", steps)
    for name, count, most in (("n_records", n_records, _MOST_RECORDS), ("steps", steps, MOST_STEPS)):
        if count > most:
            raise GratisError(f"{name} must be at most {most}, got {count}")
    inflation = network_rounding_inflation(n_records, sensitivity=relation.sensitivity_factor)
    return unit_descent_event(
        n_records, steps, mu=mu, neighbouring=relation, rounding_inflation=inflation, label="network training"
    )
