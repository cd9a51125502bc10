"""Private estimators with scikit-learn's interface."""

from gratis.estimators.additive import DPAdditiveClassifier, DPAdditiveRegressor
from gratis.estimators.linear import DPLinearRegression
from gratis.estimators.logistic import DPLogisticRegression
from gratis.estimators.mlp import DPMLPClassifier
from gratis.estimators.model_file import SavedModel, load_model, save_model
from gratis.estimators.random_features import DPRandomFeaturesClassifier, DPRandomFeaturesRegressor
from gratis.estimators.scales import PublicScales
from gratis.estimators.search import DPSearchCV
from gratis.estimators.table import DPTableClassifier, DPTableRegressor

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
