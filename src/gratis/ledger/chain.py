"""The chain: what one entry of the ledger says, and why none can change without the rest noticing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from gratis.records.errors import LedgerError
from gratis.records.record import JsonObject, read_as
from gratis.records.strict_json import parse_json

__all__ = ["GENESIS", "Entry", "canonical_json", "read_chain", "sha256_hex"]

GENESIS = "0" * 64
_FIELDS = {"sequence": int, "previous": str, "kind": str, "time": str, "payload": dict[str, object]}


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of the text's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def canonical_json(data: object) -> str:
    """Return the one text that stands for `data`: sorted keys, no blanks, ASCII, no NaN, exact floats.

    >>> canonical_json({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger. `text` is the canonical JSON of the other fields, `hash` its SHA-256.

    hash_k = SHA-256({kind_k, payload_k, previous: hash_{k−1}, sequence: k, time_k}), hash_{−1} = 64 zeros.

    >>> first = Entry.after(None, "ledger", {"format": 1})
    >>> second = Entry.after(first, "note", {})
    >>> second.sequence, second.previous == first.hash
    (1, True)
    >>> read_chain([(e.sequence, e.text, e.hash) for e in (first, second)]) == (first, second)
    True
    """

    sequence: int
    previous: str
    kind: str
    time: str
    payload: JsonObject
    text: str
    hash: str

    @classmethod
    def after(cls, last: Entry | None, kind: str, payload: JsonObject) -> Entry:
        """Return the entry that follows `last`, stamped with the present time in UTC."""
        fields = {
            "sequence": 0 if last is None else last.sequence + 1,
            "previous": GENESIS if last is None else last.hash,
            "kind": kind,
            "time": datetime.now(UTC).isoformat(timespec="microseconds"),
            "payload": payload,
        }
        text = canonical_json(fields)
        return cls._parse(text, sha256_hex(text))

    @classmethod
    def _parse(cls, text: str, digest: str) -> Entry:
        fields = parse_json(text, "an entry")
        if not isinstance(fields, dict) or set(fields) != set(_FIELDS):
            raise ValueError("not an entry")
        read = {name: read_as(kind, fields[name], name) for name, kind in _FIELDS.items()}
        return cls(**read, text=text, hash=digest)


def read_chain(rows: Iterable[tuple[object, object, object]]) -> tuple[Entry, ...]:
    """Return the entries of (sequence, text, hash) rows; one that does not follow is an error."""
    entries: list[Entry] = []
    previous = GENESIS
    for expected, (sequence, text, digest) in enumerate(rows):
        try:
            if not (isinstance(text, str) and digest == sha256_hex(text)):
                raise ValueError("hash")
            entry = Entry._parse(text, digest)
            if not (sequence == entry.sequence == expected and entry.previous == previous):
                raise ValueError("order")
        # A hostile text may also nest too deeply (RecursionError) or hold a lone surrogate (UnicodeError).
        except (ValueError, TypeError, RecursionError):
            raise LedgerError(
                f"the ledger is damaged: entry {expected} does not follow from the one before it; "
                "restore the file from a copy, and reserve nothing until then"
            ) from None
        entries.append(entry)
        previous = entry.hash
    return tuple(entries)
