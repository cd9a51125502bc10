from __future__ import annotations

import numpy as np
import pytest

from gratis.models.kernels import infinite_width_diagonal, infinite_width_kernel
from gratis.models.random_features import ERF, RELU, TANH, Activation, RandomFeatures
from gratis.records.errors import GratisError
from gratis.stages.gram import accumulate_gram


def rows(n: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(0.5, 1.5, n)[:, None]


@pytest.mark.parametrize("activation", [TANH, RELU, ERF, Activation("cubic", lambda z: z**3 / 3 - z + 0.2)])
def test_closed_form_kernels_are_the_limit_of_many_features(activation: Activation) -> None:
    X, Z = rows(8, 6, 0), rows(5, 6, 1)
    features = RandomFeatures(n_inputs=6, n_features=200_000, activation=activation, seed=3)
    cross = np.zeros((8, 5))
    for (_, left), (_, right) in zip(features.blocks(X), features.blocks(Z), strict=True):
        cross += left.astype(float) @ right.T.astype(float)
    exact = infinite_width_kernel(X, Z, activation)
    scale = np.sqrt(np.outer(infinite_width_diagonal(X, activation), infinite_width_diagonal(Z, activation)))
    assert np.max(np.abs(cross / 200_000 - exact) / scale) < 0.02
    assert np.max(np.abs(exact)) > 0.1  # the comparison is not between zeros


def test_series_agrees_with_the_closed_form_of_erf() -> None:
    X = rows(20, 6, 2)
    renamed = Activation("a smooth function", ERF.function)
    assert np.allclose(infinite_width_kernel(X, X, renamed), infinite_width_kernel(X, X, ERF), atol=2e-4)


@pytest.mark.parametrize("activation", [TANH, RELU, ERF])
def test_diagonal_is_the_diagonal(activation: Activation) -> None:
    X = rows(10, 50, 4)
    assert np.allclose(
        np.diag(infinite_width_kernel(X, X, activation)), infinite_width_diagonal(X, activation), atol=1e-5
    )


def test_features_depend_on_the_seed_and_extend_with_p() -> None:
    X = rows(3, 7, 5)
    narrow = RandomFeatures(n_inputs=7, n_features=1500, seed=1).transform(X)
    wide = RandomFeatures(n_inputs=7, n_features=2500, seed=1).transform(X)
    other = RandomFeatures(n_inputs=7, n_features=1500, seed=2).transform(X)
    assert np.array_equal(wide[:, :1500], narrow)
    assert not np.allclose(narrow, other)
    weights = RandomFeatures(n_inputs=7, n_features=4096, seed=1).weights(2)
    assert abs(weights.var() * 7 - 1) < 0.05


@pytest.mark.parametrize(
    ("change", "word"),
    [({"n_features": 0}, "n_features"), ({"n_features": -3}, "n_features"), ({"activation": "swish"}, "activation")],
)
def test_bad_features_are_refused(change: dict[str, object], word: str) -> None:
    with pytest.raises(GratisError, match=word):
        RandomFeatures(**({"n_inputs": 3, "n_features": 4} | change))  # type: ignore[arg-type]


def test_gram_of_bounded_features_is_exact() -> None:
    """The same sum in whole numbers is equal to the last bit; a function without a limit is not claimed exact."""
    X = rows(3, 5, 6)
    features = RandomFeatures(n_inputs=5, n_features=3000, seed=1)
    phi = features.transform(X)
    whole = np.rint(phi.astype(float) * 2**15).astype(np.int64)
    assert np.array_equal(whole / 2**15, phi)
    exact = (whole @ whole.T) / 2.0**30
    assert features.exact_gram
    assert np.array_equal(accumulate_gram(features, X).train, exact)
    custom = RandomFeatures(n_inputs=5, n_features=3000, seed=1, activation=Activation.parse(np.cos))
    assert not custom.exact_gram


def test_a_users_function_is_not_taken_for_its_name() -> None:
    def relu(z: np.ndarray) -> np.ndarray:
        return np.maximum(z, 0.2 * z)

    leaky = infinite_width_kernel(np.ones((1, 4)), np.ones((1, 4)), Activation.parse(relu))
    assert leaky[0, 0] == pytest.approx(0.52, abs=0.01)
