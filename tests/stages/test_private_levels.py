"""Levels found privately: what one record moves, a level that it alone has, and what the certificate says of it."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from gratis.accounting import account, calibrate_mu, epsilon_upper_bound, failure_probability, remaining_budget
from gratis.accounting.composition import delta_upper_bound
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.events import (
    Composition,
    GaussianRelease,
    PoissonSubsampledGaussian,
    ThresholdedCounts,
    event_from_json,
)
from gratis.records.guarantees import GDPWithFailureGuarantee
from gratis.records.neighbouring import Neighbouring
from gratis.stages.private_levels import count_levels, levels_event, release_levels

RELATIONS = list(Neighbouring)
NULL = (None, None)


class Watched(NoiseSource):
    """Notes what is about to be released, and with how much noise."""

    def __init__(self) -> None:
        super().__init__(1, secure=False)
        self.seen: list[tuple[np.ndarray, float]] = []

    def perturb(self, values, std):  # type: ignore[no-untyped-def]
        self.seen.append((np.array(values), std))
        return super().perturb(values, std)


def counted(records: list[tuple[str | None, ...]]) -> tuple[dict[tuple[int, str], float], float]:
    """The values before noise, by column and text, and the noise's deviation; in one release."""
    watched = Watched()
    event = levels_event(2, mu=0.5, failure=1e-6, neighbouring=Neighbouring.REPLACE_ONE)
    release_levels(count_levels([list(zip(*records, strict=True))]), event, most=5, noise=watched)
    names = [(place, text) for place in range(2) for text in sorted({r[place] for r in records if r[place]})]
    ((values, std),) = watched.seen
    return dict(zip(names, values, strict=True)), std


TEXTS = ("a", "b", "new", None)


@pytest.mark.parametrize("relation", RELATIONS)
def test_neighbours_that_add_a_level_differ_as_the_proof_says(relation: Neighbouring) -> None:
    """All exchanges of one record for another, or for the null record: the two cases of the proof and no third."""
    event = levels_event(2, mu=0.5, failure=1e-6, neighbouring=relation)
    others: list[tuple[str | None, ...]] = [("a", "a"), ("a", "b"), ("b", "b"), ("a", "b")]
    seconds = list(itertools.product(TEXTS, TEXTS)) if relation is Neighbouring.REPLACE_ONE else [NULL]
    largest = 0
    for first, second in itertools.product(itertools.product(TEXTS, TEXTS), seconds):
        one, other = counted([*others, first])[0], counted([*others, second])[0]
        moved = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
        largest = max(largest, len(moved))
        for name in moved:
            if name in one and name in other:
                assert abs(one[name] - other[name]) == 1  # case 1: a Gaussian shift of 1
            else:
                assert one.get(name, other.get(name)) == 1  # case 2: one record alone has it
    assert largest == event.counts_moved


