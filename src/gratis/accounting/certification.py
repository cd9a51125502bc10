"""Issuing and verifying certificates: everything in them is recomputed from the events."""

from __future__ import annotations

import math
import platform
from functools import cache
from importlib import metadata

from gratis.accounting.composition import account, delta_upper_bound, epsilon_upper_bound
from gratis.accounting.gdp import gdp_delta_upper_bound
from gratis.records.assumptions import assumption_text
from gratis.records.budget import Budget
from gratis.records.certificates import Certificate, Randomness, Selection, StatedGuarantee
from gratis.records.errors import CertificateError, GratisError
from gratis.records.events import Composition, Event, FullBatchDescent, OnePassIteration, Parallel, event_from_json
from gratis.records.guarantees import GDPGuarantee, GDPWithFailureGuarantee, Guarantee
from gratis.records.record import JsonObject, plain

__all__ = ["PERSON_UNIT", "describe_guarantee", "issue_certificate", "verify_certificate"]

UNIT = "one row; the number of rows is public and fixed"
PERSON_UNIT = "one person with all rows of that person; the number of persons is public and fixed"
_PERSONS = "persons"  # what a certificate about persons rests on
_CURVE_EPSILONS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
# Other versions of the mathematical libraries round differently, outward like this one: a stated bound may lie below
# the recomputed one by so much. The smallest δ are denormal numbers with few digits.
_RELATIVE_TOLERANCE, _SMALLEST = 1e-9, 1e-300
_LONGEST_CURVE = 100
_CLAIMS = {"kind", "mu", "curve", "epsilon", "delta", "within_budget"}

_GENERAL = ("row-order", "parameters-only", "public-inputs")
_ONE_PASS = ("one-pass-once", "one-pass-non-expansive", "one-pass-fixed")
_FULL_BATCH = ("full-batch",)


def describe_guarantee(event: Event, budget: Budget) -> StatedGuarantee:
    """The guarantee as a GDP curve where there is one, and at the asked (ε, δ)."""
    guarantee = account(event)
    result: StatedGuarantee = {"kind": guarantee.kind}
    if isinstance(guarantee, GDPGuarantee):
        result["mu"] = guarantee.mu
        result["curve"] = [
            {"epsilon": epsilon, "delta": gdp_delta_upper_bound(mu=guarantee.mu, epsilon=epsilon)}
            for epsilon in _CURVE_EPSILONS
        ]
    if isinstance(guarantee, GDPWithFailureGuarantee):
        result["curve"] = [
            {"epsilon": epsilon, "delta": delta_upper_bound(guarantee, epsilon=epsilon)} for epsilon in _CURVE_EPSILONS
        ]
    if budget.delta is not None:
        result["delta"] = budget.delta
        result["epsilon"] = epsilon_upper_bound(guarantee, delta=budget.delta)
    result["within_budget"] = _within(result, budget)
    return result


def _within(guarantee: StatedGuarantee, budget: Budget) -> bool:
    if budget.mu is not None:
        return float(guarantee.get("mu", math.inf)) <= budget.mu
    return budget.epsilon is not None and float(guarantee["epsilon"]) <= budget.epsilon


def issue_certificate(
    *,
    event: Event,
    budget: Budget,
    selection: Selection,
    randomness: Randomness,
    assumptions: tuple[str, ...] = (),
    plan: JsonObject | None = None,
    ledger_entry: JsonObject | None = None,
    persons: bool = False,
) -> Certificate:
    """Make the certificate of what `event` says was done. It never claims more than the events prove.

    `assumptions` beyond those that the events need: ids of `records.assumptions`, or sentences. `persons`: a record of
    the events was a person with all rows.
    """
    leaves = event.leaves()
    if any(leaf.neighbouring is not budget.neighbouring for leaf in leaves):
        raise CertificateError("the events and the budget are under different neighbouring relations")
    return Certificate(
        event=event,
        budget=budget,
        unit=PERSON_UNIT if persons else UNIT,
        selection=Selection(selection),
        guarantee=plain(describe_guarantee(event, budget)),
        assumptions=_standing_assumptions(event, persons=persons) + tuple(assumptions),
        randomness=randomness,
        versions=_versions(),
        plan=plain(plan),
        ledger_entry=plain(ledger_entry),
    )


def _standing_assumptions(event: Event, *, persons: bool) -> tuple[str, ...]:
    leaves = event.leaves()
    found: tuple[str, ...] = (*_GENERAL, _PERSONS) if persons else _GENERAL
    if any(isinstance(leaf, OnePassIteration) for leaf in leaves):
        found += _ONE_PASS
    if any(isinstance(leaf, FullBatchDescent) for leaf in leaves):
        found += _FULL_BATCH
    if _in_parts(event):
        found += ("disjoint-persons",) if persons else ("disjoint-parts",)
    return found


def _in_parts(event: Event) -> bool:
    """Whether events on disjoint parts are inside."""
    return isinstance(event, Parallel) or (isinstance(event, Composition) and any(map(_in_parts, event.events)))


