"""The gallery: every figure, every claim, escaped, self-contained."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gratis_papers.gallery import GalleryFigure, render_gallery

VOID = {"meta", "img", "br"}
TABLE = {
    "figure": "s2-fig1",
    "scale": "smoke",
    "seed": 3,
    "seconds": 1.5,
    "settings": {"d": 4, "widths": list(range(200)), "words": "<b>"},
    "notes": ["a note & more"],
    "claims": [
        {"claim": "loss < 1", "holds": True, "value": 0.123456},
        {"claim": "rises", "holds": False, "value": -2.0},
    ],
}


class Balanced(HTMLParser):
    """Open tags are closed in their order; sources and links stay inside the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.pictures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        values = dict(attrs)
        if tag == "img":
            self.pictures += 1
            assert str(values["src"]).startswith("data:image/png;base64,")
        if tag == "a":
            assert str(values["href"]).startswith("#")
        assert tag not in {"script", "link", "iframe"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def page() -> str:
    picture = Path(__file__).parents[2] / "docs" / "papers" / "s1-ladder.png"
    figure = GalleryFigure(
        name="s2-fig1", title="x < y", paper="A & B", statement="it falls", table=TABLE, picture=picture.read_bytes()
    )
    return render_gallery([figure, figure])


def test_page_is_whole_and_self_contained(page: str) -> None:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert parser.pictures == 2
    assert "http" not in page
    assert "prefers-color-scheme: dark" in page
    assert "viewport" in page


def test_page_says_what_holds_and_what_does_not(page: str) -> None:
    assert page.count("1 of 2 hold") == 2
    assert "do not hold: not explained" in page
    assert "loss &lt; 1" in page
    assert "0.1235" in page
    assert page.count("aria-label='does not hold'") == 2
    assert "x &lt; y" in page
    assert "A &amp; B" in page
    assert "it falls" in page
    assert "a note &amp; more" in page
    assert "&lt;b&gt;" in page
    assert "<b>&" not in page
    assert json.dumps(TABLE["settings"]["widths"]) not in page, "long lists are shortened"
