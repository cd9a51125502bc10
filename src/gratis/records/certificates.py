"""Certificate: what was released, what that proves, and on which assumptions, as one JSON document."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gratis.records.assumptions import assumption_id
from gratis.records.budget import Budget
from gratis.records.errors import CertificateError, GratisError
from gratis.records.events import Event, event_from_json
from gratis.records.neighbouring import Neighbouring
from gratis.records.strict_json import read_json

__all__ = ["FORMAT", "Certificate", "Selection", "plain"]

FORMAT = "gratis-certificate/2"
# Of version 0.1.0: assumptions are sentences, and nothing binds the certificate to a model.
_FIRST_FORMAT = "gratis-certificate/1"


class Selection(StrEnum):
    """How settings were selected: selection on private data is spending."""

    NONE = "none"
    PUBLIC = "public"
    INCLUDED = "included"
    NOT_COVERED = "not covered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Data only: `accounting.issue_certificate` makes one, `accounting.verify_certificate` recomputes everything.

    `assumptions` are ids of `records.assumptions`; sentences that are known there become ids, others stay as they are.
    `released` is the SHA-256 of the model's released arrays, or None if the certificate is bound to no model.
    """

    event: Event
    budget: Budget
    unit: str
    selection: Selection
    guarantee: dict[str, Any] = field(hash=False)
    assumptions: tuple[str, ...]
    randomness: dict[str, Any] = field(hash=False)
    versions: dict[str, str] = field(hash=False)
    plan: dict[str, Any] | None = field(default=None, hash=False)
    ledger_entry: dict[str, Any] | None = field(default=None, hash=False)
    released: str | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(one, str) for one in self.assumptions):
            raise CertificateError("an assumption is an id or a sentence")
        object.__setattr__(self, "assumptions", tuple(dict.fromkeys(map(assumption_id, self.assumptions))))
        if self.released is not None and not re.fullmatch(r"[0-9a-f]{64}", self.released):
            raise CertificateError("what was released is named by a SHA-256 in 64 lower-case hexadecimal digits")

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation under which everything holds."""
        return self.budget.neighbouring

    @property
    def mu(self) -> float | None:
        """GDP parameter, or None where the event has no closed form."""
        value = self.guarantee.get("mu")
        return None if value is None else float(value)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "format": FORMAT,
            "neighbouring": str(self.neighbouring),
            "unit": self.unit,
            "budget": self.budget.to_json(),
            "guarantee": self.guarantee,
            "selection": str(self.selection),
            "assumptions": list(self.assumptions),
            "randomness": self.randomness,
            "versions": self.versions,
            "plan": self.plan,
            "ledger_entry": self.ledger_entry,
            "released": self.released,
            "event": self.event.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        """Read a certificate strictly: a missing, extra or mistyped field is an error."""
        expected: dict[str, Any] = {
            "format": str,
            "neighbouring": str,
            "unit": str,
            "budget": dict,
            "guarantee": dict,
            "selection": str,
            "assumptions": list,
            "randomness": dict,
            "versions": dict,
            "plan": (dict, type(None)),
            "ledger_entry": (dict, type(None)),
            "released": (str, type(None)),
            "event": dict,
        }
        if not isinstance(data, dict) or data.get("format") not in (FORMAT, _FIRST_FORMAT):
            raise CertificateError(f"this is not a certificate of format {FORMAT}")
        if data["format"] == _FIRST_FORMAT:
            data = {"released": None} | data
        wrong = {key for key in set(data) | set(expected) if not isinstance(data.get(key, ...), expected.get(key, ()))}
        if wrong:
            raise CertificateError(
                f"the certificate's fields {', '.join(sorted(wrong))} are missing, extra or mistyped"
            )
        try:
            certificate = cls(
                event=event_from_json(data["event"]),
                budget=Budget.from_json(data["budget"]),
                unit=data["unit"],
                selection=Selection(data["selection"]),
                guarantee=data["guarantee"],
                assumptions=tuple(data["assumptions"]),
                randomness=data["randomness"],
                versions=data["versions"],
                plan=data["plan"],
                ledger_entry=data["ledger_entry"],
                released=data["released"],
            )
        except (GratisError, ValueError, TypeError) as error:
            raise CertificateError(f"the certificate cannot be read: {error}") from None
        if data["neighbouring"] != str(certificate.neighbouring):
            raise CertificateError("the certificate names two different neighbouring relations")
        return certificate

    def write(self, path: str | Path) -> None:
        """Write as JSON with sorted keys."""
        Path(path).write_text(json.dumps(plain(self.to_json()), indent=2, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Read a certificate file."""
        try:
            return cls.from_json(read_json(path, "the certificate file"))
        except CertificateError:
            raise
        except GratisError as error:
            raise CertificateError(str(error)) from None


def plain(value: Any) -> Any:
    """Make data strict JSON: infinities become the strings "inf" and "-inf", NaN is refused."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise GratisError("a result is not a number")
        return "inf" if value > 0 else "-inf"
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return plain(value.tolist())
    return value
