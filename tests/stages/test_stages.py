"""Each stage alone: sensitivities on hostile neighbours, exact facts within a column, what cleaning keeps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gratis.mechanisms.location_scale import Standardiser
from gratis.mechanisms.rows import Rows, in_chunks
from gratis.records.neighbouring import Neighbouring
from gratis.stages.block_shrinkage import block_moments, cleaned_moments, combined, spectral_moments
from gratis.stages.clipped_gradients import plan_gradients, release_gradient
from gratis.stages.column_histograms import plan_column_histograms, release_column_histograms
from gratis.stages.columns import BINS, REACH, Columns
from gratis.stages.curve_basis import CurveBasis, Pairs
from gratis.stages.feature_moments import plan_feature_moments, release_feature_moments
from gratis.stages.gradient_posterior import GradientHistory, precondition
from gratis.stages.pair_screening import plan_pair_screening, screen_pairs

N, D = 30, 3
LEVELS = {2: 4}
RELATIONS = [Neighbouring.ZERO_OUT, Neighbouring.REPLACE_ONE]


class Tape:
    """A noise source that keeps what it was given and adds nothing."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.stds: list[float] = []

    def release(self, values: Any, std: float) -> Any:
        self.values.append(np.array(values))
        self.stds.append(std)
        return np.array(values)


def table(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(N, 2)), rng.integers(0, 4, N)])
    return X, rng.normal(size=N)


def columns(*, impute: bool = False) -> Columns:
    return Columns(replace(Standardiser.identity(D), impute=impute), LEVELS)


def edge(place: int) -> float:
    return -REACH + place * 2 * REACH / BINS


RECORDS = [
    ([1e308, -1e308, 3.0], 1e308),
    ([-1e308, 1e308, 0.0], -1e308),
    ([np.nan, np.nan, np.nan], np.nan),
    ([np.inf, 0.0, 1.0], 1.0),
    ([edge(64), edge(1), 2.0], 5.0),
    ([edge(BINS), edge(0), 3.0], -5.0),
    ([0.0, 0.0, 99.0], 1.0),
    ([0.0, 0.0, 1.0], np.inf),
    ([REACH, -REACH, 0.0], 1e-320),
]


def basis(cols: Columns, *, pairs: Pairs | None = None) -> CurveBasis:
    X, y = table()
    plan = plan_column_histograms(N, D, mu=1.0, neighbouring=Neighbouring.ZERO_OUT)
    shares = release_column_histograms(Rows.held(X, y), cols, plan, noise=Tape())  # type: ignore[arg-type]
    return CurveBasis(cols, shares, 3, pairs or Pairs())


def clipped(scores: Any, y: Any) -> Any:
    return np.clip(y, -1e300, 1e300)[:, None] - scores


