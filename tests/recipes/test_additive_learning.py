"""When steps of an additive fit went too far: the ridge follows the energies of noisy gradients."""

from __future__ import annotations

import pytest

from gratis.recipes.additive_learning import Trust


def ridge_after(*energies):
    trust = Trust(0.1, smallest=0.01)
    said = [trust.judge(energy, deviation) for energy, deviation in energies]
    return trust.ridge, said


def test_a_first_energy_that_is_small_by_luck_does_not_hide_that_later_ones_grow():
    """As in a fit of cpu_act, whose R² fell from .48 to −.41 while the ridge stood still."""
    energies = [(-0.76, 0.97), (0.64, 0.24), (0.46, 0.11), (0.22, 0.06), (0.19, 0.02), (0.33, 0.01), (0.65, 0.01)]
    ridge, said = ridge_after(*energies)
    assert ridge > 0.5
    assert said == [True, True, True, True, True, False, False]


def test_what_falls_clearly_is_trusted_more_and_what_is_noise_changes_nothing():
    assert ridge_after((4.0, 0.01), (1.0, 0.01), (0.2, 0.01))[0] == pytest.approx(0.1 / 9)
    assert ridge_after((0.1, 0.5), (-0.2, 0.3), (0.15, 0.1), (0.1, 0.05))[0] == 0.1


def test_the_ridge_stays_between_its_ends():
    assert ridge_after(*[(2.0**k, 1e-9) for k in range(30)])[0] == 100.0
    assert ridge_after(*[(2.0**-k, 1e-15) for k in range(30)])[0] == 0.01
