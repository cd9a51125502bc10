"""Tutorials are programs: their blocks run in order, and their assertions hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
