"""Model and score on disjoint parts cost the larger of the two: by events, by replay of whole fits, in the ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gratis.accounting import account, calibrate_mu, issue_certificate, leaf_mu, verify_certificate
from gratis.audits.hostile import HostilePersons, HostileTables
from gratis.audits.replay import Fitted
from gratis.audits.trainings import audit_tables
from gratis.estimators import table_job
from gratis.estimators.private_fit import PrivateFit
from gratis.estimators.table_fit import plan_table_fit
from gratis.ledger import Ledger
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.errors import GratisError
from gratis.records.events import (
    Composition,
    GaussianRelease,
    Parallel,
    PoissonSubsampledGaussian,
    ThresholdedCounts,
    event_from_json,
)
from gratis.records.guarantees import GDPGuarantee, GDPWithFailureGuarantee
from gratis.records.neighbouring import Neighbouring
from gratis.rows.frames import FrameTable


def gaussian(mu: float, relation: str = "replace-one") -> GaussianRelease:
    return GaussianRelease(sensitivity=mu, noise_std=1.0, neighbouring=relation)


def test_the_larger_part_is_what_both_cost() -> None:
    both = Parallel((gaussian(0.3), Composition((gaussian(0.3), gaussian(0.4)))))
    assert account(both).mu == account(both.events[1]).mu
    assert account(both).mu == pytest.approx(0.5)
    assert account(Parallel((gaussian(0.7), gaussian(0.3)))).mu == leaf_mu(gaussian(0.7))
    # In sequence with others the larger is added, once.
    assert account([gaussian(1.2), both]).mu == pytest.approx(1.3)
    assert account(Composition((both,))).mu == account(both).mu  # no further rounding: a whole budget fits exactly
    assert event_from_json(both.to_json()) == both
    assert both != Composition(both.events)
    assert account(Parallel(())).mu == 0


def test_failures_are_those_of_the_worse_part() -> None:
    levels = ThresholdedCounts(counts_moved=2, noise_std=10.0, threshold=60.0, neighbouring="replace-one")
    alone = account(levels)
    both = account(Parallel((levels, gaussian(0.01))))
    assert isinstance(alone, GDPWithFailureGuarantee)
    assert both == alone
    worse = account(Parallel((levels, gaussian(1.0))))
    assert isinstance(worse, GDPWithFailureGuarantee)
    assert (worse.failure, worse.mu) == (alone.failure, leaf_mu(gaussian(1.0)))


def test_what_cannot_be_parted_is_refused() -> None:
    poisson = PoissonSubsampledGaussian(sampling_rate=0.1, noise_multiplier=1.0, steps=5, neighbouring="zero-out")
    with pytest.raises(GratisError, match="subsampled"):
        Parallel((poisson, gaussian(1.0, "zero-out")))
    with pytest.raises(GratisError, match="relations"):
        Parallel((gaussian(1.0), gaussian(1.0, "zero-out")))
    with pytest.raises(GratisError, match="events only"):
        Parallel(("x",))  # type: ignore[arg-type]


def test_beside_subsampled_events_the_larger_part_is_composed() -> None:
    pytest.importorskip("dp_accounting")
    from gratis.accounting import epsilon_upper_bound

    poisson = PoissonSubsampledGaussian(sampling_rate=0.1, noise_multiplier=2.0, steps=5, neighbouring="zero-out")
    larger, smaller = gaussian(0.5, "zero-out"), gaussian(0.3, "zero-out")
    parted = epsilon_upper_bound(account([poisson, Parallel((smaller, larger))]), delta=1e-5)
    assert parted == epsilon_upper_bound(account([poisson, larger]), delta=1e-5)


def test_a_certificate_of_parts_names_that_they_are_disjoint() -> None:
    event = Parallel((gaussian(0.3), gaussian(0.4)))
    for persons, needed in ((False, "disjoint-parts"), (True, "disjoint-persons")):
        made = issue_certificate(
            event=event, budget=Budget(mu=0.5), selection=Selection.NONE, randomness={"secure": True}, persons=persons
        )
        assert needed in made.assumptions
        assert verify_certificate(made) == []
        forgotten = replace(made, assumptions=tuple(one for one in made.assumptions if one != needed))
        assert any("is missing" in problem for problem in verify_certificate(forgotten))


def test_the_entry_of_both_is_the_entry_of_each(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", {"d": Budget(mu=0.5)})
    model, score = gaussian(0.3), gaussian(0.4)
    entry = ledger.reserve("d", Parallel((model, score))).to_json()
    assert ledger.status("d").spent_mu == leaf_mu(score)
    for event, fine in ((model, True), (score, True), (gaussian(0.2), False)):
        made = issue_certificate(
            event=event, budget=Budget(mu=0.5), selection=Selection.NONE, randomness={"secure": True},
            ledger_entry=entry,
        )  # fmt: skip
        assert (verify_certificate(made) == []) is fine


def whole_fit(table: Any, relation: Neighbouring) -> Any:
    """A fit of a table with a held-out score, as `gratis fit --hold-out` runs it; persons where there are groups."""
    # Two rows more, so that no record decides whether the target has a single value: that is refused, not released.
    X, y = np.vstack([table.X.astype(float), np.ones((2, 2))]), np.append(table.y.astype(float), [0.0, 1.0])
    frame = pa.table({"x0": X[:, 0], "x1": X[:, 1], "y": y})
    if table.groups is not None:
        frame = frame.append_column("id", pa.array([*map(str, table.groups), "100", "101"]))
    budget = Budget(epsilon=2.0, delta=1e-5, neighbouring=relation)

    def train(tap: Any) -> Fitted:
        job = plan_table_fit(
            FrameTable(frame), "y", budget, model="linear", held_out=0.4, missing_target="leave-out", task="regression",
            unit=None if table.groups is None else "id",
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(PrivateFit, "_noise_source", lambda self: tap(NoiseSource.secure()))

            class Tapped(NoiseSource):
                secure = staticmethod(lambda: tap(NoiseSource.secure()))  # type: ignore[assignment]

            patched.setattr(table_job, "NoiseSource", Tapped)
            done = job.run()
        assert done.score is not None
        return Fitted(job.event, (done.estimator.predict(np.ones((1, 2))), done.score.estimates))

    return train


@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("persons", [False, True], ids=["rows", "persons"])
def test_whole_fits_move_by_no_more_than_the_larger_part(relation: Neighbouring, persons: bool) -> None:
    """Model and score of one run, replayed on hostile neighbours: together within one of the two, not their sum."""
    tables: Any = HostileTables(n=24, d=2, invalid=True)
    tables = HostilePersons(tables) if persons else tables
    found = audit_tables(
        lambda table: whole_fit(table, relation), tables, relation, pairs=10, rng=np.random.default_rng(2)
    )
    assert not found.alarm, found.verdict
    budget = Budget(epsilon=2.0, delta=1e-5, neighbouring=relation)
    assert found.mu == pytest.approx(calibrate_mu(budget), rel=1e-6)
    assert found.largest_ratio > 0.4


def test_a_row_in_both_parts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the score is made of all rows, those of the model too."""
    rows = table_job.TableJob._rows
    monkeypatch.setattr(table_job.TableJob, "_rows", lambda job, part: rows(job, "all" if part == "held-out" else part))
    monkeypatch.setattr(
        table_job.TableJob, "score_event",
        property(lambda job: table_job.evaluation_event(job.n_rows, job.plan.budget, classes=None)),
    )  # fmt: skip
    tables = HostileTables(n=24, d=2, invalid=True)
    relation = Neighbouring.REPLACE_ONE
    found = audit_tables(
        lambda table: whole_fit(table, relation), tables, relation, pairs=16, rng=np.random.default_rng(2)
    )
    assert found.largest_ratio > 1


