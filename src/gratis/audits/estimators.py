"""Audits of a whole estimator, a plan or a model file: by replay, or by training again and again on two neighbours."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gratis import estimators
from gratis.accounting import PERSON_UNIT, verify_certificate
from gratis.audits.replay import ReplayAudit
from gratis.audits.trainings import replay_audit
from gratis.estimators.fit_plan import FitPlan
from gratis.records.certificates import Certificate
from gratis.records.checks import check_count
from gratis.records.errors import CertificateError, GratisError
from gratis.records.events import OnePassIteration

__all__ = [
    "ESTIMATORS",
    "EstimatorAudit",
    "audit",
    "certified_records",
    "estimator_audit",
    "estimator_name",
    "make_estimator",
    "model_audit",
    "model_settings",
    "verified_model",
]

Array = NDArray[Any]

ESTIMATORS = {
    "linear": "DPLinearRegression",
    "logistic": "DPLogisticRegression",
    "additive-regressor": "DPAdditiveRegressor",
    "additive-classifier": "DPAdditiveClassifier",
    "random-features-regressor": "DPRandomFeaturesRegressor",
    "random-features-classifier": "DPRandomFeaturesClassifier",
    "mlp": "DPMLPClassifier",
}
# As `gratis fit` calls them; the other task's has to be written out.
_ALSO = {"additive": "additive-regressor", "random-features": "random-features-regressor"}
# Small enough that thousands of trainings take a minute; the guarantee does not depend on these sizes.
_SMALL: dict[str, dict[str, object]] = {
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
    if hasattr(model, "classes_"):
        return np.ravel(model._class_scores(record))
    return np.ravel(getattr(model, "_raw_scores", model.predict)(record))  # of features before a clip, if there is one


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


def estimator_name(name: str) -> str:
    """The name in `ESTIMATORS` of a model of `gratis fit`: its regressor where it does both tasks."""
    return _ALSO.get(name, name)


def make_estimator(name: str, options: Mapping[str, object]) -> Any:
    """Return an unfitted estimator by its name; options that are None are left out, foreign ones refused."""
    name = estimator_name(name)
    if name not in ESTIMATORS:
        raise GratisError(f"unknown estimator {name!r}; expected one of {', '.join(ESTIMATORS)}, or a model file")
    cls = getattr(estimators, ESTIMATORS[name])
    given = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(given) - set(cls._get_param_names()))
    if unknown:
        raise GratisError(f"the estimator {name!r} has no option {unknown[0]!r}: leave it out")
    # Audits train on rows of their own making, where nobody's budget is spent: they may have one that was not named.
    return cls(**{"epsilon": 1.0, "delta": 1e-5} | given)


def verified_model(path: str | os.PathLike[str]) -> Any:
    """Return the estimator in a model file whose certificate follows from its events."""
    found = estimators.load_model(path).estimator
    problems = verify_certificate(found.certificate_)
    if problems:
        words = "; ".join(problems)
        raise CertificateError(f"the certificate in {os.fspath(path)!r} does not follow from its events: {words}")
    return found


def model_settings(found: Any) -> dict[str, object]:
    """Return the options with which a model was trained, for another training on synthetic rows."""
    parameters = found.get_params(deep=False)
    settings = {key: value for key, value in parameters.items() if key not in _LEFT_OUT}
    # Public scales do not depend on the data: the audit's rows are made on them.
    return settings | {"preprocessing": "private" if parameters["preprocessing"] == "private" else "none"}


def audit(
    target: Any,
    *,
    rows: int | None = None,
    columns: int | None = None,
    classes: int | None = None,
    pairs: int = 100,
    seed: int = 0,
    persons: bool = False,
    cluster: bool = False,
) -> ReplayAudit:
    """Replay a training on hostile neighbours, before the noise: `alarm` if any pair differs by more than is certified.

    Parameters
    ----------
    target : estimator, fitted or not, a plan of `gratis.plan`, or the path of a model file
        Its options are audited, on synthetic rows of its shape or of a smaller one.
    rows, columns, classes : int, optional
        Public sizes, where the target does not know them: 40 rows, 3 columns and 2 classes if left out.
    pairs : int
        Hostile pairs.
    seed : int
        Of the synthetic rows; noise comes from the operating system.
    persons : bool
        Neighbours differ in a person with all rows (`groups` of a fit), as a fitted estimator's certificate says.
    cluster : bool
        Rows lie on the workers of the Dask cluster whose client was made last, in several blocks; not with persons.

    >>> import gratis
    >>> bool(audit(gratis.DPLinearRegression(epsilon=1.0, delta=1e-5, preprocessing="none"), pairs=4).alarm)
    False
    """
    if isinstance(target, (str, os.PathLike)):
        target = verified_model(target)
    if isinstance(target, FitPlan):
        facts = target.facts
        rows, columns, classes = rows or facts.rows, columns or facts.columns, classes or facts.classes
        target = target.estimator()
    if not hasattr(target, "_recipe") or not hasattr(target, "get_params"):
        raise GratisError("only an estimator of Gratis, a plan or a model file can be audited")
    target._handling()  # a wrong option is refused once, not by each of the pairs
    if hasattr(target, "certificate_"):
        rows = rows or max(certified_records(target.certificate_), 10)
        classes = classes or (len(target.classes_) if hasattr(target, "classes_") else None)
        persons = persons or target.certificate_.unit == PERSON_UNIT
    if columns is None:
        columns = int(getattr(target, "n_features_in_", 3))
    task = "classification" if "classes" in target.get_params(deep=False) else "regression"
    return replay_audit(
        target, rows or 40, columns, task, classes or 2, pairs=pairs, seed=seed, persons=persons, cluster=cluster
    )


def estimator_audit(name: str, *, n: int, d: int, options: Mapping[str, object]) -> EstimatorAudit:
    """Prepare the audit of an estimator by its name; `options` go to the estimator where it has them."""
    name = estimator_name(name)
    made = make_estimator(name, _SMALL.get(name, {}) | {k: v for k, v in options.items() if v is not None})
    parameters = made.get_params(deep=False)
    return _prepared(type(made), parameters, n, d, 2 if "classes" in parameters else None)


def model_audit(path: str, *, n: int | None) -> tuple[EstimatorAudit, Any, int]:
    """Read a model file, verify its certificate, prepare the audit of the same estimator with the same settings.

    Returns the audit, the model that was read, and the rows of the audit: as many as the certificate is about,
    but at most 200 unless `n` says otherwise.
    """
    found = verified_model(path)
    rows = n if n is not None else max(10, min(200, certified_records(found.certificate_)))
    classes = len(found.classes_) if hasattr(found, "classes_") else None
    return _prepared(type(found), model_settings(found), rows, found.n_features_in_, classes), found, rows


def _prepared(cls: Any, settings: Mapping[str, object], n: int, d: int, n_classes: int | None) -> EstimatorAudit:
    if n_classes is not None:
        settings = dict(settings) | {"classes": list(range(n_classes))}
    private = settings.get("preprocessing", "private") == "private" and settings.get("features") != "scattering"
    X, y, other = _exchange(n, d, n_classes, private_scales=private)
    return EstimatorAudit(lambda: cls(**settings), X, y, other)


def certified_records(certificate: Certificate) -> int:
    """How many rows a certificate is about, as its trainings say."""
    event = certificate.event
    leaves = event.leaves()
    counts = [leaf.steps * leaf.batch_size for leaf in leaves if isinstance(leaf, OnePassIteration)]
    counts += [leaf.n_records for leaf in leaves if hasattr(leaf, "n_records")]
    return int(max(counts, default=1))
