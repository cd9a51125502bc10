"""S3: one run of noisy descent with the KL of every neighbour, as one setting of a sweep; means over runs as rows.

The run is apart from what is claimed and drawn of it: a sweep keeps its results under this module's source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis.planning.bounds.initialization import layer_variances, layer_widths
from gratis_papers.kl_divergence import estimate_kl

__all__ = ["MARKS", "NOISE_STD", "load_records", "mean_rows", "noisy_run"]

NOISE_STD = 0.01  # σ of S3's Figure 2
# About seven marks a decade; with 1, 10, 20 and 50 epochs of 1, 10 and 100 steps among them.
MARKS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000)
# Differences are measured in steps about 3 % apart, 245 of 5000; tests/papers/test_s3.py compares with every step.
_THINNING = 0.03

Row = dict[str, Any]


def load_records(source: str, records: int) -> tuple[tuple[NDArray[Any], ...], str]:
    """Return (X, y, X_new, y_new) with a fifth as many new records, and what they are.

    >>> load_records("digits", 50)[0][2].shape
    (10, 64)
    """
    new = records // 5
    if source == "digits":
        from sklearn.datasets import load_digits

        from gratis_papers.images import standardise_images

        images, labels = load_digits(n_class=2, return_X_y=True)
        X, y = standardise_images(images), labels.astype(np.int64)
        parts = (X[:records], y[:records], X[records : records + new], y[records : records + new])
        return parts, "scikit-learn digits 0 and 1"
    from gratis_papers.cifar import load_cifar_pair

    cifar = load_cifar_pair()
    return (cifar.x_train[:records], cifar.y_train[:records], cifar.x_test[:new], cifar.y_test[:new]), (
        "CIFAR-10 airplanes and automobiles, standardised image by image"
    )


def noisy_run(
    source: str,
    records: int,
    scheme: str,
    width: int,
    depth: int,
    step_size: float,
    last: int,
    run: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Train once and return KL of every neighbour after the marks up to `last` (those reached, if it diverges)."""
    from gratis_papers.noisy_gd import noisy_descent_divergences, span_coordinates

    X, y, X_new, y_new = load_records(source, records)[0]
    variances = layer_variances(scheme, layer_widths(X.shape[1], width, depth, 2))
    X, X_new = span_coordinates(X, X_new)
    found = noisy_descent_divergences(
        X,
        y,
        X_new,
        y_new,
        widths=layer_widths(X.shape[1], width, depth, 2),
        variances=variances,
        step_size=step_size,
        noise_std=NOISE_STD,
        steps=last,
        runs=1,
        seed=int(rng.integers(2**31)),
        checkpoints=[mark for mark in MARKS if mark <= last],
        thinning=_THINNING,
        keep_diverged=True,
    )
    reached = np.isfinite(found.all[0]).all(axis=1)
    return {
        "steps": np.array(found.steps)[reached].tolist(),
        "removed": found.removed.shape[2],
        "kl": [[float(f"{value:.6g}") for value in kl] for kl in found.all[0][reached]],
        "diverged_at": found.diverged_at[0],
    }


def mean_rows(setting: Row, runs: Sequence[dict[str, Any]]) -> list[Row]:
    """One row a mark that every run reached: the worst neighbour's mean KL, and what the runs had for it."""
    count = min(len(found["steps"]) for found in runs)
    rows = []
    for place, step in enumerate(runs[0]["steps"][:count]):
        kl = np.array([found["kl"][place] for found in runs])
        estimate, worst = estimate_kl(kl)
        of_worst = kl[:, worst]
        rows.append(
            setting
            | {
                "step": step,
                "kl": _short(estimate.value),
                "least": _short(of_worst.min()),
                "most": _short(of_worst.max()),
                "spread": _short(of_worst.std(ddof=1)) if len(runs) > 1 else 0.0,
                "runs": len(runs),
                "worst_is_added": bool(worst >= runs[0]["removed"]),
            }
        )
    return rows


def _short(value: float) -> float:
    return float(f"{value:.5g}")
