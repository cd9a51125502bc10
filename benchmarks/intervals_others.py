"""Private intervals beside dp-statsmodels and statsmodels' least squares, on three tables of normal columns.

    pip install gratis statsmodels, and dp-statsmodels' source on the path; no other benchmark needs them
    python benchmarks/intervals_others.py --replicates 100

Columns of variance 1 and a target of variance 2. dp-statsmodels is told bounds, (−4, 4) for columns and (−6, 6) for the
target, and its relation is that of adding or removing a row; Gratis is told none, and is measured under both of its
relations. Both get ε = 1, δ = 1e−6. "OLS" is statsmodels' with its robust covariance (HC0).
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import statsmodels.api as sm
from dp_statsmodels.models.ols import DPOLS

from gratis import DPLinearRegression

EPSILON, DELTA = 1.0, 1e-6
TABLES = ((5000, 3), (20000, 3), (20000, 10))


def replicate(n: int, d: int, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Who says what of the slopes: distance from the truth in standard errors, and width over that of OLS."""
    rng = np.random.default_rng([3, seed, n, d])
    slopes = np.random.default_rng(d).standard_normal(d)
    slopes /= np.linalg.norm(slopes)
    X = np.clip(rng.standard_normal((n, d)), -4, 4)
    y = np.clip(X @ slopes + rng.standard_normal(n), -6, 6)
    found = {"OLS": sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC0")}
    for kind in ("equal", "optimal"):
        found[f"dp-statsmodels, {kind} split"] = DPOLS(
            EPSILON, DELTA, (-4, 4), (-6, 6), random_state=seed, budget_allocation=kind
        ).fit(y, X)  # fmt: skip
    for relation in ("replace-one", "zero-out"):
        found[f"Gratis, {relation}"] = DPLinearRegression(
            EPSILON, DELTA, inference=True, neighbouring=relation, noise_seed=seed, insecure_reproducible=True
        ).fit(X, y)  # fmt: skip
    errors = np.asarray(found["OLS"].bse)[1:]
    return {
        who: ((np.asarray(one.params)[1:] - slopes) / np.asarray(one.bse)[1:], np.asarray(one.bse)[1:] / errors)
        for who, one in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=100)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for n, d in TABLES:
        found = [replicate(n, d, seed) for seed in range(arguments.replicates)]
        for who in found[0]:
            z, widths = (np.array([one[who][part] for one in found]) for part in (0, 1))
            covered = (np.abs(z) < 1.959964).mean()
            print(f"| {n} × {d} | {who} | {covered:.3f} | {np.median(widths):.2f} |", flush=True)


if __name__ == "__main__":
    main()
