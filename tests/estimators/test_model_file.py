"""Model files: every estimator comes back the same, nothing of the machine or the noise goes in, damage is refused."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gratis import (
    DPLinearRegression,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRandomFeaturesClassifier,
    DPRandomFeaturesRegressor,
    load_model,
    save_model,
)
from gratis.accounting import verify_certificate
from gratis.specs.errors import GratisError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 4)) * [1, 10, 100, 1] + 5
Y = X @ [1.0, 0.1, 0.01, 0.0] + 0.1 * RNG.normal(size=600)
LABELS = np.where(Y > np.median(Y), "yes", "no")
IMAGES = RNG.random((300, 64))
SEEDED: dict[str, Any] = {"noise_seed": 3, "insecure_reproducible": True}
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
FITTED = [
    (DPLinearRegression(2.0, **SEEDED), X, Y),
    (DPLinearRegression(2.0, on_invalid="impute", **SEEDED), HOLES, Y),
    (DPLinearRegression(2.0, algorithm="one-pass", **SEEDED), X, Y),
    (DPLogisticRegression(2.0, **SEEDED), X, LABELS),
    (DPLogisticRegression(2.0, algorithm="one-pass", **SEEDED), X, np.digitize(Y, np.quantile(Y, [0.3, 0.7]))),
    (DPRandomFeaturesRegressor(2.0, 1e-3, n_features=100, **SEEDED), X, Y),
    (DPRandomFeaturesClassifier(2.0, n_features=100, on_invalid="impute", **SEEDED), HOLES, LABELS),
    (DPRandomFeaturesClassifier(2.0, features="scattering", **SEEDED), IMAGES, LABELS[:300]),
    (DPMLPClassifier(2.0, width=20, steps=5, on_invalid="impute", **SEEDED), HOLES, LABELS),
]


@pytest.mark.parametrize(("model", "rows", "target"), FITTED, ids=lambda v: type(v).__name__)
def test_a_saved_model_predicts_the_same(model: Any, rows: Any, target: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.gratis"
    save_model(path, model.fit(rows, target), {"note": "public", "columns": {"b": 1, "a": 2}})
    found = load_model(path)
    assert found.context["note"] == "public"
    assert list(found.context["columns"]) == ["b", "a"]
    np.testing.assert_array_equal(found.estimator.predict(rows), model.predict(rows))
    assert verify_certificate(found.estimator.certificate_) == []
    assert found.estimator.prediction_ == model.prediction_
    with zipfile.ZipFile(path) as file:
        head = file.read("model.json").decode()
        assert "noise_seed" not in head
        assert "ledger" not in head
        assert len(file.read("model.json")) < 20_000
    assert [p.name for p in tmp_path.iterdir()] == ["model.gratis"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    model = DPLinearRegression(**SEEDED).fit(X, Y)
    (tmp_path / "file").touch()
    for folder in (tmp_path / "nosuch", tmp_path / "file"):
        with pytest.raises(GratisError) as caught:
            save_model(folder / "u.gratis", model)
        assert str(caught.value) == f"the folder {str(folder)!r} for the model file does not exist"
    (tmp_path / "folder").mkdir()
    for name in ("folder", "a" * 300):
        with pytest.raises(GratisError, match="cannot be written: "):
            save_model(tmp_path / name, model)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_damage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gratis"
    save_model(path, DPLinearRegression(**SEEDED).fit(X, Y))
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    other = json.loads(members["model.json"])
    other["format"] = "something else"
    for name, content in {
        "cut": whole[: len(whole) // 2],
        "text": b"this is no model",
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GratisError, match="not a model file"):
            load_model(tmp_path / name)
    for changed in (
        members | {"model.json": json.dumps(other).encode()},
        members | {"arrays/parameters.npy": members["arrays/parameters.npy"][:-1] + b"x"},
        {name: content for name, content in members.items() if name != "certificate.json"},
    ):
        with zipfile.ZipFile(path, "w") as file:
            for name, content in changed.items():
                file.writestr(name, content)
        with pytest.raises(GratisError, match="not a model file"):
            load_model(path)
    with pytest.raises(GratisError, match="no model file"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(GratisError, match="fitted"):
        save_model(path, DPLinearRegression())


def rewritten(path: Path, **changes: Any) -> None:
    """Change members and the head as a forger would: with correct sums."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    head = json.loads(members.pop("model.json"))
    members |= changes.get("members", {})
    head["parameters"] |= changes.get("parameters", {})
    head["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {"model.json": json.dumps(head).encode(), **members}.items():
            file.writestr(name, content)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


OTHER = json.dumps(DPLinearRegression(0.1, **SEEDED).fit(X, Y).certificate_.to_json()).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"members": {"arrays/parameters.npy": npy(np.array([{}] * 5, dtype=object))}},
        {"members": {"bomb": bytes(10**6)}},
        {"members": {"certificate.json": OTHER}},
        {"parameters": {"noise_seed": 7, "insecure_reproducible": True}},
        {"parameters": {"ledger": "elsewhere", "dataset": "x"}},
    ],
    ids=["pickle", "unknown member", "another budget", "noise seed", "ledger"],
)
def test_forged_files_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.gratis"
    save_model(path, DPLinearRegression(2.0, **SEEDED).fit(X, Y))
    rewritten(path)
    load_model(path)  # rewriting alone does no harm
    rewritten(path, **changes)
    with pytest.raises(GratisError, match="not a model file"):
        load_model(path)


def test_classes_that_are_objects_are_saved_as_text(tmp_path: Path) -> None:
    model = DPLogisticRegression(2.0, **SEEDED).fit(X, np.array(LABELS, dtype=object))
    save_model(tmp_path / "m", model)
    assert load_model(tmp_path / "m").estimator.predict(X).tolist() == model.predict(X).tolist()
