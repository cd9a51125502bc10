"""Everything that code and pages cite is in the repository: papers in the bibliography, statements on their page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THEORY = ROOT / "docs" / "theory"
BIBLIOGRAPHY = THEORY / "bibliography.md"

pytestmark = pytest.mark.skipif(not BIBLIOGRAPHY.is_file(), reason="the documentation is not part of this installation")

# A name, further names or "et al.", and a year that is no quantity.
CITATION = re.compile(
    r"\b([A-Z][\w-]+(?:(?:, [A-Z][\w-]+)*,? (?:&|and) [A-Z][\w-]+| et al\.)?,? \(?(?:19|20)\d\d)\b(?!,\d)"
)
OUTSIDE = re.compile(r"\bspec(?:ification)?s?(?:\.md)?,? (?:section )?§?\d|\brecipe\.md\b|\bpapers\.md, S\d", re.I)
STATEMENT = re.compile(r"([\w-]+)\.md(?:#[\w-]+)?\)?`?,? statements? (\d+)(?: and (\d+))?")
FILE = re.compile(r"\b(?:docs|tests|benchmarks|src)/[\w./-]*\w\.(?:md|py|json|png)\b")


def sources() -> Iterator[tuple[str, str]]:
    """Name and text (white space collapsed, comment signs too) of all that is written here."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder, ending in (("src", "py"), ("tests", "py"), ("benchmarks", "py"), ("docs", "md")):
        found += sorted((ROOT / folder).rglob(f"*.{ending}"))
    for path in found:
        if path.is_file() and path != Path(__file__):
            text = re.sub(r"\n\s*#:? ", " ", path.read_text(encoding="utf-8"))
            yield path.relative_to(ROOT).as_posix(), re.sub(r"\s+", " ", text)


def keys() -> set[str]:
    return set(re.findall(r"^\*\*([^*]+)\*\*", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.MULTILINE))


def statements(page: str) -> list[int]:
    text = (THEORY / f"{page}.md").read_text(encoding="utf-8")
    return [int(number) for number in re.findall(r"^\*\*Statement (\d+) \(", text, re.MULTILINE)]


def test_no_document_is_cited_that_is_not_here() -> None:
    found = [(name, hit[0]) for name, text in sources() for hit in OUTSIDE.finditer(text)]
    assert not found


def test_every_citation_is_in_the_bibliography() -> None:
    known = keys()
    assert {"S0", "S1", "S2", "S3", "S4"} <= known
    assert len(known) > 40
    cited = {
        (name, hit)
        for name, text in sources()
        if name != "docs/theory/bibliography.md"
        for hit in CITATION.findall(text)
    }
    assert len({hit for _, hit in cited}) > 25
    missing = sorted((name, hit) for name, hit in cited if hit not in known)
    assert not missing
    ours = [text for name, text in sources() if name.startswith(("src", "docs"))]
    assert {hit for text in ours for hit in re.findall(r"\bS\d\b", text)} <= known


def test_statements_are_numbered_and_cited_by_their_numbers() -> None:
    pages = [path.stem for path in THEORY.glob("*.md") if path.stem not in ("bibliography", "papers")]
    for page in pages:
        numbers = statements(page)
        assert numbers == list(range(1, len(numbers) + 1)), page
        assert numbers, f"{page} has no statement"
    cited = [(name, *hit) for name, text in sources() for hit in STATEMENT.findall(text)]
    assert len(cited) > 25
    for name, page, *numbers in cited:
        assert page in pages, f"{name} cites a statement of {page}"
        assert {int(number) for number in numbers if number} <= set(statements(page)), f"{name}: {page}, {numbers}"


def test_files_that_are_named_exist() -> None:
    named = {(name, hit) for name, text in sources() for hit in FILE.findall(text)}
    # docs/pitfalls.md names tests by their room.
    named |= {(name, f"tests/{hit}") for name, text in sources() for hit in re.findall(r"`(\w+/test_\w+\.py)", text)}
    assert len(named) > 50
    assert not sorted((name, hit) for name, hit in named if not (ROOT / hit).exists())


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (OUTSIDE, "the least noise of spec 2.3,"),
        (OUTSIDE, "Specification, section 4:"),
        (CITATION, "as shown by Nobody & Nowhere 2031"),
        (CITATION, "(Nemo 1870s; Noone et al. 2020)"),
        (STATEMENT, "docs/theory/one-pass.md, statement 99"),
        (FILE, "see docs/theory/nothing.md."),
    ],
)
def test_a_wrong_citation_would_be_noticed(pattern: re.Pattern[str], words: str) -> None:
    assert pattern.search(words)
