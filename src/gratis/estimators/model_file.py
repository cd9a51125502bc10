"""`model.gratis`: a fitted private model as one zip of JSON and plain arrays. No pickle, so that reading runs no code.

Members: `model.json` (what it is and the SHA-256 of every other member), `certificate.json`, and `arrays/*.npy`.
Everything in it was released or is public: a model file may be shared as far as its certificate allows.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.estimators.linear import DPLinearRegression
from gratis.estimators.logistic import DPLogisticRegression
from gratis.estimators.mlp import DPMLPClassifier
from gratis.estimators.random_features import DPRandomFeaturesClassifier, DPRandomFeaturesRegressor
from gratis.mechanisms.location_scale import Standardiser
from gratis.models.random_features import Activation, RandomFeatures
from gratis.models.scattering import ScatteringFeatures
from gratis.specs.certificates import Certificate, plain
from gratis.specs.errors import GratisError
from gratis.specs.predictions import Prediction
from gratis.training.feature_mean import CentredFeatures
from gratis.training.released_linear import ReleasedLinear

__all__ = ["FORMAT", "SavedModel", "load_model", "save_model"]

FORMAT = "gratis-model/1"
# Paths of this machine, seeds of noise and objects that are already part of the arrays stay outside.
_NOT_KEPT = {"ledger", "dataset", "noise_seed", "insecure_reproducible", "public", "classes", "progress"}
_LARGEST, _LARGEST_HEAD = 2**34, 2**24

Arrays = dict[str, NDArray[Any]]
_ESTIMATORS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        DPLinearRegression,
        DPLogisticRegression,
        DPRandomFeaturesRegressor,
        DPRandomFeaturesClassifier,
        DPMLPClassifier,
    )
}


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A fitted estimator, and what its maker wrote beside it (the encoding of a table, scores, a report's words)."""

    estimator: Any
    context: dict[str, Any]


