from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from gratis.accounting.iteration import inner_product_error
from gratis.mechanisms.noise import NoiseSource
from gratis.records.errors import GratisError
from gratis.records.events import OnePassIteration
from gratis.records.sequences import Runs
from gratis.rows.streaming import ArrayRows
from gratis.stages.one_pass import OnePasses, OnePassLoss, OnePassTrainer, train_one_pass
from gratis.stages.one_pass_kernels import capped_step, fused_products, project

N, D = 240, 7


def event_of(steps, *, eta=0.05, clip=2.0, std=0.01, **changes):
    """Time-varying step, clip and noise: at the end of blocks of 20 steps, and on every step of the last block."""
    k = np.arange(steps)
    stds = np.where(k % 20 == 19, std, 0.0)
    stds[-20:] = std / 2
    made = OnePassIteration(
        step_sizes=Runs.of(eta * (1 - k // 20 * 20 / steps) + 1e-3),
        clip_norms=Runs.of(clip + (k // 40) * 0.25),
        noise_stds=Runs.of(stds),
        rounding_inflation=1.01,
        neighbouring="replace-one",
    )
    return replace(made, **changes)


def rows(seed=0, n=N, d=D):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)


def trainer_of(event, loss=OnePassLoss.SQUARED, *, d=D, seed=5, **options):
    return OnePassTrainer(event, loss, n_features=d, noise=NoiseSource.insecure(seed), **options)


def run(event, X, y, loss=OnePassLoss.SQUARED, *, cuts=(), seed=5, **options):
    trainer = trainer_of(event, loss, d=X.shape[1], seed=seed, **options)
    for part_X, part_y in zip(np.split(X, cuts), np.split(np.asarray(y), cuts), strict=True):
        trainer.consume(part_X, part_y)
    return trainer.release()


def silent(event):
    return replace(event, noise_stds=Runs.constant(0.0, event.steps))


def textbook(event, X, y, loss, *, intercept=False):
    """S2's Algorithm 1 as written, one record at a time, without noise."""
    if intercept:
        X = np.column_stack([X, np.ones(len(X))])
    theta, batch = np.zeros(X.shape[1]), event.batch_size
    smoothness = {"squared": 1.0, "logistic": 0.25}[loss]
    for k, (eta, clip) in enumerate(zip(event.step_sizes.array(), event.clip_norms.array(), strict=True)):
        move = np.zeros_like(theta)
        for x, label in zip(X[k * batch : (k + 1) * batch], y[k * batch : (k + 1) * batch], strict=True):
            if loss == "squared":
                slope = x @ theta - label
            else:
                sign = 1 if label > 0 else -1
                slope = -sign / (1 + np.exp(sign * (x @ theta)))
            gradient = slope * x
            norm = np.linalg.norm(gradient)
            if norm > clip:
                gradient *= clip / norm
            move += min(eta, 2 / (smoothness * (x @ x))) * gradient
        theta -= move / batch
    return theta


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_follows_the_textbook_algorithm(loss, intercept, batch):
    X, y = rows()
    X[5] *= 100  # the cap acts
    y = y if loss == "squared" else (y > 0).astype(float)
    event = silent(event_of(N // batch, batch_size=batch))
    got = run(event, X, y, loss, fit_intercept=intercept)
    np.testing.assert_allclose(got, textbook(event, X, y, loss, intercept=intercept), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("batch", [1, 3])
def test_result_does_not_depend_on_how_rows_arrive(batch):
    X, y = rows()
    event = event_of(N // batch, batch_size=batch)
    whole = run(event, X, y)
    for cuts in ([1], [100, 101, 103, 200], list(range(1, N))):
        np.testing.assert_array_equal(run(event, X, y, cuts=cuts), whole)
    assert not np.array_equal(run(event, X, y, seed=6), whole)


def test_every_row_is_used_once():
    X, y = rows()
    event = silent(event_of(N))
    whole = run(event, X, y)
    for row in (0, 100, N - 1):
        without = X.copy()
        without[row] = 0
        assert not np.array_equal(run(event, without, y), whole)
    # A second use of a row would move θ again: 240 rows of e_1 move it exactly 240 times.
    constant = OnePassIteration(
        step_sizes=Runs.constant(0.5, N), clip_norms=Runs.constant(1.0, N), noise_stds=Runs.constant(0.0, N),
        rounding_inflation=1.01, neighbouring="replace-one",
    )  # fmt: skip
    ones = np.zeros((N, D))
    ones[:, 0] = 1
    assert run(constant, ones, np.full(N, 1e6))[0] == pytest.approx(0.5 * N, rel=1e-12)


def test_row_beyond_the_pass_is_refused_before_any_of_its_batch_is_used():
    X, y = rows()
    event = event_of(N)
    trainer = trainer_of(event)
    trainer.consume(X[:-1], y[:-1])
    with pytest.raises(GratisError, match="declared for 240 rows and 239 were used"):
        trainer.consume(np.full((2, D), 1e3), np.ones(2))
    assert trainer.rows_seen == N - 1
    trainer.consume(X[-1:], y[-1:])
    np.testing.assert_array_equal(trainer.release(), run(event, X, y))


def test_release_needs_all_rows_happens_once_and_forgets():
    X, y = rows()
    trainer = trainer_of(event_of(N))
    trainer.consume(X[:-1], y[:-1])
    with pytest.raises(GratisError, match="only 239 were used"):
        trainer.release()
    trainer.consume(X[-1:], y[-1:])
    assert np.any(trainer.release() != 0)
    with pytest.raises(GratisError, match="already"):
        trainer.release()
    with pytest.raises(GratisError, match="has been released"):
        trainer.consume(X[:0], y[:0])
    for value in vars(trainer).values():
        assert not (isinstance(value, np.ndarray) and np.any(value != 0))


def test_nothing_of_an_intermediate_iterate_leaves():
    X, y = rows()
    trainer = trainer_of(event_of(N))
    before = repr(trainer)
    trainer.consume(X[:50], y[:50])
    assert repr(trainer) == before
    assert not [name for name, value in vars(trainer).items() if isinstance(value, np.ndarray) and name[0] != "_"]
    for leave in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(GratisError, match="copied or pickled"):
            leave(trainer)


def test_an_interrupted_pass_cannot_continue(monkeypatch):
    X, y = rows()
    trainer = trainer_of(event_of(N))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gratis.stages.one_pass_kernels.advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.consume(X[:50], y[:50])
    with pytest.raises(GratisError, match="interrupted"):
        trainer.consume(X[:50], y[:50])
    with pytest.raises(GratisError):
        trainer.release()


@pytest.mark.parametrize("loss", list(OnePassLoss))
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_a_row_that_is_not_finite_is_the_identity_map(loss, batch, bad):
    X, y = rows()
    event = event_of(N // batch, batch_size=batch)
    zero, broken = X.copy(), X.copy()
    zero[[3, 150]] = 0
    broken[[3, 150], 2] = bad
    expected = run(event, zero, y, loss)
    np.testing.assert_array_equal(run(event, broken, y, loss), expected)
    if not abs(bad) < np.inf:
        labels = y.copy()
        labels[[3, 150]] = bad
        np.testing.assert_array_equal(run(event, X, labels, loss), expected)


def test_noise_is_added_on_invalid_rows_too():
    event = event_of(N)
    released = run(event, np.full((N, D), np.nan), np.zeros(N))
    total = np.sqrt(np.sum(event.noise_stds.array() ** 2))
    assert 0.2 * total < np.std(released) < 3 * total


def test_extreme_finite_rows_never_make_the_release_fail():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, D)) * 10.0 ** rng.integers(-320, 160, (N, 1))
    y = rng.standard_normal(N) * 10.0 ** rng.integers(-300, 308, N)
    for loss in OnePassLoss:
        assert np.all(np.isfinite(run(event_of(N), X, y, loss, fit_intercept=True)))


@pytest.mark.parametrize("loss", list(OnePassLoss))
def test_single_precision_rows_give_the_same_up_to_rounding(loss):
    X, y = rows()
    single = X.astype(np.float32)
    event = event_of(N)
    expected = run(event, single.astype(np.float64), y, loss)
    np.testing.assert_allclose(run(event, single, y, loss), expected, rtol=1e-12)
    np.testing.assert_allclose(run(event, np.asfortranarray(single), y, loss), expected, rtol=1e-12)
    np.testing.assert_allclose(expected, run(event, X, y, loss), atol=1e-5)


def test_integers_booleans_and_both_label_codings_are_accepted():
    X, y = rows()
    event = event_of(N)
    plus_minus = np.sign(y)
    np.testing.assert_array_equal(
        run(event, X, plus_minus, OnePassLoss.LOGISTIC), run(event, X, plus_minus > 0, OnePassLoss.LOGISTIC)
    )
    whole = np.rint(X).astype(np.int32)
    np.testing.assert_array_equal(run(event, whole, y), run(event, whole.astype(float), y))


def test_a_last_batch_that_is_not_full_counts_absent_rows_as_nothing():
    X, y = rows()
    event = event_of(N // 4, batch_size=4)
    padded = X.copy()
    padded[-2:] = 0
    np.testing.assert_allclose(run(event, X[:-2], y[:-2], n_rows=N - 2), run(event, padded, y), rtol=1e-12)
    with pytest.raises(GratisError, match="make a pass of 240 rows"):
        trainer_of(event, n_rows=N - 4)


@pytest.mark.parametrize("loss", list(OnePassLoss))
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_sensitivity_on_neighbours_with_wild_rows(loss, batch, relation):
    """With the same noise, neighbours end at most κ·a_k apart: the shift that the proof starts from."""
    rng = np.random.default_rng(7)
    event = event_of(N // batch, batch_size=batch, neighbouring=relation)
    event = replace(event, noise_stds=Runs.of(np.append(event.noise_stds.array()[:-1], 0.0)))
    moves = event.step_sizes.array() * event.clip_norms.array() / batch
    largest = 0.0
    for trial in range(40):
        X = rng.standard_normal((N, D)) * 10.0 ** rng.uniform(-2, 3, (N, 1))
        y = rng.standard_normal(N) * 10.0 ** rng.uniform(-1, 2, N) if loss == "squared" else rng.integers(0, 2, N)
        row = int(rng.integers(N))
        other_X, other_y = X.copy(), y.copy()
        other_X[row] = 0.0 if relation == "zero-out" else -rng.standard_normal(D) * 10
        other_y[row] = 1000 * y[row]
        shift = np.linalg.norm(run(event, X, y, seed=trial) - run(event, other_X, other_y, seed=trial))
        ratio = shift / (event.neighbouring.sensitivity_factor * moves[row // batch])
        assert ratio <= 1 + 1e-9
        largest = max(largest, ratio)
    assert largest > 0.3  # the test can see a shift


def test_cap_and_clip_hold_exactly_in_rational_arithmetic():
    rng = np.random.default_rng(2)
    for d in (1, 3, 8, 29):
        keep = 1 - (2 * inner_product_error(d) + 8 * 2.0**-53)
        for _ in range(50):
            x = rng.standard_normal(d) * 2.0 ** rng.integers(-60, 60)
            square = fused_products(x, x)[1]
            exact = sum(Fraction(v) ** 2 for v in x.tolist())
            just_below = 1 - Fraction(1, 10**12)
            # A slope of 1 (or ½) below a huge clip shows the step; a power of two as step shows the clip.
            step = Fraction(capped_step(1.0, square, 0.0, False, 1e300, 1e50, keep))
            assert 2 * just_below < step * exact <= 2
            step = 2 * Fraction(capped_step(0.0, square, -1.0, True, 1e300, 1e50, keep))
            assert 2 * just_below < step * exact / 4 <= 2
            limit = Fraction(capped_step(1e300, square, 0.0, False, 2.0**-300, 3.0, keep)) * 2**300
            assert 9 * just_below < limit**2 * exact <= 9


@pytest.mark.parametrize("loss", list(OnePassLoss))
def test_rounding_of_one_step_stays_within_the_proved_error(loss):
    """E = (2γ+2u)‖θ‖ + 25u·ηC against the exact map at the computed step and clip, in 60 digits."""
    rng = np.random.default_rng(3)
    unit = 2.0**-53
    mpmath.mp.dps = 60
    worst = 0.0
    for _ in range(200):
        d = int(rng.integers(1, 40))
        x = rng.standard_normal(d) * 10.0 ** rng.uniform(-1, 2)
        y = float(rng.standard_normal()) if loss == "squared" else 1.0
        theta = rng.standard_normal(d) * 10.0 ** rng.uniform(-2, 2)
        eta, clip, keep = 0.3, 1.7, 1 - (2 * inner_product_error(d) + 8 * unit)
        product, square = fused_products(x, theta)
        move = capped_step(product, square, y, loss == "logistic", eta, clip, keep)
        computed = theta - move * x
        margin = mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(b) for a, b in zip(x.tolist(), theta.tolist(), strict=True))
        slope = margin - y if loss == "squared" else -1 / (1 + mpmath.exp(margin))
        limit = mpmath.mpf(clip / np.sqrt(square) * keep)
        step = mpmath.mpf(min(eta, (2 if loss == "squared" else 8) / square * keep))
        exact_move = step * max(min(slope, limit), -limit)
        error = mpmath.sqrt(
            mpmath.fsum(
                (mpmath.mpf(c) - (mpmath.mpf(t) - exact_move * mpmath.mpf(v))) ** 2
                for c, t, v in zip(computed.tolist(), theta.tolist(), x.tolist(), strict=True)
            )
        )
        bound = (2 * inner_product_error(d) + 2 * unit) * np.linalg.norm(theta) + 25 * unit * eta * clip
        worst = max(worst, float(error) / bound)
    assert 0.005 < worst <= 1


def test_projection_is_on_the_ball():
    theta = np.array([3.0, 4.0])
    project(theta, 10.0)
    np.testing.assert_array_equal(theta, [3, 4])
    project(theta, 1.0)
    np.testing.assert_allclose(theta, [0.6, 0.8], rtol=1e-15)


def test_iterates_stay_in_the_ball_that_the_event_pays_for():
    steps = 3000
    event = OnePassIteration(
        step_sizes=Runs.constant(1.0, steps), clip_norms=Runs.constant(1.0, steps),
        noise_stds=Runs.constant(0.0, steps), rounding_inflation=1 + 2e-8, neighbouring="replace-one",
    )  # fmt: skip
    trainer = trainer_of(event, d=1)
    assert trainer._radius < 1500
    trainer.consume(np.ones((steps, 1)), np.full(steps, 1e9))
    released = float(trainer.release()[0])
    assert released <= trainer._radius + steps % 1024
    assert released < steps - 1


def test_streams_and_one_vs_rest():
    X, y = rows()
    event = event_of(N)
    stream = ArrayRows(X, y, batch_rows=37)
    got = train_one_pass(stream, event, OnePassLoss.SQUARED, noise=NoiseSource.insecure(5))
    np.testing.assert_array_equal(got, run(event, X, y))
    classes = np.arange(N) % 3
    events = (silent(event), silent(event), silent(event))
    classes[7] = 3  # not among them: its row is the identity map in every pass
    several = train_one_pass(
        ArrayRows(X, classes), events, OnePassLoss.LOGISTIC, noise=NoiseSource.insecure(1), fit_intercept=True
    )
    for k in range(3):
        target = np.where(classes == 3, np.nan, classes == k)
        alone = run(events[k], X, target, OnePassLoss.LOGISTIC, fit_intercept=True)
        np.testing.assert_array_equal(several[k], alone)
    as_rest = run(events[0], X, classes == 0, OnePassLoss.LOGISTIC, fit_intercept=True)
    assert not np.array_equal(several[0], as_rest)  # negative control
    with pytest.raises(GratisError, match="make a pass of 240 rows"):
        train_one_pass(ArrayRows(X[:-1], y[:-1]), event, OnePassLoss.SQUARED, noise=NoiseSource.insecure(5))


def test_several_passes_fail_closed(monkeypatch):
    X = rows()[0]
    events, classes = (silent(event_of(N)),) * 3, np.arange(N) % 3
    with pytest.raises(GratisError, match="logistic"):
        OnePasses(events, OnePassLoss.SQUARED, n_features=X.shape[1], noise=NoiseSource.insecure(1))
    passes = OnePasses(events, OnePassLoss.LOGISTIC, n_features=X.shape[1], noise=NoiseSource.insecure(1))
    with pytest.raises(GratisError, match="numbers from 0 to 2"):
        passes.consume(X[:4], np.array(["a", "b", "c", "a"]))
    assert passes.rows_seen == 0
    honest, calls = OnePassTrainer.consume, []

    def interrupted(self, *batch):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        honest(self, *batch)

    monkeypatch.setattr(OnePassTrainer, "consume", interrupted)
    with pytest.raises(KeyboardInterrupt):
        passes.consume(X[:4], classes[:4])
    with pytest.raises(GratisError, match="interrupted"):
        passes.consume(X[:4], classes[:4])
    with pytest.raises(GratisError):
        passes.release()


def test_learns():
    rng = np.random.default_rng(0)
    n, d = 4000, 5
    X, truth = rng.standard_normal((n, d)), np.array([1.0, -1.0, 0.5, 0.0, 2.0])
    event = OnePassIteration(
        step_sizes=Runs.constant(0.01, n), clip_norms=Runs.constant(1.0, n),
        noise_stds=Runs.of(np.append(np.zeros(n - 1), 0.02)), rounding_inflation=1.001, neighbouring="replace-one",
    )  # fmt: skip
    linear = run(event, X, X @ truth + 3 + 0.1 * rng.standard_normal(n), fit_intercept=True)
    np.testing.assert_allclose(linear, [*truth, 3], atol=0.1)
    labels = X @ truth > 0
    logistic = run(event, X, labels, OnePassLoss.LOGISTIC)
    assert np.mean((X @ logistic > 0) == labels) > 0.97


def test_bad_parameters_fail_before_any_data_is_read():
    event = event_of(N)
    with pytest.raises(GratisError, match="does not pay for floating point"):
        trainer_of(replace(event, rounding_inflation=1.0))
    with pytest.raises(GratisError, match="between 1e-50 and"):
        trainer_of(replace(event, clip_norms=Runs.constant(1e60, N)))
    with pytest.raises(GratisError, match="n_features"):
        trainer_of(event, d=0)
    trainer = trainer_of(event)
    X, y = rows()
    with pytest.raises(GratisError, match=r"shape \(rows, 7\)"):
        trainer.consume(X[:, :3], y)
    with pytest.raises(GratisError, match="one entry for each"):
        trainer.consume(X, y[:-1])
    with pytest.raises(GratisError, match="real numbers"):
        trainer.consume(X.astype(str), y)
    assert trainer.rows_seen == 0
