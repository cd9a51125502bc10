"""Events → guarantees by hand-computed values, composition, serialisation, failing closed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gratis.accounting import (
    account,
    amplification_by_iteration,
    calibrate_descent_noise,
    calibrate_mu,
    calibrate_noise_std,
    compose_mu,
    delta_upper_bound,
    epsilon_upper_bound,
    gdp_to_renyi,
    gdp_to_zcdp,
    group_privacy,
    least_noise,
    split_mu,
    total_variation_upper_bound,
)
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.events import (
    Composition,
    Event,
    FullBatchDescent,
    GaussianRelease,
    OnePassIteration,
    PoissonSubsampledGaussian,
    event_from_json,
)
from gratis.records.guarantees import ApproximateDPGuarantee, GDPGuarantee, KLGuarantee, PLDGuarantee
from gratis.records.neighbouring import Neighbouring
from gratis.records.sequences import Runs

REPLACE, ZERO = Neighbouring.REPLACE_ONE, Neighbouring.ZERO_OUT


def descent(relation: Neighbouring = REPLACE, noise: float = 0.02) -> FullBatchDescent:
    return FullBatchDescent(
        learning_rates=Runs.constant(0.5, 16),
        noise_stds=Runs.constant(noise, 16),
        clip_norm=2.0,
        n_records=100,
        neighbouring=relation,
    )


def one_pass(noise: list[float] | None = None, relation: Neighbouring = REPLACE) -> OnePassIteration:
    noise = [0.0, 0.3, 0.0, 0.4] if noise is None else noise
    return OnePassIteration(
        step_sizes=Runs.of([0.2, 0.2, 0.1, 0.1]),
        clip_norms=Runs.constant(1.5, 4),
        noise_stds=Runs.of(noise),
        neighbouring=relation,
    )


ALL: list[Event] = [
    GaussianRelease(sensitivity=1.0, noise_std=3.0, count=4, neighbouring=ZERO, label="mean"),
    descent(),
    one_pass(),
    PoissonSubsampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=100, neighbouring=REPLACE),
    Composition((descent(), one_pass(), Composition((descent(),)))),
    Composition(()),
]


@pytest.mark.parametrize("event", ALL, ids=lambda e: e.kind)
def test_events_survive_json(event: Event) -> None:
    assert event_from_json(json.loads(json.dumps(event.to_json()))) == event
    hash(event)


def test_gaussian_release_by_hand() -> None:
    guarantee = account(GaussianRelease(sensitivity=1.0, noise_std=3.0, count=4, neighbouring=ZERO))
    assert isinstance(guarantee, GDPGuarantee)
    assert guarantee.mu == pytest.approx(2 / 3, rel=1e-14)
    assert guarantee.mu >= 2 / 3
    assert guarantee.neighbouring is ZERO


@pytest.mark.parametrize(("relation", "factor"), [(REPLACE, 2), (ZERO, 1)])
def test_full_batch_descent_by_hand(relation: Neighbouring, factor: int) -> None:
    # √T·κηC/(n s) = 4·κ·.5·2/(100·.02)
    guarantee = account(descent(relation))
    assert isinstance(guarantee, GDPGuarantee)
    assert guarantee.mu == pytest.approx(4 * factor * 0.5, rel=1e-14)


def test_one_pass_by_brute_force() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        n = int(rng.integers(1, 12))
        steps, clips = rng.uniform(0, 1, n).round(1), rng.uniform(0, 2, n).round(1)
        noise = (rng.uniform(0, 1, n) * (rng.uniform(size=n) < 0.6)).round(1)
        event = OnePassIteration(
            step_sizes=Runs.of(steps),
            clip_norms=Runs.of(clips),
            noise_stds=Runs.of(noise),
            neighbouring=REPLACE,
        )
        worst = 0.0
        for k in range(n):
            shift, tail = 2 * steps[k] * clips[k], math.sqrt(float(np.sum(noise[k:] ** 2)))
            if shift > 0:
                worst = max(worst, shift / tail if tail > 0 else math.inf)
        got = amplification_by_iteration(event)
        assert got == worst or (got >= worst and got == pytest.approx(worst, rel=1e-12))


def test_one_pass_batches_divide_the_shift() -> None:
    single = amplification_by_iteration(one_pass())
    batched = OnePassIteration(
        step_sizes=one_pass().step_sizes,
        clip_norms=one_pass().clip_norms,
        noise_stds=one_pass().noise_stds,
        batch_size=4,
        neighbouring=REPLACE,
    )
    assert amplification_by_iteration(batched) == pytest.approx(single / 4)
    assert gdp_to_zcdp(account(batched)).rho == pytest.approx((single / 4) ** 2 / 2)  # type: ignore[arg-type]


@given(
    st.lists(st.just(0.0) | st.floats(1e-6, 10), min_size=1, max_size=30),
    st.floats(0.01, 10),
    st.sampled_from(list(Neighbouring)),
)
def test_least_noise_meets_its_rho_and_less_noise_does_not(
    values: list[float], rho: float, relation: Neighbouring
) -> None:
    a = np.sort(np.array(values))[::-1]
    if a[0] == 0:
        return
    noise = least_noise(a, rho=rho, neighbouring=relation)

    def spent(scale: float) -> float:
        return amplification_by_iteration(
            OnePassIteration(
                step_sizes=Runs.of(a),
                clip_norms=Runs.constant(1.0, a.size),
                noise_stds=Runs.of(noise * scale),
                neighbouring=relation,
            )
        )

    assert spent(1.0) <= rho
    assert spent(0.99) > rho


def test_increasing_shift_is_refused_by_least_noise() -> None:
    with pytest.raises(GratisError, match="must not increase"):
        least_noise(np.array([1.0, 2.0]), rho=1.0, neighbouring=REPLACE)


def test_missing_noise_protects_nothing() -> None:
    assert account(GaussianRelease(sensitivity=1.0, noise_std=0.0, neighbouring=ZERO)) == GDPGuarantee(
        mu=math.inf, neighbouring=ZERO
    )
    assert account(descent(noise=0.0)).mu == math.inf  # type: ignore[union-attr]
    assert amplification_by_iteration(one_pass([1.0, 0.0, 0.0, 0.0])) == math.inf
    assert account(GaussianRelease(sensitivity=0.0, noise_std=0.0, neighbouring=ZERO)).mu == 0.0  # type: ignore[union-attr]
    infinite = GDPGuarantee(mu=math.inf, neighbouring=ZERO)
    assert epsilon_upper_bound(infinite, delta=0.1) == math.inf
    assert delta_upper_bound(infinite, epsilon=100.0) == 1.0


def test_composition_is_the_root_of_the_squares() -> None:
    parts = [descent(), one_pass()]
    mus = [account(part).mu for part in parts]  # type: ignore[union-attr]
    whole = account(Composition(tuple(parts)))
    assert whole.mu == pytest.approx(math.hypot(*mus))  # type: ignore[union-attr]
    assert compose_mu([0.1] * 10) >= math.sqrt(0.1)


def test_relations_do_not_mix() -> None:
    with pytest.raises(GratisError, match="different neighbouring"):
        Composition((descent(REPLACE), descent(ZERO)))


def test_conversions_of_guarantees() -> None:
    gdp = GDPGuarantee(mu=0.5, neighbouring=REPLACE)
    zcdp = gdp_to_zcdp(gdp)
    exact = epsilon_upper_bound(gdp, delta=1e-5)
    assert exact == pytest.approx(1.99309, abs=5e-6)
    assert exact < epsilon_upper_bound(zcdp, delta=1e-5) < 2.52426
    best = min(epsilon_upper_bound(gdp_to_renyi(gdp, order=a), delta=1e-5) for a in np.linspace(1.5, 40, 400))
    assert best == pytest.approx(epsilon_upper_bound(zcdp, delta=1e-5), rel=1e-3)
    for guarantee in (gdp, zcdp, gdp_to_renyi(gdp, order=8.0)):
        epsilon = epsilon_upper_bound(guarantee, delta=1e-6)
        assert delta_upper_bound(guarantee, epsilon=epsilon) == pytest.approx(1e-6, rel=1e-6)
    assert group_privacy(gdp, rows_per_person=3).mu == pytest.approx(1.5)
    point = ApproximateDPGuarantee(epsilon=1.0, delta=1e-6, neighbouring=ZERO)
    assert epsilon_upper_bound(point, delta=1e-7) == math.inf
    with pytest.raises(GratisError, match="does not imply"):
        epsilon_upper_bound(KLGuarantee(kl=0.1, neighbouring=ZERO), delta=0.1)


def test_total_variation_of_kl() -> None:
    assert total_variation_upper_bound(kl=0.02) == pytest.approx(0.1)
    assert total_variation_upper_bound(kl=10.0) == pytest.approx(math.sqrt(1 - math.exp(-10)))


@given(st.floats(1e-6, 1e3), st.floats(1e-12, 0.5), st.integers(1, 10**6), st.sampled_from(list(Neighbouring)))
def test_calibration_never_overspends(epsilon: float, delta: float, steps: int, relation: Neighbouring) -> None:
    mu = calibrate_mu(Budget(epsilon=epsilon, delta=delta, neighbouring=relation))
    parts = split_mu(mu, [0.2, 0.16, 0.64])
    noise = calibrate_descent_noise(
        mu=parts[2],
        steps=min(steps, 1000),
        learning_rate=0.3,
        clip_norm=1.7,
        n_records=steps,
        neighbouring=relation,
    )
    event = Composition(
        (
            GaussianRelease(
                sensitivity=0.7,
                noise_std=calibrate_noise_std(mu=parts[0], sensitivity=0.7),
                neighbouring=relation,
            ),
            GaussianRelease(
                sensitivity=0.7,
                noise_std=calibrate_noise_std(mu=parts[1], sensitivity=0.7, count=5),
                count=5,
                neighbouring=relation,
            ),
            FullBatchDescent(
                learning_rates=Runs.constant(0.3, min(steps, 1000)),
                noise_stds=Runs.constant(noise, min(steps, 1000)),
                clip_norm=1.7,
                n_records=steps,
                neighbouring=relation,
            ),
        )
    )
    guarantee = account(event)
    assert guarantee.mu <= mu  # type: ignore[union-attr]
    assert guarantee.mu >= mu * (1 - 1e-12)  # type: ignore[union-attr]
    assert epsilon_upper_bound(guarantee, delta=delta) <= epsilon


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "unknown"},
        {"kind": "gaussian-release", "sensitivity": 1.0},
        {**GaussianRelease(sensitivity=1.0, noise_std=1.0, neighbouring=ZERO).to_json(), "extra": 1},
        {
            **GaussianRelease(sensitivity=1.0, noise_std=1.0, neighbouring=ZERO).to_json(),
            "neighbouring": "add",
        },
        {
            **GaussianRelease(sensitivity=1.0, noise_std=1.0, neighbouring=ZERO).to_json(),
            "sensitivity": float("nan"),
        },
        {**GaussianRelease(sensitivity=1.0, noise_std=1.0, neighbouring=ZERO).to_json(), "noise_std": "1"},
        {**descent().to_json(), "learning_rates": [[1.0, 0]]},
        {**descent().to_json(), "rounding_inflation": 0.5},
        {"kind": "composition", "events": "x"},
        ["gaussian-release"],
        None,
    ],
)
def test_malformed_events_are_refused(data: object) -> None:
    with pytest.raises(GratisError):
        event_from_json(data)


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, float("inf")])
def test_bad_budgets_are_refused(wrong: float) -> None:
    with pytest.raises(GratisError):
        Budget(mu=wrong)
    with pytest.raises(GratisError):
        Budget(epsilon=wrong, delta=1e-5)
    with pytest.raises(GratisError):
        Budget(epsilon=1.0, delta=wrong)
    with pytest.raises(GratisError):
        Budget(epsilon=1.0, delta=1e-5, mu=1.0)


@pytest.mark.parametrize(("rate", "noise"), [(1e-200, 0.0), (1e200, 1e155), (1.0, 1e-60)])
def test_magnitudes_that_would_underflow_or_overflow_are_refused(rate: float, noise: float) -> None:
    """Their products would be 0 or infinite, and 0 stands for "nothing was moved"."""
    with pytest.raises(GratisError, match="between"):
        FullBatchDescent(
            learning_rates=Runs.constant(rate, 2),
            noise_stds=Runs.constant(noise, 2),
            clip_norm=1.0,
            n_records=10,
            neighbouring=ZERO,
        )
    with pytest.raises(GratisError, match="between"):
        OnePassIteration(
            step_sizes=Runs.constant(rate, 2),
            clip_norms=Runs.constant(1.0, 2),
            noise_stds=Runs.constant(noise, 2),
            neighbouring=ZERO,
        )


def test_subsampled_events_keep_their_own_relation() -> None:
    def epsilon(relation: Neighbouring, extra: tuple[Event, ...] = ()) -> float:
        event = PoissonSubsampledGaussian(sampling_rate=0.02, noise_multiplier=1.2, steps=200, neighbouring=relation)
        guarantee = account(Composition((event, *extra)))
        assert isinstance(guarantee, PLDGuarantee)
        return epsilon_upper_bound(guarantee, delta=1e-5)

    assert epsilon(REPLACE) > 1.3 * epsilon(ZERO)
    release = GaussianRelease(sensitivity=1.0, noise_std=4.0, neighbouring=ZERO)
    assert epsilon(ZERO, (release,)) > epsilon(ZERO)


def test_extreme_noise_beside_a_subsampled_event() -> None:
    step = PoissonSubsampledGaussian(sampling_rate=0.1, noise_multiplier=2.0, steps=1, neighbouring=ZERO)
    bare = GaussianRelease(sensitivity=1.0, noise_std=1e-200, neighbouring=ZERO)
    assert epsilon_upper_bound(account(Composition((step, bare))), delta=1e-5) == math.inf


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_full_sampling_is_the_gaussian_mechanism(relation: Neighbouring) -> None:
    event = PoissonSubsampledGaussian(sampling_rate=1.0, noise_multiplier=2.0, steps=9, neighbouring=relation)
    exact = GDPGuarantee(mu=1.5 * relation.sensitivity_factor, neighbouring=relation)
    numerical = epsilon_upper_bound(account(event), delta=1e-5)
    assert numerical == pytest.approx(epsilon_upper_bound(exact, delta=1e-5), rel=1e-3)
    release = GaussianRelease(sensitivity=1.5 * relation.sensitivity_factor, noise_std=1.0, neighbouring=relation)
    tiny = PoissonSubsampledGaussian(sampling_rate=1e-6, noise_multiplier=50.0, steps=1, neighbouring=relation)
    mixed = epsilon_upper_bound(account(Composition((release, tiny))), delta=1e-5)
    assert mixed == pytest.approx(epsilon_upper_bound(exact, delta=1e-5), rel=2e-3)
