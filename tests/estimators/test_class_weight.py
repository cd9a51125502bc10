"""Weights of classes are post-processing: they move the released model's intercepts, at no cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import balanced_accuracy_score

from gratis import (
    Descent,
    DPAdditiveClassifier,
    DPLogisticRegression,
    DPRandomFeaturesClassifier,
    load_model,
    save_model,
)
from gratis.records.errors import GratisError

ESTIMATORS: dict[str, tuple[type, dict[str, Any]]] = {
    "logistic": (DPLogisticRegression, {}),
    "additive": (DPAdditiveClassifier, {}),
    "random features": (DPRandomFeaturesClassifier, {"n_features": 200}),
}


def rare(classes: int, n: int = 4000) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 3))
    scores = np.zeros((n, classes))
    scores[:, 1] = 2 * X[:, 0] - 3.5
    scores[:, 2:] = 2 * X[:, 1:2] - 2
    labels = np.array([(softmax(row).cumsum() > u).argmax() for row, u in zip(scores, rng.random(n), strict=True)])
    return X, np.array(["none", "rare", "some"])[labels]


def fitted(kind: str, classes: int, **more: Any) -> tuple[Any, Any, Any]:
    estimator, own = ESTIMATORS[kind]
    X, y = rare(classes)
    names = ["none", "rare", "some"][:classes]
    model = estimator(epsilon=4.0, delta=1e-5, classes=names, noise_seed=3, insecure_reproducible=True, **own, **more)
    return model.fit(X, y), X, y


@pytest.mark.slow(but=["2-logistic"])
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("classes", [2, 3])
def test_weights_multiply_probabilities(kind: str, classes: int, tmp_path: Path) -> None:
    """P(k|x) becomes w_k·P(k|x) over their sum; certificate and event are those of the fit without weights."""
    plain, X, _ = fitted(kind, classes)
    weighted, _, _ = fitted(kind, classes, class_weight={"rare": 5.0})
    weights = np.where(plain.classes_ == "rare", 5.0, 1.0)
    wanted = plain.predict_proba(X) * weights
    np.testing.assert_allclose(
        weighted.predict_proba(X), wanted / wanted.sum(axis=1, keepdims=True), rtol=1e-6, atol=1e-9
    )
    assert weighted.certificate_.event == plain.certificate_.event
    save_model(tmp_path / "model.gratis", weighted)
    loaded = load_model(tmp_path / "model.gratis").estimator
    np.testing.assert_array_equal(loaded.predict_proba(X), weighted.predict_proba(X))


@pytest.mark.slow(but=["logistic"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_balanced_classes_are_found(kind: str) -> None:
    plain, X, y = fitted(kind, 2)
    balanced, _, _ = fitted(kind, 2, class_weight="balanced")
    assert balanced_accuracy_score(y, balanced.predict(X)) > balanced_accuracy_score(y, plain.predict(X)) + 0.05


@pytest.mark.slow(but=["weights2"])
@pytest.mark.parametrize(
    "weights", ["even", {"other": 2.0}, {"rare": 0.0}, {"rare": -1.0}, {"rare": np.inf}, 3.0, {"rare": "much"}]
)
def test_what_is_no_weight_is_refused(weights: Any) -> None:
    with pytest.raises(GratisError, match="class_weight"):
        fitted("logistic", 2, class_weight=weights)


@pytest.mark.parametrize("more", [{"inference": True}, {"algorithm": "one-pass"}])
def test_where_no_shares_are_released_it_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(GratisError, match="class_weight"):
        fitted("logistic", 2, class_weight="balanced", **more)
    with pytest.raises(GratisError, match="class_weight"):
        fitted(
            "random features", 2, class_weight="balanced",
            descent=Descent(steps=4, clip_norm=0.5, learning_rate=0.1),
        )  # fmt: skip
