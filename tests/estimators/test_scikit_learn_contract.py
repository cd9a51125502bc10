"""scikit-learn's own checks, none exempted by name.

They run with an insecure seed, because several compare two fits of the same data. One tag is set, with its reason in
the code: poor_score, scikit-learn's own way to say that on a few dozen rows nothing can be learned.
"""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gratis import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPMLPClassifier,
    DPRandomFeaturesClassifier,
    DPRandomFeaturesRegressor,
)

SEEDED: dict[str, Any] = {"epsilon": 8.0, "noise_seed": 7, "insecure_reproducible": True}


@parametrize_with_checks(
    [DPLinearRegression(delta=1e-5, **SEEDED), DPRandomFeaturesClassifier(delta=1e-5, **SEEDED, n_features=40)]
)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        DPAdditiveRegressor(delta=1e-5, **SEEDED),
        DPAdditiveClassifier(delta=1e-5, **SEEDED),
        DPRandomFeaturesRegressor(delta=1e-5, **SEEDED, n_features=40),
        DPLogisticRegression(delta=1e-5, **SEEDED),
        DPMLPClassifier(delta=1e-5, **SEEDED, width=8, steps=5),
    ]
)
def test_scikit_learn_check_of_the_others(estimator: Any, check: Any) -> None:
    check(estimator)
