"""Models to attack: on points of the sphere or on images, interpolating or private (S1, S0)."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.mechanisms.noise import NoiseSource
from gratis.models.random_features import RandomFeatures, SquaredErrorModel
from gratis.records.neighbouring import Neighbouring
from gratis.stages.feature_descent import descend_features

__all__ = ["DELTA", "interpolant", "pictures", "private_parameters", "sphere_problem"]

Array = NDArray[Any]

DELTA = 1e-5


def sphere_problem(n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The authors' data: points on the sphere of radius √d, y = gᵀx/√d + N(0, ¼)."""
    X = rng.standard_normal((n, d))
    X *= math.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)
    return X, X @ rng.standard_normal(d) / math.sqrt(d) + 0.5 * rng.standard_normal(n)


def interpolant(features: RandomFeatures, X: Array, y: Array) -> Array:
    """θ* = Φᵀ(ΦΦᵀ)⁺y, where gradient descent from zero ends."""
    phi = features.transform(X).astype(np.float64)
    return np.asarray(phi.T @ np.linalg.lstsq(phi @ phi.T, y, rcond=1e-12)[0])


def private_parameters(features: RandomFeatures, X: Array, y: Array, mu: float, seed: int) -> Array:
    """S0's private descent on the same model: C = ½√p, ηT = 5d/p, exact noise, replace-one."""
    p, d, steps = features.n_features, features.n_inputs, 100
    run = descend_features(
        features, X, y, SquaredErrorModel(), steps=steps, clip_norm=0.5 * math.sqrt(p),
        learning_rate=5 * d / p / steps, mu=mu, neighbouring=Neighbouring.REPLACE_ONE, noise=NoiseSource.insecure(seed),
    )  # fmt: skip
    return run.parameters


def pictures(n: int, side: int) -> tuple[Array, Array, tuple[int, ...], str]:
    """Return n images as rows on the sphere, ±1 labels, their shape, and where they come from.

    CIFAR airplanes and automobiles if GRATIS_DATA has them (averaged down to side × side), else scikit-learn's digits.
    """
    path = Path(os.environ.get("GRATIS_DATA", "")) / "cifar10" / "cifar10_airplane_automobile.npz"
    if path.is_file():
        with np.load(path) as stored:
            images, labels = stored["x_train"][:n].astype(np.float64), stored["y_train"][:n]
        cell = 32 // side
        images = images.reshape(n, side, cell, side, cell, 3).mean(axis=(2, 4))
        source, positive = "CIFAR-10", labels == 1
    else:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        images, positive, source = images[:n].reshape(n, 8, 8, 1), labels[:n] >= 5, "digits"
    rows = images.reshape(n, -1) - images.reshape(n, -1).mean(axis=1, keepdims=True)
    rows *= math.sqrt(rows.shape[1]) / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, np.where(positive, 1.0, -1.0), images.shape[1:], source
