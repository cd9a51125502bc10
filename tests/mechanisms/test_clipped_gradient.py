import numpy as np
import pytest

from gratis.mechanisms.clipped_gradient import clipped_gradient_sum, row_norms, sanitised
from gratis.models.generalised_linear import LinearModel
from gratis.models.logistic import SoftmaxModel
from gratis.numerics.rounding import rounding_inflation
from gratis.records.errors import GratisError

EXTREMES = [0.0, 1.0, -1.0, 1e-300, 1e-170, 1e150, 1e200, -1e308, np.nan, np.inf, -np.inf]


def gradient(X, y, parameters, model, clip):
    X = sanitised(X)
    return clipped_gradient_sum(
        X, row_norms(X), model.targets(y), parameters[:, None, :], model.mean, np.array([clip])
    )[:, 0] / len(X)


def per_record(X, y, parameters, model, clip):
    total = np.zeros_like(parameters)
    for row, target in zip(X, model.targets(y), strict=True):
        factor = model.mean((row @ parameters)[None, None])[0, 0] - target[0]
        outer = np.outer(row, factor)
        total += outer * min(1, clip / max(np.linalg.norm(outer), 1e-300)) / clip
    return total / len(X)


@pytest.mark.parametrize("model", [LinearModel(), SoftmaxModel(2), SoftmaxModel(5)])
@pytest.mark.parametrize("n", [7, 5000])
def test_equals_the_loop_over_records(model, n):
    rng = np.random.default_rng(n)
    X, y = rng.standard_normal((n, 4)), rng.integers(0, 2, n).astype(float)
    parameters = rng.standard_normal((4, model.outputs))
    found = gradient(X, y, parameters, model, 0.7)
    np.testing.assert_allclose(found, per_record(X, y, parameters, model, 0.7), rtol=1e-10, atol=1e-13)


def test_many_parameter_sets_equal_one_at_a_time():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 3)), rng.standard_normal((50, 4))
    parameters, clips = rng.standard_normal((3, 4, 1)), np.array([0.1, 0.5, 1.0, 9.0])
    both = clipped_gradient_sum(X, row_norms(X), y[:, :, None], parameters, lambda u: u, clips)
    for b in range(4):
        one = gradient(X, y[:, b], parameters[:, b], LinearModel(), clips[b])
        np.testing.assert_allclose(both[:, b] / len(X), one, rtol=1e-12)


@pytest.mark.slow(but=["1-model1"])
@pytest.mark.parametrize(("kappa", "model"), [(2, LinearModel()), (1, LinearModel()), (2, SoftmaxModel(3))])
def test_sensitivity_on_neighbours_however_extreme(kappa, model):
    rng = np.random.default_rng(1)
    n, columns, worst = 6, 3, 0.0
    bound = kappa / n * rounding_inflation(n, columns + model.outputs, sensitivity=kappa)
    for trial in range(3000):
        X = rng.standard_normal((n, columns)) * 10.0 ** rng.integers(-3, 4)
        y = rng.integers(0, 3, n).astype(float) if model.outputs > 1 else rng.standard_normal(n) * 10
        parameters = rng.standard_normal((columns, model.outputs)) * 10.0 ** rng.integers(
            -2, 200 if trial % 7 == 0 else 2
        )
        X2, y2 = X.copy(), y.copy()
        if kappa == 1:
            X2[0] = 0.0  # a zero row has a zero gradient
        elif trial % 2:
            X2[0], y2[0] = rng.choice(EXTREMES, columns), rng.choice(EXTREMES)
        else:
            X2[0] = -X[0]
        moved = gradient(X, y, parameters, model, 0.5) - gradient(X2, y2, parameters, model, 0.5)
        assert np.isfinite(moved).all()
        worst = max(worst, float(np.linalg.norm(moved)))
    assert 0.9 * kappa / n < worst <= bound


def test_negative_control_without_clipping_the_bound_breaks():
    X, X2 = np.full((6, 2), 10.0), np.full((6, 2), 10.0)
    X2[0] = -30
    y, zero = np.ones(6), np.zeros((2, 1))
    moved = gradient(X, y, zero, LinearModel(), 1e9) * 1e9 - gradient(X2, y, zero, LinearModel(), 1e9) * 1e9
    assert np.linalg.norm(moved) > 2 / 6


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_unusable_records_add_nothing(bad):
    X, y = np.ones((4, 2)), np.ones(4)
    X[0], y[1] = bad, np.nan
    found = gradient(X, y, np.zeros((2, 1)), LinearModel(), 10.0)
    np.testing.assert_allclose(found, -2 / 4 / 10 * np.ones((2, 1)))


def test_labels_outside_the_public_classes_add_nothing():
    found = gradient(np.ones((2, 1)), [5, np.nan], np.zeros((1, 3)), SoftmaxModel(3), 1.0)
    np.testing.assert_array_equal(found, 0)


def test_shapes_are_checked():
    with pytest.raises(GratisError, match="matching lengths"):
        clipped_gradient_sum(
            np.ones((3, 2)), np.ones(2), np.ones((3, 1, 1)), np.zeros((2, 1, 1)), lambda u: u, np.ones(1)
        )
