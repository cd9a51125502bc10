"""What the committed full runs say, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gratis_papers.findings import FINDINGS, find
from gratis_papers.registry import FIGURES

_TABLES = sorted((Path(__file__).parents[2] / "docs" / "papers").glob("s*.json"))


@pytest.mark.parametrize("path", _TABLES, ids=lambda path: path.stem)
def test_every_claim_that_does_not_hold_has_a_cause_and_no_cause_is_left_over(path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    failed = [claim["claim"] for claim in stored["claims"] if not claim["holds"]]
    unexplained = [claim for claim in failed if not find(path.stem, claim).cause or not find(path.stem, claim).because]
    assert not unexplained
    for beginning, finding in FINDINGS.get(path.stem, {}).items():
        about = [claim["claim"] for claim in stored["claims"] if claim["claim"].startswith(beginning)]
        assert about, f"no claim begins with {beginning!r}"
        assert not finding.cause or set(about) & set(failed), f"{beginning!r} holds: its cause is stale"


def test_findings_are_about_figures() -> None:
    assert set(FINDINGS) <= set(FIGURES)
