import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gratis.planning.one_pass.schedules import FreeForm, FreeFormWithClip, Harmonic, Polynomial, StepwiseSchedule
from gratis.records.errors import GratisError

positive = st.floats(1e-3, 1e3)


@st.composite
def schedules(draw):
    kind = draw(st.sampled_from(["poly", "harmonic", "free", "free-clip", "stepwise"]))
    if kind == "poly":
        return Polynomial(draw(st.floats(0, 5)), draw(st.just(0.0) | positive), draw(positive))
    if kind == "harmonic":
        return Harmonic(draw(positive), draw(positive), draw(positive))
    count = draw(st.integers(2, 8))
    gaps = np.array(draw(st.lists(st.floats(0.05, 1), min_size=count - 1, max_size=count - 1)))
    times = (0.0, *np.cumsum(gaps / gaps.sum())[:-1].tolist(), 1.0)
    numbers = st.lists(positive, min_size=count, max_size=count)
    products = tuple(sorted(draw(numbers), reverse=True))
    if kind == "free":
        return FreeForm(times, products, draw(positive))
    if kind == "free-clip":
        return FreeFormWithClip(times, products, tuple(draw(numbers)))
    return StepwiseSchedule(times, tuple(p / 2 for p in products[1:]), (2.0,) * (count - 1))


@settings(max_examples=100)
@given(schedules())
def test_products_never_increase(schedule):
    times = np.linspace(0, 1, 501)
    products = schedule.product(times)
    assert np.all(np.diff(products) <= 1e-12 * products[0])
    np.testing.assert_allclose(schedule.rate(times) * schedule.clip(times), products, rtol=1e-12)


@settings(max_examples=100)
@given(schedules(), st.integers(1, 5000), st.integers(1, 300), st.sampled_from([7, 64, 1024]))
def test_blocks_keep_the_plan(schedule, n_records, dimension, max_blocks):
    blocks = schedule.sequences(n_records, dimension=dimension, max_blocks=max_blocks)
    assert blocks.n_records == n_records
    assert len(blocks.lengths) <= max_blocks
    assert np.all(blocks.lengths > 0)
    # The very floats that a trainer multiplies.
    products = blocks.step_sizes * blocks.clip_norms
    np.testing.assert_array_equal(products, blocks.products)
    assert np.all(np.diff(products) <= 0)
    rows = np.arange(1, n_records + 1) / n_records
    block = np.repeat(np.arange(len(blocks.lengths)), blocks.lengths)
    scale = np.sqrt(dimension) / n_records
    assert np.all(products[block] <= schedule.product(rows) * scale * (1 + 1e-9))
    assert np.all(blocks.step_sizes[block] * n_records <= schedule.rate(rows) * (1 + 1e-9))
    replay = StepwiseSchedule.from_blocks(blocks)
    assert np.all(np.diff(np.array(replay.rates) * np.array(replay.clips)) <= 0)
    np.testing.assert_allclose(replay.product(blocks.edges[:-1]), products / scale, rtol=1e-9)


def test_one_row_a_block_is_the_plan_itself():
    schedule = Harmonic(2.0, 0.1, 0.5)
    blocks = schedule.sequences(100, dimension=4)
    rows = np.arange(1, 101) / 100
    np.testing.assert_allclose(blocks.step_sizes, schedule.rate(rows) / 100)
    np.testing.assert_allclose(blocks.clip_norms, 1.0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Polynomial(-1.0, 1.0, 1.0),
        lambda: Polynomial(1.0, float("inf"), 1.0),
        lambda: Polynomial(1.0, 1.0, 0.0),
        lambda: Harmonic(1.0, 0.0, 1.0),
        lambda: FreeForm((0.0, 1.0), (1.0, 2.0), 1.0),
        lambda: FreeForm((0.0, 0.9), (2.0, 1.0), 1.0),
        lambda: FreeForm((0.0, 0.5, 0.5, 1.0), (2.0, 1.0, 1.0, 1.0), 1.0),
        lambda: FreeForm((0.0, 1.0), (2.0, 0.0), 1.0),
        lambda: FreeFormWithClip((0.0, 1.0), (2.0, 1.0), (1.0,)),
        lambda: FreeFormWithClip((0.0, 1.0), (1.0, 2.0), (1.0, 1.0)),
        lambda: StepwiseSchedule((0.0, 0.5, 1.0), (1.0, 2.0), (1.0, 1.0)),
        lambda: StepwiseSchedule((0.0, 1.0), (1.0, 1.0), (1.0,)),
        lambda: StepwiseSchedule((0.1, 1.0), (1.0,), (1.0,)),
        lambda: Polynomial(1.0, 1.0, 1.0).sequences(0),
        lambda: Polynomial(1.0, 1.0, 1.0).sequences(10, max_blocks=0),
    ],
)
def test_bad_schedules(build):
    with pytest.raises(GratisError):
        build()
