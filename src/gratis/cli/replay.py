"""`gratis audit replay`: replay a fit on hostile neighbours and compare everything that happens before the noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import gratis
from gratis.audits.replay import ReplayAudit
from gratis.audits.trainings import replay_audit
from gratis.cli.estimator_audit import ESTIMATORS, certified_records
from gratis.cli.output import emit
from gratis.records.errors import CertificateError, GratisError

__all__ = ["audited_estimator", "audited_model", "emit_replay"]


def audited_estimator(
    name: str, *, n: int, d: int, classes: int, pairs: int, seed: int, options: dict[str, Any]
) -> ReplayAudit:
    """Audit an estimator by its name; `options` go to the estimator where it has them."""
    cls = getattr(gratis, ESTIMATORS[name])
    accepted = set(cls._get_param_names())
    given = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(given) - accepted)
    if unknown:
        raise GratisError(f"the estimator {name!r} has no option {unknown[0]!r}: leave it out")
    task = "classification" if "classes" in accepted else "regression"
    return replay_audit(cls(**given), n, d, task, classes, pairs=pairs, seed=seed)


def audited_model(path: Path, *, n: int | None, pairs: int, seed: int) -> tuple[ReplayAudit, str]:
    """Verify a model file's certificate, then audit the same estimator with the same options."""
    from gratis.accounting import verify_certificate

    found = gratis.load_model(path).estimator
    problems = verify_certificate(found.certificate_)
    if problems:
        raise CertificateError(f"the certificate in {str(path)!r} does not follow from its events: {problems[0]}")
    classes = len(found.classes_) if hasattr(found, "classes_") else None
    task = "regression" if classes is None else "classification"
    rows = certified_records(found.certificate_) if n is None else n
    return replay_audit(found, max(rows, 10), found.n_features_in_, task, classes, pairs=pairs, seed=seed), type(
        found
    ).__name__


def emit_replay(name: str, audit: ReplayAudit, *, as_json: bool, alarm: int) -> None:
    """Print the outcome; exit with `alarm` if a pair showed more than is certified, or none could be replayed."""
    if not audit.pairs:
        raise GratisError(f"{name}: {audit.verdict}")
    lines = [f"{name}: {audit.verdict}"]
    lines += [
        f"  {count} pairs: {what}, first in: {audit.examples[what]}"
        for what, count in audit.differences.most_common(10)
    ]
    if audit.largest_ratio:
        lines.append(f"largest ratio in: {audit.worst_pair}")
    lines += [f"not seen: {words}" for words in audit.limits]
    emit({"audit": name, "method": "replay", **audit.to_json()}, as_json=as_json, text="\n".join(lines))
    if audit.alarm:
        raise typer.Exit(alarm)
