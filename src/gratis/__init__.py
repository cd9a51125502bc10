"""Gratis: know what privacy will cost before the data is touched, pay the least, prove what was paid."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Names a user meets, and where they live; loaded on first use so that `import gratis` stays instant.
_LAZY = {
    "Budget": "gratis.records.budget",
    "Neighbouring": "gratis.records.neighbouring",
    "Certificate": "gratis.records.certificates",
    "Plan": "gratis.records.plans",
    "Prediction": "gratis.records.predictions",
    "Estimate": "gratis.records.predictions",
    "GratisError": "gratis.records.errors",
    "PrivacyLeakWarning": "gratis.records.errors",
    "WorthlessFitWarning": "gratis.records.errors",
    "Ledger": "gratis.ledger",
    "DPAdditiveClassifier": "gratis.estimators",
    "DPAdditiveRegressor": "gratis.estimators",
    "DPLinearRegression": "gratis.estimators",
    "DPLogisticRegression": "gratis.estimators",
    "DPMLPClassifier": "gratis.estimators",
    "DPRandomFeaturesClassifier": "gratis.estimators",
    "DPRandomFeaturesRegressor": "gratis.estimators",
    "DPSearchCV": "gratis.estimators",
    "DPTableClassifier": "gratis.estimators",
    "DPTableRegressor": "gratis.estimators",
    "PublicScales": "gratis.estimators",
    "Descent": "gratis.records.settings",
    "Facts": "gratis.records.facts",
    "plan": "gratis.estimators.fit_plan",
    "privatise": "gratis.estimators.own_loop",
    "SpectrumRecorder": "gratis.estimators.gradient_subspace",
    "Subspace": "gratis.estimators.gradient_subspace",
    "read_plan": "gratis.estimators.fit_plan",
    "account": "gratis.accounting",
    "audit": "gratis.audits.estimators",
    "open_table": "gratis.rows.tables",
    "load_model": "gratis.estimators",
    "save_model": "gratis.estimators",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("gratis")
    raise AttributeError(f"module 'gratis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
