import numpy as np
import pytest

from gratis.stages.flow import follow_flow


@pytest.mark.parametrize("curvature", [0.0, 0.004, 0.5])
def test_momentum_goes_as_far_as_the_flow_does(curvature):
    """x' = 1 − hx for a time that plain steps of 1.5 do not reach, against the mean of its last half."""
    steps, time = 128, 400.0
    found = follow_flow(lambda x: curvature * x - 1, np.zeros(1), time=time, steps=steps, largest_step=1.5)[0]
    times = np.linspace(time / 2, time, 400)
    exact = times.mean() if curvature == 0 else ((1 - np.exp(-curvature * times)) / curvature).mean()
    assert found == pytest.approx(exact, rel=0.1)


def test_without_a_largest_step_it_is_plain_descent():
    path, x = [], 0.0
    for _ in range(10):
        x += 0.2 * (1 - x)
        path.append(x)
    found = follow_flow(lambda x: x - 1, np.zeros(1), time=2.0, steps=10)
    assert found[0] == pytest.approx(np.mean(path[5:]), rel=1e-12)


def test_long_times_stay_stable():
    rng = np.random.default_rng(0)
    found = follow_flow(
        lambda x: 0.5 * x - 1 + 0.1 * rng.standard_normal(3), np.zeros(3), time=1e6, steps=64, largest_step=1.5
    )
    np.testing.assert_allclose(found, 2, atol=0.5)
