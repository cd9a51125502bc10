"""Were the constants of the first `plan_feature_classifier` those that another public data set would choose?

    python benchmarks/feature_constants.py

scikit-learn's digits (1797 images, enlarged to 28 × 28) stand for the private data, with μ raised until nμ/κ is what
MNIST has at ε = 1, δ = 1/50,000: then a score carries the same noise. Mean test accuracy of 4 random splits for every
(clip norm, noise in a score), with and without the private mean. Prints JSON; a few minutes of one core.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits

from gratis.accounting import calibrate_mu
from gratis.models.scattering import ScatteringFeatures
from gratis.planning.feature_classifier import MEAN_SHARE
from gratis.records.budget import Budget

STRENGTH = 50_000 * calibrate_mu(Budget(epsilon=1.0, delta=1 / 50_000)) / 2  # nμ/κ
CLIP, SCORE_NOISE, STEPS = 0.2, 1.2, 40  # plain steps from 0, as planned before class counts were released
CLIPS, NOISES, TRAIN, SPLITS = (0.05, 0.1, 0.2, 0.4, 0.8), (0.3, 0.6, 1.2, 2.4, 4.8), 1300, 4

Array = NDArray[Any]


def unit(rows: Array) -> Array:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def accuracy(features: Array, labels: Array, clip: float, noise: float, share: float, split: int) -> float:
    """Private softmax descent from 0, as `descend_features` does it on rows of norm 1."""
    rng = np.random.default_rng(split)
    order = rng.permutation(len(labels))
    train, test = order[:TRAIN], order[TRAIN:]
    A, B, p = features[train], features[test], features.shape[1]
    if share:
        mean = A.mean(axis=0) + rng.standard_normal(p, dtype=np.float32) / (STRENGTH * share)
        A, B = unit(A - mean), unit(B - mean)
    strength = STRENGTH * math.sqrt(1 - share**2)
    rate = noise * strength / (clip * STEPS)
    theta, targets = np.zeros((p, 10), dtype=np.float32), np.eye(10, dtype=np.float32)[labels[train]]
    for _ in range(STEPS):
        scores = A @ theta
        residual = np.exp(scores - scores.max(axis=1, keepdims=True))
        residual = residual / residual.sum(axis=1, keepdims=True) - targets
        residual *= np.minimum(1, clip / np.maximum(np.linalg.norm(residual, axis=1, keepdims=True), 1e-9))
        theta -= rate / TRAIN * (A.T @ residual)
        theta += rate * clip / strength * math.sqrt(STEPS) * rng.standard_normal(theta.shape, dtype=np.float32)
    return float((np.argmax(B @ theta, axis=1) == labels[test]).mean())


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    large = ndimage.zoom(images.reshape(-1, 8, 8), (1, 3.5, 3.5), order=1).reshape(len(images), -1)
    features = ScatteringFeatures().transform(large)
    report: dict[str, Any] = {"shipped": {"clip": CLIP, "score_noise": SCORE_NOISE}, "strength": STRENGTH}
    for share in (0.0, MEAN_SHARE):
        table = {
            (clip, noise): float(np.mean([accuracy(features, labels, clip, noise, share, s) for s in range(SPLITS)]))
            for clip in CLIPS
            for noise in NOISES
        }
        best = max(table, key=lambda key: table[key])
        report["with_mean" if share else "without_mean"] = {
            "best": {"clip": best[0], "score_noise": best[1], "accuracy": table[best]},
            "shipped_accuracy": table[CLIP, SCORE_NOISE],
            "table": [{"clip": c, "score_noise": s, "accuracy": value} for (c, s), value in table.items()],
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
