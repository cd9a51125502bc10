"""What an audit of a whole estimator needs: neighbours that differ in one record, a trainer, and what to look at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gratis
from gratis.records.checks import check_count
from gratis.records.errors import CertificateError, GratisError
from gratis.records.events import Composition, OnePassIteration

__all__ = ["ESTIMATORS", "EstimatorAudit", "certified_records", "estimator_audit", "model_audit"]

Array = NDArray[Any]

ESTIMATORS = {
    "linear": "DPLinearRegression",
    "logistic": "DPLogisticRegression",
    "random-features-regressor": "DPRandomFeaturesRegressor",
    "random-features-classifier": "DPRandomFeaturesClassifier",
    "mlp": "DPMLPClassifier",
}
# Small enough that thousands of trainings take a minute; the guarantee does not depend on these sizes.
_SMALL: dict[str, dict[str, Any]] = {
    "random-features-regressor": {"n_features": 200},
    "random-features-classifier": {"n_features": 200},
    "mlp": {"width": 20, "steps": 20},
}
# Of the certificate that is audited, not of the data it was issued for.
_LEFT_OUT = ("public", "ledger", "dataset", "noise_seed", "insecure_reproducible", "classes", "preprocessing")
_FAR = 1e6
# So many parameters are looked at one by one; of larger models only the scores at the exchanged record.
_FEW = 20


@dataclass(frozen=True, slots=True)
class EstimatorAudit:
    """An estimator to be trained again and again on X with y and with `other_y`, which differ in the first record."""

    create: Callable[[], Any]
    X: Array
    y: Array
    other_y: Array

    def trainer(self, labels: Array) -> Callable[[int], Array]:
        """Return what an audit calls: train afresh, return what tells the neighbours apart best."""

        def train(_: int) -> Array:
            return _looked_at(self.create().fit(self.X, labels), self.X[:1])

        return train


def _looked_at(model: Any, record: Array) -> Array:
    """Released parameters where they are few; else the scores at the exchanged record, which its gradients push."""
    if hasattr(model, "fit_"):
        parameters = model.fit_.parameters
        return np.ravel(parameters if parameters.size <= _FEW else model.fit_.scores(record))
    return np.ravel(model._class_scores(record) if hasattr(model, "classes_") else model._raw_scores(record))


def _exchange(n: int, d: int, n_classes: int | None, *, private_scales: bool) -> tuple[Array, Array, Array]:
    """Return X, y and the other y.

    Without private scales all rows but the first are zero, which is the worst case of the descents: nothing
    hides the record or pulls back. Private scales need columns that vary, and the record is an outlier among them.
    """
    n, d = check_count("n", n, minimum=10), check_count("d", d)
    rng = np.random.default_rng(0)  # of public, synthetic rows; noise comes from the operating system
    X = rng.standard_normal((n, d)) if private_scales else np.zeros((n, d))
    y: Array = X[:, 0] + 0.5 * rng.standard_normal(n) if private_scales else np.zeros(n)
    X[0] = 0.0
    X[0, 0] = 10.0 if private_scales else math.sqrt(d)
    if n_classes is not None:
        y = np.digitize(y, np.linspace(-1, 1, n_classes + 1)[1:-1]) if private_scales else np.arange(n) % n_classes
    first, second = (1, 0) if n_classes is not None else (100.0, -100.0) if private_scales else (_FAR, -_FAR)
    other = y.copy()
    y[0], other[0] = first, second
    return X, y, other


def estimator_audit(name: str, *, n: int, d: int, options: dict[str, Any]) -> EstimatorAudit:
    """Prepare the audit of an estimator by its name; `options` go to the estimator where it has them."""
    if name not in ESTIMATORS:
        raise GratisError(f"unknown estimator {name!r}; expected one of {', '.join(ESTIMATORS)}, or a model file")
    cls = getattr(gratis, ESTIMATORS[name])
    accepted = set(cls._get_param_names())
    unknown = [key for key, value in options.items() if value is not None and key not in accepted]
    if unknown:
        raise GratisError(f"the estimator {name!r} has no option {unknown[0]!r}: leave it out")
    settings = _SMALL.get(name, {}) | {key: value for key, value in options.items() if value is not None}
    classes = 2 if "classes" in accepted else None
    return _prepared(cls, settings, n, d, classes)


def model_audit(path: str, *, n: int | None) -> tuple[EstimatorAudit, Any, int]:
    """Read a model file, verify its certificate, prepare the audit of the same estimator with the same settings.

    Returns the audit, the model that was read, and the rows of the audit: as many as the certificate is about,
    but at most 200 unless `n` says otherwise.
    """
    from gratis.accounting import verify_certificate

    found = gratis.load_model(path).estimator
    problems = verify_certificate(found.certificate_)
    if problems:
        raise CertificateError(f"the certificate in {path!r} does not follow from its events: {'; '.join(problems)}")
    parameters = found.get_params(deep=False)
    settings = {key: value for key, value in parameters.items() if key not in _LEFT_OUT}
    # Public scales do not depend on the data: the audit's rows are made on them.
    settings["preprocessing"] = "private" if parameters["preprocessing"] == "private" else "none"
    rows = n if n is not None else max(10, min(200, certified_records(found.certificate_)))
    classes = len(found.classes_) if hasattr(found, "classes_") else None
    return _prepared(type(found), settings, rows, found.n_features_in_, classes), found, rows


def _prepared(cls: Any, settings: dict[str, Any], n: int, d: int, n_classes: int | None) -> EstimatorAudit:
    if n_classes is not None:
        settings = settings | {"classes": list(range(n_classes))}
    private = settings.get("preprocessing", "private") == "private" and settings.get("features") != "scattering"
    X, y, other = _exchange(n, d, n_classes, private_scales=private)
    return EstimatorAudit(lambda: cls(**settings), X, y, other)


def certified_records(certificate: Any) -> int:
    """How many rows a certificate is about, as its trainings say."""
    event = certificate.event
    leaves = event.leaves() if isinstance(event, Composition) else (event,)
    counts = [leaf.steps * leaf.batch_size for leaf in leaves if isinstance(leaf, OnePassIteration)]
    counts += [leaf.n_records for leaf in leaves if hasattr(leaf, "n_records")]
    return int(max(counts, default=1))
