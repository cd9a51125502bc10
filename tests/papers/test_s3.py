"""S3's programs: thinned measurements, coordinates in a span, descent in the space of outputs, training under KL."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gratis.mechanisms.noise import NoiseSource
from gratis.planning.bounds.initialization import (
    Scheme,
    gradient_norm_constant,
    layer_variances,
    linearised_kl_upper_bound,
)
from gratis.planning.initialization import compare_initializations
from gratis.records.errors import GratisError
from gratis_papers.kl_training import plan_under_kl, train_under_kl
from gratis_papers.linearised_descent import linearised_divergences, tangent_kernel_of_outputs
from gratis_papers.noisy_gd import measured_steps, noisy_descent_divergences, span_coordinates
from gratis_papers.relu_network import ReluNetwork
from gratis_papers.s3_divergence import Size, curves
from gratis_papers.s3_runs import MARKS, mean_rows

WIDTHS = (6, 16, 16, 2)


def problem(n: int = 20, new: int = 4, d: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + new, d))
    X *= math.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)
    y = (X[:, 0] > 0).astype(np.int64)
    return X[:n], y[:n], X[n:], y[n:]


def test_measured_steps_are_odd_distances_apart_and_hold_every_mark() -> None:
    steps = list(measured_steps((1000,), 0.03))[:-1]
    gaps = np.diff(steps)
    assert np.all(gaps % 2 == 1)
    assert steps[:33] == list(range(1, 34))
    assert gaps.max() <= 30
    assert set(MARKS) <= set(measured_steps(MARKS, 0.5))
    assert list(measured_steps((9,), 0.0)) == [*range(1, 10), 9]


@pytest.mark.parametrize("scheme", list(Scheme))
def test_measuring_fewer_steps_changes_little(scheme: Scheme) -> None:
    """The same run: noise does not depend on what is measured."""
    X, y, X_new, y_new = problem()
    found = [
        noisy_descent_divergences(
            X, y, X_new, y_new, widths=WIDTHS, variances=layer_variances(scheme, WIDTHS), step_size=0.01,
            noise_std=0.01, steps=300, runs=1, checkpoints=[1, 10, 300], thinning=thinning,
        ).all
        for thinning in (0.0, 0.03)
    ]  # fmt: skip
    np.testing.assert_array_equal(found[0][:, :2], found[1][:, :2])
    np.testing.assert_allclose(found[1], found[0], rtol=0.02)
    assert not np.array_equal(found[0], found[1])


def test_marks_cost_the_sum_nothing() -> None:
    """Linear in between: a checkpoint in the middle leaves the end as it was, up to that one measurement."""
    X, y, X_new, y_new = problem()
    settings = {"widths": WIDTHS, "variances": layer_variances("he", WIDTHS), "step_size": 0.01, "noise_std": 0.01,
                "steps": 40, "runs": 1}  # fmt: skip
    every = noisy_descent_divergences(X, y, X_new, y_new, **settings).all[0, -1]
    few = noisy_descent_divergences(X, y, X_new, y_new, thinning=0.2, **settings).all[0, -1]
    np.testing.assert_allclose(few, every, rtol=0.05)


def test_coordinates_in_the_span_keep_every_product() -> None:
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((5, 30)), rng.standard_normal((3, 30))
    a, b = span_coordinates(A, B)
    assert a.shape == (5, 8)
    np.testing.assert_allclose(np.vstack([a, b]) @ np.vstack([a, b]).T, np.vstack([A, B]) @ np.vstack([A, B]).T)
    assert span_coordinates(A.T)[0].shape == (30, 5)


def test_a_diverged_run_keeps_what_was_measured() -> None:
    X, y, X_new, y_new = problem()
    found = noisy_descent_divergences(
        X, y, X_new, y_new, widths=WIDTHS, variances=layer_variances("ntk", WIDTHS), step_size=1e30,
        noise_std=0.01, steps=9, runs=1, checkpoints=[1, 9], keep_diverged=True,
    )  # fmt: skip
    assert 1 < found.diverged_at[0] < 9
    assert np.isfinite(found.all[0, 0]).all()
    assert np.isnan(found.all[0, 1]).all()


def test_kernel_of_outputs_is_that_of_autograd() -> None:
    X = torch.as_tensor(problem()[0][:5])
    network = ReluNetwork(WIDTHS, layer_variances("he", WIDTHS), generator=torch.Generator().manual_seed(0),
                          dtype=torch.float64)  # fmt: skip

    def scores(*weights: torch.Tensor) -> torch.Tensor:
        h = X
        for i, w in enumerate(weights):
            h = h @ w.T
            h = h.relu() if i < len(weights) - 1 else h
        return h.flatten()

    jacobians = torch.autograd.functional.jacobian(scores, tuple(network.weights))
    J = torch.cat([j.reshape(10, -1) for j in jacobians], dim=1)
    torch.testing.assert_close(tangent_kernel_of_outputs(network, X), J @ J.T)


def test_descent_of_outputs_is_descent_of_weights_when_noise_is_tiny() -> None:
    """Then both follow one path: per-record differences from the weights give those of replaced records."""
    X, y, X_new, y_new = problem(n=8, new=3)
    eta, sigma, steps = 0.05, 1e-7, 6
    variances = layer_variances("he", WIDTHS)
    found = linearised_divergences(X, y, X_new, y_new, widths=WIDTHS, variances=variances, step_size=eta,
                                   noise_std=sigma, checkpoints=[steps], runs=1, seed=4)  # fmt: skip
    network = ReluNetwork(WIDTHS, variances, generator=torch.Generator().manual_seed(4 * 1_000_003), linearised=True)
    rows, labels = torch.as_tensor(np.vstack([X, X_new])).float(), torch.as_tensor(np.append(y, y_new))
    expected = np.zeros((8, 3))
    for _ in range(steps):
        layers, scores = network.forward(rows)
        residual = torch.softmax(scores, 1) - torch.nn.functional.one_hot(labels, 2)
        each = [b[:, :, None] * a[:, None, :] for a, b in zip(layers, network.backward(layers, residual), strict=True)]
        flat = torch.cat([g.reshape(len(rows), -1) for g in each], dim=1)
        expected += torch.cdist(flat[:8].double(), flat[8:].double()).square().numpy()
        for w, g in zip(network.weights, each, strict=True):
            w.sub_(eta * g[:8].mean(dim=0))
    expected *= eta / (4 * sigma**2 * 8**2)
    np.testing.assert_allclose(found.kl[0, 0], expected, rtol=1e-3)


def test_noise_of_outputs_has_the_law_of_noise_in_weights() -> None:
    """Mean over 200 runs of Σ‖g_z − g_z′‖², within 5 standard errors; without noise it is elsewhere."""
    X, y, X_new, y_new = problem(n=4, new=2)
    widths, eta, sigma, steps, runs = (6, 8, 2), 0.2, 1.0, 5, 200
    settings = {"widths": widths, "variances": layer_variances("he", widths), "step_size": eta, "checkpoints": [steps]}
    outputs = linearised_divergences(X, y, X_new, y_new, noise_std=sigma, runs=runs, seed=1, **settings).kl
    still = linearised_divergences(X, y, X_new, y_new, noise_std=1e-6, runs=runs, seed=1, **settings).kl * 1e-12
    rows, labels = torch.as_tensor(np.vstack([X, X_new])).float(), torch.as_tensor(np.append(y, y_new))
    generator, weights = torch.Generator().manual_seed(9), np.zeros(runs)
    for run in range(runs):
        network = ReluNetwork(widths, settings["variances"], generator=generator, linearised=True)
        for _ in range(steps):
            layers, scores = network.forward(rows)
            b = network.backward(layers, torch.softmax(scores, 1) - torch.nn.functional.one_hot(labels, 2))
            each = [back[:, :, None] * a[:, None, :] for a, back in zip(layers, b, strict=True)]
            flat = torch.cat([g.reshape(len(rows), -1) for g in each], dim=1)
            weights[run] += float(torch.cdist(flat[:4], flat[4:]).square().sum()) * eta / (4 * sigma**2 * 16)
            for w, g in zip(network.weights, each, strict=True):
                w.sub_(eta * g[:4].mean(dim=0))
                w.add_(torch.randn(w.shape, generator=generator), alpha=math.sqrt(2 * eta) * sigma)
    total = outputs.reshape(runs, -1).sum(axis=1)
    error = math.hypot(total.std(), weights.std()) / math.sqrt(runs)
    assert abs(total.mean() - weights.mean()) < 5 * error
    assert abs(still.reshape(runs, -1).sum(axis=1).mean() - weights.mean()) > 5 * error


def test_linearised_networks_stay_under_the_bound_against_a_hostile_record() -> None:
    """The worst replaced record: opposite label, full length. A record that is longer than √d breaks it (control)."""
    X, y, X_new, y_new = problem()
    X_new, y_new = -X[:4], y[:4]
    variances = layer_variances("he", WIDTHS)
    bound = linearised_kl_upper_bound(
        gradient_norm_constant(WIDTHS, variances), time=0.5, noise_std=0.1, n_records=len(X), n_outputs=2
    ).kl
    settings = {"widths": WIDTHS, "variances": variances, "step_size": 0.05, "noise_std": 0.1, "checkpoints": [10],
                "runs": 6}  # fmt: skip
    assert linearised_divergences(X, y, X_new, y_new, **settings).kl.mean(axis=0).max() < bound
    assert linearised_divergences(X, y, 30 * X_new, y_new, **settings).kl.mean(axis=0).max() > bound


def test_plan_is_that_of_gratis_plan_network() -> None:
    plan = plan_under_kl(10_000, 30, 2, width=64, depth=4, kl_budget=0.5, scheme="he")
    choices = compare_initializations(10_000, 30, 2, width=64, depth=4, kl_budget=0.5).choices
    same = next(choice for choice in choices if (choice.scheme, choice.depth) == ("he", 4))
    assert (plan.time, plan.noise_std) == (same.time, same.noise_std)
    assert plan.kl == pytest.approx(0.5)
    assert plan.step_size * plan.steps == pytest.approx(plan.time)
    assert "not (ε, δ)" in plan.caption
    with pytest.raises(GratisError, match="steps"):
        plan_under_kl(10_000, 3072, 2, width=4096, depth=10, kl_budget=1e6, scheme="ntk")


@pytest.mark.parametrize("classes", [1, 2])
def test_training_learns_and_limits_rows(classes: int) -> None:
    X, y, *_ = problem(n=400)
    plan = plan_under_kl(400, 6, classes, width=16, depth=2, kl_budget=200.0, steps=60)
    trained = train_under_kl(X, y, plan, noise=NoiseSource.insecure(1))
    # 400 fair coins: 300 hits would be ten standard deviations above chance.
    assert np.mean(trained.predict(X) == y) > 0.75
    assert not trained.noise_is_secure
    assert set(trained.weights()) == {"start_1", "start_2", "trained_1", "trained_2"}
    longer = np.array(X)
    longer[3] *= 1e200
    hostile = train_under_kl(longer, y, plan, noise=NoiseSource.insecure(1))
    for name, weight in trained.weights().items():
        np.testing.assert_allclose(hostile.weights()[name], weight, atol=1e-9 * np.abs(weight).max())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_record_stops_the_training(bad: float) -> None:
    X, y, *_ = problem()
    plan = plan_under_kl(len(X), 6, 2, width=8, depth=2, kl_budget=1.0, steps=2)
    X[0], labels = bad, y.astype(np.float64)
    labels[0] = bad
    trained = train_under_kl(X, labels, plan, noise=NoiseSource.insecure(1))
    assert all(np.isfinite(weight).all() for weight in trained.weights().values())
    with pytest.raises(GratisError, match="columns"):
        train_under_kl(X[:, :3], y, plan, noise=NoiseSource.insecure(1))


def test_noise_of_a_step_is_what_the_bound_assumes() -> None:
    """400·6 weights moved once by N(0, 2ησ²), the gradient negligible: 6 standard errors of a standard deviation."""
    plan = replace(plan_under_kl(20, 6, 2, width=400, depth=2, kl_budget=1.0, steps=1), time=0.02, noise_std=50.0)
    X, y, *_ = problem()
    weights = train_under_kl(X, y, plan, noise=NoiseSource.insecure(3)).weights()
    moved = weights["trained_1"] - weights["start_1"]
    assert moved.std() == pytest.approx(math.sqrt(2 * 0.02) * 50.0, rel=6 / math.sqrt(2 * moved.size))


def test_rows_of_a_mean_over_runs() -> None:
    runs = [
        {"steps": [1, 2], "removed": 2, "kl": [[1.0, 2.0, 0.5], [3.0, 4.0, 9.0]], "diverged_at": 0},
        {"steps": [1], "removed": 2, "kl": [[1.0, 4.0, 0.5]], "diverged_at": 2},
    ]
    (row,) = mean_rows({"scheme": "he"}, runs)
    assert (row["step"], row["kl"], row["least"], row["most"], row["worst_is_added"]) == (1, 3.0, 2.0, 4.0, False)
    assert row["spread"] == pytest.approx(math.sqrt(2), rel=1e-4)


def test_curves_of_one_size_do_not_depend_on_what_else_is_run() -> None:
    size = Size("digits", 20, 8, 2, 5, 2)
    alone = curves(size, [{"scheme": "he", "step_size": 0.01}], seed=3)
    both = curves(
        size, [{"scheme": "lecun", "step_size": 0.01, "runs": 1}, {"scheme": "he", "step_size": 0.01}], seed=3
    )
    assert [row for row in both if row["scheme"] == "he"] == alone
    assert {row["runs"] for row in both if row["scheme"] == "lecun"} == {1}
