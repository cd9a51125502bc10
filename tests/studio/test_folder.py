"""Paths stay below the folder: absolute ones, `..`, links and odd names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gratis.records.errors import GratisError
from gratis.studio.folder import TABLES, StudioFolder


@pytest.fixture
def outside(folder: Path) -> Path:
    found = folder.parent / "private.csv"
    found.write_text("a,b\n1,2\n", encoding="utf-8")
    return found


@pytest.mark.parametrize("text", ["../private.csv", "sub/../../private.csv", "./../private.csv", "/etc/passwd"])
@pytest.mark.parametrize("prefix", ["", "./", "gratis-studio/"])
def test_what_leads_outside_is_refused(folder: Path, outside: Path, prefix: str, text: str) -> None:
    with pytest.raises(GratisError):
        StudioFolder(folder).find(prefix + text, TABLES)


@pytest.mark.parametrize("text", ["", "a\0b.csv", None, 3, ["a"], ".", "x" * 1001])
def test_what_is_no_path_is_refused(folder: Path, text: object) -> None:
    with pytest.raises(GratisError):
        StudioFolder(folder).find(text, TABLES)


def test_absolute_paths_are_refused_also_below_the_folder(folder: Path) -> None:
    with pytest.raises(GratisError, match="below the folder"):
        StudioFolder(folder).find(str(folder / "wages.csv"), TABLES)


def test_links_are_followed_before_they_are_compared(folder: Path, outside: Path) -> None:
    os.symlink(outside, folder / "link.csv")
    os.symlink(folder.parent, folder / "up")
    os.symlink("wages.csv", folder / "alias.csv")
    found = StudioFolder(folder)
    for text in ("link.csv", "up/private.csv"):
        with pytest.raises(GratisError, match="below the folder"):
            found.find(text, TABLES)
    assert found.find("alias.csv", TABLES) == Path(os.path.realpath(folder / "wages.csv"))
    assert found.files(TABLES) == ["alias.csv", "wages.csv"]


def test_a_folder_that_shares_its_beginning_is_outside(folder: Path) -> None:
    beside = folder.parent / (folder.name + "-beside")
    beside.mkdir()
    (beside / "t.csv").write_text("a\n", encoding="utf-8")
    os.symlink(beside, folder / "beside")
    with pytest.raises(GratisError, match="below the folder"):
        StudioFolder(folder).find("beside/t.csv", TABLES)


def test_only_the_asked_endings_and_no_hidden_files(folder: Path) -> None:
    (folder / ".hidden.csv").write_text("a\n", encoding="utf-8")
    (folder / ".git").mkdir()
    (folder / ".git" / "t.csv").write_text("a\n", encoding="utf-8")
    (folder / "notes.md").write_text("a\n", encoding="utf-8")
    found = StudioFolder(folder)
    assert found.files(TABLES) == ["wages.csv"]
    with pytest.raises(GratisError, match="ends with"):
        found.find("notes.md", TABLES)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../x", "-x", ".x", "", "a" * 61, "a\n", None, "x."])
def test_names_of_runs_are_plain(folder: Path, name: object) -> None:
    with pytest.raises(GratisError):
        StudioFolder(folder).work(name)


def test_the_root_must_be_a_folder(folder: Path) -> None:
    with pytest.raises(GratisError, match="no folder"):
        StudioFolder(folder / "wages.csv")
