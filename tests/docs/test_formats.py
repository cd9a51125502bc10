"""The pages on formats, stability and design say what the code is: versions, fields, names, commands, rooms."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import typer.main

import gratis
from gratis.cli.program import app
from gratis.estimators import fit_plan, model_file, released_arrays
from gratis.ledger import storage
from gratis.records import certificates, events
from gratis.records.certificates import Certificate
from gratis.records.facts import Facts

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is not part of this installation")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_versions_of_formats() -> None:
    named = {f"`{module.FORMAT}`" for module in (certificates, model_file, fit_plan)}
    for text in (page("stable.md"), page("formats.md")):
        assert named <= set(re.findall(r"`gratis-\w+/\d+`", text))
        assert re.search(rf"ledger.*\b{storage.FORMAT}\b", text, re.IGNORECASE)


def test_every_event_and_field_is_described() -> None:
    text = page("formats.md")
    for cls in get_args(events.Event):
        kind = cls.kind
        line = next(line for line in text.splitlines() if line.startswith(f"| `{kind}` |"))
        own = {field.name for field in fields(cls)} - {"neighbouring", "label"}
        assert own == {name for name in own if f"`{name}`" in line}, kind
    certificate = {field.name for field in fields(Certificate)}
    described = text[text.index("## Certificate") : text.index("## Model file")]
    assert certificate == {name for name in certificate if f"| `{name}` |" in described}
    assert {f"`{field.name}`" for field in fields(Facts)} <= set(re.findall(r"`\w+`", text))


def test_every_array_of_a_model_file_is_described() -> None:
    text = page("formats.md")
    names = {name for table in released_arrays._TABLE.values() for name in table}
    missing = {name for name in names if f"`{name}`" not in text and not name.startswith("target-")}
    assert not missing


def test_stable_names_and_commands_are_those_that_exist() -> None:
    text = page("stable.md")
    stable = text[: text.index("## For researchers")]
    names = [name for name in gratis.__all__ if not name.startswith("DP")]
    assert [name for name in names if f"`{name}`" not in stable] == []
    commands = set(getattr(typer.main.get_command(app), "commands"))  # noqa: B009 - typer declares no such attribute
    assert {name for name in commands if not re.search(rf"`{name}\b", text)} == set()


def test_rooms_of_the_design_are_those_of_the_source() -> None:
    text = page("design.md")
    drawn = set(re.findall(r"^  (\w+)/ ", text, re.MULTILINE))
    assert drawn == {path.parent.name for path in Path(gratis.__file__).parent.glob("*/__init__.py")}
    told = text[text.index("| room |") : text.index("Four walls")]
    assert {room for room in drawn if f"`{room}`" in told} == drawn
