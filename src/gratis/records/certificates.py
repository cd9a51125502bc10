"""Certificate: what was released, what that proves, and on which assumptions, as one JSON document."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypedDict

from gratis.records.assumptions import assumption_id, assumption_text
from gratis.records.budget import Budget
from gratis.records.errors import CertificateError, GratisError
from gratis.records.events import Event
from gratis.records.neighbouring import Neighbouring
from gratis.records.notebook import card
from gratis.records.record import JsonObject, Record, read_record
from gratis.records.strict_json import read_json

__all__ = ["FORMAT", "Certificate", "Randomness", "Selection", "StatedGuarantee"]

FORMAT = "gratis-certificate/2"
# Of version 0.1.0: assumptions are sentences, and nothing binds the certificate to a model.
_FIRST_FORMAT = "gratis-certificate/1"


class Selection(StrEnum):
    """How settings were selected: selection on private data is spending."""

    NONE = "none"
    PUBLIC = "public"
    INCLUDED = "included"
    NOT_COVERED = "not covered"


class CurvePoint(TypedDict):
    """One point of a privacy curve."""

    epsilon: float | str
    delta: float | str


class StatedGuarantee(TypedDict, total=False):
    """What a certificate states, recomputed by `verify_certificate`; an infinity is the string "inf".

    `mu` and `curve` where the events have a Gaussian curve; `epsilon` at the budget's `delta` if it has one.
    """

    kind: str
    mu: float | str
    curve: list[CurvePoint]
    epsilon: float | str
    delta: float
    within_budget: bool


class Randomness(TypedDict, total=False):
    """Where noise came from, in words, and whether that protects."""

    secure: bool
    generator: str
    key: str
    hardening: str
    protected: str
    not_protected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Record):
    """Data only: `accounting.issue_certificate` makes one, `accounting.verify_certificate` recomputes everything.

    `assumptions` are ids of `records.assumptions`; sentences that are known there become ids, others stay as they are.
    `released` is the SHA-256 of the model's released arrays, or None if the certificate is bound to no model.
    """

    event: Event
    budget: Budget
    unit: str
    selection: Selection
    guarantee: StatedGuarantee = field(hash=False)
    assumptions: tuple[str, ...]
    randomness: Randomness = field(hash=False)
    versions: dict[str, str] = field(hash=False)
    plan: JsonObject | None = field(default=None, hash=False)
    ledger_entry: JsonObject | None = field(default=None, hash=False)
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

    def to_json(self) -> JsonObject:
        """Return plain data for JSON: the fields, the format, and the relation where it cannot be overlooked."""
        return {"format": FORMAT, "neighbouring": str(self.neighbouring)} | Record.to_json(self)

    @classmethod
    def from_json(cls, data: object) -> Certificate:
        """Read a certificate strictly: a missing, extra or mistyped field is an error."""
        if not isinstance(data, dict) or data.get("format") not in (FORMAT, _FIRST_FORMAT):
            raise CertificateError(f"this is not a certificate of format {FORMAT}")
        own = {key: value for key, value in data.items() if key not in ("format", "neighbouring")}
        if data["format"] == _FIRST_FORMAT:
            own = {"released": None} | own
        try:
            certificate = read_record(cls, own)
        except (GratisError, RecursionError) as error:
            raise CertificateError(f"the certificate cannot be read: {error}") from None
        if data.get("neighbouring") != str(certificate.neighbouring):
            raise CertificateError("the certificate names no neighbouring relation, or two different ones")
        return certificate

    def _repr_html_(self) -> str:
        proved = [(name, value) for name, value in self.guarantee.items() if name in ("epsilon", "delta", "mu")]
        where = [("neighbouring", self.neighbouring), ("unit", self.unit), ("selection", self.selection)]
        secure = [] if self.randomness.get("secure") else ["The noise came from a seed: NO protection."]
        resting = [f"It rests on: {assumption_text(name)}." for name in self.assumptions]
        return card("Certificate: what was released, and what that proves", [*proved, *where], [*secure, *resting])

    def write(self, path: str | Path) -> None:
        """Write as JSON with sorted keys."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Read a certificate file."""
        try:
            return cls.from_json(read_json(path, "the certificate file"))
        except CertificateError:
            raise
        except GratisError as error:
            raise CertificateError(str(error)) from None
