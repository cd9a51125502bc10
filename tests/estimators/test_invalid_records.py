"""on_invalid has one meaning for every estimator: no value raises or warns, and what is left out contributes nothing.

With the same seed the noise is the same, so that a record contributes nothing to any release if and only if the model
stays the same to the last bit whatever else that record holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gratis import (
    DPLinearRegression,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRandomFeaturesClassifier,
    DPRandomFeaturesRegressor,
    PublicScales,
)
from gratis.estimators.classification import encoded
from gratis.mechanisms.rows import Rows
from gratis.records.errors import GratisError
from gratis.records.neighbouring import Neighbouring
from gratis.rows.streaming import ArrayRows
from gratis.stages.feature_mean import release_feature_mean

RNG = np.random.default_rng(0)
N, D = 80, 3
X = RNG.normal(size=(N, D)) + 2
Y = X[:, 0] + 0.1 * RNG.normal(size=N)
WORDS = np.where(Y > 2, "b", "a").tolist()
SCALES = PublicScales(np.full(D, 2.0), np.ones(D), 2.0, 1.0)
SEEDED: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-3, "noise_seed": 3, "insecure_reproducible": True}
TWO: dict[str, Any] = SEEDED | {"classes": ["a", "b"]}
ONE_PASS = {"algorithm": "one-pass"}
REGRESSORS = [
    DPLinearRegression(**SEEDED),
    DPLinearRegression(**SEEDED, **ONE_PASS),
    DPRandomFeaturesRegressor(**SEEDED, n_features=20),
]
CLASSIFIERS = [
    DPLogisticRegression(**TWO),
    DPLogisticRegression(**TWO, **ONE_PASS),
    DPRandomFeaturesClassifier(**TWO, n_features=20),
    DPMLPClassifier(**TWO, width=5, steps=3),
]
NO_NUMBERS = [None, float("nan"), float("inf"), "text", b"\xff", 10**400, 1j, [1.0, 2.0]]
NO_CLASSES = [None, float("nan"), float("inf"), "c", b"a", 0.5, 1, ["a", "b"]]


def title(model: Any) -> str:
    return type(model).__name__ + (" one pass" if getattr(model, "algorithm", "") == "one-pass" else "")


def released(model: Any) -> np.ndarray:
    if hasattr(model, "coefs_"):
        return np.concatenate([model.scaler_.centre, *map(np.ravel, model.coefs_)])
    scaler = model.fit_.features if hasattr(model, "fit_") else model.scaler_
    return np.concatenate([scaler.centre, scaler.window, np.ravel(model.coef_)])


def other_rows(count: int) -> np.ndarray:
    changed = X.copy()
    changed[:count] = np.random.default_rng(1).normal(size=(count, D)) * 100
    return changed


@pytest.mark.slow(but=["DPLogisticRegression-impute"])
@pytest.mark.parametrize("handling", ["zero", "impute"])
@pytest.mark.parametrize("model", REGRESSORS + CLASSIFIERS, ids=title)
def test_an_invalid_target_neither_raises_nor_warns_and_its_record_contributes_nothing(
    model: Any, handling: str
) -> None:
    bad = NO_CLASSES if model in CLASSIFIERS else NO_NUMBERS
    good = WORDS if model in CLASSIFIERS else Y.tolist()
    model = model.set_params(on_invalid=handling)
    hostile = released(model.fit(X, [*bad, *good[len(bad) :]]))
    null = released(model.fit(other_rows(len(bad)), [*[None] * len(bad), *good[len(bad) :]]))
    np.testing.assert_array_equal(hostile, null)
    assert not np.array_equal(hostile, released(model.fit(X, good)))


@pytest.mark.slow(but=["DPMLPClassifier"])
@pytest.mark.parametrize("model", REGRESSORS + CLASSIFIERS, ids=title)
def test_zero_leaves_out_records_with_an_invalid_feature(model: Any) -> None:
    target = WORDS if model in CLASSIFIERS else Y.tolist()
    rows = X.tolist()
    for place, value in enumerate(NO_NUMBERS[:-1]):
        rows[place][1] = value
    count = len(NO_NUMBERS) - 1
    model = model.set_params(on_invalid="zero")
    null = released(model.fit(other_rows(count), [*[None] * count, *target[count:]]))
    np.testing.assert_array_equal(released(model.fit(rows, target)), null)


@pytest.mark.slow(but=["DPMLPClassifier", "DPRandomFeaturesClassifier"])
@pytest.mark.parametrize("model", REGRESSORS + CLASSIFIERS, ids=title)
def test_impute_takes_a_record_without_features_for_one_at_the_centre(model: Any) -> None:
    """It is no null record: it counts."""
    target = WORDS if model in CLASSIFIERS else Y.tolist()
    empty, central = X.copy(), X.copy()
    empty[0], central[0] = np.nan, 2.0
    model = type(model)(**model.get_params() | {"on_invalid": "impute", "preprocessing": "public", "public": SCALES})
    found = released(model.fit(empty, target))
    np.testing.assert_array_equal(found, released(model.fit(central, target)))
    if not isinstance(model, (DPRandomFeaturesRegressor, DPRandomFeaturesClassifier, DPMLPClassifier)):
        # Without an intercept a record at 0 has no gradient.
        assert not np.array_equal(found, released(model.fit(empty, [None, *target[1:]])))


@pytest.mark.slow(but=["DPLinearRegression one pass-zero-none"])
@pytest.mark.parametrize("preprocessing", ["private", "none"])
@pytest.mark.parametrize("handling", ["raise", "zero", "impute"])
@pytest.mark.parametrize("model", REGRESSORS, ids=title)
def test_an_extreme_target_neither_raises_nor_warns(model: Any, handling: str, preprocessing: str) -> None:
    extreme = Y.copy()
    extreme[:4] = 1.7e308, -1.7e308, 1e200, 5e-324
    model = type(model)(**model.get_params() | {"on_invalid": handling, "preprocessing": preprocessing})
    assert np.isfinite(released(model.fit(X, extreme))[:D]).all()


@pytest.mark.slow(but=["DPLogisticRegression one pass"])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=title)
def test_with_declared_classes_scikit_learn_does_not_look_at_the_labels(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It warns where more than half of the labels are unique, which one record decides."""
    labels = [*WORDS[:30], *map(str, range(N - 30))]
    model.set_params(on_invalid="zero").fit(X, labels)

    def look(*_: Any) -> None:
        raise AssertionError("a check whose outcome depends on the labels")

    monkeypatch.setattr("gratis.estimators.classification.check_classification_targets", look)
    for handling in ("raise", "zero", "impute"):
        model.set_params(on_invalid=handling).fit(X, WORDS)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=title)