def stage(name: str, relation: Neighbouring, cols: Columns) -> Any:
    """Return (run, event): run takes rows and a noise source."""
    made = basis(cols, pairs=Pairs(((0, 1), (1, 2)), 2))
    width = made.width
    if name == "histograms":
        plan: Any = plan_column_histograms(N, D, mu=0.5, neighbouring=relation)
        return lambda rows, noise: release_column_histograms(rows, cols, plan, noise=noise), plan.event
    if name == "moments":
        plan = plan_feature_moments(N, width, mu=0.5, neighbouring=relation, label="m")
        return (
            lambda rows, noise: release_feature_moments(rows, cols, made.features, plan, clip_norm=0.7, noise=noise),
            plan.event,
        )
    theta = np.random.default_rng(1).normal(size=(width, 1))
    if name == "gradient":
        plan = plan_gradients(N, width, 1, 3, mu=0.5, neighbouring=relation, growth=2.0, label="g")
        frame = np.tril(np.random.default_rng(2).normal(size=(width, width)) * 10.0 ** np.arange(-8, width - 8))
        return (
            lambda rows, noise: release_gradient(
                rows, cols, made.features, clipped, theta, frame, plan, 1, clip_norm=0.3, noise=noise
            ),
            plan.events[1],
        )
    plan = plan_pair_screening(N, ((0, 1), (1, 2)), 1, most=2, mu=0.5, neighbouring=relation)
    plain = basis(cols)
    return (
        lambda rows, noise: screen_pairs(
            rows, cols, plain, clipped, theta[: plain.width], plan, clip_factor=0.5, sampling=0.0, noise=noise
        ),
        plan.event,
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("impute", [False, True])
@pytest.mark.parametrize("name", ["histograms", "moments", "gradient", "screening"])
def test_one_record_moves_a_release_by_at_most_its_sensitivity(name: str, impute: bool, relation: Neighbouring) -> None:
    run, event = stage(name, relation, columns(impute=impute))
    X, y = table()
    largest = 0.0
    null = (np.full(D, np.nan), np.nan)
    hostile = [(np.array(record), target) for record, target in RECORDS]
    others = [null] if relation is Neighbouring.ZERO_OUT else hostile
    for first in hostile:
        for second in others:
            values = []
            for record, target in (first, second):
                rows, targets = X.copy(), y.copy()
                rows[4], targets[4] = record, target
                tape = Tape()
                run(Rows.held(rows, targets), tape)
                assert tape.stds == [event.noise_std]
                values.append(tape.values[0])
            largest = max(largest, float(np.linalg.norm(values[0] - values[1])))
    assert largest <= event.sensitivity
    assert largest > 0.4 * event.sensitivity  # the bound is used


def test_without_its_clip_a_gradient_moves_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    from gratis.stages import clipped_gradients

    monkeypatch.setattr(clipped_gradients, "row_norms", lambda rows: np.full(len(rows), 1e-9))
    with pytest.raises(AssertionError):
        test_one_record_moves_a_release_by_at_most_its_sensitivity("gradient", False, Neighbouring.REPLACE_ONE)


def test_the_shares_of_mu_add_up_to_mu() -> None:
    plan = plan_gradients(1000, 5, 1, 7, mu=0.3, neighbouring=Neighbouring.REPLACE_ONE, growth=2.0, label="g")
    squares = sum((event.sensitivity / event.noise_std) ** 2 for event in plan.events)
    assert squares == pytest.approx(0.09)
    assert squares <= 0.09


@pytest.mark.parametrize("sizes", [[30], [1] * 30, [7, 23], [0, 30]])
def test_chunks_do_not_depend_on_batches(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    from gratis.numerics import chunks

    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 8)
    X, y = table()
    cuts = np.cumsum([0, *sizes])
    found = list(in_chunks((X[a:b], y[a:b]) for a, b in pairwise(cuts)))
    assert [len(part) for _, part in found] == [8, 8, 8, 6]
    assert np.array_equal(np.concatenate([part for part, _ in found]), X)


def test_features_are_centred_and_their_moments_exact_under_the_released_shares() -> None:
    cols = columns()
    made = basis(cols)
    X = table()[0]
    for j, (within, share) in enumerate(zip(made.within()[1:], made.shares.columns, strict=True)):
        places = np.zeros((len(share), D), dtype=np.int64)
        places[:, j] = np.arange(len(share))
        rows = made.features(places)[:, made.term(1 + j)]
        assert np.allclose(share @ rows, 0.0, atol=1e-12)
        assert np.allclose(rows.T @ (rows * share[:, None]), within)
    assert made.features(cols.places(X)).shape == (N, made.width)
    assert made.mean_square() == pytest.approx(sum(np.trace(block) for block in made.within()))


def test_products_of_pairs_are_laid_out_as_their_tables_say() -> None:
    cols = columns()
    made = basis(cols, pairs=Pairs(((0, 2),), 2))
    places = cols.places(table()[0])
    rows = made.features(places)[:, made.term(4)]
    assert np.allclose(rows, made.pair_table(0)[places[:, 0], places[:, 2]])


def test_a_histogram_finds_atoms_and_smooth_shapes() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    X = np.column_stack([np.where(rng.random(n) < 0.4, 1.0, rng.normal(size=n)), rng.exponential(size=n) - 1])
    cols = Columns(Standardiser.identity(2), {})
    plan = plan_column_histograms(n, 2, mu=0.1, neighbouring=Neighbouring.REPLACE_ONE)
    from gratis.mechanisms.noise import NoiseSource

    shares = release_column_histograms(Rows.held(X, np.zeros(n)), cols, plan, noise=NoiseSource.insecure(0)).columns
    atom = cols.places(np.array([[1.0, 0.0]]))[0, 0]
    assert shares[0][atom] == pytest.approx(0.4, abs=0.03)
    truth = np.bincount(cols.places(X)[:, 1], minlength=BINS) / n
    assert np.abs(np.cumsum(shares[1]) - np.cumsum(truth)).max() < 0.03


def test_cleaning_keeps_what_stands_out_and_drops_what_is_noise() -> None:
    rng = np.random.default_rng(0)
    within = [np.eye(3)] * 3
    truth = np.eye(9)
    truth[:3, 3:6] = truth[3:6, :3] = 0.5 * np.eye(3)
    noise = 0.05 * rng.standard_normal((9, 9))
    noisy = truth + (noise + noise.T) / np.sqrt(2)
    found, unknown = cleaned_moments(noisy, np.full((9, 9), 0.05), within)
    assert np.linalg.norm(found - truth) < 0.6 * np.linalg.norm(noisy - truth)
    assert np.linalg.eigvalsh(found).min() > 0
    assert 0 < unknown < 1


def test_two_releases_are_weighted_by_their_precision() -> None:
    found, std = combined(np.array([0.0]), 1.0, np.array([3.0]), 2.0)
    assert found == pytest.approx(0.6)
    assert std == pytest.approx((1 / (1 + 0.25)) ** 0.5)


def test_blocks_are_those_of_the_release_where_it_is_precise_and_what_was_known_where_not() -> None:
    known = [np.ones((1, 1)), np.eye(2), np.eye(1)]
    for std, expected in ((1e-6, 9.0), (1e6, 1.0)):
        one, two, three = block_moments(np.eye(4) * 9, np.full((4, 4), std), known)
        assert one == 1
        assert two == pytest.approx(np.eye(2) * expected, abs=1e-3)
        assert three == pytest.approx(expected, abs=1e-3)


def test_the_posterior_finds_the_solution_and_forgets_what_is_noise() -> None:
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((40, 8))
    moments = factor.T @ factor / 40
    truth = np.array([1.0, -1.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0])
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([1, 2])
    history, position = GradientHistory(8, 1), np.zeros((8, 1))
    variances = np.full(2, 0.5)
    std = 0.01
    for _ in range(10):
        frame = precondition(moments, 1e-6, variances[groups[0]], noise_unit=1e-3, sampling=1e-5, curvature=1.0)
        gradient = frame.inverse_root @ (moments @ (truth[:, None] - position))
        history.add(gradient + std * rng.standard_normal((8, 1)), std, frame, position)
        found = history.posterior(0, moments, 1e-6, variances, groups, curvature=1.0, sampling=1e-6, rounds=4)
        position = found.mean[:, None]
    assert position[:, 0] == pytest.approx(truth, abs=0.03)
    assert found.variances[1] < 0.1 * found.variances[0]
    whole, noise = (
        history.covariance(moments, 1e-6 * moments, np.ones(8), np.full(8, beside), output=0, curvature=1.0)
        for beside in (1.0, 0.0)
    )
    assert np.sqrt(np.diag(whole)).max() < 0.05
    assert np.linalg.eigvalsh(noise)[0] > 0
    assert np.linalg.eigvalsh(whole - noise)[0] > -1e-12  # what shrinking leaves open beside the noise
    wider = history.widened(9).posterior(
        0, np.pad(moments, (0, 1)) + np.diag([0.0] * 8 + [1.0]), 1e-6, np.full(3, 0.5),
        (np.append(groups[0], 2), np.array([1, 2, 3])), curvature=1.0, sampling=1e-6, rounds=2,
    )  # fmt: skip
    assert wider.mean[:8] == pytest.approx(truth, abs=0.05)
    assert abs(wider.mean[8]) < 1e-3


@pytest.mark.parametrize("rank", [1, 5, 60])
def test_the_spectrum_cleans_moments_of_columns_that_move_together_and_harms_none_that_do_not(rank: int) -> None:
    rng = np.random.default_rng(rank)
    p, std = 60, 0.12
    factors = rng.normal(size=(p, rank))
    truth = factors @ factors.T / np.sqrt(np.outer(np.square(factors).sum(1), np.square(factors).sum(1)))
    if rank == p:
        truth = np.eye(p)
    noise = rng.normal(size=(p, p)) * std
    noisy = truth + np.triu(noise, 1) + np.triu(noise, 1).T
    found, unknown = spectral_moments(noisy, std, np.diag(truth))
    assert np.linalg.eigvalsh(found)[0] >= 0
    assert np.linalg.norm(found - truth) < 0.7 * np.linalg.norm(noisy - truth)
    assert np.linalg.norm(noisy - truth, 2) < 1.2 * unknown
