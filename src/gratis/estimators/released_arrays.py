"""What a fitted model consists of, as named arrays: their hash, and which of them a model file may hold."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gratis.estimators.model_head import feature_means
from gratis.mechanisms.location_scale import Standardiser
from gratis.recipes.released_additive import additive_arrays
from gratis.records.errors import GratisError

__all__ = [
    "Arrays",
    "Header",
    "arrays_digest",
    "check_headers",
    "check_values",
    "module_arrays",
    "read_header",
    "released_arrays",
]

Arrays = dict[str, NDArray[Any]]


def released_arrays(estimator: Any) -> Arrays:
    """Return the released (or public) arrays from which a fitted estimator predicts."""
    arrays: Arrays = {}
    if hasattr(estimator, "classes_"):
        classes = np.asarray(estimator.classes_)
        # An array of objects could only be pickled; classes that are no plain type are saved by their text.
        arrays["classes"] = classes.astype(str) if classes.dtype == object else classes
    if hasattr(estimator, "model_"):
        found = estimator.model_
        maps = _map("features", found.basis.columns.features) | _map("target", found.target)
        return arrays | maps | additive_arrays(found)
    if hasattr(estimator, "fit_"):
        arrays["parameters"] = estimator.fit_.parameters
        if hasattr(estimator, "noise_covariance_"):
            arrays["noise-covariance"] = estimator.noise_covariance_
        if hasattr(estimator, "inference_") and estimator.inference_.withheld is None:
            found = estimator.inference_.found
            arrays["estimates"] = found.estimates
            arrays["estimates-covariance"], arrays["estimates-privacy"] = found.covariance, found.privacy
            more = {"errors": found.errors, "steepness": found.steepness}
            arrays |= {name: array for name, array in more.items() if array is not None}
        return arrays | _map("features", estimator.fit_.features) | _map("target", estimator.fit_.target)
    arrays |= _map("features", estimator.scaler_)
    if hasattr(estimator, "coefs_"):
        return arrays | {f"layer-{i}": weights for i, weights in enumerate(estimator.coefs_)}
    arrays["parameters"] = estimator.coef_
    arrays |= {f"feature-mean-{i}": centred.mean for i, centred in enumerate(feature_means(estimator.feature_map_))}
    if hasattr(estimator, "intercept_"):
        arrays["intercept"] = estimator.intercept_
    if hasattr(estimator, "target_scaler_"):
        arrays |= _map("target", estimator.target_scaler_)
    return arrays


def module_arrays(module: Any) -> Arrays:
    """Return parameters and buffers of a PyTorch module, or of its `state_dict()`, as arrays."""
    state = module if isinstance(module, Mapping) else module.state_dict()
    return {str(name): _array(value) for name, value in state.items() if hasattr(value, "detach")}


def _array(tensor: Any) -> NDArray[Any]:
    kept = tensor.detach().cpu()
    try:
        return np.asarray(kept.numpy())
    except TypeError:  # bfloat16 and the like, which NumPy lacks: all of them are exact in float32
        return np.asarray(kept.float().numpy())


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over name, type, shape and bytes of every array, whatever its order in memory or in the mapping.

    >>> grid = np.arange(6.0).reshape(2, 3)
    >>> arrays_digest({"a": grid}) == arrays_digest({"a": np.asfortranarray(grid)})
    True
    >>> arrays_digest({"a": grid}) == arrays_digest({"a": grid.reshape(3, 2)})
    False
    """
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        total.update(f"{name}\0{plain.dtype.str}\0{array.shape}\0".encode())
        total.update(plain.tobytes())
    return total.hexdigest()


def _map(name: str, scaler: Standardiser) -> Arrays:
    parts = ("centre", "scale", "window", *(() if scaler.knee is None else ("knee",)))
    return {f"{name}-{part}": getattr(scaler, part) for part in parts}


