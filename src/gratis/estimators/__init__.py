"""Private estimators with scikit-learn's interface, each loaded on first use: planning needs none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gratis.estimators.additive import DPAdditiveClassifier, DPAdditiveRegressor
    from gratis.estimators.linear import DPLinearRegression
    from gratis.estimators.logistic import DPLogisticRegression
    from gratis.estimators.mlp import DPMLPClassifier
    from gratis.estimators.model_file import SavedModel, load_model, save_model
    from gratis.estimators.random_features import DPRandomFeaturesClassifier, DPRandomFeaturesRegressor
    from gratis.estimators.scales import PublicScales
    from gratis.estimators.search import DPSearchCV
    from gratis.estimators.table import DPTableClassifier, DPTableRegressor

_LAZY = {
    "DPAdditiveClassifier": "additive",
    "DPAdditiveRegressor": "additive",
    "DPLinearRegression": "linear",
    "DPLogisticRegression": "logistic",
    "DPMLPClassifier": "mlp",
    "DPRandomFeaturesClassifier": "random_features",
    "DPRandomFeaturesRegressor": "random_features",
    "DPSearchCV": "search",
    "DPTableClassifier": "table",
    "DPTableRegressor": "table",
    "PublicScales": "scales",
    "SavedModel": "model_file",
    "load_model": "model_file",
    "save_model": "model_file",
}

__all__ = [
    "DPAdditiveClassifier",
    "DPAdditiveRegressor",
    "DPLinearRegression",
    "DPLogisticRegression",
    "DPMLPClassifier",
    "DPRandomFeaturesClassifier",
    "DPRandomFeaturesRegressor",
    "DPSearchCV",
    "DPTableClassifier",
    "DPTableRegressor",
    "PublicScales",
    "SavedModel",
    "load_model",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gratis.estimators' has no attribute {name!r}")
    return getattr(import_module(f"gratis.estimators.{_LAZY[name]}"), name)
