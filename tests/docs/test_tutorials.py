"""Tutorials are programs: their blocks run in order, and their assertions hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gratis.cli.program import run

LEDGER = Path(__file__).parents[2] / "docs" / "ledger.md"
HOW_TO = Path(__file__).parents[2] / "docs" / "howto"
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


@pytest.mark.slow(but=["silos.md-share-2.json"])
@pytest.mark.skipif(not HOW_TO.is_dir(), reason="the documentation is not part of this installation")
@pytest.mark.parametrize(
    ("page", "written"),
    [("own-loop.md", "certificate.json"), ("spectrum.md", "certificate.json"), ("silos.md", "share-2.json")],
)
def test_pages_that_are_programs(page: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page != "silos.md":
        pytest.importorskip("torch")
        pytest.importorskip("dp_accounting")
    text = (HOW_TO / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert (tmp_path / written).is_file()


@pytest.mark.skipif(not HOW_TO.is_dir(), reason="the documentation is not part of this installation")
@pytest.mark.parametrize("page", [HOW_TO / "persons.md", LEDGER], ids=lambda page: page.name)
def test_snippets_run_as_they_are_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for command in re.findall(r"^gratis (ledger (?:create|show|verify) +[^\n]*?\.ledger[^\n]*)$", text, re.MULTILINE):
        if "HASH" not in command:
            assert run(command.split()) == 0
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
