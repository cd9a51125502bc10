"""Issuing and verifying certificates: everything in them is recomputed from the events."""

from __future__ import annotations

import math
import platform
from importlib import metadata
from typing import Any

from gratis.accounting.composition import account, epsilon_upper_bound
from gratis.accounting.gdp import gdp_delta_upper_bound
from gratis.specs.budget import Budget
from gratis.specs.certificates import Certificate, Selection, plain
from gratis.specs.errors import CertificateError
from gratis.specs.events import Composition, Event, FullBatchDescent, LeafEvent, OnePassIteration
from gratis.specs.guarantees import GDPGuarantee

__all__ = ["describe_guarantee", "issue_certificate", "verify_certificate"]

UNIT = "one row; the number of rows is public and fixed"
_CURVE_EPSILONS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_RELATIVE_TOLERANCE = 1e-9

_GENERAL = (
    "the order of rows is independent of their content",
    "only the released parameters are protected: a prediction at a private input reveals that input",
    "public inputs (number of rows, columns, classes, seeds of features) do not depend on the private data",
)
_ONE_PASS = (
    "one pass: each record is used in exactly one step, and only the last iterate is released",
    "one pass: every step map is non-expansive, by the step cap 2/(L·‖x‖²) on each record",
    "one pass: step sizes, clip norms and noise were fixed before data was read",
)
_FULL_BATCH = ("full batch: every record enters every step, and all iterates may be released",)


def describe_guarantee(event: Event, budget: Budget) -> dict[str, Any]:
    """The guarantee as a GDP curve where there is one, and at the asked (ε, δ)."""
    guarantee = account(event)
    result: dict[str, Any] = {"kind": guarantee.kind}
    if isinstance(guarantee, GDPGuarantee):
        result["mu"] = guarantee.mu
        result["curve"] = [
            {"epsilon": epsilon, "delta": gdp_delta_upper_bound(mu=guarantee.mu, epsilon=epsilon)}
            for epsilon in _CURVE_EPSILONS
        ]
    if budget.delta is not None:
        result["delta"] = budget.delta
        result["epsilon"] = epsilon_upper_bound(guarantee, delta=budget.delta)
    result["within_budget"] = _within(result, budget)
    return result


def _within(guarantee: dict[str, Any], budget: Budget) -> bool:
    if budget.mu is not None:
        return bool(guarantee.get("mu", math.inf) <= budget.mu)
    return bool(guarantee["epsilon"] <= budget.epsilon)


def issue_certificate(
    *,
    event: Event,
    budget: Budget,
    selection: Selection,
    randomness: dict[str, Any],
    assumptions: tuple[str, ...] = (),
    plan: dict[str, Any] | None = None,
    ledger_entry: dict[str, Any] | None = None,
) -> Certificate:
    """Make the certificate of what `event` says was done. It never claims more than the events prove."""
    leaves: tuple[LeafEvent, ...] = event.leaves() if isinstance(event, Composition) else (event,)
    if any(leaf.neighbouring is not budget.neighbouring for leaf in leaves):
        raise CertificateError("the events and the budget are under different neighbouring relations")
    return Certificate(
        event=event,
        budget=budget,
        unit=UNIT,
        selection=Selection(selection),
        guarantee=plain(describe_guarantee(event, budget)),
        assumptions=_standing_assumptions(leaves) + tuple(assumptions),
        randomness=randomness,
        versions=_versions(),
        plan=plain(plan),
        ledger_entry=plain(ledger_entry),
    )


def _standing_assumptions(leaves: tuple[LeafEvent, ...]) -> tuple[str, ...]:
    found: tuple[str, ...] = _GENERAL
    if any(isinstance(leaf, OnePassIteration) for leaf in leaves):
        found += _ONE_PASS
    if any(isinstance(leaf, FullBatchDescent) for leaf in leaves):
        found += _FULL_BATCH
    return found


def verify_certificate(certificate: Certificate) -> list[str]:
    """Recompute everything from the events; return the mismatches in words (empty: it verifies).

    A stated number may differ from the recomputed one by a relative 1e−9 (other versions of the mathematical
    libraries round differently); a stated ε or μ below that is a mismatch.
    """
    problems: list[str] = []
    leaves: tuple[LeafEvent, ...]
    event = certificate.event
    leaves = event.leaves() if isinstance(event, Composition) else (event,)
    if not leaves:
        problems.append("the certificate holds no event")
    if any(leaf.neighbouring is not certificate.neighbouring for leaf in leaves):
        problems.append("the events are under another neighbouring relation than the budget")
    expected = plain(describe_guarantee(event, certificate.budget))
    problems += _differences("guarantee", expected, certificate.guarantee)
    if not expected["within_budget"]:
        problems.append("the events spend more than the stated budget")
    missing = [text for text in _standing_assumptions(leaves) if text not in certificate.assumptions]
    problems += [f"the assumption {text!r} is missing" for text in missing]
    if certificate.unit != UNIT:
        problems.append("the unit of privacy is not the one that the accounting proves")
    if not isinstance(certificate.randomness.get("secure"), bool):
        problems.append("the certificate does not say whether its randomness was secure")
    entry = certificate.ledger_entry
    if entry is not None and "event" in entry and entry["event"] != plain(event.to_json()):
        problems.append("the ledger entry is of another event")
    return problems


def _differences(name: str, expected: Any, stated: Any) -> list[str]:
    if isinstance(expected, dict) and isinstance(stated, dict):
        found = [f"{name} has the wrong fields"] if set(expected) != set(stated) else []
        return found + [p for k in expected if k in stated for p in _differences(f"{name}.{k}", expected[k], stated[k])]
    if isinstance(expected, list) and isinstance(stated, list) and len(expected) == len(stated):
        pairs = enumerate(zip(expected, stated, strict=True))
        return [p for i, (e, s) in pairs for p in _differences(f"{name}[{i}]", e, s)]
    both_numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (expected, stated))
    if both_numbers and math.isclose(expected, stated, rel_tol=_RELATIVE_TOLERANCE, abs_tol=0.0):
        return []
    return (
        []
        if type(expected) is type(stated) and expected == stated
        else [f"{name} is {stated}, the events give {expected}"]
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("gratis", "numpy", "scipy", "randomgen"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "unknown"
    return versions
