"""Which model to train, decided by public sizes before the data is touched.

An additive model with few records a column is a linear one, and with very few the linear models are tuned better for
that. With some more its posterior does better, and where records allow curves, how far they bend is decided inside by
the gradients that it pays for: straight truths are learnt as lines. So the choice needs no score of several candidates,
each of which would have to be trained from a share of the budget. Random features and networks are trained on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gratis.accounting import calibrate_mu
from gratis.estimators.model_parameters import (
    ACTIVATIONS,
    AdditiveClassifierParameters,
    AdditiveParameters,
    FeatureClassifierParameters,
    FeatureParameters,
    FitParameters,
    LinearParameters,
    LogisticParameters,
    NetworkParameters,
)
from gratis.records.budget import Budget
from gratis.records.errors import GratisError
from gratis.records.facts import Facts

__all__ = ["MODELS", "ModelChoice", "check_features", "choose_model", "make_estimator", "model_parameters"]

MODELS = {
    "regression": ("linear", "additive", "random-features"),
    "classification": ("logistic", "additive", "random-features", "mlp"),
}
_FEATURES = {"regression": ACTIVATIONS, "classification": (*ACTIVATIONS, "scattering")}
# What plans a model, and the estimator that runs the plan: the second is loaded when there are rows.
_KINDS: dict[tuple[str, str], tuple[type[FitParameters], str]] = {
    ("linear", "regression"): (LinearParameters, "DPLinearRegression"),
    ("additive", "regression"): (AdditiveParameters, "DPAdditiveRegressor"),
    ("additive", "classification"): (AdditiveClassifierParameters, "DPAdditiveClassifier"),
    ("random-features", "regression"): (FeatureParameters, "DPRandomFeaturesRegressor"),
    ("logistic", "classification"): (LogisticParameters, "DPLogisticRegression"),
    ("random-features", "classification"): (FeatureClassifierParameters, "DPRandomFeaturesClassifier"),
    ("mlp", "classification"): (NetworkParameters, "DPMLPClassifier"),
}
# Several classes have a curve each. Validation rows of texture (10 rows a line, .977 against .993 at ε = 100).
_ROWS_PER_LINE = 20
# Of a number or two classes: N and N/d from which lines of the additive model do better (validation parts of airfoil,
# concrete, energy, red and white wine, California, churn, coil2000, spambase, clean2; below, up to .04 worse).
_LEAST_RECORDS, _RECORDS_PER_COLUMN = 170, 12
# Of two classes, with so many records also from fewer a column on: on validation parts (splits 9500 to 9511) of churn,
# spambase, coil2000, adult, nassCDS, clean2, optdigits and dna at ε = .3, .6 and 1, both relations, AUC is .03 to .05
# higher on coil2000 and within .006 on the others; with fewer than 4 a column (dna) or 250 records up to .07 is lost.
# Between 250 and 400 (splits 9900 to 9905, parts of tables with N = 280 and 340 at ε = 1): coil2000 +.06, spambase
# −.003, optdigits cut in two −.005, pol cut in two −.02 with 11 a column.
_MANY_RECORDS, _FEW_PER_COLUMN = 300, 4


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The chosen model, and why."""

    model: str
    reason: str


def model_parameters(model: str, task: str, **choices: Any) -> FitParameters:
    """Return what plans a model of this name for a task: an estimator's parameters, without the estimator."""
    return _kinds(model, task)[0](**choices)


def make_estimator(model: str, task: str, **choices: Any) -> Any:
    """Return the (unfitted) estimator of a model's name for a task."""
    import gratis.estimators  # brings scikit-learn

    return getattr(gratis.estimators, _kinds(model, task)[1])(**choices)


def _kinds(model: str, task: str) -> tuple[type[FitParameters], str]:
    if (model, task) not in _KINDS:
        raise GratisError(f"unknown model {model!r} for {task}; expected auto, {', '.join(MODELS.get(task, ()))}")
    return _KINDS[model, task]


def check_features(given: Any, n_inputs: int, n_classes: int | None, options: Mapping[str, Any]) -> None:
    """Refuse before anything is simulated or reserved the features that a random-features model cannot compute."""
    from gratis.recipes.random_features import feature_map_of

    if given.features == "scattering" and "n_features" in options:
        raise GratisError("the size of the images sets the number of scattering features: leave --n-features out")
    given._choice("features", _FEATURES["regression" if n_classes is None else "classification"])
    feature_map_of(given.features, given.n_features, 0, Facts(rows=2, columns=n_inputs, classes=n_classes))


def choose_model(facts: Facts, budget: Budget) -> ModelChoice:
    """Return the additive model where records allow it, else the linear or logistic one; fixed by public sizes.

    >>> choose_model(Facts(rows=20_000, columns=10), Budget(epsilon=1.0, delta=1e-5)).model
    'additive'
    >>> choose_model(Facts(rows=500, columns=10), Budget(epsilon=1.0, delta=1e-5)).model
    'linear'
    >>> choose_model(Facts(rows=4000, columns=40, classes=11), Budget(epsilon=100.0, delta=1e-5)).model
    'logistic'
    >>> choose_model(Facts(rows=4000, columns=20, classes=2), Budget(epsilon=1.0, delta=1e-5)).model
    'additive'
    >>> choose_model(Facts(rows=8000, columns=100, classes=2), Budget(epsilon=1.0, delta=1e-5)).model
    'additive'
    """
    from gratis.recipes.additive_plan import bends

    records = facts.rows * calibrate_mu(budget) / budget.neighbouring.sensitivity_factor
    have = f"{records / facts.columns:.0f} records a column in units of the noise (rows times μ)"
    model = MODELS[facts.task][0]
    lines = facts.columns * ((facts.classes or 2) - 1)
    if facts.classes is not None and facts.classes > 2 and facts.rows < _ROWS_PER_LINE * lines:
        return ModelChoice(
            model, f"{facts.rows / lines:.0f} rows a line of {lines}: too few for curves of all classes."
        )
    if bends(records, facts.columns, facts.classes):
        return ModelChoice("additive", f"{have}: enough for curves, whose smoothness the released gradients decide.")
    few = facts.classes == 2 and records >= _MANY_RECORDS
    least = _FEW_PER_COLUMN if few else _RECORDS_PER_COLUMN
    if lines == facts.columns and records >= max(_LEAST_RECORDS, least * facts.columns):
        return ModelChoice("additive", f"{have}: too few for curves, enough for lines whose size the gradients decide.")
    return ModelChoice(model, f"{have}: too few for curves.")
