"""The tutorial is a program: its blocks run in order, and its assertions hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "reconstruction.md"


@pytest.mark.slow
@pytest.mark.skipif(not TUTORIAL.is_file(), reason="the documentation is not part of this installation")
def test_the_tutorial_does_what_it_says() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(TUTORIAL), "exec"), names)
    assert names["leaked"].mean_error < 0.01  # type: ignore[attr-defined]
