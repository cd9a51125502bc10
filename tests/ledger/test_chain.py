from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gratis.ledger.chain import GENESIS, Entry, canonical_json, read_chain
from gratis.records.errors import LedgerError

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_payloads = st.lists(st.dictionaries(st.text(), _json, max_size=3), min_size=1, max_size=5)


def _rows(payloads):
    entries: list[Entry] = []
    for payload in payloads:
        entries.append(Entry.after(entries[-1] if entries else None, "note", payload))
    return [(entry.sequence, entry.text, entry.hash) for entry in entries]


@given(_payloads)
def test_a_chain_reads_back_and_each_hash_is_plain_sha256_of_the_text(payloads):
    rows = _rows(payloads)
    entries = read_chain(rows)
    assert [entry.payload for entry in entries] == payloads
    previous = GENESIS
    for number, (_, text, digest) in enumerate(rows):
        assert hashlib.sha256(text.encode()).hexdigest() == digest
        fields = json.loads(text)
        assert (fields["sequence"], fields["previous"]) == (number, previous)
        assert canonical_json(fields) == text
        previous = digest


@given(_payloads, st.data())
def test_any_change_of_any_row_is_noticed(payloads, data):
    rows = _rows([*payloads, {}])
    victim = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, 2))
    row = list(rows[victim])
    if column == 0:
        row[0] += data.draw(st.sampled_from([-1, 1]))
    else:
        at = data.draw(st.integers(0, len(row[column]) - 1))
        letter = "x" if row[column][at] != "x" else "y"
        row[column] = row[column][:at] + letter + row[column][at + 1 :]
    with pytest.raises(LedgerError, match=f"entry {victim} "):
        read_chain([*rows[:victim], tuple(row), *rows[victim + 1 :]])


def test_a_rewritten_entry_with_a_fresh_hash_breaks_the_next_one():
    rows = _rows([{"a": 1}, {"a": 2}, {"a": 3}])
    forged = rows[1][1].replace('"a":2', '"a":9')
    rows[1] = (1, forged, hashlib.sha256(forged.encode()).hexdigest())
    with pytest.raises(LedgerError, match="entry 2 "):
        read_chain(rows)


@pytest.mark.parametrize("drop", [0, 1])
def test_a_missing_entry_is_noticed(drop):
    rows = _rows([{"a": 1}, {"a": 2}, {"a": 3}])
    with pytest.raises(LedgerError, match=f"entry {drop} "):
        read_chain(rows[:drop] + rows[drop + 1 :])


@pytest.mark.parametrize("text", [b"blob", None, 7, "[]", "{}", "[" * 100_000, '{"a":\ud800}'])
def test_a_text_that_is_no_entry_is_a_ledger_error(text):
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if isinstance(text, str) else "0" * 64
    with pytest.raises(LedgerError, match="entry 0 "):
        read_chain([(0, text, digest)])


def test_numbers_that_json_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"mu": float("nan")})
