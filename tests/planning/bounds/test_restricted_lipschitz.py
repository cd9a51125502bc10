from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gratis.planning.bounds.effective_dimension import effective_dimension
from gratis.planning.bounds.restricted_lipschitz import (
    LipschitzCoefficients,
    _tail_sums,
    minimised_excess_risk_upper_bound,
    power_law_rate,
    rank_rate,
)
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring


def explicit_bound(
    coefficients: LipschitzCoefficients,
    *,
    distance: float,
    k: int,
    learning_rate: float,
    regularisation: float,
    steps: int,
    noise_multiplier: float,
) -> float:
    """S4, (11): D²/(2ηT) + 3ηG_0²(1+kσ²) + (α/2)D² + (3/α)Σ_s s²2^s G²_{2^{s−1}k}, for ηα ≤ ½; ∞ otherwise."""
    levels = range(1, coefficients.dimension.bit_length() + 1)
    tail = sum(s**2 * 2**s * coefficients.at(np.array([2 ** (s - 1) * k]))[0] ** 2 for s in levels)
    if learning_rate * regularisation > 0.5 * (1 + 1e-12) or (tail > 0 and regularisation <= 0):
        return math.inf
    noise = 3 * learning_rate * coefficients.per_record**2 * (1 + k * noise_multiplier**2)
    bound = distance**2 / (2 * learning_rate * steps) + noise + 0.5 * regularisation * distance**2
    return float(bound + (3 * tail / regularisation if tail > 0 else 0.0))


@pytest.mark.slow(but=["3-0.5"])
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("steps", [3, 100, 40_000])
def test_closed_form_is_the_minimum_over_rate_and_regularisation(decay: float, steps: int) -> None:
    coefficients = LipschitzCoefficients.of_matrix(np.arange(1.0, 65) ** (-2 * decay))
    found = minimised_excess_risk_upper_bound(coefficients, distance=2.0, n_records=200, mu=0.8, steps=steps)
    settings = {"distance": 2.0, "steps": steps, "noise_multiplier": found.noise_multiplier}
    assert found.noise_multiplier == pytest.approx(2 * math.sqrt(steps) / (200 * 0.8))
    again = explicit_bound(
        coefficients, k=found.k, learning_rate=found.learning_rate, regularisation=found.regularisation, **settings
    )
    assert again == pytest.approx(found.excess_risk)
    grid = np.geomspace(1e-4, 1e4, 33)
    for k, eta in itertools.product((1, 5, 17, 64), grid):
        for alpha in (0.0, 0.5 / eta, *grid[::4]):
            value = explicit_bound(coefficients, k=k, learning_rate=float(eta), regularisation=float(alpha), **settings)
            assert value >= found.excess_risk * (1 - 1e-9)


def test_tail_sum_by_hand() -> None:
    coefficients = LipschitzCoefficients(1.0, np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]), "hand")  # d = 8
    # S = ⌊log₂(8/2)⌋ + 1 = 3: G_2, G_4 and G_8 = 0.
    tail = 1 * 2 * 0.8**2 + 4 * 4 * 0.6**2 + 0
    assert _tail_sums(coefficients, np.array([2]))[0] == pytest.approx(tail)


def test_rank_and_power_law_scale_as_the_theorem_says() -> None:
    flat = [LipschitzCoefficients(1.0, np.r_[np.ones(9), np.zeros(d - 10)], "rank ten") for d in (50, 5000)]
    bounds = [minimised_excess_risk_upper_bound(c, distance=1.0, n_records=1000, mu=0.5) for c in flat]
    assert bounds[0].k == bounds[1].k == 10
    assert bounds[0].excess_risk == pytest.approx(bounds[1].excess_risk)
    steep = LipschitzCoefficients.of_matrix(np.arange(1.0, 100_001) ** -2.0)  # G_k = (k+1)^{−1}
    values = [
        minimised_excess_risk_upper_bound(steep, distance=1.0, n_records=n, mu=1.0).excess_risk for n in (10**4, 10**6)
    ]
    slope = math.log(values[1] / values[0]) / math.log(100)
    assert slope == pytest.approx(-2 / 3, abs=0.05)
    ratio = (
        power_law_rate(decay=1.0, n_records=10**6, epsilon=1.0, delta=1e-6)[0]
        / power_law_rate(decay=1.0, n_records=10**4, epsilon=1.0, delta=1e-6)[0]
    )
    assert math.log(ratio) / math.log(100) == pytest.approx(-2 / 3)
    assert rank_rate(rank=16, n_records=100, epsilon=1.0, delta=1e-5) == pytest.approx(
        4 * rank_rate(rank=1, n_records=100, epsilon=1.0, delta=1e-5)
    )