def save_model(path: str | os.PathLike[str], estimator: Any, context: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator; the file appears whole or not at all.

    `context` is public data for JSON that `load_model` gives back.
    """
    kind = type(estimator).__name__
    if kind not in _ESTIMATORS or not hasattr(estimator, "certificate_"):
        raise GratisError("only fitted estimators of Gratis can be saved")
    arrays, facts = _state(estimator)
    members = {f"arrays/{name}.npy": _npy(array) for name, array in arrays.items()}
    members["certificate.json"] = _json(estimator.certificate_.to_json())
    parameters = {key: value for key, value in estimator.get_params(deep=False).items() if key not in _NOT_KEPT}
    head = {
        "format": FORMAT,
        "estimator": kind,
        "parameters": parameters,
        "n_features_in": estimator.n_features_in_,
        "facts": facts,
        "prediction": estimator.prediction_.to_json(),
        "context": dict(context or {}),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    target = Path(path)
    if not target.parent.is_dir():
        raise GratisError(f"the folder {os.fspath(target.parent)!r} for the model file does not exist")
    if os.path.isdir(target):  # Path.is_dir raises on names that are too long
        raise GratisError(f"the model file {os.fspath(path)!r} cannot be written: there is a folder of that name")
    partial, whole = target.with_name(target.name + ".partial"), False
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in {"model.json": _json(head), **members}.items():
                file.writestr(name, content)
        whole = True
        os.replace(partial, target)
    except OSError as error:
        where = f"; it is whole in {str(partial)!r}" if whole else ""
        raise GratisError(f"the model file {os.fspath(path)!r} cannot be written: {error.strerror}" + where) from None
    finally:
        if not whole:  # a whole one that could not be renamed is what was paid for
            with suppress(OSError):  # what could not be written may be no name that can be removed
                partial.unlink()


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model file; anything missing, damaged or unknown is refused.

    The sums in it detect damage, not forgery: whoever can write the file can write another certificate into it. What
    `verify_certificate` proves is that the certificate follows from its events.
    """
    if not Path(path).is_file():
        raise GratisError(f"there is no model file {os.fspath(path)!r}")
    refusal = GratisError(f"{os.fspath(path)!r} is not a model file of Gratis, or it is damaged")
    try:
        with zipfile.ZipFile(path) as file:
            sizes = {info.filename: info.file_size for info in file.infolist()}
            if sum(sizes.values()) > _LARGEST or sizes["model.json"] > _LARGEST_HEAD:
                raise refusal
            head = json.loads(file.read("model.json"))
            listed = {"model.json", *head["sha256"]}
            if head.get("format") != FORMAT or set(sizes) != listed or not all(map(_is_known, head["sha256"])):
                raise refusal
            members = {name: file.read(name) for name in head["sha256"]}
        if any(hashlib.sha256(members[name]).hexdigest() != digest for name, digest in head["sha256"].items()):
            raise refusal
        arrays = {
            name.removeprefix("arrays/").removesuffix(".npy"): np.load(io.BytesIO(content), allow_pickle=False)
            for name, content in members.items()
            if name.startswith("arrays/")
        }
        if set(head["parameters"]) & _NOT_KEPT:
            raise refusal
        estimator = _ESTIMATORS[head["estimator"]](**head["parameters"])
        estimator.n_features_in_ = int(head["n_features_in"])
        estimator.certificate_ = Certificate.from_json(json.loads(members["certificate.json"]))
        budget = estimator.certificate_.budget
        if (budget.epsilon, budget.delta, str(budget.neighbouring)) != (
            estimator.epsilon, estimator.delta, estimator.neighbouring,
        ):  # fmt: skip
            raise refusal
        estimator.prediction_ = Prediction.from_json(head["prediction"])
        _restore(estimator, arrays, head["facts"])
        return SavedModel(estimator, dict(head["context"]))
    except GratisError:
        raise
    except Exception:  # a damaged file can fail in any of these steps, and each of them means the same
        raise refusal from None


def _is_known(name: str) -> bool:
    return name == "certificate.json" or (name.startswith("arrays/") and name.endswith(".npy"))


def _state(estimator: Any) -> tuple[Arrays, dict[str, Any]]:
    """Return what prediction needs: arrays, and facts for JSON."""
    arrays: Arrays = {}
    facts: dict[str, Any] = {}
    if hasattr(estimator, "classes_"):
        classes = np.asarray(estimator.classes_)
        # An array of objects could only be pickled; classes that are no plain type are saved by their text.
        arrays["classes"] = classes.astype(str) if classes.dtype == object else classes
    if hasattr(estimator, "fit_"):
        arrays["parameters"] = estimator.fit_.parameters
        facts["features"] = _put_map(arrays, "features", estimator.fit_.features)
        facts["target"] = _put_map(arrays, "target", estimator.fit_.target)
        return arrays, facts
    facts["features"] = _put_map(arrays, "features", estimator.scaler_)
    if isinstance(estimator, DPMLPClassifier):
        arrays |= {f"layer-{i}": weights for i, weights in enumerate(estimator.coefs_)}
        return arrays, facts
    arrays["parameters"] = estimator.coef_
    facts["engine"] = estimator.engine_
    feature_map, means = estimator.feature_map_, []
    while isinstance(feature_map, CentredFeatures):
        means.append(feature_map)
        feature_map = feature_map.features
    for i, centred in enumerate(reversed(means)):
        arrays[f"feature-mean-{i}"] = centred.mean
    facts["row_norms"] = [centred.row_norm for centred in reversed(means)]
    facts["feature_map"] = _feature_map_facts(feature_map)
    if hasattr(estimator, "target_scaler_"):
        facts["target"] = _put_map(arrays, "target", estimator.target_scaler_)
    return arrays, facts


def _restore(estimator: Any, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    if "classes" in arrays:
        estimator.classes_ = arrays["classes"]
    features = _get_map(arrays, "features", facts)
    if isinstance(estimator, (DPLinearRegression, DPLogisticRegression)):
        estimator.fit_ = ReleasedLinear(
            parameters=arrays["parameters"],
            features=features,
            target=_get_map(arrays, "target", facts),
            event=estimator.certificate_.event,
        )
        estimator._publish(estimator.fit_)
        return
    estimator.scaler_ = features
    if isinstance(estimator, DPMLPClassifier):
        estimator.coefs_ = [arrays[f"layer-{i}"] for i in range(sum(name.startswith("layer-") for name in arrays))]
        return
    estimator.coef_, estimator.engine_ = arrays["parameters"], facts["engine"]
    feature_map: Any = _FEATURE_MAPS[facts["feature_map"]["kind"]](facts["feature_map"])
    for i, row_norm in enumerate(facts["row_norms"]):
        feature_map = CentredFeatures(feature_map, arrays[f"feature-mean-{i}"], row_norm=row_norm)
    estimator.feature_map_ = feature_map
    if isinstance(estimator, DPRandomFeaturesRegressor):
        estimator.target_scaler_ = _get_map(arrays, "target", facts)


def _feature_map_facts(feature_map: Any) -> dict[str, Any]:
    if isinstance(feature_map, ScatteringFeatures):
        names = ("side", "scales", "orientations", "groups", "row_norm")
        return {"kind": "scattering"} | {name: getattr(feature_map, name) for name in names}
    assert isinstance(feature_map, RandomFeatures)
    return {
        "kind": "random",
        "activation": feature_map.activation.name,
        "n_inputs": feature_map.n_inputs,
        "n_features": feature_map.n_features,
        "seed": feature_map.seed,
    }


_FEATURE_MAPS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "scattering": lambda facts: ScatteringFeatures(**{k: v for k, v in facts.items() if k != "kind"}),
    "random": lambda facts: RandomFeatures(
        n_inputs=facts["n_inputs"],
        n_features=facts["n_features"],
        activation=Activation.parse(facts["activation"]),
        seed=facts["seed"],
    ),
}


def _put_map(arrays: Arrays, name: str, scaler: Standardiser) -> dict[str, Any]:
    for part in ("centre", "scale", "window"):
        arrays[f"{name}-{part}"] = getattr(scaler, part)
    return {"impute": scaler.impute}


def _get_map(arrays: Arrays, name: str, facts: Mapping[str, Any]) -> Standardiser:
    centre, scale, window = (arrays[f"{name}-{part}"] for part in ("centre", "scale", "window"))
    return Standardiser(centre, scale, window, impute=bool(facts[name]["impute"]))


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _json(data: Any) -> bytes:
    # Keys keep their order: that of a schema's columns is the order of the matrix.
    return (json.dumps(plain(data), indent=1, ensure_ascii=False) + "\n").encode()
