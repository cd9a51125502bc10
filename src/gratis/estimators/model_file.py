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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gratis.estimators.additive import DPAdditiveClassifier, DPAdditiveRegressor
from gratis.estimators.linear import DPLinearRegression
from gratis.estimators.logistic import DPLogisticRegression
from gratis.estimators.mlp import DPMLPClassifier
from gratis.estimators.model_head import (
    FORMAT,
    FeatureMap,
    Filling,
    InferenceFacts,
    ModelFacts,
    ModelHead,
    feature_map_record,
    feature_means,
)
from gratis.estimators.random_features import DPRandomFeaturesClassifier, DPRandomFeaturesRegressor
from gratis.estimators.released_arrays import (
    Arrays,
    arrays_digest,
    check_headers,
    check_values,
    read_header,
    released_arrays,
)
from gratis.mechanisms.location_scale import Standardiser
from gratis.models.released_linear import ReleasedLinear
from gratis.recipes.released_additive import additive_facts, additive_model
from gratis.records.certificates import Certificate
from gratis.records.checks import check_positive
from gratis.records.errors import GratisError
from gratis.records.record import JsonObject, plain
from gratis.records.strict_json import parse_json
from gratis.stages.feature_mean import CentredFeatures
from gratis.stages.released_inference import ReleasedInference

if TYPE_CHECKING:
    from gratis.rows.encoding import TableSchema

__all__ = ["FORMAT", "SavedModel", "load_model", "save_model"]

# Paths of this machine, seeds of noise and objects that are already part of the arrays stay outside.
_NOT_KEPT = {"ledger", "dataset", "noise_seed", "insecure_reproducible", "public", "classes", "progress", "descent"}
_NOT_KEPT |= {"verbose", "class_weight"}
# Mappings of columns, which are part of what the model says of itself.
_OF_THE_MODEL = {"categorical", "monotone"}
# What a file unfolds to: arrays are stored as they are, and text rarely shrinks to less than a thirtieth.
_LARGEST_HEAD, _ALWAYS_ALLOWED, _LARGEST_RATIO = 2**24, 2**28, 64

_ESTIMATORS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        DPAdditiveClassifier,
        DPAdditiveRegressor,
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
    context: JsonObject

    def table(self) -> tuple[TableSchema, list[str] | None] | None:
        """The columns of the table that the model was trained on and the names of its classes, if it came from one."""
        stored: Any = self.context.get("table")
        if stored is None:
            return None
        from gratis.rows.encoding import TableSchema  # brings pyarrow, which models without a table do not need

        return TableSchema.from_json(stored["schema"]), stored["target"].get("levels")


