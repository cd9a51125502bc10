"""Tutorials are programs: their blocks run in order, and their assertions hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

OWN_LOOP = Path(__file__).parents[2] / "docs" / "howto" / "own-loop.md"
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "private-table.md"


@pytest.mark.skipif(not TUTORIAL.is_file(), reason="the documentation is not part of this installation")
def test_from_csv_to_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 10
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(TUTORIAL), "exec"), names)
    assert (tmp_path / "income" / "certificate.json").is_file()


@pytest.mark.skipif(not OWN_LOOP.is_file(), reason="the documentation is not part of this installation")
def test_an_own_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("dp_accounting")
    blocks = re.findall(r"^```python\n(.*?)^```", OWN_LOOP.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(OWN_LOOP), "exec"), names)
    assert (tmp_path / "certificate.json").is_file()
