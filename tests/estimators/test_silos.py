"""Shares of noise: what one silo's share proves, what all prove together, files that fit their plan, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gratis.accounting import account, calibrate_mu, verify_certificate
from gratis.audits.hostile import HostileTables
from gratis.audits.replay import Fitted
from gratis.audits.trainings import audit_tables
from gratis.estimators import silos
from gratis.estimators.silos import SiloPlan, SiloShare, combine_shares, make_share, release_share
from gratis.ledger import Ledger
from gratis.mechanisms.noise import NoiseSource
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring

RNG = np.random.default_rng(0)
ROWS = (300, 500, 400, 800)
X = RNG.standard_normal((sum(ROWS), 3)) + np.array([0.0, 1.0, 2.0])
Y = X @ [1.0, -2.0, 0.5] + 3.0 + 0.1 * RNG.standard_normal(len(X))
PARTS = [slice(end - n, end) for n, end in zip(ROWS, np.cumsum(ROWS), strict=True)]


def plan_of(epsilon: float = 4.0, **changes: Any) -> SiloPlan:
    settings: dict[str, Any] = {"rows": ROWS, "columns": 3, "honest": 3, "means": (0.0, 1.0, 2.0)}
    settings |= {"scales": (1.0, 1.0, 1.0), "target_mean": 2.0, "target_scale": 2.3}
    return SiloPlan(budget=Budget(epsilon=epsilon, delta=1e-5), **settings | changes)


def test_what_the_accountant_states() -> None:
    mu = calibrate_mu(Budget(epsilon=4.0, delta=1e-5))
    seen, hidden = plan_of(), plan_of(shares_are_seen=False)
    for plan, (of_shares, of_total) in ((seen, (1.0, 3**-0.5)), (hidden, (3**0.5, 1.0))):
        found = [guarantee.mu / mu for guarantee in plan.guarantees]
        assert found == pytest.approx([of_shares, of_total], rel=1e-9)
        # Never more than the budget against whom it is for.
        assert found[0 if plan.shares_are_seen else 1] <= 1
        assert account(plan.event).mu <= mu
    assert hidden.share.noise_std * 3**0.5 >= hidden.event.noise_std


def test_files_from_plan_to_model(tmp_path: Any) -> None:
    plan_of(epsilon=30.0).write(tmp_path / "plan.json")
    plan = SiloPlan.read(tmp_path / "plan.json")
    assert plan == plan_of(epsilon=30.0)
    for silo, rows in enumerate(PARTS):
        ledger = Ledger.create(tmp_path / f"ledger{silo}", {"ours": plan.budget})
        path = tmp_path / f"share{silo}.json"
        certificate = make_share(plan, silo, X[rows], Y[rows], path, ledger=ledger, dataset="ours")
        assert not verify_certificate(certificate)
        assert certificate.guarantee["within_budget"]
        assert not ledger.status("ours").never_committed
        with pytest.raises(GratisError, match="nothing was reserved"):
            make_share(plan, silo, X[rows], Y[rows], tmp_path / "again.json", ledger=ledger, dataset="ours")
    assert not (tmp_path / "again.json").exists()
    shares = [SiloShare.read(path) for path in sorted(tmp_path.glob("share*.json"))]
    model = combine_shares(plan, shares)
    np.testing.assert_allclose(model.coef_, [1.0, -2.0, 0.5], atol=0.35)
    assert np.corrcoef(model.predict(X), Y)[0, 1] > 0.98

    for wrong, words in (
        (shares[:-1], "silo 3 has not answered"),
        ([*shares, shares[0]], "two shares of silo 0"),
        ([replace(shares[0], plan="0"), *shares[1:]], "another plan"),
        ([replace(shares[0], values=(1.0,)), *shares[1:]], "no matrix"),
        ([replace(shares[0], values=(float("inf"), *shares[0].values[1:])), *shares[1:]], "finite"),
    ):
        with pytest.raises(GratisError, match=words):
            combine_shares(plan, wrong)


def test_without_noise_it_is_least_squares(tmp_path: Any) -> None:
    plan = plan_of(epsilon=1e6)
    for silo, rows in enumerate(PARTS):
        make_share(plan, silo, X[rows], Y[rows], tmp_path / f"{silo}", noise_seed=silo, insecure_reproducible=True)
    model = combine_shares(plan, [SiloShare.read(tmp_path / f"{silo}") for silo in range(4)])
    np.testing.assert_allclose(model.coef_, [1.0, -2.0, 0.5], atol=0.02)
    far = np.array([[1e9, 1.0, 2.0], [np.nan, 1.0, 2.0]])  # winsorised as the sums were; missing is the centre
    assert np.abs(model.predict(far) - [2.0 + 6.0, 2.0]).max() < 0.2
    assert model.intercept_ == pytest.approx(3.0, abs=0.05)


def test_noise_of_one_share_and_of_all_together() -> None:
    """Void records: shares are noise alone. One has its own deviation, k of them together √k times that."""
    plan = plan_of(shares_are_seen=False, rows=(40,) * 9, honest=9, columns=40, means=(0.0,) * 40, scales=(1.0,) * 40)
    void = np.full((40, 40), np.nan), np.full(40, np.nan)
    shares = [release_share(plan, *void, noise=NoiseSource.insecure(seed)).ravel() for seed in range(9)]
    assert stats.kstest(shares[0] / plan.share.noise_std, "norm").pvalue > 1e-3
    assert stats.kstest(sum(shares) / plan.event.noise_std, "norm").pvalue > 1e-3
    # Negative control: five of nine are not enough.
    assert stats.kstest(sum(shares[4:]) / plan.event.noise_std, "norm").pvalue < 1e-3


@pytest.mark.parametrize("relation", list(Neighbouring))
def test_replay_on_hostile_neighbours(monkeypatch: pytest.MonkeyPatch, relation: Neighbouring) -> None:
    budget = Budget(epsilon=4.0, delta=1e-5, neighbouring=relation)
    plan = SiloPlan(rows=(20, 30), columns=2, budget=budget, honest=1, means=(0.0, 0.0), scales=(1.0, 1.0))

    def training(table: Any) -> Any:
        def train(tap: Any) -> Fitted:
            return Fitted(plan.share, release_share(plan, table.X, table.y, noise=tap(NoiseSource.secure())))

        return train

    def audit() -> Any:
        tables = HostileTables(n=20, d=2, invalid=True)
        return audit_tables(training, tables, relation, pairs=80, rng=np.random.default_rng(0))

    found = audit()
    assert not found.alarm, found.verdict
    assert found.largest_ratio > 0.9
    monkeypatch.setattr(silos, "clipped_outer_products", lambda z: np.nan_to_num(z).T @ np.nan_to_num(z))
    assert audit().largest_ratio > 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"honest": 5}, "at most all of them"),
        ({"honest": 0}, "honest"),
        ({"columns": 10**4}, "at most 300 columns"),
        ({"scales": (1.0, -1.0, 1.0)}, "positive"),
        ({"means": (0.0,)}, "3 entries"),
        ({"rows": (0, 5)}, "rows"),
    ],
)
def test_plans_that_make_no_sense(change: dict[str, Any], words: str) -> None:
    with pytest.raises(GratisError, match=words):
        plan_of(**change)


def test_rows_that_do_not_fit_their_plan_spend_nothing(tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "l", {"ours": Budget(epsilon=9.0, delta=1e-5)})
    books = {"ledger": ledger, "dataset": "ours"}
    plan = plan_of()
    for silo, rows, words in ((0, slice(5), "planned for 300 rows"), (7, PARTS[0], "silos 0 to 3")):
        with pytest.raises(GratisError, match=words):
            make_share(plan, silo, X[rows], Y[rows], tmp_path / "share", **books)
    assert ledger.status("ours").reservations == 0
    certificate = make_share(plan_of(shares_are_seen=False), 0, X[PARTS[0]], Y[PARTS[0]], tmp_path / "share")
    assert "honest-silos" in certificate.assumptions
    with pytest.raises(GratisError, match="belong together"):
        make_share(plan, 0, X[PARTS[0]], Y[PARTS[0]], tmp_path / "share", ledger=ledger)


def test_who_combines_shares_sees_them(tmp_path: Any) -> None:
    hidden = plan_of(shares_are_seen=False)
    with pytest.raises(GratisError, match="protects the total alone"):
        combine_shares(hidden, [])
    with pytest.raises(GratisError, match="has not answered"):
        combine_shares(hidden, [], inside_secure_aggregation=True)
    ledger = Ledger.create(tmp_path / "l", {"ours": Budget(epsilon=9.0, delta=1e-5)})
    with pytest.raises(GratisError, match="nothing was spent"):
        make_share(plan_of(), 0, X[PARTS[0]], Y[PARTS[0]], tmp_path / "no" / "x.json", ledger=ledger, dataset="ours")
    assert not ledger.status("ours").never_committed
