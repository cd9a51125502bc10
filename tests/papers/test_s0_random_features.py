from __future__ import annotations

import json
from pathlib import Path

import pytest

from gratis.papers.registry import FIGURES, run_figure
from gratis.specs.errors import GratisError


@pytest.mark.parametrize("name", [name for name in FIGURES if name.startswith("s0-fig2-") and name < "s0-fig2-5"])
def test_every_claim_holds_at_smoke_scale(name: str, tmp_path: Path) -> None:
    result = run_figure(name, "smoke")
    assert {claim.claim: claim.value for claim in result.claims if not claim.holds} == {}
    table, picture = result.save(tmp_path, name)
    stored = json.loads(table.read_text(encoding="utf-8"))
    assert stored["figure"] == name
    assert all(set(claim) == {"claim", "holds", "value"} for claim in stored["claims"])
    assert picture.stat().st_size > 5000


def test_unknown_scale_is_refused() -> None:
    with pytest.raises(GratisError, match="scale"):
        run_figure("s0-fig2-1", "huge")
