from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gratis.accounting.iteration import (
    inner_product_error,
    one_pass_radius,
    one_pass_rounding_inflation,
    projection_interval,
)
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis.records.sequences import Runs


def event_of(eta, clip, std, **changes):
    made = OnePassIteration(
        step_sizes=Runs.of(eta), clip_norms=Runs.of(clip), noise_stds=Runs.of(std),
        rounding_inflation=1.001, neighbouring="replace-one",
    )  # fmt: skip
    return replace(made, **changes)


def written_out(event, size, radius):
    """The sum of the docstring, step by step; projections as the trainer makes them."""
    eta, clip, std = (s.array() for s in (event.step_sizes, event.clip_norms, event.noise_stds))
    unit, gamma = 2.0**-53, inner_product_error(size)
    shifts = eta * clip / event.batch_size
    bound = 1.01 * (radius + projection_interval(event.batch_size) * np.max(eta * clip))
    total = 0.0
    for k in range(len(eta)):
        if shifts[k] > 0:
            step = (2 * gamma + 2 * unit) * bound + (event.batch_size + 24) * unit * eta[k] * clip[k]
            total += step / shifts[k:].max()
        later = shifts[k + 1 :]
        if later.size and later.max() > 0 and (std[k] > 0 or (k + 1) % projection_interval(event.batch_size) == 0):
            total += (gamma + 12 * unit) * bound / later.max()
    return 1 + 2 / event.neighbouring.sensitivity_factor * total


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("batch", [1, 8])
def test_is_at_least_the_sum_written_out_and_not_far_above(relation, batch):
    rng = np.random.default_rng(0)
    n = 2500
    block = np.arange(n) // 100
    for eta in (np.full(n, 1e-3), 1e-3 * (1 - block / 26), 1e-3 * (1 + block % 3), np.where(block > 20, 0.0, 1e-3)):
        for std in (np.where(np.arange(n) % 100 == 99, rng.uniform(0.1, 1, n), 0.0), np.full(n, 0.5)):
            event = event_of(eta, np.full(n, 2.0), std, neighbouring=relation, batch_size=batch)
            got, expected = one_pass_rounding_inflation(event, 30, radius=5.0), written_out(event, 30, 5.0)
            assert expected <= got
            assert got - 1 <= 1.5 * (expected - 1)


def test_radius_is_the_inverse():
    n = 5000
    for inflation in (1.0001, 1.001, 1.1):
        event = event_of(np.full(n, 1e-4), np.full(n, 1.0), np.full(n, 0.1), rounding_inflation=inflation)
        radius = one_pass_radius(event, 100)
        assert one_pass_rounding_inflation(event, 100, radius=radius) <= inflation
        assert one_pass_rounding_inflation(event, 100, radius=1.01 * radius) > inflation


def test_batches_buy_room_when_rows_are_many():
    """One row a step at n = 10⁷ leaves no room; batches of 1000 do, at the same total movement."""
    n, radii = 10**7, []
    for batch in (1, 1000):
        steps = n // batch
        event = OnePassIteration(
            step_sizes=Runs.constant(5 * batch / n, steps), clip_norms=Runs.constant(1.0, steps),
            noise_stds=Runs((0.0, 1.0), (steps - 1, 1)), batch_size=batch, rounding_inflation=1.001,
            neighbouring="replace-one",
        )  # fmt: skip
        radii.append(one_pass_radius(event, 20))
    assert radii[0] < 0.1
    assert radii[1] > 5


def test_no_room_is_an_error_and_nothing_moving_costs_nothing():
    event = event_of(np.full(10, 1e-3), np.full(10, 1.0), np.full(10, 0.1))
    with pytest.raises(GratisError, match="does not pay for floating point"):
        one_pass_radius(replace(event, rounding_inflation=1.0), 5)
    tight = OnePassIteration(
        step_sizes=Runs.constant(1e-9, 10**8), clip_norms=Runs.constant(1.0, 10**8),
        noise_stds=Runs.constant(0.1, 10**8), rounding_inflation=1.0001, neighbouring="replace-one",
    )  # fmt: skip
    with pytest.raises(GratisError, match=r"leaves no room|larger batch_size"):
        one_pass_radius(tight, 1000)
    still = event_of(np.zeros(10), np.ones(10), np.full(10, 0.1))
    assert one_pass_rounding_inflation(still, 5, radius=1.0) < 1 + 1e-13
    assert one_pass_radius(still, 5) == 1e100