def verify_certificate(certificate: Certificate) -> list[str]:
    """Recompute what the events prove; return in words what does not follow from it (empty: it verifies).

    A certificate verifies if its events prove at least what it states, within its budget, and it names every
    assumption that they need. It may state more (a larger ε) and assume more: a certificate outlives the version that
    issued it, its wording and its last digits.
    """
    problems: list[str] = []
    event = certificate.event
    leaves = event.leaves()
    if not leaves:
        problems.append("the certificate holds no event")
    if any(leaf.neighbouring is not certificate.neighbouring for leaf in leaves):
        problems.append("the events are under another neighbouring relation than the budget")
    problems += _unproved(account(event), certificate.guarantee, certificate.budget)
    needed = _standing_assumptions(event, persons=certificate.unit == PERSON_UNIT)
    missing = [name for name in needed if name not in certificate.assumptions]
    problems += [f"the assumption {assumption_text(name)!r} is missing" for name in missing]
    if certificate.unit not in (UNIT, PERSON_UNIT):
        problems.append("the unit of privacy is not the one that the accounting proves")
    if not isinstance(certificate.randomness.get("secure"), bool):
        problems.append("the certificate does not say whether its randomness was secure")
    entry = certificate.ledger_entry
    if entry is not None and "event" in entry and not _booked((event,), [entry]):
        problems.append("the ledger entry is of another event")
    released = event.events if isinstance(event, Composition) else (event,)
    if entry is not None and "entries" in entry and not _booked(released, entry["entries"]):
        problems.append("the ledger entries are of other events")
    return problems


def _booked(events: tuple[Event, ...], entries: object) -> bool:
    """Whether each event has its ledger entry: of itself, or of what was released on disjoint parts, it among them."""
    if not isinstance(entries, list) or len(entries) != len(events):
        return False
    try:
        reserved = [event_from_json(entry["event"]) for entry in entries]
    except (GratisError, KeyError, TypeError):
        return False
    return all(
        event == entry or (isinstance(entry, Parallel) and event in entry.events)
        for event, entry in zip(events, reserved, strict=True)
    )


def _unproved(proved: Guarantee, stated: StatedGuarantee, budget: Budget) -> list[str]:
    """Return the claims in `stated` that do not follow from `proved`, and what is missing among them."""
    needed = {"mu"} if budget.mu is not None else {"epsilon", "delta"}
    curve = stated.get("curve", [])
    if not {"kind", "within_budget", *needed} <= set(stated) <= _CLAIMS or not isinstance(curve, list):
        return ["guarantee has the wrong fields"]
    problems = [] if len(curve) <= _LONGEST_CURVE else ["guarantee.curve has too many points to be checked"]
    if stated["kind"] != proved.kind:
        problems.append(f"guarantee.kind is {_shown(stated['kind'])}, the events give {proved.kind}")
    if "mu" in stated:
        mu = proved.mu if isinstance(proved, GDPGuarantee) else math.inf
        problems += _below("guarantee.mu", stated["mu"], mu)
    for i, point in enumerate(curve[:_LONGEST_CURVE]):
        epsilon = _number(point.get("epsilon")) if isinstance(point, dict) else None
        if epsilon is None or math.isinf(epsilon) or set(point) != {"epsilon", "delta"}:
            problems.append(f"guarantee.curve[{i}] is not a point of a privacy curve")
        else:
            problems += _below(
                f"guarantee.curve[{i}].delta", point["delta"], delta_upper_bound(proved, epsilon=epsilon)
            )
    within = True
    if budget.delta is not None:
        epsilon = epsilon_upper_bound(proved, delta=budget.delta)
        within = budget.epsilon is not None and epsilon <= budget.epsilon * (1 + _RELATIVE_TOLERANCE)
        problems += _below("guarantee.epsilon", stated["epsilon"], epsilon)
        if stated["delta"] != budget.delta:
            problems.append(f"guarantee.delta is {_shown(stated['delta'])}, the budget's is {budget.delta}")
    elif {"epsilon", "delta"} & set(stated):
        problems.append("guarantee has an epsilon or delta that its budget has not")
    if budget.mu is not None:
        within = isinstance(proved, GDPGuarantee) and proved.mu <= budget.mu * (1 + _RELATIVE_TOLERANCE)
    if not within:
        problems.append("the events spend more than the stated budget")
    if stated["within_budget"] is not within:
        problems.append(f"guarantee.within_budget is {_shown(stated['within_budget'])}, the events give {within}")
    return problems


def _number(value: object) -> float | None:
    """Return a bound as it stands in a certificate, where an infinity is a string; None if it is none."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return math.inf if isinstance(value, str) and value == "inf" else None


def _below(name: str, stated: object, proved: float) -> list[str]:
    bound = _number(stated)
    if bound is not None and bound >= proved * (1 - _RELATIVE_TOLERANCE) - _SMALLEST:
        return []
    return [f"{name} is {_shown(stated)}, the events give {proved}"]


def _shown(value: object) -> str:
    return str(value)[:50]


def _versions() -> dict[str, str]:
    packages = ("gratis", "numpy", "scipy", "randomgen")
    return {"python": platform.python_version(), **{package: _version(package) for package in packages}}


@cache  # reading the records of a package takes as long as a small fit
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
