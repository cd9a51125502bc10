from __future__ import annotations

import math

import numpy as np
import pytest

from gratis.planning.bounds.initialization import (
    Scheme,
    excess_risk_tradeoff,
    general_network_kl_upper_bound,
    gradient_norm_constant,
    layer_variances,
    layer_widths,
    lazy_training_distance,
    linearised_kl_upper_bound,
    published_gradient_norm_constant,
)
from gratis.planning.initialization import compare_initializations
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis_papers.s3_initialization import sampled_squared_jacobian

SHAPES = [(20, 40, 2, 3), (12, 60, 3, 1), (30, 50, 4, 10)]


@pytest.mark.parametrize("scheme", list(Scheme))
@pytest.mark.parametrize("shape", [*SHAPES, (3072, 1024, 10, 2)])
def test_table_one_is_the_general_formula(scheme: Scheme, shape: tuple[int, int, int, int]) -> None:
    widths = layer_widths(*shape)
    general = gradient_norm_constant(widths, layer_variances(scheme, widths))
    assert published_gradient_norm_constant(scheme, *shape) == pytest.approx(general, rel=1e-12)


@pytest.mark.slow(but=["shape0"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_norm_within_two_percent_of_monte_carlo(shape: tuple[int, int, int, int]) -> None:
    widths = layer_widths(*shape)
    own = (0.3, 0.01, 0.2, 0.05)[: len(widths) - 1]
    variances = [*(layer_variances(scheme, widths) for scheme in Scheme), own]
    for betas, (mean, error) in zip(
        variances, sampled_squared_jacobian(widths, variances, 12_000, np.random.default_rng(5)), strict=True
    ):
        exact = gradient_norm_constant(widths, betas)
        assert error < 0.008 * exact, "the sample is large enough to tell 2 %"
        assert mean == pytest.approx(exact, rel=0.02)
        # Negative control: forgetting the ½ of one ReLU would be seen.
        assert mean != pytest.approx(2 * exact, rel=0.02)
    assert gradient_norm_constant(widths, own, squared_input_norm=7.0) * widths[0] == pytest.approx(
        7 * gradient_norm_constant(widths, own)
    )


def test_sampled_norm_is_that_of_autograd() -> None:
    """The Monte-Carlo route itself, against torch's gradients at the same number of samples."""
    import torch

    widths, betas = (4, 6, 5, 2), (0.4, 0.2, 0.3)
    generator = torch.Generator().manual_seed(0)
    total = []
    for _ in range(800):
        weights = [
            (torch.randn(b, a, generator=generator) * beta**0.5).requires_grad_()
            for a, b, beta in zip(widths[:-1], widths[1:], betas, strict=True)
        ]
        h = torch.ones(4)
        for w in weights[:-1]:
            h = (w @ h).relu()
        scores = weights[-1] @ h
        total.append(
            sum(float(g.square().sum()) for s in scores for g in torch.autograd.grad(s, weights, retain_graph=True))
        )
    ((mean, _),) = sampled_squared_jacobian(widths, [betas], 20_000, np.random.default_rng(0))
    assert np.mean(total) == pytest.approx(mean, rel=0.2)
    assert mean == pytest.approx(gradient_norm_constant(widths, betas), rel=0.05)


def test_very_deep_networks_do_not_overflow() -> None:
    widths = layer_widths(10, 1000, 4000, 1)
    assert gradient_norm_constant(widths, layer_variances("lecun", widths)) < 1e-300
    assert gradient_norm_constant(widths, [1.0] * 4000) == math.inf
    assert gradient_norm_constant((7, 3), (2.0,)) == 21.0


def test_constants_of_the_linearised_bound() -> None:
    single = linearised_kl_upper_bound(50.0, time=2.0, noise_std=0.1, n_records=100, n_outputs=1)
    assert single.kl == pytest.approx(50 * 2 / (100**2 * 0.01))
    assert single.published == pytest.approx(2 * single.kl)
    softmax = linearised_kl_upper_bound(50.0, time=2.0, noise_std=0.1, n_records=100, n_outputs=10)
    assert softmax.kl == pytest.approx(softmax.published)
    removed = linearised_kl_upper_bound(
        50.0, time=2.0, noise_std=0.1, n_records=100, n_outputs=10, neighbouring=Neighbouring.ZERO_OUT
    )
    assert removed.kl == pytest.approx(softmax.kl / 4)


def test_general_bound_reduces_to_its_terms() -> None:
    flat = {"initial_squared_difference": 1e-3, "initial_squared_gradient": 2.0, "rank": 5, "time": 0.7,
            "noise_std": 0.2, "n_records": 50}  # fmt: skip
    start = 2 * 0.7 * 1e-3
    assert general_network_kl_upper_bound(smoothness=0, jump=0, **flat).kl == pytest.approx(start / 0.16)
    jumped = general_network_kl_upper_bound(smoothness=0, jump=0.5, **flat)
    assert jumped.kl == pytest.approx((start + 4 * 2 * 0.25 * 0.7 / 2500) / 0.16)
    moved = general_network_kl_upper_bound(smoothness=1.5, jump=0.5, **flat)
    rate = 2 + 1.5**2
    # The same integral by the trapezium rule: 4·2β²/n²·∫(e^{at} − 1)/a dt · drive.
    t = np.linspace(0, 0.7, 20_001)
    integral = np.trapezoid(np.expm1(rate * t) / rate, t)
    drive = 2.0 + 2 * 0.04 * 5 + 0.25
    extra = 4 * 2 * 1.5**2 / 2500 * integral * drive / 0.16
    assert moved.kl - jumped.kl == pytest.approx(extra, rel=1e-6)
    assert general_network_kl_upper_bound(smoothness=50, jump=0, **flat).kl == math.inf


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("relation", list(Neighbouring))
def test_tradeoff_is_the_minimum_and_spends_the_budget(outputs: int, relation: Neighbouring) -> None:
    found = excess_risk_tradeoff(40.0, 3.0, n_records=200, kl_budget=0.5, n_outputs=outputs, neighbouring=relation)
    spent = linearised_kl_upper_bound(
        40.0, time=found.time, noise_std=found.noise_std, n_records=200, n_outputs=outputs, neighbouring=relation
    )
    assert spent.kl == pytest.approx(0.5)
    for factor in (0.9, 1.1):
        other = 1 / 200**2 + found.optimisation / factor + found.noise * factor
        assert other > found.excess_risk
    if outputs == 1 and relation is Neighbouring.REPLACE_ONE:
        assert found.excess_risk == pytest.approx(1 / 200**2 + math.sqrt(2 * 40 * 3 / (0.5 * 200)))


def test_lazy_distance_of_the_table() -> None:
    d, m, L, n = 50, 200, 5, 1000
    widths = layer_widths(d, m, L, 1)
    lecun = lazy_training_distance(widths, layer_variances("lecun", widths), n)
    assert lecun == pytest.approx(n / m / (L - 1 + d / m))
    ntk = lazy_training_distance(widths, layer_variances("ntk", widths), n)
    assert ntk == pytest.approx(n / m / ((L - 1) / 2 + 1 / m))


def test_comparison_names_the_least() -> None:
    found = compare_initializations(10_000, 3072, 2, width=1024, depth=10, kl_budget=1.0)
    assert {choice.depth for choice in found.choices} == {2, 4, 8, 10}
    assert found.leaks_least.gradient_norm_constant == min(c.gradient_norm_constant for c in found.choices)
    by_depth = {c.depth: c.gradient_norm_constant for c in found.choices if c.scheme == "lecun"}
    assert by_depth[10] < by_depth[8] < by_depth[4]
    he = {c.depth: c.gradient_norm_constant for c in found.choices if c.scheme == "he"}
    assert he[10] > he[8] > he[4] > he[2]
    assert "not (ε, δ)-DP" in " ".join(found.reasons)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layer_widths(3, 4, 0, 1), "depth"),
        (lambda: layer_widths(3, 0, 2, 1), "width"),
        (lambda: layer_variances("glorot-uniform", (3, 2)), "unknown initialization"),
        (lambda: gradient_norm_constant((3,), ()), "depth of at least 1"),
        (lambda: gradient_norm_constant((3, 2), (0.0,)), "variance"),
        (lambda: gradient_norm_constant((3, 4, 2), (1.0,)), "one variance for each"),
        (lambda: compare_initializations(10, 3, 2, width=4, depth=0, kl_budget=1.0), "depth"),
        (lambda: compare_initializations(10, 3, 2, width=-4, depth=3, kl_budget=1.0), "width"),
        (lambda: compare_initializations(10, 3, 2, width=4, depth=3, kl_budget=0.0), "kl_budget"),
        (lambda: linearised_kl_upper_bound(1.0, time=1.0, noise_std=0.0, n_records=5, n_outputs=1), "noise_std"),
    ],
)
def test_bad_input_is_refused(call: object, words: str) -> None:
    with pytest.raises(GratisError, match=words):
        call()  # type: ignore[operator]