def test_raise_refuses_labels_outside_the_classes(model: Any) -> None:
    with pytest.raises(GratisError, match="outside the given classes"):
        model.set_params(on_invalid="raise").fit(X, [*WORDS[:-1], "canary"])


def test_streams_and_batches_leave_out_or_refuse_as_arrays_do() -> None:
    labels = (Y > 2).astype(float)
    bad = labels.copy()
    bad[:3] = np.nan, 0.5, 7
    choices: dict[str, Any] = SEEDED | {"classes": [0, 1], "preprocessing": "none"} | ONE_PASS
    lenient = DPLogisticRegression(**choices, on_invalid="zero")
    whole = released(lenient.fit(X, bad))
    np.testing.assert_array_equal(whole, released(lenient.fit_rows(ArrayRows(X, bad, batch_rows=17))))
    lenient.partial_fit(X[:50], bad[:50], n_rows=N)
    np.testing.assert_array_equal(whole, released(lenient.partial_fit(X[50:], bad[50:])))
    np.testing.assert_array_equal(lenient.classes_, [0, 1])
    strict = DPLogisticRegression(**choices)
    for target in (np.where(np.isnan(bad), 5, bad), bad):
        with pytest.raises(ValueError, match=r"outside|finite"):
            strict.fit_rows(ArrayRows(X, target))
        with pytest.raises(ValueError, match=r"outside|NaN"):
            strict.partial_fit(X, target, n_rows=N)
    assert not hasattr(strict, "certificate_")