def test_a_score_costs_nothing_more_in_the_ledger(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, town = rng.normal(size=900), rng.choice(["Rome", "Oslo"], 900)
    frame = pa.table({"x": x, "town": town, "id": np.arange(900) // 2, "y": x + 0.1 * rng.normal(size=900)})
    budget = Budget(epsilon=1.0, delta=1e-6)
    modes: dict[str, dict[str, Any]] = {
        "rows": {"ignore": ("town", "id")}, "persons": {"ignore": ("town",), "unit": "id"},
        "levels": {"private_levels": ("town",), "ignore": ("id",)},
    }  # fmt: skip
    for mode, options in modes.items():
        ledger = Ledger.create(tmp_path / mode, {"d": budget})  # a budget that one run uses up
        job = plan_table_fit(FrameTable(frame), "y", budget, model="linear", held_out=0.2, **options)
        done = job.run(ledger=ledger.path, dataset="d")
        assert done.score is not None
        status = ledger.status("d")
        assert (status.reservations, status.never_committed) == (2 if mode == "levels" else 1, ())
        assert status.spent_epsilon is not None
        assert 0.999 < status.spent_epsilon <= 1.0
        for certificate in (done.estimator.certificate_, done.score.certificate):
            assert verify_certificate(certificate) == []
            assert certificate.ledger_entry["name"] == "d"
        spent = account(done.job.event)
        assert isinstance(spent, GDPWithFailureGuarantee if mode == "levels" else GDPGuarantee)
        if mode != "levels":
            assert status.spent_mu == spent.mu
