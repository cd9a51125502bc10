"""Which model to train, decided before the data is touched: every candidate is trained on synthetic problems.

The problems have the public sizes of the real one (shrunk like a twin: d/(nμ) is kept, and d/n where affordable) and
two truths: a straight one, and a curved one with half of its signal bent. Nobody knows which is closer, so the choice
minimises the worst regret, and the range of a prediction is over the truths.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gratis.accounting import calibrate_mu, gdp_epsilon_upper_bound
from gratis.estimators.additive import DPAdditiveClassifier, DPAdditiveRegressor
from gratis.estimators.linear import DPLinearRegression
from gratis.estimators.logistic import DPLogisticRegression
from gratis.estimators.mlp import DPMLPClassifier
from gratis.estimators.random_features import DPRandomFeaturesClassifier, DPRandomFeaturesRegressor
from gratis.recipes.random_features import feature_map_of
from gratis.records.budget import Budget
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.facts import Facts
from gratis.records.predictions import Prediction

__all__ = [
    "MODELS",
    "ModelChoice",
    "check_features",
    "choose_model",
    "make_estimator",
    "not_predicted",
    "predict_quality",
]

MODELS = {
    "regression": ("linear", "additive", "random-features"),
    "classification": ("logistic", "additive", "random-features", "mlp"),
}
_ON_REQUEST = {"additive"}  # not yet among the candidates of "auto"
_ACTIVATIONS = ("tanh", "relu", "erf")
_FEATURES = {"regression": _ACTIVATIONS, "classification": (*_ACTIVATIONS, "scattering")}
TRUTHS = ("straight", "curved")
_ROWS, _COLUMNS, _TEST_ROWS, _CLASSES = 2000, 60, 2000, 4
_MOST_FEATURES = 20_000  # random features of a synthetic problem; seconds grow with them
_SIGNAL = 0.6  # share of the target's variance that can be known at all
_SEED = 20261116
_DELTA = 1e-5

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The chosen model, what is predicted for each candidate, and why."""

    model: str
    predictions: dict[str, Prediction]
    reason: str


def make_estimator(model: str, task: str, *, epsilon: float, delta: float, **choices: Any) -> Any:
    """Return the (unfitted) estimator of a model's name for a task."""
    kinds: dict[tuple[str, str], Any] = {
        ("linear", "regression"): DPLinearRegression,
        ("additive", "regression"): DPAdditiveRegressor,
        ("additive", "classification"): DPAdditiveClassifier,
        ("random-features", "regression"): DPRandomFeaturesRegressor,
        ("logistic", "classification"): DPLogisticRegression,
        ("random-features", "classification"): DPRandomFeaturesClassifier,
        ("mlp", "classification"): DPMLPClassifier,
    }
    kind = kinds.get((model, task))
    if kind is None:
        offered = ", ".join(MODELS.get(task, ()))
        raise GratisError(f"unknown model {model!r} for {task}; expected auto, {offered}")
    return kind(epsilon=epsilon, delta=delta, **choices)


def check_features(estimator: Any, n_inputs: int, n_classes: int | None, options: Mapping[str, Any]) -> None:
    """Refuse before anything is simulated or reserved the features that a random-features estimator cannot compute."""
    if estimator.features == "scattering" and "n_features" in options:
        raise GratisError("the size of the images sets the number of scattering features: leave --n-features out")
    estimator._choice("features", _FEATURES["regression" if n_classes is None else "classification"])
    feature_map_of(estimator.features, estimator.n_features, 0, Facts(rows=2, columns=n_inputs, classes=n_classes))


def not_predicted(model: str, task: str, options: Mapping[str, Any]) -> str | None:
    """Say why the quality of a model is not predicted; None if it is.

    >>> not_predicted("random-features", "classification", {"features": "scattering"})
    'Accuracy on images depends on the images and is not predicted.'
    """
    if model != "random-features":
        return None
    if options.get("features") == "scattering":
        return "Accuracy on images depends on the images and is not predicted."
    # A regression is near its limit of many features; that a classifier is has not been shown.
    if task == "classification" and options.get("n_features", 0) > _MOST_FEATURES:
        return f"Accuracy with more than {_MOST_FEATURES} random features is not predicted: simulations take too long."
    return None


def choose_model(n_records: int, n_features: int, budget: Budget, *, n_classes: int | None = None) -> ModelChoice:
    """Predict every candidate and take the one with the least worst regret over the truths.

    Networks are considered where torch is installed.
    """
    task = "regression" if n_classes is None else "classification"
    names = [name for name in MODELS[task] if name not in _ON_REQUEST]
    names = [name for name in names if name != "mlp" or importlib.util.find_spec("torch")]
    found = {name: predict_quality(name, n_records, n_features, budget, n_classes=n_classes) for name in names}
    scores = np.array([[found[name].details["by_truth"][truth] for truth in TRUTHS] for name in names])
    regret = (scores.max(axis=0) - scores).max(axis=1)
    # The first candidate is the simplest: another must be better by more than the simulation's own noise.
    best = int(np.argmin(regret)) if regret.min() < regret[0] - 0.01 else 0
    words = ", ".join(f"{name} {found[name].value:.2f}" for name in names)
    measure = "R²" if n_classes is None else "accuracy"
    reason = f"{names[best]} loses least if the truth is the other one (mean predicted {measure}: {words})."
    return ModelChoice(names[best], found, reason)


