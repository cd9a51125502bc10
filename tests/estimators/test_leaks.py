"""Habits of scikit-learn that leak warn, from public facts alone; what does not leak is left in peace."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from gratis import DPLinearRegression, DPLogisticRegression, DPTableRegressor, PrivacyLeakWarning
from gratis.records.certificates import Selection

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = X @ [1.0, 2.0, 0.0]
CHEAP: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-4, "preprocessing": "none"}


def model() -> DPLinearRegression:
    return DPLinearRegression(**CHEAP)


def said(action: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(warning.message) for warning in caught if issubclass(warning.category, PrivacyLeakWarning)]


@pytest.mark.slow
@pytest.mark.parametrize("step", [StandardScaler(), PCA(2)], ids=lambda step: type(step).__name__)
def test_transformers_that_learn_from_rows_warn(step: Any) -> None:
    (words,) = said(lambda: make_pipeline(step, model()).fit(X, Y))
    assert type(step).__name__ in words
    assert "DPTable" in words
    nested = Pipeline([("first", step), ("second", FunctionTransformer()), ("model", model())])
    assert len(said(lambda: nested.fit(X, Y))) == 1
    assert len(said(lambda: clone(nested).fit(X, Y))) == 1


@pytest.mark.slow
def test_row_wise_transformers_do_not() -> None:
    assert said(lambda: make_pipeline(FunctionTransformer(np.arcsinh), PolynomialFeatures(2), model()).fit(X, Y)) == []
    assert said(lambda: make_pipeline("passthrough", model()).fit(X, Y)) == []
    # The estimator on its own, while another pipeline is around.
    others = make_pipeline(StandardScaler(), model())
    assert said(lambda: model().fit(X, Y)) == []
    assert others is not None


def test_cross_validation_and_grids_warn_and_certificates_say_so() -> None:
    words = said(lambda: cross_val_score(model(), X, Y, cv=3))
    assert words
    assert all("DPSearchCV" in one for one in words)
    grid = GridSearchCV(model(), {"algorithm": ["full-batch"]}, cv=2)
    assert said(lambda: grid.fit(X, Y))
    assert grid.best_estimator_.certificate_.selection is Selection.NOT_COVERED
    # In a process of its own a clone still knows that it is one of several.
    first, second = clone(grid.estimator), clone(grid.estimator)
    assert first is not second
    assert said(lambda: pickle.loads(pickle.dumps(second)).fit(X, Y))


def test_one_clone_is_no_search() -> None:
    fresh = model()
    assert said(lambda: clone(fresh).fit(X, Y)) == []
    assert fresh.fit(X, Y).certificate_.selection is not Selection.NOT_COVERED


def test_scores_on_training_rows_warn(rng: np.random.Generator) -> None:
    fitted = model().fit(X, Y)
    assert len(said(lambda: fitted.score(X, Y))) == 1
    assert len(said(lambda: fitted.score(X[:50], Y[:50]))) == 1  # the same memory
    fresh = rng.normal(size=(50, 3))
    assert said(lambda: fitted.score(fresh, fresh[:, 0])) == []
    train_X, test_X, train_y, test_y = train_test_split(X, Y, random_state=0)
    apart = model().fit(train_X, train_y)
    assert said(lambda: apart.score(test_X, test_y)) == []
    classes = DPLogisticRegression(4.0, 1e-4, classes=[0, 1], preprocessing="none").fit(X, (Y > 0).astype(int))
    assert len(said(lambda: classes.score(X, (Y > 0).astype(int)))) == 1
    # Rows are neither kept alive nor written with the model.
    again = pickle.loads(pickle.dumps(fitted))
    assert said(lambda: again.score(X, Y)) == []
    passing = rng.normal(size=(60, 3))
    short = model().fit(passing, passing[:, 0])
    del passing
    assert said(lambda: short.score(X, Y)) == []


def test_tables_warn_too() -> None:
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y)
    table = DPTableRegressor(4.0, 1e-4, model="linear").fit(frame, "y")
    assert len(said(lambda: table.score(frame, "y"))) == 1
    assert said(lambda: table.score(frame.copy(), "y")) == []


def test_the_warning_is_shown_by_default() -> None:
    assert not any(
        issubclass(PrivacyLeakWarning, kind) for action, _, kind, _, _ in _python_defaults() if action == "ignore"
    )


def _python_defaults() -> list[Any]:
    return [("default", None, DeprecationWarning, "__main__", 0), ("ignore", None, DeprecationWarning, None, 0),
            ("ignore", None, PendingDeprecationWarning, None, 0), ("ignore", None, ImportWarning, None, 0),
            ("ignore", None, ResourceWarning, None, 0)]  # fmt: skip
