"""Random-features and network estimators: they learn, stay within budget, refuse bad input, and write it down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from gratis import (
    Budget,
    DPMLPClassifier,
    DPRandomFeaturesClassifier,
    DPRandomFeaturesRegressor,
    Ledger,
    PublicScales,
)
from gratis.accounting import verify_certificate
from gratis.records.errors import GratisError

X, Y = load_digits(return_X_y=True)
PIXELS = PublicScales(np.full(64, 8.0), np.full(64, 8.0))
SEEDED: dict[str, Any] = {"noise_seed": 3, "insecure_reproducible": True}
CLASSIFIERS = [
    DPRandomFeaturesClassifier(4.0, 1e-4, n_features=500, **SEEDED),
    DPRandomFeaturesClassifier(4.0, 1e-4, features="scattering", **SEEDED),
    DPMLPClassifier(4.0, 1e-4, width=100, steps=40, preprocessing="public", public=PIXELS, **SEEDED),
]


@pytest.mark.parametrize("model", CLASSIFIERS, ids=["random", "scattering", "mlp"])
def test_classifiers_learn_within_their_budget(model: Any) -> None:
    model.fit(X[:1400], Y[:1400])
    assert model.score(X[1400:], Y[1400:]) > 0.75
    assert 3.99 < model.certificate_.guarantee["epsilon"] <= 4.0
    assert verify_certificate(model.certificate_) == []
    np.testing.assert_allclose(model.predict_proba(X[:3]).sum(axis=1), 1, rtol=1e-6)


def test_regressor_learns_what_is_not_linear_and_uses_the_dual_engine() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(800, 4)) * [1, 10, 0.1, 5] + 3
    scaled = (rows - 3) / [1, 10, 0.1, 5]
    target = 50 + 10 * np.sign(scaled[:, 0]) + rng.normal(size=800)
    model = DPRandomFeaturesRegressor(8.0, 1e-4, n_features=3000, **SEEDED).fit(rows, target)
    assert model.score(rows, target) > 0.4
    assert model.engine_ == "dual"
    assert model.coef_.shape == (3000, 1)
    assert verify_certificate(model.certificate_) == []


def test_the_ledger_is_asked(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", {"digits": Budget(epsilon=4.0, delta=1e-4)})
    model = DPRandomFeaturesClassifier(4.0, 1e-4, n_features=50, ledger=str(tmp_path / "l"), dataset="digits")
    model.fit(X, Y)
    with pytest.raises(GratisError, match="left"):
        model.fit(X, Y)
    assert ledger.status("digits").reservations == 1


@pytest.mark.slow(
    but=[
        "model13-epsilon",
        "model0-n_features",
        "model2-outside",
        "model6-width",
        "model8-lower width or depth",
        "model11-steps must be at most",
    ]
)
@pytest.mark.parametrize(
    ("model", "word"),
    [
        (DPRandomFeaturesClassifier(1.0, 1e-5, n_features=0), "n_features"),
        (DPRandomFeaturesClassifier(1.0, 1e-5, features="cosine"), "features"),
        (DPRandomFeaturesClassifier(1.0, 1e-5, classes=[0, 1]), "outside"),
        (DPRandomFeaturesClassifier(1.0, 1e-5, noise_seed=1), "seed"),
        (DPRandomFeaturesRegressor(1.0, 1e-5, features="scattering"), "features"),
        (DPRandomFeaturesRegressor(1.0, 1e-5, preprocessing="public"), "public"),
        (DPMLPClassifier(1.0, 1e-5, width=0), "width"),
        (DPMLPClassifier(1.0, 1e-5, steps=0), "steps"),
        (DPMLPClassifier(1.0, 1e-5, width=10**12), "lower width or depth"),
        (DPMLPClassifier(1.0, 1e-5, width=10**30), "lower width or depth"),
        (DPMLPClassifier(1.0, 1e-5, depth=10**30), "depth must be at most"),
        (DPMLPClassifier(1.0, 1e-5, steps=10**30), "steps must be at most"),
        (DPMLPClassifier(1.0, 1e-5, initial_seed=10**30), "initial_seed"),
        (DPMLPClassifier(epsilon=-1.0, delta=1e-5), "epsilon"),
        (DPMLPClassifier(1.0, 1e-5, classes=[7]), "class"),
    ],
)
def test_bad_parameters(model: Any, word: str) -> None:
    with pytest.raises(GratisError, match=word):
        model.fit(X, Y)
    assert not hasattr(model, "certificate_")


def test_scattering_needs_square_images() -> None:
    with pytest.raises(GratisError, match="square"):
        DPRandomFeaturesClassifier(1.0, 1e-5, features="scattering").fit(X[:, :60], Y)


def test_a_network_that_memory_cannot_hold_is_refused_before_the_ledger_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "l", {"digits": Budget(epsilon=4.0, delta=1e-4)})

    def too_large(*_: Any, **__: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("gratis.models.mlp.build_mlp", too_large)
    with pytest.raises(GratisError, match="not enough memory"):
        DPMLPClassifier(4.0, 1e-4, ledger=str(tmp_path / "l"), dataset="digits").fit(X, Y)
    assert ledger.status("digits").reservations == 0


def test_a_network_asked_about_text_quotes_none_of_it() -> None:
    model = DPMLPClassifier(4.0, 1e-4, width=5, steps=2, preprocessing="public", public=PIXELS, **SEEDED).fit(X, Y)
    rows = X[:3].astype(object)
    rows[1, 2] = "Smith"
    for ask in (model.predict, model.predict_proba):
        with pytest.raises(GratisError) as caught:
            ask(rows)
        assert "Smith" not in str(caught.value)


def test_a_network_of_dead_neurons_is_refused_before_anything_is_reserved(tmp_path: Path) -> None:
    """Found by the fuzz: the check on synthetic records came after the reservation."""
    pytest.importorskip("torch")
    rows, labels = np.random.default_rng(0).normal(size=(12, 1)), np.arange(12) % 2
    ledger, refused = Ledger.create(tmp_path / "l", {"d": Budget(epsilon=400.0, delta=0.1)}), 0
    for seed in range(40):
        model = DPMLPClassifier(
            1.0, 1e-3, width=1, depth=4, steps=1, initial_seed=seed, ledger=ledger, dataset="d", classes=[0, 1]
        )
        try:
            model.fit(rows, labels)
        except GratisError as error:
            refused += "does not depend on the trainable parameters" in str(error)
    assert refused
    assert not ledger.status("d").never_committed