@pytest.mark.slow(but=["DPLogisticRegression"])
@pytest.mark.parametrize("model", REGRESSORS + CLASSIFIERS, ids=title)
def test_selection_is_included_only_where_settings_follow_from_releases(model: Any) -> None:
    target = WORDS if model in CLASSIFIERS else Y
    model.set_params(on_invalid="raise").fit(X, target)
    follows = (DPLinearRegression, DPLogisticRegression, DPRandomFeaturesClassifier)  # the last: from class counts
    staged = isinstance(model, follows) and getattr(model, "algorithm", None) != "one-pass"
    assert model.certificate_.selection == ("included" if staged else "none")
    if title(model) == "DPLinearRegression one pass":
        assert model.fit_rows(ArrayRows(X, Y)).certificate_.selection == "none"


@pytest.mark.slow(but=["DPLinearRegression"])
@pytest.mark.parametrize("model", REGRESSORS + CLASSIFIERS, ids=title)
def test_one_list_of_choices(model: Any) -> None:
    with pytest.raises(GratisError, match="'raise', 'zero', 'impute'"):
        type(model)(**model.get_params() | {"on_invalid": "drop"}).fit(X, WORDS if model in CLASSIFIERS else Y)


@pytest.mark.parametrize(
    ("labels", "classes", "positions"),
    [
        (np.array([3, 1, 2]), np.array([1.0, 3.0]), [1, 0, np.nan]),
        (np.array([np.nan, np.inf, 1.0]), np.array([1, 3]), [np.nan, np.nan, 0]),
        (np.array(["b", "ab"]), np.array(["a", "b"]), [1, np.nan]),
        (np.array([1, "1", 1.0, True], dtype=object), np.array([0, 1]), [1, np.nan, 1, 1]),
        (np.array(["1", "0"]), np.array([0, 1]), [np.nan, np.nan]),
        (np.array([b"a", "a", {}], dtype=object), np.array(["a", "b"]), [np.nan, 0, np.nan]),
    ],
)
def test_labels_are_encoded_by_equality(labels: Any, classes: Any, positions: Any) -> None:
    np.testing.assert_array_equal(encoded(labels, classes), positions)


def test_a_row_that_is_not_counted_adds_nothing_to_the_mean_of_features() -> None:
    class Ones:
        n_features = 2

        def blocks(self, rows: Any) -> Any:
            yield slice(0, 2), np.ones((len(rows), 2))

    class Silent:
        def release(self, values: Any, std: float) -> Any:
            return values

    y = np.where(np.arange(10) < 6, 0.0, np.nan)
    found: Any = release_feature_mean(
        Ones(),
        Rows.held(X[:10], y),
        9.0,
        mu=1.0,
        neighbouring=Neighbouring.ZERO_OUT,
        noise=Silent(),  # type: ignore[arg-type]
    )[0]
    np.testing.assert_allclose(found, [0.6, 0.6])


@pytest.mark.parametrize("on_invalid", ["zero", "impute"])
def test_labels_of_several_types_need_declared_classes(on_invalid: str) -> None:
    rng = np.random.default_rng(0)
    labels = np.array(["a", None] * 10, dtype=object)
    with pytest.raises(GratisError, match="one type"):
        DPLogisticRegression(1.0, 1e-5, on_invalid=on_invalid).fit(rng.standard_normal((20, 2)), labels)
    with pytest.raises(GratisError, match="one type"):
        DPLogisticRegression(1.0, 1e-5, on_invalid=on_invalid, classes=["a", None]).fit(
            rng.standard_normal((20, 2)), labels
        )


def test_one_list_of_another_length_does_not_change_how_others_are_read() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 2))
    labels = [[int(value > 0)] for value in rows[:, 0]]

    def coefficients(last: list[int]) -> np.ndarray:
        model = DPLogisticRegression(
            epsilon=50.0, delta=1e-2, classes=[0, 1], on_invalid="zero", noise_seed=1, insecure_reproducible=True
        )
        return model.fit(rows, [*labels[:-1], last]).coef_

    # Without the others all coefficients would be noise around 0.
    assert np.allclose(coefficients([1, 2]), coefficients([7]))


def test_entries_that_are_arrays_of_several_shapes() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((12, 2))
    labels: list[Any] = [0, 1] * 5 + [np.zeros((2, 2)), np.zeros((2, 3))]
    DPLogisticRegression(epsilon=5.0, delta=1e-5, classes=[0, 1], on_invalid="zero").fit(rows, labels)
    with pytest.raises(GratisError, match="equal lengths"):
        DPLogisticRegression(1.0, 1e-5, on_invalid="zero").fit(rows, [[1]] * 11 + [[1, 2]])
