"""What one record does to a DP-EBM regression whose targets are far from 0, with its default rounds.

    ebm/bin/python benchmarks/dpebm_bound.py        # the environment of dpebm.py

The noise of a boosting step is for residuals of at most max − min, but boosting starts at a prediction of 0, so the
first residuals are as large as the targets themselves. With 500 targets in [1000, 1001] and one or two bins (max_bins=3
makes the arithmetic short; all else is as shipped), an observer who knows the other records computes from the released
weight of a bin what they alone would have led to, and compares.
"""

from __future__ import annotations

import warnings

import numpy as np
from interpret.privacy import DPExplainableBoostingRegressor

RUNS, EPSILON, DELTA = 60, 1.0, 1e-5
PLACE = 0.2


def surprise(x: np.ndarray, y: np.ndarray, known: tuple[np.ndarray, np.ndarray]) -> float:
    """The released prediction at `PLACE`, less what the known records alone lead to at the released weight."""
    model = DPExplainableBoostingRegressor(
        epsilon=EPSILON, delta=DELTA, feature_types=["continuous"], privacy_bounds={0: (0, 1)}, max_bins=3,
        privacy_target_min=1000, privacy_target_max=1001, n_jobs=1,
    ).fit(x[:, None], y)  # fmt: skip
    cuts = np.asarray(model.bins_[0][0])
    place = int(np.digitize(PLACE, cuts))
    inside = known[1][np.digitize(known[0], cuts) == place]
    weight = float(model.bin_weights_[0][1 + place])  # the first bin is for missing values
    released = float(model.intercept_ + model.term_scores_[0][1 + place])
    rounds, rate = model.max_rounds, model.learning_rate
    return released - float(inside.mean()) * (1 - (1 - rate * len(inside) / weight) ** rounds)


def main() -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=500), 1000 + rng.uniform(size=500)
    without = np.array([surprise(x, y, (x, y)) for _ in range(RUNS)])
    added = np.array([surprise(np.append(x, PLACE), np.append(y, 1000.5), (x, y)) for _ in range(RUNS)])
    threshold = np.quantile(without, 0.99)
    for name, found in (("without", without), ("with", added)):
        print(f"{name} the record: {found.mean():.4f} ± {found.std():.4f}")
    print(f"TPR at FPR .01: {np.mean(added > threshold):.2f}; (ε, δ) allows {0.01 * np.e**EPSILON + DELTA:.3f}")


if __name__ == "__main__":
    main()