@dataclass(frozen=True, slots=True)
class Header:
    """What the first bytes of an array file say, and how long the whole must be."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Expected:
    """Shape by the names of its sizes (a size that is not known beforehand is what comes first), type, values."""

    shape: tuple[str, ...]
    dtype: str = "float64"
    values: str = "finite"
    optional: bool = False


def _expected_map(name: str, width: str) -> dict[str, Expected]:
    return {
        f"{name}-centre": Expected((width,)),
        f"{name}-scale": Expected((width,), values="positive"),
        f"{name}-window": Expected((width,), values="positive or infinite"),
    }


_CLASSES = {"classes": Expected(("classes",), dtype="labels", values="distinct")}
_LINEAR = {
    "parameters": Expected(("columns and one", "outputs")),
    **_expected_map("features", "columns"),
    **_expected_map("target", "1"),
}
_INFERENCE = {
    "estimates": Expected(("columns and one",)),
    "estimates-covariance": Expected(("columns and one", "columns and one")),
    "estimates-privacy": Expected(("columns and one", "columns and one")),
}
_FEATURES = {"parameters": Expected(("features", "outputs")), **_expected_map("features", "columns")}
_ADDITIVE = {
    "coefficients": Expected(("width", "outputs")),
    "covariances": Expected(("squares", "outputs")),
    "shares": Expected(("places",), values="positive"),
    "offset": Expected(("outputs",)),
    "explained": Expected(("3",)),
    **_expected_map("features", "columns"),
    "features-knee": Expected(("columns",), values="positive or infinite", optional=True),
    **_expected_map("target", "1"),
}
_TABLE: dict[str, dict[str, Expected]] = {
    "DPAdditiveRegressor": _ADDITIVE,
    "DPAdditiveClassifier": _CLASSES | _ADDITIVE,
    "DPLinearRegression": _LINEAR | {"noise-covariance": Expected(("columns and one",) * 2, optional=True)},
    "DPLinearRegression with intervals": _LINEAR | _INFERENCE | {"errors": Expected(("2", "sizes"), values="rising")},
    "DPLogisticRegression": _CLASSES | _LINEAR,
    "DPLogisticRegression with intervals": _CLASSES
    | _LINEAR
    | _INFERENCE
    | {"steepness": Expected(("columns and three",))},
    "DPRandomFeaturesRegressor": _FEATURES | _expected_map("target", "1"),
    "DPRandomFeaturesClassifier": _CLASSES | _FEATURES,
    "DPMLPClassifier": _CLASSES | _expected_map("features", "columns"),
}


def _expected(kind: str, headers: Mapping[str, Header], n_means: int) -> dict[str, Expected]:
    found = {name: one for name, one in _TABLE[kind].items() if name in headers or not one.optional}
    if kind == "DPMLPClassifier":
        # The hidden widths are not known beforehand; every layer must take what the one before it gives.
        last = max(sum(name.startswith("layer-") for name in headers), 1) - 1
        for i in range(last + 1):
            ends = ("columns" if i == 0 else f"hidden {i}", "outputs" if i == last else f"hidden {i + 1}")
            found[f"layer-{i}"] = Expected(ends, dtype="float32")
    if kind.startswith("DPRandomFeatures"):
        found |= {f"feature-mean-{i}": Expected(("features",)) for i in range(n_means)}
        if kind.endswith("Classifier") and "intercept" in headers:  # files of version 0.1.0 have none
            found["intercept"] = Expected(("outputs",))
    return found


def read_header(stream: IO[bytes]) -> Header:
    """Read the header of an .npy file and nothing else."""
    if npy.read_magic(stream) != (1, 0):
        raise GratisError("an array is in a format that Gratis does not write")
    shape, _, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise GratisError("an array holds objects or has no shape")
    return Header(shape, dtype, stream.tell() + math.prod(shape) * dtype.itemsize)


def check_headers(
    kind: str, headers: Mapping[str, Header], *, n_columns: int, n_features: int | None = None, n_means: int = 0
) -> None:
    """Refuse missing and unknown arrays, wrong types and shapes.

    `n_features` and `n_means`: size of the map of features, and how many times it was centred.
    """
    expected = _expected(kind, headers, n_means)
    if set(headers) != set(expected):
        named = ", ".join(sorted(set(headers) ^ set(expected)))[:100]
        raise GratisError(f"the arrays {named} are missing or unknown")
    sizes = {"1": 1, "2": 2, "3": 3, "columns": n_columns, "columns and one": n_columns + 1}
    sizes["columns and three"] = n_columns + 3
    if n_features is not None:
        sizes["features"] = n_features
    if "classes" in headers:
        sizes["classes"] = math.prod(headers["classes"].shape)
        if sizes["classes"] < 2:
            raise GratisError("there are fewer than two classes")
    sizes["outputs"] = sizes.get("classes", 1)
    if kind == "DPLogisticRegression" and sizes["classes"] == 2 and headers["parameters"].shape[1:] == (1,):
        sizes["outputs"] = 1  # one pass trains the log-odds of the second class
    if kind == "DPAdditiveClassifier" and sizes["classes"] == 2:
        sizes["outputs"] = 1  # log-odds of the second class
    for name, wanted in expected.items():
        header = headers[name]
        if len(header.shape) == len(wanted.shape):
            for size, found in zip(wanted.shape, header.shape, strict=True):
                sizes.setdefault(size, found)
        shape = tuple(sizes.get(size, 0) for size in wanted.shape)
        if header.shape != shape or 0 in shape:
            raise GratisError(f"the array {name} has the shape {header.shape}")
        plain = header.dtype.kind not in "OVc" if wanted.dtype == "labels" else header.dtype == np.dtype(wanted.dtype)
        if not plain:
            raise GratisError(f"the array {name} has the type {header.dtype}")


def check_values(kind: str, arrays: Mapping[str, NDArray[Any]], headers: Mapping[str, Header], n_means: int) -> None:
    """Refuse values that no training releases."""
    for name, wanted in _expected(kind, headers, n_means).items():
        if not _TESTS[wanted.values](arrays[name]):
            raise GratisError(f"the entries of the array {name} are not {wanted.values}")


_TESTS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "finite": lambda array: np.isfinite(array).all(),
    "positive": lambda array: (np.isfinite(array) & (array > 0)).all(),
    "positive or infinite": lambda array: (array > 0).all(),
    "rising": lambda array: (
        (np.isfinite(array) & (array >= 0)).all() and (np.diff(array) >= 0).all() and array[0, 0] > 0
    ),
    "distinct": lambda array: len(np.unique(array)) == len(array),
}
