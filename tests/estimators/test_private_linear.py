"""The private regressions as users meet them: what they promise, what they refuse, what they write down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gratis import Budget, Descent, DPLinearRegression, DPLogisticRegression, Ledger, PublicScales
from gratis.accounting import verify_certificate
from gratis.estimators.release import Release
from gratis.records.certificates import Certificate
from gratis.records.errors import BudgetExceededError, GratisError
from gratis.rows.streaming import ArrayRows

RNG = np.random.default_rng(0)
N, D = 3000, 6
X = RNG.normal(size=(N, D)) * [1, 10, 100, 0.01, 1, 5] + [0, 50, -7, 3, 0, 1]
THETA = np.array([1.0, 0.1, 0.01, 0.0, -1.0, 0.2])
Y = X @ THETA + RNG.normal(size=N) + 100
LABELS = np.where(Y > np.median(Y), "high", "low")
SCALES = PublicScales.from_sample(X[:200], Y[:200])
SEEDED: dict[str, Any] = {"noise_seed": 1, "insecure_reproducible": True}


def r_squared(model: Any) -> float:
    return float(model.score(X, Y))


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"preprocessing": "public", "public": SCALES},
        {"preprocessing": "public", "public": SCALES, "algorithm": "one-pass"},
    ],
    ids=["private", "public", "one-pass"],
)
def test_it_learns_within_its_budget(relation: str, choices: dict[str, Any], tmp_path: Path) -> None:
    model = DPLinearRegression(epsilon=2.0, delta=1e-6, neighbouring=relation, **choices, **SEEDED).fit(X, Y)
    assert r_squared(model) > 0.5
    certificate = model.certificate_
    assert certificate.guarantee["epsilon"] <= 2.0
    assert certificate.guarantee["epsilon"] > 1.99
    assert str(certificate.neighbouring) == relation
    certificate.write(tmp_path / "c.json")
    assert verify_certificate(Certificate.read(tmp_path / "c.json")) == []
    assert model.prediction_.low <= model.prediction_.value <= model.prediction_.high
    assert model.plan_.prediction.excess_risk > 0
    assert certificate.plan is not None


def test_coefficients_are_in_original_units() -> None:
    model = DPLinearRegression(epsilon=50.0, delta=1e-5, **SEEDED).fit(X, Y)
    inside = np.abs(X - model.fit_.features.centre) <= model.fit_.features.window
    rows = X[inside.all(axis=1)]
    assert len(rows) > 1000
    np.testing.assert_allclose(model.predict(rows), rows @ model.coef_ + model.intercept_, rtol=1e-9, atol=1e-9)
    assert r_squared(model) > 0.65


def test_classification() -> None:
    model = DPLogisticRegression(epsilon=2.0, delta=1e-5, classes=["low", "high"], **SEEDED).fit(X, LABELS)
    assert model.score(X, LABELS) > 0.7
    assert model.coef_.shape == (1, D)
    np.testing.assert_allclose(model.predict_proba(X[:5]).sum(axis=1), 1)
    assert "public-classes" not in model.certificate_.assumptions
    assert verify_certificate(model.certificate_) == []


def test_undeclared_classes_become_an_assumption_and_foreign_labels_count_nothing() -> None:
    three = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
    model = DPLogisticRegression(epsilon=4.0, delta=1e-5, **SEEDED).fit(X, three)
    assert "public-classes" in model.certificate_.assumptions
    assert model.predict_proba(X[:4]).shape == (4, 3)
    two = DPLogisticRegression(epsilon=4.0, delta=1e-5, classes=[0, 2], on_invalid="zero", **SEEDED).fit(X, three)
    assert set(two.predict(X)) <= {0, 2}


@pytest.mark.slow(but=["estimator0-target0-epsilon"])
@pytest.mark.parametrize(
    ("estimator", "target", "word"),
    [
        (DPLinearRegression(epsilon=-1.0, delta=1e-5), Y, "epsilon"),
        (DPLinearRegression(epsilon=float("nan"), delta=1e-5), Y, "epsilon"),
        (DPLinearRegression(epsilon=1.0, delta=1.0), Y, "delta"),
        (DPLinearRegression(1.0, 1e-5, neighbouring="add"), Y, "neighbouring"),
        (DPLinearRegression(1.0, 1e-5, preprocessing="magic"), Y, "preprocessing"),
        (DPLinearRegression(1.0, 1e-5, preprocessing="public"), Y, "public"),
        (DPLinearRegression(1.0, 1e-5, public=SCALES), Y, "public"),
        (DPLinearRegression(1.0, 1e-5, algorithm="adam"), Y, "algorithm"),
        (DPLinearRegression(1.0, 1e-5, on_invalid="drop"), Y, "on_invalid"),
        (DPLinearRegression(1.0, 1e-5, noise_seed=3), Y, "seed"),
        (DPLinearRegression(1.0, 1e-5, ledger="x.ledger"), Y, "dataset"),
        (DPLogisticRegression(1.0, 1e-5), np.zeros(N), "class"),
        (DPLogisticRegression(1.0, 1e-5, classes=[1]), np.zeros(N), "class"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_spent(estimator: Any, target: Any, word: str) -> None:
    with pytest.raises(GratisError, match=word):
        estimator.fit(X, target)
    assert not hasattr(estimator, "certificate_")


def test_bad_data_is_refused_and_nothing_is_reserved(tmp_path: Path) -> None:
    path = tmp_path / "b.ledger"
    ledger = Ledger.create(path, {"survey": Budget(epsilon=1.0, delta=1e-5)})
    model = DPLinearRegression(1.0, 1e-5, ledger=str(path), dataset="survey")
    broken = X.copy()
    broken[3, 2] = np.inf
    for rows, target in [(broken, Y), (X.astype(str) + "a", Y), (X, Y[:-1]), (X[:, 0], Y)]:
        with pytest.raises(ValueError):
            model.fit(rows, target)
    assert ledger.status("survey").reservations == 0


def test_the_ledger_is_asked_first_and_refuses_the_second_run(tmp_path: Path) -> None:
    path = tmp_path / "b.ledger"
    ledger = Ledger.create(path, {"survey": Budget(epsilon=1.0, delta=1e-5)})
    model = DPLinearRegression(epsilon=1.0, delta=1e-5, ledger=str(path), dataset="survey").fit(X, Y)
    assert model.certificate_.ledger_entry is not None
    assert model.certificate_.ledger_entry["committed"]
    assert verify_certificate(model.certificate_) == []
    again = DPLinearRegression(epsilon=0.1, delta=1e-5, ledger=str(path), dataset="survey")
    with pytest.raises(BudgetExceededError, match="left"):
        again.fit(X, Y)
    assert ledger.status("survey").reservations == 1


def test_a_failure_inside_training_stays_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.ledger"
    ledger = Ledger.create(path, {"survey": Budget(epsilon=1.0, delta=1e-5)})

    def crash(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("gratis.recipes.linear.run_session", crash)
    with pytest.raises(MemoryError):
        DPLinearRegression(1.0, 1e-5, ledger=str(path), dataset="survey").fit(X, Y)
    assert ledger.status("survey").reservations == 1
    assert len(ledger.status("survey").never_committed) == 1


def test_invalid_rows_can_contribute_nothing() -> None:
    broken_X, broken_y = X.copy(), Y.copy()
    broken_X[::50, 1] = np.nan
    broken_X[7] = np.inf
    broken_y[1::50] = np.nan
    with pytest.raises(ValueError):
        DPLinearRegression(1.0, 1e-5, **SEEDED).fit(broken_X, broken_y)
    model = DPLinearRegression(epsilon=2.0, delta=1e-5, on_invalid="zero", **SEEDED).fit(broken_X, broken_y)
    assert r_squared(model) > 0.5
    assert model.certificate_.guarantee["epsilon"] <= 2.0


def test_insecure_noise_is_written_down() -> None:
    assert DPLinearRegression(1.0, 1e-5, **SEEDED).fit(X, Y).certificate_.randomness["secure"] is False
    first, second = (DPLinearRegression(1.0, 1e-5).fit(X, Y) for _ in range(2))
    assert first.certificate_.randomness["secure"] is True
    assert not np.array_equal(first.coef_, second.coef_)


def test_partial_fit_continues_one_declared_pass() -> None:
    choices: dict[str, Any] = {"epsilon": 2.0, "algorithm": "one-pass", "preprocessing": "public", "public": SCALES}
    whole = DPLinearRegression(delta=1e-5, **choices, **SEEDED).fit(X, Y)
    parts = DPLinearRegression(delta=1e-5, **choices, **SEEDED)
    parts.partial_fit(X[:1000], Y[:1000], n_rows=N)
    assert not hasattr(parts, "coef_")
    with pytest.raises(GratisError, match="beyond"):
        parts.partial_fit(np.vstack([X, X]), np.concatenate([Y, Y]))
    parts.partial_fit(X[1000:2500], Y[1000:2500])
    parts.partial_fit(X[2500:], Y[2500:])
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    assert verify_certificate(parts.certificate_) == []
    with pytest.raises(GratisError, match="n_rows"):
        parts.partial_fit(X[:10], Y[:10])
    assert not hasattr(DPLinearRegression(1.0, 1e-5), "partial_fit")


@pytest.mark.slow
def test_streams_give_the_same_model_as_arrays() -> None:
    choices: dict[str, Any] = {"epsilon": 2.0, "algorithm": "one-pass", "preprocessing": "public", "public": SCALES}
    whole = DPLinearRegression(delta=1e-5, **choices, **SEEDED).fit(X, Y)
    streamed = DPLinearRegression(delta=1e-5, **choices, **SEEDED).fit_rows(ArrayRows(X, Y, batch_rows=333))
    np.testing.assert_array_equal(streamed.coef_, whole.coef_)
    choices = {"epsilon": 2.0, "algorithm": "one-pass"}
    whole = DPLinearRegression(delta=1e-5, **choices, **SEEDED).fit(X, Y)
    streamed = DPLinearRegression(delta=1e-5, **choices, **SEEDED).fit_rows(ArrayRows(X, Y, batch_rows=333))
    np.testing.assert_array_equal(streamed.coef_, whole.coef_)
    assert verify_certificate(streamed.certificate_) == []
    binary = DPLogisticRegression(delta=1e-5, **choices, classes=[0, 1], **SEEDED).fit_rows(
        ArrayRows(X, (Y > 100) * 1.0)
    )
    assert binary.score(X, (Y > 100) * 1.0) > 0.7


@pytest.mark.parametrize("way", ["fit", "fit_rows", "partial_fit"])
def test_several_classes_share_one_pass(way: str) -> None:
    three = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3]))
    model = DPLogisticRegression(
        delta=1e-5,
        epsilon=8.0,
        classes=[0, 1, 2],
        algorithm="one-pass",
        preprocessing="public",
        public=SCALES,
        **SEEDED,
    )
    if way == "fit":
        model.fit(X, three)
    elif way == "fit_rows":
        model.fit_rows(ArrayRows(X, three, batch_rows=333))
    else:
        model.partial_fit(X[:1000], three[:1000], n_rows=N)
        assert not hasattr(model, "coef_")
        model.partial_fit(X[1000:], three[1000:])
    assert model.score(X, three) > 0.55
    assert model.coef_.shape == (3, D)
    odds = X[:5] @ model.coef_.T + model.intercept_
    inside = (np.abs(X[:5] - model.fit_.features.centre) <= model.fit_.features.window).all(axis=1)
    assert inside.any()
    sigmoid = 1 / (1 + np.exp(-odds[inside]))
    expected = sigmoid / sigmoid.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X[:5])[inside], expected, rtol=1e-6)
    assert "3 classes" in model.plan_.reasons[0]
    assert [event.kind for event in model.certificate_.event.leaves()] == ["one-pass-iteration"] * 3
    assert 7.9 < model.certificate_.guarantee["epsilon"] <= 8.0
    assert verify_certificate(model.certificate_) == []


def test_partial_fit_puts_the_public_centre_in_the_place_of_missing_features() -> None:
    choices: dict[str, Any] = {"algorithm": "one-pass", "preprocessing": "public", "public": SCALES}
    holes, filled = X.copy(), X.copy()
    holes[::3, 1], filled[::3, 1] = np.nan, SCALES.features(D).centre[1]
    model = DPLinearRegression(1.0, 1e-5, **choices, on_invalid="impute", **SEEDED).partial_fit(holes, Y, n_rows=N)
    same = DPLinearRegression(1.0, 1e-5, **choices, **SEEDED).partial_fit(filled, Y, n_rows=N)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    np.testing.assert_array_equal(model.predict(holes[:9]), same.predict(filled[:9]))


def test_a_streamed_classifier_must_know_its_classes() -> None:
    for classes, word in ((None, "classes"), ([1], "two classes")):
        model = DPLogisticRegression(1.0, 1e-5, algorithm="one-pass", classes=classes)
        with pytest.raises(GratisError, match=word):
            model.fit_rows(ArrayRows(X, Y > 100))
        assert not hasattr(model, "certificate_")


def test_nothing_private_is_kept() -> None:
    """Attributes after fit are functions of releases: the same noise on a neighbour changes all of them, slightly."""
    model = DPLinearRegression(1.0, 1e-5, **SEEDED).fit(X, Y)
    public = {"plan_", "prediction_", "certificate_", "fit_", "coef_", "intercept_", "n_features_in_"}
    public.add("noise_covariance_")  # from released scales and basis, and public noise
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert fitted == public
    arrays = [model.fit_.parameters, model.noise_covariance_, model.fit_.features.centre]
    assert all(len(a) <= D + 1 for a in arrays)


def test_no_message_quotes_a_private_cell() -> None:
    words = np.array([["1.0", "HIV positive"], ["2.0", "3.0"]], dtype=object)
    for model in (DPLinearRegression(1.0, 1e-5), DPLogisticRegression(1.0, 1e-5)):
        with pytest.raises(GratisError) as refused:
            model.fit(words, [0.0, 1.0])
        assert "HIV" not in str(refused.value)
    with pytest.raises(GratisError) as refused:
        DPLinearRegression(1.0, 1e-5).fit([[1.0], [2.0]], ["HIV positive", "1.0"])
    assert "HIV" not in str(refused.value)


def test_a_table_that_cannot_fit_is_refused_before_the_ledger_is_asked(monkeypatch):
    """A process killed halfway would have spent its budget for nothing."""
    from gratis.private import memory

    model = DPLinearRegression(epsilon=1.0, delta=1e-5)
    monkeypatch.setattr(memory, "available_memory", lambda: 10**6)
    monkeypatch.setattr(Release, "__enter__", lambda self: pytest.fail("the ledger was asked"))
    with pytest.raises(GratisError, match="nothing was spent"):
        model.fit(np.ones((20, 3)), np.arange(20.0))


@pytest.mark.slow(but=["None"])
@pytest.mark.parametrize("n_classes", [None, 3])
def test_wide_tables_are_trained_without_second_moments(n_classes):
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((400, 1))
    X = factor + rng.standard_normal((400, 1000))
    private = {"epsilon": 3.0, "delta": 1e-5, "noise_seed": 1, "insecure_reproducible": True}
    if n_classes is None:
        model, y = DPLinearRegression(**private), factor[:, 0]
    else:
        model, y = DPLogisticRegression(classes=[0, 1, 2], **private), np.digitize(factor[:, 0], [-0.5, 0.5])
    model.fit(X, y)
    assert "second moments" not in model.plan_.settings.stages
    assert model.plan_.schedule.startswith("plain")
    assert model.plan_.prediction.source.startswith("twins of assumed spectra")
    assert model.score(X, y) > 0.6, "one direction explains the table: dimension does no harm"


@pytest.mark.statistical(failure=0.05)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_a_fit_pays_for_its_score_and_most_ranges_hold(kind: str) -> None:
    inside = []
    for seed in range(12):
        seeded = {"epsilon": 2.0, "delta": 1e-6, "noise_seed": seed, "insecure_reproducible": True}
        order = np.random.default_rng(seed).permutation(N)
        train, test = order[: N * 4 // 5], order[N * 4 // 5 :]
        model: Any = DPLinearRegression(**seeded)
        target: Any = Y
        if kind == "classes":
            model, target = DPLogisticRegression(classes=["high", "low"], **seeded), LABELS
        said = model.fit(X[train], target[train]).expected_score_
        assert said.quantity == ("accuracy" if kind == "classes" else "r_squared")
        assert said.high - said.low < 0.5, "the release says something"
        inside.append(said.low <= model.score(X[test], target[test]) <= said.high)
    assert sum(inside) >= 7, "80 % of them, by intention"


def test_what_the_user_fixes_pays_for_no_score() -> None:
    planned = DPLinearRegression(epsilon=2.0, delta=1e-6, descent=Descent(steps=16), **SEEDED).fit(X, Y)
    told = DPLinearRegression(epsilon=2.0, delta=1e-6, preprocessing="public", public=SCALES, **SEEDED).fit(X, Y)
    for model in (planned, told):
        assert "score of the fit" not in model.plan_.settings.stages
        assert not hasattr(model, "expected_score_")
