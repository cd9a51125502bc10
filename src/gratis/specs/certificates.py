"""Certificate: what was released, what that proves, and on which assumptions, as one JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gratis.specs.budget import Budget
from gratis.specs.errors import CertificateError, GratisError
from gratis.specs.events import Event, event_from_json
from gratis.specs.neighbouring import Neighbouring

__all__ = ["FORMAT", "Certificate", "Selection", "plain"]

FORMAT = "gratis-certificate/1"


class Selection(StrEnum):
    """How settings were selected: selection on private data is spending."""

    NONE = "none"
    PUBLIC = "public"
    INCLUDED = "included"
    NOT_COVERED = "not covered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Data only: `accounting.issue_certificate` makes one, `accounting.verify_certificate` recomputes everything."""

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
            "event": dict,
        }
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise CertificateError(f"this is not a certificate of format {FORMAT}")
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
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise CertificateError(f"cannot read the certificate file {str(path)!r}") from None
        try:
            return cls.from_json(json.loads(text))
        except (json.JSONDecodeError, RecursionError):
            raise CertificateError(f"the certificate file {str(path)!r} is not JSON") from None


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
