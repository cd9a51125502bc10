"""S1's figures at smoke scale: every claim holds, the table is plain data, the picture is drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gratis.papers.s1_interpolation import interpolation
from gratis.papers.s1_ladder import composition_ladder
from gratis.papers.s1_reconstruction import reconstruction
from gratis.papers.s1_robustness import robustness
from gratis.papers.s1_staircase import kernel_staircase


@pytest.mark.parametrize("program", [interpolation, composition_ladder, reconstruction, robustness, kernel_staircase])
def test_every_claim_holds_at_smoke_scale(program, tmp_path, monkeypatch):
    monkeypatch.delenv("GRATIS_DATA", raising=False)
    result = program("smoke", np.random.default_rng(0))
    assert {claim.claim: claim.value for claim in result.claims if not claim.holds} == {}
    table, picture = result.save(tmp_path, "figure")
    stored = json.loads(table.read_text(encoding="utf-8"))
    assert stored["rows"]
    assert stored["settings"]
    assert picture.stat().st_size > 5000
