import numpy as np
import pytest

from gratis.planning.one_pass.box_descent import descend_in_box


@pytest.mark.parametrize("size", [2, 12, 40])
def test_ends_where_no_coordinate_can_gain(size):
    """The conditions of a minimum in a box, on ill-conditioned bowls whose minimum lies outside of it."""
    rng = np.random.default_rng(size)
    turned = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = (turned * np.geomspace(1e-2, 1e2, size)) @ turned.T
    centre = 2 * rng.normal(size=size)

    def bowl(x):
        return 0.5 * float((x - centre) @ matrix @ (x - centre)), matrix @ (x - centre)

    found = descend_in_box(bowl, np.zeros(size), [(-1.0, 1.0)] * size, tolerance=1e-13, most_steps=2000)
    slope = bowl(found)[1]
    inside = np.abs(found) < 1
    assert np.abs(found).max() <= 1
    assert 0 < (~inside).sum()
    np.testing.assert_allclose(slope[inside], 0, atol=1e-4)
    assert np.all(slope[~inside] * found[~inside] <= 0)


@pytest.mark.parametrize("seed", [2043, 3223, 3279])
def test_a_step_that_the_box_turns_uphill_is_none(seed):
    """Bowls on which it was taken, or was no step at all, until nothing was gained any more, far from the minimum."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    turned = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = (turned * np.geomspace(1e-2, 10.0 ** rng.integers(0, 4), size)) @ turned.T
    centre = 2 * rng.normal(size=size)

    def bowl(x):
        return 0.5 * float((x - centre) @ matrix @ (x - centre)), matrix @ (x - centre)

    start = rng.uniform(-1, 1, size)
    found = descend_in_box(bowl, start, [(-1.0, 1.0)] * size, tolerance=1e-13, most_steps=2000)
    slope, inside = bowl(found)[1], np.abs(found) < 1
    np.testing.assert_allclose(slope[inside], 0, atol=1e-4)
    assert np.all(slope[~inside] * found[~inside] <= 0)


def test_follows_a_curved_valley():
    def valley(x):
        a, b = x
        return float((1 - a) ** 2 + 100 * (b - a * a) ** 2), np.array(
            [-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)]
        )

    wide, tight = [(-5.0, 5.0)] * 2, [(-5.0, 0.5), (-5.0, 5.0)]
    np.testing.assert_allclose(descend_in_box(valley, np.array([-1.2, 1.0]), wide, tolerance=1e-14), 1, atol=1e-4)
    np.testing.assert_allclose(
        descend_in_box(valley, np.array([-1.2, 1.0]), tight, tolerance=1e-14), [0.5, 0.25], atol=1e-4
    )


def test_a_start_outside_is_brought_inside_and_flat_functions_end_at_once():
    calls = []

    def flat(x):
        calls.append(x)
        return 1.0, np.zeros_like(x)

    np.testing.assert_array_equal(descend_in_box(flat, np.array([9.0, -9.0]), [(0.0, 1.0)] * 2), [1.0, 0.0])
    assert len(calls) == 1