def test_more_steps_never_hurt_and_the_chosen_number_is_near_the_limit() -> None:
    coefficients = LipschitzCoefficients.of_matrix(np.arange(1.0, 301) ** -1.5)
    common = {"distance": 1.0, "n_records": 500, "mu": 1.0}
    chosen = minimised_excess_risk_upper_bound(coefficients, **common)
    values = [
        minimised_excess_risk_upper_bound(coefficients, steps=T, **common).excess_risk for T in 2 ** np.arange(40)
    ]
    assert np.all(np.diff(values) <= 1e-12)
    assert chosen.excess_risk <= 1.03 * values[-1]


def test_population_bound_adds_stability() -> None:
    coefficients = LipschitzCoefficients.of_matrix(np.arange(1.0, 101) ** -3.0)
    common = {"distance": 1.0, "n_records": 2000, "mu": 1.0, "steps": 10**8}
    empirical = minimised_excess_risk_upper_bound(coefficients, **common).excess_risk
    population = minimised_excess_risk_upper_bound(coefficients, population=True, **common).excess_risk
    assert empirical + 1 / math.sqrt(2000) < population < empirical + 8 / math.sqrt(2000)


def test_coefficients_of_three_origins() -> None:
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    eigenvalues = np.array([4.0, 1.0, 0.25, 0.09, 0.01])
    matrix = LipschitzCoefficients.of_matrix(rotation @ np.diag(eigenvalues) @ rotation.T)
    np.testing.assert_allclose(matrix.tail, [1.0, 0.5, 0.3, 0.1], rtol=1e-6)
    assert matrix.per_record == pytest.approx(2.0)
    # Real gradients of a logistic loss never leave more outside the top k than the coefficient says.
    X = rng.normal(size=(300, 5)) * np.sqrt(eigenvalues)
    moments = X.T @ X / 300
    covariance = LipschitzCoefficients.of_covariance(moments, largest_norm=float(np.linalg.norm(X, axis=1).max()))
    vectors = np.linalg.eigh(moments)[1][:, ::-1]
    for _ in range(20):
        slopes = -1 / (1 + np.exp(X @ rng.normal(size=5) * 3))
        gradient = X.T @ slopes / 300
        for k in range(1, 5):
            outside = gradient - vectors[:, :k] @ (vectors[:, :k].T @ gradient)
            assert np.linalg.norm(outside) <= covariance.at(np.array([k]))[0]
    measured = LipschitzCoefficients.of_gradient_spectrum([3.0, 0.5, 0.2], clip_norm=1.0, dimension=6)
    assert measured.tail.tolist() == [0.5, 0.2, 0.2, 0.2, 0.2]


def test_effective_dimension_answers_and_draws() -> None:
    from matplotlib.figure import Figure

    low = effective_dimension(
        LipschitzCoefficients.of_matrix(np.arange(1.0, 2001) ** -3.0), distance=1.0, n_records=10_000, mu=1.0
    )
    assert low.is_low_dimensional
    assert low.bound.k < 200
    assert low.decay_exponent == pytest.approx(1.5, abs=0.02) or low.decay_exponent > 1.5
    assert min(value for _, value in low.curve) >= low.bound.excess_risk * (1 - 1e-9)
    figure = Figure()
    low.draw(figure)
    assert len(figure.axes) == 2
    flat = effective_dimension(
        LipschitzCoefficients.of_matrix(np.ones(2000)), distance=1.0, n_records=10_000, mu=1.0,
        neighbouring=Neighbouring.ZERO_OUT,
    )  # fmt: skip
    assert not flat.is_low_dimensional
    assert flat.bound.k == 2000
    assert "not shown" in flat.words
    assert flat.decay_exponent == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: LipschitzCoefficients(1.0, np.array([0.1, 0.2]), "rising"),
        lambda: LipschitzCoefficients(0.0, np.array([0.1]), "zero"),
        lambda: LipschitzCoefficients(1.0, np.array([np.nan]), "nan"),
        lambda: LipschitzCoefficients.of_matrix([[1.0, 2.0], [0.0, 1.0]]),
        lambda: LipschitzCoefficients.of_matrix([-1.0, 2.0]),
        lambda: LipschitzCoefficients.of_covariance(np.eye(2), largest_norm=0.1),
        lambda: LipschitzCoefficients.of_gradient_spectrum([], clip_norm=1.0, dimension=3),
        lambda: power_law_rate(decay=0.5, n_records=10, epsilon=1.0, delta=1e-5),
        lambda: minimised_excess_risk_upper_bound(
            LipschitzCoefficients.of_matrix(np.ones(3)), distance=1.0, n_records=10, mu=1.0, only_k=4
        ),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    with pytest.raises(GratisError):
        call()  # type: ignore[operator]
