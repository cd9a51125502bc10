"""The strict reader: one reading for every text, and a sentence for every text that has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gratis.ledger.chain import read_chain, sha256_hex
from gratis.records.certificates import Certificate
from gratis.records.errors import GratisError, LedgerError
from gratis.records.strict_json import parse_json
from gratis.rows.encoding import TableSchema

HOSTILE: dict[str, bytes] = {
    "a key twice": b'{"columns": {"a": "numeric"}, "columns": {}}',
    "a key twice, deep": b'{"columns": {"a": "numeric", "a": "ignored"}}',
    "huge integer": b'{"columns": 1' + b"0" * 400 + b"}",
    "endless integer": b'{"columns": ' + b"9" * 1_000_000 + b"}",
    "huge float": b'{"columns": 1e400}',
    "NaN": b'{"columns": NaN}',
    "infinity": b'{"columns": -Infinity}',
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep but parsable": b"[" * 200 + b"]" * 200,
    "not UTF-8": b'{"columns": "\xff\xfe"}',
    "half a character": b'{"columns": "\\ud800"}',
    "half a character as a key": b'{"\\ud800": 1}',
    "nothing": b"",
    "two documents": b"{} {}",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("read", [Certificate.read, TableSchema.read])
def test_hostile_files_are_one_sentence(read: Callable[[Any], object], content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(GratisError) as caught:
        read(tmp_path / "file.json")
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)
    # It is the reader that refuses, not a check of what was read that happens to fail as well.
    with pytest.raises(GratisError, match="the file"):
        parse_json(content, "the file")


def test_what_has_one_reading_is_read() -> None:
    data = {"a": [1, -2.5, 10**300, 1e308, None, True, "ä€😀"], "b": {}}
    assert parse_json(json.dumps(data, ensure_ascii=False).encode(), "it") == data
    assert parse_json(json.dumps(data), "it") == data
    assert parse_json("[" * 100 + "]" * 100, "it")


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gratis.records.strict_json._LONGEST", 10)
    (tmp_path / "big.json").write_text(" " * 20)
    with pytest.raises(GratisError, match="larger than"):
        TableSchema.read(tmp_path / "big.json")
    with pytest.raises(GratisError, match="larger than"):
        parse_json(" " * 20, "it")


def test_the_ledger_reads_strictly_too() -> None:
    text = '{"kind":"ledger","kind":"budget","payload":{},"previous":"","sequence":0,"time":""}'
    with pytest.raises(LedgerError, match="entry 0"):
        read_chain([(0, text, sha256_hex(text))])