def predict_quality(
    model: str,
    n_records: int,
    n_features: int,
    budget: Budget,
    *,
    n_classes: int | None = None,
    one_pass: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Prediction:
    """Predict R² (or accuracy) of a model from public sizes: the mean over the truths, and their range.

    `options` are the estimator's `features` and its own `n_features`, for random features.
    """
    choices = {name: value for name, value in (options or {}).items() if name in ("features", "n_features")}
    asked = check_count("n_features", choices["n_features"]) if "n_features" in choices else 0
    refused = not_predicted(model, "regression" if n_classes is None else "classification", choices)
    if refused:
        raise GratisError(refused)
    if asked > _MOST_FEATURES:
        choices["n_features"] = _MOST_FEATURES
    n, d = check_count("n_records", n_records, minimum=2), check_count("n_features", n_features)
    shrunk = max(1.0, d / _COLUMNS)
    columns, rows = round(d / shrunk), max(20, min(round(n / shrunk), _ROWS))
    classes = None if n_classes is None else min(n_classes, _CLASSES)
    # Rounded, so that a curve over budgets and a plan for one of them share their runs.
    mu = calibrate_mu(budget) * n / (rows * shrunk)
    if one_pass and classes and n_classes:
        mu *= math.sqrt(classes / n_classes)  # classes share the budget
    problem = rows, columns, classes
    setting = str(budget.neighbouring), float(f"{mu:.4g}"), one_pass, tuple(sorted(choices.items()))
    scores = {truth: _simulated(model, *problem, truth, *setting) for truth in TRUTHS}
    values = list(scores.values())
    return Prediction(
        quantity="r_squared" if n_classes is None else "accuracy",
        value=float(np.mean(values)),
        low=min(values),
        high=max(values),
        source=f"{_described(model, choices)} trained {'in one pass ' if one_pass else ''}on synthetic problems of "
        f"{rows} × {columns}",
        assumptions=(
            f"correlated columns (eigenvalues 1/k); {_SIGNAL:.0%} of the target's variance can be known"
            if n_classes is None
            else "correlated columns (eigenvalues 1/k); classes overlap",
            "truths: straight, and curved with half of its signal bent",
            *(("as hard as with four classes",) if (n_classes or 0) > _CLASSES else ()),
            *((f"{asked} features do as well as {_MOST_FEATURES}",) if asked > _MOST_FEATURES else ()),
        ),
        details={"by_truth": scores},
    )


def _described(model: str, choices: Mapping[str, Any]) -> str:
    words = {"n_features": "p = {}", "features": "{}"}
    parts = [text.format(choices[name]) for name, text in words.items() if name in choices]
    return f"{model} ({', '.join(parts)})" if parts else model


@lru_cache(maxsize=256)
def _simulated(
    model: str,
    rows: int,
    columns: int,
    n_classes: int | None,
    truth: str,
    neighbouring: str,
    mu: float,
    one_pass: bool,
    options: tuple[tuple[str, Any], ...],
) -> float:
    rng = np.random.default_rng(_SEED)
    # Columns of real tables are correlated: eigenvalues 1/k in a random basis.
    basis = np.linalg.qr(rng.standard_normal((columns, columns)))[0] / np.sqrt(np.arange(1, columns + 1))
    X = rng.standard_normal((rows + _TEST_ROWS, columns)) @ basis.T
    target = _targets(X, n_classes, truth, rng)
    choices: dict[str, Any] = {"neighbouring": neighbouring, "noise_seed": _SEED, "insecure_reproducible": True}
    choices |= dict(options)
    if n_classes is not None:
        choices["classes"] = list(range(n_classes))
    if one_pass:
        choices["algorithm"] = "one-pass"
    if model == "mlp":
        choices |= {"width": 200, "steps": 40}
    task = "regression" if n_classes is None else "classification"
    epsilon = gdp_epsilon_upper_bound(mu=mu, delta=_DELTA)
    estimator = make_estimator(model, task, epsilon=epsilon, delta=_DELTA, **choices)
    # The matrices are small: more threads would wait for each other, much longer than they compute on a busy machine.
    with threadpool_limits(limits=1, user_api="blas"):
        estimator.fit(X[:rows], target[:rows])
        return float(max(-1.0, estimator.score(X[rows:], target[rows:])))


def _targets(X: Array, n_classes: int | None, truth: str, rng: np.random.Generator) -> Array:
    def signal() -> Array:
        projections = X @ rng.standard_normal((X.shape[1], 4))
        projections /= projections.std(axis=0)
        if truth == "straight":
            return projections[:, 0]
        bent = (np.square(projections[:, 1]) - 1) / math.sqrt(2) + projections[:, 2] * np.sign(projections[:, 3])
        return math.sqrt(0.5) * projections[:, 0] + 0.5 * bent

    if n_classes is None:
        noise = math.sqrt(1 - _SIGNAL) * rng.standard_normal(len(X))
        return math.sqrt(_SIGNAL) * signal() + noise
    scores = 3 * np.stack([signal() for _ in range(n_classes)], axis=1)
    return np.asarray((scores + rng.gumbel(size=scores.shape)).argmax(axis=1))
