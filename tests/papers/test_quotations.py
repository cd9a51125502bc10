"""The paper's words stand beside the stored claims as the programs would write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gratis_papers.quotations import QUOTATIONS, quote
from gratis_papers.registry import FIGURES

_FOLDER = Path(__file__).parents[2] / "docs" / "papers"


@pytest.mark.parametrize("figure", QUOTATIONS)
def test_stored_words_are_those_of_the_program(figure: str) -> None:
    assert figure in FIGURES
    claims = json.loads((_FOLDER / f"{figure}.json").read_text(encoding="utf-8"))["claims"]
    assert [claim["words"] for claim in claims] == [quote(figure, claim["claim"]) for claim in claims]
    for beginning in QUOTATIONS[figure]:
        assert any(claim["claim"].startswith(beginning) for claim in claims), f"no claim begins with {beginning!r}"
