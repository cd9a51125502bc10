"""A search within one budget: what it costs by events and by replay, what it chooses, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gratis import Descent, DPLinearRegression, DPLogisticRegression, DPSearchCV, Ledger, load_model, save_model
from gratis.accounting import account, calibrate_mu, compose_mu, leaf_mu, verify_certificate
from gratis.audits.hostile import HostileTables
from gratis.audits.replay import Fitted
from gratis.audits.trainings import audit_tables
from gratis.estimators import search as searching
from gratis.estimators.private_fit import PrivateFit
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.errors import GratisError
from gratis.records.events import Composition, Parallel
from gratis.records.neighbouring import Neighbouring

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 3))
Y = X @ [1.0, 2.0, 0.0] + 0.1 * RNG.normal(size=2000)
CHEAP: dict[str, Any] = {"preprocessing": "none"}
GRID = {
    "descent": [
        Descent(clip_norm=3.0, steps=20, learning_rate=0.5),
        Descent(clip_norm=3.0, steps=1, learning_rate=1e-4),
    ]
}


def test_the_better_candidate_is_chosen_and_everything_is_within_the_budget(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    ledger = Ledger.create(tmp_path / "l", {"rows": Budget(epsilon=2.0, delta=1e-5)})
    search = DPSearchCV(DPLinearRegression(**CHEAP), GRID, epsilon=2.0, delta=1e-5, ledger=ledger, dataset="rows").fit(
        X, Y
    )
    assert search.best_index_ == 0
    assert search.noisy_losses_[0] < search.noisy_losses_[1]
    assert search.best_params_ == {"descent": GRID["descent"][0]}
    fresh = rng.normal(size=(500, 3))
    assert search.score(fresh, fresh @ [1.0, 2.0, 0.0]) > 0.5
    budget = Budget(epsilon=2.0, delta=1e-5)
    for certificate in (search.certificate_, search.score_certificate_):
        assert verify_certificate(certificate) == []
        assert certificate.selection is Selection.INCLUDED
        assert "disjoint-parts" in certificate.assumptions
        assert account(certificate.event).mu <= calibrate_mu(budget) * (1 + 1e-9)
    training, scoring = search.certificate_.event.events
    assert isinstance(search.certificate_.event, Parallel)
    assert search.score_certificate_.event == scoring
    # What is booked is what was released: the scores alone use a little more of mu than the candidates.
    assert ledger.status("rows").spent_mu == max(account(training).mu, account(scoring).mu)
    assert not ledger.status("rows").never_committed
    with pytest.raises(GratisError, match="rows"):
        DPSearchCV(DPLinearRegression(**CHEAP), GRID, 2.0, 1e-5, ledger=ledger, dataset="rows").fit(X, Y)
    save_model(tmp_path / "m.gratis", search.best_estimator_)
    assert load_model(tmp_path / "m.gratis").estimator.certificate_ == search.certificate_


def searched(table: Any, relation: Neighbouring, classes: list[int] | None) -> Any:
    own: dict[str, Any] = {"on_invalid": "zero", **CHEAP}
    estimator = DPLinearRegression(**own) if classes is None else DPLogisticRegression(classes=classes, **own)
    grid = {"algorithm": ["full-batch"], "descent": [Descent(steps=2), Descent(steps=3)]}

    def train(tap: Any) -> Fitted:
        made = DPSearchCV(estimator, grid, 4.0, 1e-3, neighbouring=str(relation), score_share=0.4)
        with pytest.MonkeyPatch.context() as patched:
            source = DPSearchCV._noise
            patched.setattr(DPSearchCV, "_noise", lambda self: tap(source(self)))
            own_source = PrivateFit._noise_source
            patched.setattr(PrivateFit, "_noise_source", lambda self: tap(own_source(self)))
            made.fit(table.X, table.y)
        return Fitted(
            made.certificate_.event, (made.noisy_losses_, made.best_index_, made.certificate_, made.score_certificate_)
        )

    return train


@pytest.mark.slow
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("classes", [None, [0, 1]], ids=["regression", "classes"])
def test_replay_on_hostile_neighbours(relation: Neighbouring, classes: list[int] | None) -> None:
    """Parts are disjoint: no pair moves more than the larger of the two, which is what the event costs."""
    tables = HostileTables(n=20, d=2, classes=classes, invalid=True)
    audit = audit_tables(
        lambda table: searched(table, relation, classes), tables, relation, pairs=12, rng=np.random.default_rng(1)
    )
    assert not audit.alarm, audit.verdict
    budget = Budget(epsilon=4.0, delta=1e-3, neighbouring=relation)
    assert audit.mu == pytest.approx(calibrate_mu(budget), rel=1e-3)
    assert audit.largest_ratio > 0.56  # the neighbours come close, else this shows nothing


@pytest.mark.slow
def test_rows_used_twice_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a loss that is not bounded moves the scores by more than their event says."""
    losses = searching._losses
    monkeypatch.setattr(searching, "_losses", lambda *given: 3 * losses(*given))
    tables = HostileTables(n=20, d=2, invalid=True)
    audit = audit_tables(
        lambda table: searched(table, Neighbouring.REPLACE_ONE, None), tables, Neighbouring.REPLACE_ONE,
        pairs=16, rng=np.random.default_rng(1),
    )  # fmt: skip
    assert audit.largest_ratio > 1


def test_shares_add_up() -> None:
    search = DPSearchCV(DPLinearRegression(**CHEAP), GRID, 1.0, 1e-6, noise_seed=1, insecure_reproducible=True).fit(
        X, Y
    )
    parts = [compose_mu([leaf_mu(leaf) for leaf in part.leaves()]) if isinstance(part, Composition) else leaf_mu(part)
             for part in search.certificate_.event.events[0].events]  # fmt: skip
    whole = calibrate_mu(Budget(epsilon=1.0, delta=1e-6))
    np.testing.assert_allclose(parts, whole / math.sqrt(2), rtol=1e-6)
    assert search.certificate_.randomness["secure"] is False


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (DPSearchCV(DPLinearRegression(), GRID), "epsilon and delta"),
        (DPSearchCV(None, GRID, 1.0, 1e-5), "estimator of Gratis"),
        (DPSearchCV(DPLinearRegression(), {"epsilon": [1.0, 2.0]}, 1.0, 1e-5), "'epsilon' cannot be searched"),
        (DPSearchCV(DPLogisticRegression(), {}, 1.0, 1e-5), "classes"),
        (DPSearchCV(DPLinearRegression(), GRID, 1.0, 1e-5, score_share=0.9), "score_share"),
        (DPSearchCV(DPLinearRegression(), GRID, 1.0, 1e-5, ledger="x"), "dataset"),
    ],
)
def test_refusals(made: DPSearchCV, words: str) -> None:
    with pytest.raises(GratisError, match=words):
        made.fit(X, Y)


def test_invalid_rows_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", {"rows": Budget(epsilon=2.0, delta=1e-5)})
    for place in (0, 1, 5):
        broken = Y.copy()
        broken[place] = np.nan
        with pytest.raises(GratisError, match="NaN"):
            DPSearchCV(DPLinearRegression(**CHEAP), GRID, 1.0, 1e-5, ledger=ledger, dataset="rows").fit(X, broken)
    assert not ledger.status("rows").never_committed
