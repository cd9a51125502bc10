"""What one record does to a DP-EBM regression whose targets are far from 0, with its default rounds.

    ebm/bin/python benchmarks/dpebm_bound.py        # the environment of dpebm.py

The noise of a boosting step is for residuals of at most max − min, but boosting starts at a prediction of 0, so the
first residuals are as large as the targets themselves. With 500 targets in [1000, 1001] and one bin, an observer who
knows the other records computes from the released weight what they alone would have led to, and compares.
"""

from __future__ import annotations

import warnings

import numpy as np
from interpret.privacy import DPExplainableBoostingRegressor

RUNS, EPSILON, DELTA = 100, 1.0, 1e-5


def surprise(x: np.ndarray, y: np.ndarray, known: np.ndarray) -> float:
    """The released prediction, less what the known records alone lead to at the released weight."""
    model = DPExplainableBoostingRegressor(
        epsilon=EPSILON, delta=DELTA, feature_types=["continuous"], privacy_bounds={0: (0, 1)}, max_bins=3,
        privacy_target_min=1000, privacy_target_max=1001, n_jobs=1,
    ).fit(x[:, None], y)  # fmt: skip
    weight, released = float(model.bin_weights_[0].sum()), float(model.intercept_ + model.term_scores_[0][1])
    rounds, rate = model.max_rounds, model.learning_rate
    return released - float(known.mean()) * (1 - (1 - rate * len(known) / weight) ** rounds)


def main() -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=500), 1000 + rng.uniform(size=500)
    without = np.array([surprise(x, y, y) for _ in range(RUNS)])
    added = np.array([surprise(np.append(x, 0.2), np.append(y, 1000.5), y) for _ in range(RUNS)])
    threshold = np.quantile(without, 0.99)
    for name, found in (("without", without), ("with", added)):
        print(f"{name} the record: {found.mean():.4f} ± {found.std():.4f}")
    print(f"TPR at FPR .01: {np.mean(added > threshold):.2f}; (ε, δ) allows {0.01 * np.e**EPSILON + DELTA:.3f}")


if __name__ == "__main__":
    main()
