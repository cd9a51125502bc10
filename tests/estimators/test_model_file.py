"""Model files: every estimator comes back the same, nothing of the machine or the noise goes in, damage is refused."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
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
from gratis.records.assumptions import ASSUMPTIONS
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 4)) * [1, 10, 100, 1] + 5
Y = X @ [1.0, 0.1, 0.01, 0.0] + 0.1 * RNG.normal(size=600)
LABELS = np.where(Y > np.median(Y), "yes", "no")
IMAGES = RNG.random((300, 64))
SEEDED: dict[str, Any] = {"noise_seed": 3, "insecure_reproducible": True}
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
FITTED = [
    (DPLinearRegression(2.0, 1e-5, **SEEDED), X, Y),
    (DPLinearRegression(2.0, 1e-5, on_invalid="impute", **SEEDED), HOLES, Y),
    (DPLinearRegression(2.0, 1e-5, algorithm="one-pass", **SEEDED), X, Y),
    (DPLogisticRegression(2.0, 1e-5, **SEEDED), X, LABELS),
    (DPLogisticRegression(2.0, 1e-5, algorithm="one-pass", **SEEDED), X, np.digitize(Y, np.quantile(Y, [0.3, 0.7]))),
    (DPRandomFeaturesRegressor(2.0, 1e-3, n_features=100, **SEEDED), X, Y),
    (DPRandomFeaturesClassifier(2.0, 1e-5, n_features=100, on_invalid="impute", **SEEDED), HOLES, LABELS),
    (DPRandomFeaturesClassifier(2.0, 1e-5, features="scattering", **SEEDED), IMAGES, LABELS[:300]),
    (DPMLPClassifier(2.0, 1e-5, width=20, steps=5, on_invalid="impute", **SEEDED), HOLES, LABELS),
]


@pytest.mark.slow(
    but=[
        "DPLogisticRegression-ndarray-ndarray0",
        "DPRandomFeaturesClassifier-ndarray-ndarray0",
        "DPMLPClassifier-ndarray-ndarray",
    ]
)
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
    model = DPLinearRegression(1.0, 1e-5, **SEEDED).fit(X, Y)
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
    save_model(path, DPLinearRegression(1.0, 1e-5, **SEEDED).fit(X, Y))
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
        save_model(path, DPLinearRegression(1.0, 1e-5))


def rewritten(path: Path, **changes: Any) -> None:
    """Change members and the head as a forger would: with correct sums."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    head = json.loads(members.pop("model.json"))
    members |= changes.get("members", {})
    members.pop(changes.get("without", ""), None)
    head["parameters"] |= changes.get("parameters", {})
    head["facts"] |= changes.get("facts", {})
    head |= changes.get("head", {})
    head["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {"model.json": json.dumps(head).encode(), **members}.items():
            file.writestr(name, content)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


OTHER = json.dumps(DPLinearRegression(0.1, 1e-5, **SEEDED).fit(X, Y).certificate_.to_json()).encode()


@pytest.mark.slow(but=["another budget"])
@pytest.mark.parametrize(
    "changes",
    [
        {"members": {"arrays/parameters.npy": npy(np.array([{}] * 5, dtype=object))}},
        {"members": {"bomb": bytes(10**6)}},
        {"members": {"certificate.json": OTHER}},
        {"parameters": {"noise_seed": 7, "insecure_reproducible": True}},
        {"parameters": {"ledger": "elsewhere", "dataset": "x"}},
        {"parameters": {"inference": True}},
        {"facts": {"inference": {"rows": 10, "names": ["a", "b", "c", "d"], "withheld": "why"}}},
    ],
    ids=["pickle", "unknown member", "another budget", "noise seed", "ledger", "no intervals", "unasked intervals"],
)
def test_forged_files_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.gratis"
    save_model(path, DPLinearRegression(2.0, 1e-5, **SEEDED).fit(X, Y))
    rewritten(path)
    load_model(path)  # rewriting alone does no harm
    rewritten(path, **changes)
    with pytest.raises(GratisError, match="not a model file"):
        load_model(path)


ROWS, STORED = (
    json.loads((Path(__file__).parent / "files_0_1_0" / "predictions.json").read_text())[key]
    for key in ("rows", "predictions")
)


@pytest.mark.parametrize("name", sorted(STORED))
def test_files_of_version_0_1_0_load_and_verify(name: str) -> None:
    folder = Path(__file__).parent / "files_0_1_0"
    estimator = load_model(folder / f"{name}.gratis").estimator
    certificate = Certificate.read(folder / f"{name}.json")
    assert verify_certificate(certificate) == verify_certificate(estimator.certificate_) == []
    assert certificate.to_json() == estimator.certificate_.to_json()
    assert certificate.released is None
    assert set(certificate.assumptions) <= set(ASSUMPTIONS)
    predicted = estimator.predict(np.array(ROWS)).tolist()
    assert predicted == (STORED[name] if isinstance(predicted[0], str) else pytest.approx(STORED[name], rel=1e-6))


def test_old_files_are_saved_again_unbound(tmp_path: Path) -> None:
    old = load_model(Path(__file__).parent / "files_0_1_0" / "logistic.gratis").estimator
    save_model(tmp_path / "again", old)
    assert load_model(tmp_path / "again").estimator.certificate_.released is None


def test_a_certificate_is_bound_to_its_model(tmp_path: Path) -> None:
    first, second = (DPLinearRegression(2.0, 1e-5, noise_seed=i, insecure_reproducible=True).fit(X, Y) for i in (1, 2))
    assert first.certificate_.released != second.certificate_.released
    same = DPLinearRegression(2.0, 1e-5, noise_seed=1, insecure_reproducible=True).fit(X, Y)
    assert first.certificate_.released == same.certificate_.released
    save_model(tmp_path / "m", first)
    rewritten(tmp_path / "m", members={"certificate.json": json.dumps(second.certificate_.to_json()).encode()})
    with pytest.raises(GratisError, match="another model"):
        load_model(tmp_path / "m")
    save_model(tmp_path / "m", first)
    rewritten(tmp_path / "m", members={"arrays/parameters.npy": npy(first.fit_.parameters + 1)})
    with pytest.raises(GratisError, match="not those that were released"):
        load_model(tmp_path / "m")
    first.fit_.parameters[0] += 1
    with pytest.raises(GratisError, match="another model"):
        save_model(tmp_path / "m", first)


def announced(shape: tuple[int, ...]) -> bytes:
    """The beginning of an .npy file that announces more than it holds."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "wrong shape": ("linear", {"members": {"arrays/parameters.npy": npy(np.ones((4, 1)))}}),
    "two outputs": ("linear", {"members": {"arrays/parameters.npy": npy(np.ones((3, 2)))}}),
    "one dimension": ("linear", {"members": {"arrays/parameters.npy": npy(np.ones(3))}}),
    "no dimension": ("linear", {"members": {"arrays/target-scale.npy": npy(np.ones(()))}}),
    "unknown array": ("linear", {"members": {"arrays/more.npy": npy(np.ones(3))}}),
    "missing array": ("linear", {"without": "arrays/target-scale.npy"}),
    "single precision": ("linear", {"members": {"arrays/parameters.npy": npy(np.ones((3, 1), dtype="f4"))}}),
    "text": ("linear", {"members": {"arrays/parameters.npy": npy(np.full((3, 1), "x"))}}),
    "objects": ("linear", {"members": {"arrays/parameters.npy": npy(np.full((3, 1), None))}}),
    "records": ("logistic", {"members": {"arrays/classes.npy": npy(np.zeros(2, dtype=[("a", "f8")]))}}),
    "NaN": ("linear", {"members": {"arrays/parameters.npy": npy(np.full((3, 1), np.nan))}}),
    "scale zero": ("linear", {"members": {"arrays/features-scale.npy": npy(np.zeros(2))}}),
    "window NaN": ("linear", {"members": {"arrays/features-window.npy": npy(np.full(2, np.nan))}}),
    "infinite centre": ("linear", {"members": {"arrays/features-centre.npy": npy(np.full(2, np.inf))}}),
    "classes twice": ("logistic", {"members": {"arrays/classes.npy": npy(np.array(["yes", "yes"]))}}),
    "one class": ("logistic", {"members": {"arrays/classes.npy": npy(np.array(["yes"]))}}),
    "three classes": ("logistic", {"members": {"arrays/classes.npy": npy(np.array(["a", "b", "c"]))}}),
    "other columns": ("random_features", {"head": {"n_features_in": 3}}),
    "no columns": ("linear", {"head": {"n_features_in": 0}}),
    "columns in words": ("linear", {"head": {"n_features_in": "two"}}),
    "other features": ("random_features", {"facts": {"feature_map": {
        "kind": "random", "activation": "tanh", "n_inputs": 2, "n_features": 10**12, "seed": 0}}}),
    "more means": ("random_features", {"facts": {"row_norms": [1.0]}}),
    "fewer means": ("random_features_classifier", {"facts": {"row_norms": []}}),
    "norm of text": ("random_features_classifier", {"facts": {"row_norms": ["a", "b"]}}),
    "announced": ("linear", {"members": {"arrays/parameters.npy": announced((4 * 10**8, 1))}}),
    "announced beyond integers": ("linear", {"members": {"arrays/parameters.npy": announced((10**30, 10**30))}}),
    "a list as a parameter": ("linear", {"parameters": {"preprocessing": ["private"]}}),
    "an unknown parameter": ("linear", {"parameters": {"more": 1}}),
    "a table of other columns": ("linear", {"head": {"context": {
        "table": {"schema": {"columns": {"a": "numeric"}}, "target": {}}}}}),
    "a table that is none": ("linear", {"head": {"context": {"table": 3}}}),
    "no context": ("linear", {"head": {"context": [1]}}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "changes"), WRONG.values(), ids=WRONG)
def test_resealed_files_with_wrong_contents_are_refused(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    # Files of 0.1.0 are bound by no hash, so that only the checks of what is inside can refuse them.
    path = tmp_path / "model.gratis"
    path.write_bytes((Path(__file__).parent / "files_0_1_0" / f"{name}.gratis").read_bytes())
    rewritten(path, **changes)
    with pytest.raises(GratisError, match="not a model file") as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_file_that_unfolds_is_refused_before_it_does(tmp_path: Path) -> None:
    """A model of 40 million columns: 300 kB of zeros that would become 320 MB."""
    path, d = tmp_path / "model.gratis", 40_000_000
    path.write_bytes((Path(__file__).parent / "files_0_1_0" / "linear.gratis").read_bytes())
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    head = json.loads(members.pop("model.json")) | {"n_features_in": d}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in members:
            if "parameters" not in name:
                file.writestr(name, members[name])
        with file.open("arrays/parameters.npy", "w", force_zip64=True) as stream:
            stream.write(announced((d + 1, 1)))
            for _ in range(d // 10**6):
                stream.write(bytes(8 * 10**6))
            stream.write(bytes(8))
        file.writestr("model.json", json.dumps(head))
    assert path.stat().st_size < 10**6
    tracemalloc.start()
    try:
        with pytest.raises(GratisError, match="unfold"):
            load_model(path)
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_a_repeated_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gratis"
    path.write_bytes((Path(__file__).parent / "files_0_1_0" / "linear.gratis").read_bytes())
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as file:
        file.writestr("certificate.json", file.read("certificate.json"))
    with pytest.raises(GratisError, match="contents"):
        load_model(path)


def test_classes_that_are_objects_are_saved_as_text(tmp_path: Path) -> None:
    model = DPLogisticRegression(2.0, 1e-5, **SEEDED).fit(X, np.array(LABELS, dtype=object))
    save_model(tmp_path / "m", model)
    assert load_model(tmp_path / "m").estimator.predict(X).tolist() == model.predict(X).tolist()