def test_a_record_that_counted_twice_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: where a value is counted twice, a new level has the count 2, which the proof excludes."""

    class Twice(Counter):  # type: ignore[type-arg]
        def update(self, values=()) -> None:  # type: ignore[no-untyped-def, override]
            kept = list(values or ())
            super().update(kept)
            super().update(kept)

    monkeypatch.setattr("gratis.stages.private_levels.Counter", Twice)
    with pytest.raises(AssertionError):
        test_neighbours_that_add_a_level_differ_as_the_proof_says(Neighbouring.ZERO_OUT)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("failure", [1e-9, 1e-3, 0.2])
def test_the_event_costs_what_was_asked(relation: Neighbouring, failure: float) -> None:
    event = levels_event(3, mu=0.25, failure=failure, neighbouring=relation)
    found = account(event)
    assert isinstance(found, GDPWithFailureGuarantee)
    assert 0.25 <= found.mu <= 0.25 * (1 + 1e-12)
    assert failure * (1 - 1e-3) <= found.failure <= failure
    tail = event.counts_moved * norm.sf((event.threshold - 1) / event.noise_std)
    assert tail <= failure_probability(event) <= tail * 1.001
    assert event_from_json(event.to_json()) == event


def test_a_level_of_one_record_is_told_as_often_as_stated() -> None:
    """Statistical, both ways: not more often than the event says, and (the control) more often below the threshold."""
    event = levels_event(1, mu=1.0, failure=0.05, neighbouring=Neighbouring.ZERO_OUT)
    loose = ThresholdedCounts(
        counts_moved=1, noise_std=event.noise_std, threshold=event.threshold - 1, neighbouring=event.neighbouring
    )
    runs = 20_000
    noise = NoiseSource.insecure(3)
    values = [f"person {i}" for i in range(runs)]  # each has a level of its own: as many independent runs
    told, control = (
        len(release_levels(count_levels([[values]]), chosen, most=runs, noise=noise)[0]) for chosen in (event, loose)
    )
    assert binomtest(told, runs, 0.05, alternative="greater").pvalue > 1e-6
    assert binomtest(told, runs, 0.05, alternative="less").pvalue > 1e-6
    assert binomtest(control, runs, 0.05, alternative="greater").pvalue < 1e-6


def test_common_levels_are_found_and_rare_ones_are_not() -> None:
    event = levels_event(2, mu=0.5, failure=1e-7, neighbouring=Neighbouring.REPLACE_ONE)
    cities = ["Rome"] * 900 + ["Oslo"] * 300 + ["Ur"] * 3 + [None] * 50
    letters = ["x"] * 600 + ["y"] * 653
    first, second = release_levels(count_levels([[cities, letters]]), event, most=5, noise=NoiseSource.insecure(0))
    assert [level for level, _ in first] == ["Rome", "Oslo"]
    assert [level for level, _ in second] == ["y", "x"]
    assert dict(first)["Rome"] == pytest.approx(900, abs=6 * event.noise_std)
    only = release_levels(count_levels([[cities, letters]]), event, most=1, noise=NoiseSource.insecure(0))
    assert [len(found) for found in only] == [1, 1]
    assert release_levels(count_levels([[[None], [None]]]), event, most=5, noise=NoiseSource.insecure(0)) == ((), ())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-8), (1.0, 1e-5), (8.0, 1e-3)])
def test_what_remains_fits_beside_the_levels(relation: Neighbouring, epsilon: float, delta: float) -> None:
    budget = Budget(epsilon=epsilon, delta=delta, neighbouring=relation)
    event = levels_event(2, mu=0.3 * calibrate_mu(budget), failure=delta / 10, neighbouring=relation)
    rest = remaining_budget(budget, event)
    after = GaussianRelease(sensitivity=1.0, noise_std=(1 + 1e-13) / calibrate_mu(rest), neighbouring=relation)
    both = account(Composition((event, after)))
    assert epsilon * (1 - 1e-6) <= epsilon_upper_bound(both, delta=delta) <= epsilon
    # Against the failure and the Gaussian curve, added by hand.
    mu = math.hypot(event.counts_moved**0.5 / event.noise_std, 1 / after.noise_std)
    curve = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    by_hand = curve + event.counts_moved * norm.sf((event.threshold - 1) / event.noise_std)
    assert delta_upper_bound(both, epsilon=epsilon) == pytest.approx(by_hand, rel=1e-4)
    with pytest.raises(GratisError, match="left"):
        remaining_budget(
            budget, levels_event(2, mu=2 * calibrate_mu(budget), failure=delta / 10, neighbouring=relation)
        )


def test_failures_are_never_forgotten() -> None:
    event = levels_event(1, mu=0.1, failure=1e-4, neighbouring=Neighbouring.ZERO_OUT)
    assert epsilon_upper_bound(account(event), delta=1e-5) == math.inf
    twice = account(Composition((event, event)))
    assert isinstance(twice, GDPWithFailureGuarantee)
    assert twice.failure >= 2 * failure_probability(event)
    sampled = PoissonSubsampledGaussian(
        sampling_rate=0.1, noise_multiplier=1.0, steps=2, neighbouring=Neighbouring.ZERO_OUT
    )
    with pytest.raises(GratisError, match="subsampled"):
        account(Composition((event, sampled)))
