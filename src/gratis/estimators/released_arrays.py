"""What a fitted model consists of, as named arrays, and the hash of them that binds a certificate to its model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.estimators.model_head import feature_means
from gratis.mechanisms.location_scale import Standardiser
from gratis.recipes.released_additive import additive_arrays

__all__ = ["Arrays", "arrays_digest", "released_arrays"]

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
    return {f"{name}-{part}": getattr(scaler, part) for part in ("centre", "scale", "window")}