def save_model(path: str | os.PathLike[str], estimator: Any, context: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator; the file appears whole or not at all.

    `context` is public data for JSON that `load_model` gives back.
    """
    kind = type(estimator).__name__
    if isinstance(getattr(estimator, "steps", None), list) or hasattr(estimator, "best_estimator_"):
        raise GratisError(
            f"a {kind} of scikit-learn cannot be saved, nor is what it did before the private step private: train a "
            "DPTableRegressor or DPTableClassifier on the raw table, or save the private step alone"
        )
    if hasattr(estimator, "estimator_") and hasattr(estimator, "schema_"):
        raise GratisError(f"save a {kind} with its own save method: the file then knows how columns are read")
    if kind not in _ESTIMATORS or not hasattr(estimator, "certificate_"):
        raise GratisError("only fitted estimators of Gratis can be saved")
    arrays, certificate = released_arrays(estimator), estimator.certificate_
    digest = arrays_digest(arrays)
    if certificate.released not in (None, digest):
        raise GratisError("the certificate belongs to another model: the released arrays were changed after training")
    members = {f"arrays/{name}.npy": _npy(array) for name, array in arrays.items()}
    members["certificate.json"] = _json(certificate.to_json())
    parameters = {
        key: value for key, value in estimator.get_params(deep=False).items() if key not in _NOT_KEPT | _OF_THE_MODEL
    }
    head = ModelHead(
        format=FORMAT,
        estimator=kind,
        parameters=parameters,
        n_features_in=estimator.n_features_in_,
        facts=_facts(estimator),
        prediction=estimator.prediction_,
        context=dict(context or {}),
        released=digest,
        sha256={name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    )
    target = Path(path)
    if not target.parent.is_dir():
        raise GratisError(f"the folder {os.fspath(target.parent)!r} for the model file does not exist")
    if os.path.isdir(target):  # Path.is_dir raises on names that are too long
        raise GratisError(f"the model file {os.fspath(path)!r} cannot be written: there is a folder of that name")
    partial, whole = target.with_name(target.name + ".partial"), False
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in {"model.json": _json(head.to_json()), **members}.items():
                # Noise does not compress, and an array that is stored as it is cannot unfold to more than was read.
                how = zipfile.ZIP_STORED if name.startswith("arrays/") else zipfile.ZIP_DEFLATED
                file.writestr(name, content, how)
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
    """Read a model file; anything missing, damaged or unknown is refused, and what is too large before it is unpacked.

    The sums in it detect damage, not forgery: whoever can write the file can write another certificate into it. What
    `verify_certificate` proves is that the certificate follows from its events; that its hash is that of the arrays
    was checked here.
    """
    if not Path(path).is_file():
        raise GratisError(f"there is no model file {os.fspath(path)!r}")
    refusal = f"{os.fspath(path)!r} is not a model file of Gratis, or it is damaged"
    try:
        with zipfile.ZipFile(path) as file:
            return _read(file, os.path.getsize(path))
    except GratisError as error:
        raise GratisError(f"{refusal}: {error}") from None
    except Exception:  # a damaged file can fail in any of these steps, and each of them means the same
        raise GratisError(refusal) from None


def _read(file: zipfile.ZipFile, n_bytes: int) -> SavedModel:
    members = file.infolist()
    sizes = {member.filename: member.file_size for member in members}
    if len(sizes) < len(members) or sizes["model.json"] > _LARGEST_HEAD:
        raise GratisError("its list of contents makes no sense")
    if sum(sizes.values()) > max(_ALWAYS_ALLOWED, _LARGEST_RATIO * n_bytes):
        raise GratisError("it would unfold to far more than its own size")
    head = ModelHead.from_json(parse_json(file.read("model.json"), "model.json"))
    kind, sums, parameters = head.estimator, head.sha256, head.parameters
    if set(sizes) != {"model.json", *sums}:
        raise GratisError("its format or its list of contents is unknown")
    if set(parameters) & (_NOT_KEPT | _OF_THE_MODEL) or any(
        isinstance(value, (dict, list)) for value in parameters.values()
    ):
        raise GratisError("it holds parameters that are never saved")
    estimator = _ESTIMATORS[kind](**parameters)
    estimator.n_features_in_ = head.n_features_in
    estimator.certificate_ = Certificate.from_json(parse_json(_member(file, "certificate.json", sums), "certificate"))
    budget = estimator.certificate_.budget
    if (budget.epsilon, budget.delta, str(budget.neighbouring)) != (
        estimator.epsilon, estimator.delta, estimator.neighbouring,
    ):  # fmt: skip
        raise GratisError("its certificate is of another budget")
    estimator.prediction_ = head.prediction
    facts = None if kind.startswith("DPAdditive") else ModelFacts.from_json(head.facts)
    feature_map = _feature_map(facts, kind, head.n_features_in)
    arrays = _arrays(
        file, kind + _intervals(estimator, facts), sums, n_columns=head.n_features_in,
        n_means=0 if facts is None else len(facts.row_norms or ()),
        n_features=None if feature_map is None else feature_map.n_features,
    )  # fmt: skip
    digest = arrays_digest(arrays)
    if head.released not in (None, digest):
        raise GratisError("its arrays are not those that were released")
    if estimator.certificate_.released not in (None, digest):
        raise GratisError("its certificate belongs to another model")
    if "classes" in arrays:
        estimator.classes_ = arrays["classes"]
    if facts is None:
        _restore_additive(estimator, arrays, head.facts)
    else:
        _restore(estimator, arrays, facts, feature_map)
    saved = SavedModel(estimator, head.context)
    _check_table(saved)
    return saved


def _arrays(file: zipfile.ZipFile, kind: str, sums: Mapping[str, str], *, n_means: int, **sizes: Any) -> Arrays:
    """Read the arrays, once their headers agree with the kind of model and with the sizes in the directory."""
    headers = {}
    for name in sums:
        if name == "certificate.json":
            continue
        if not (name.startswith("arrays/") and name.endswith(".npy")):
            raise GratisError("its list of contents is unknown")
        with file.open(name) as stream:
            header = read_header(stream)
        if file.getinfo(name).file_size != header.n_bytes:
            raise GratisError("an array is not as long as it says")
        headers[name.removeprefix("arrays/").removesuffix(".npy")] = header
    check_headers(kind, headers, n_means=n_means, **sizes)
    arrays = {
        name: np.load(io.BytesIO(_member(file, f"arrays/{name}.npy", sums)), allow_pickle=False) for name in headers
    }
    check_values(kind, arrays, headers, n_means)
    return arrays


def _member(file: zipfile.ZipFile, name: str, sums: Mapping[str, str]) -> bytes:
    content = file.read(name)
    if hashlib.sha256(content).hexdigest() != sums[name]:
        raise GratisError("one of its sums is wrong")
    return content


def _check_table(model: SavedModel) -> None:
    """Refuse a table that is not the one the model was trained on: its columns and classes must be the model's."""
    table = model.table()
    if table is None:
        return
    schema, levels = table
    if len(schema.names) != model.estimator.n_features_in_:
        raise GratisError("its table has other columns than the model")
    if len(levels or ()) != len(getattr(model.estimator, "classes_", ())):
        raise GratisError("its table has other classes than the model")


def _facts(estimator: Any) -> JsonObject:
    """Return what prediction needs beside the arrays, for JSON."""
    if hasattr(estimator, "model_"):
        names = getattr(estimator, "feature_names_in_", None)
        return additive_facts(estimator.model_) | {"names": None if names is None else [str(name) for name in names]}
    if hasattr(estimator, "fit_"):
        found = estimator.fit_
        facts = ModelFacts(features=Filling.of(found.features), target=Filling.of(found.target))
        said = getattr(estimator, "inference_", None)
        if said is not None:
            kept = InferenceFacts(rows=said.found.rows, names=said.names[1:], withheld=said.withheld)
            facts = replace(facts, inference=kept)
        return facts.to_json()
    target = getattr(estimator, "target_scaler_", None)
    facts = ModelFacts(features=Filling.of(estimator.scaler_), target=None if target is None else Filling.of(target))
    if hasattr(estimator, "feature_map_"):
        means = feature_means(estimator.feature_map_)
        facts = replace(
            facts, engine=estimator.engine_, row_norms=tuple(centred.row_norm for centred in means),
            feature_map=feature_map_record(means[0].features if means else estimator.feature_map_),
        )  # fmt: skip
    return facts.to_json()


def _restore(estimator: Any, arrays: Arrays, facts: ModelFacts, feature_map: Any) -> None:
    features = _get_map(arrays, "features", facts.features)
    if isinstance(estimator, (DPLinearRegression, DPLogisticRegression)):
        estimator.fit_ = ReleasedLinear(
            parameters=arrays["parameters"],
            features=features,
            target=_get_map(arrays, "target", facts.target),
            event=estimator.certificate_.event,
        )
        estimator._publish_coefficients(*estimator.fit_.original_units())
        if "noise-covariance" in arrays:
            estimator.noise_covariance_ = arrays["noise-covariance"]
        if facts.inference is not None:
            _restore_inference(estimator, arrays, facts.inference)
        return
    estimator.scaler_ = features
    if isinstance(estimator, DPMLPClassifier):
        estimator.coefs_ = [arrays[f"layer-{i}"] for i in range(sum(name.startswith("layer-") for name in arrays))]
        return
    estimator.engine_ = facts.engine
    # Files of version 0.1.0 have no intercept.
    estimator._publish_parameters(
        arrays["parameters"], arrays.get("intercept", np.zeros(arrays["parameters"].shape[1]))
    )
    for i, row_norm in enumerate(facts.row_norms or ()):
        norm = None if row_norm is None else check_positive("row_norm", row_norm)
        feature_map = CentredFeatures(feature_map, arrays[f"feature-mean-{i}"], row_norm=norm)
    estimator.feature_map_ = feature_map
    if isinstance(estimator, DPRandomFeaturesRegressor):
        estimator.target_scaler_ = _get_map(arrays, "target", facts.target)


def _intervals(estimator: Any, facts: ModelFacts | None) -> str:
    """What the table of arrays calls a model with intervals; a model says of itself whether it was fitted with them."""
    stated = None if facts is None else facts.inference
    if (stated is not None) != bool(getattr(estimator, "inference", False)):
        raise GratisError("it says nothing of its intervals, or has none")
    if stated is not None and len(stated.names) != estimator.n_features_in_:
        raise GratisError("its columns have other names than there are columns")
    return " with intervals" if stated is not None and stated.withheld is None else ""


def _restore_inference(
    estimator: DPLinearRegression | DPLogisticRegression, arrays: Arrays, facts: InferenceFacts
) -> None:
    found = ReleasedInference(
        rows=facts.rows, estimates=arrays.get("estimates"), covariance=arrays.get("estimates-covariance"),
        privacy=arrays.get("estimates-privacy"), errors=arrays.get("errors"), steepness=arrays.get("steepness"),
        withheld=facts.withheld,
    )  # fmt: skip
    estimator._publish_inference(found, facts.names)


def _restore_additive(estimator: Any, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    features, target = (_get_map(arrays, name, Filling.from_json(facts[name])) for name in ("features", "target"))
    n_classes = len(arrays["classes"]) if "classes" in arrays else None
    model = additive_model(arrays, facts, features, target, n_classes)
    estimator.model_ = model
    estimator.categorical = dict(model.basis.columns.levels) or None
    words = {1: "increasing", -1: "decreasing"}
    estimator.monotone = {column: words[sign] for column, sign in model.directions.items()} or None
    if facts["names"] is not None:
        names = np.array(facts["names"], dtype=object)
        if names.shape != (estimator.n_features_in_,):
            raise GratisError("its columns have other names than there are columns")
        estimator.feature_names_in_ = names


def _feature_map(facts: ModelFacts | None, kind: str, n_columns: int) -> FeatureMap | None:
    stated = None if facts is None else facts.feature_map
    if (stated is not None) != kind.startswith("DPRandomFeatures") or (stated and not (facts and facts.engine)):
        raise GratisError("it says nothing of its features, or has none")
    if stated is None:
        return None
    if stated.n_inputs != n_columns:
        raise GratisError("its features are of other columns than the model")
    return stated.features()


def _get_map(arrays: Arrays, name: str, filling: Filling | None) -> Standardiser:
    if filling is None:
        raise GratisError(f"it says nothing of its {name}")
    centre, scale, window = (arrays[f"{name}-{part}"] for part in ("centre", "scale", "window"))
    return Standardiser(centre, scale, window, impute=filling.impute, knee=arrays.get(f"{name}-knee"))


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _json(data: Any) -> bytes:
    # Keys keep their order: that of a schema's columns is the order of the matrix.
    return (json.dumps(plain(data), indent=1, ensure_ascii=False) + "\n").encode()
