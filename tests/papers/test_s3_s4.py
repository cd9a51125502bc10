from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gratis.papers.registry import PaperResult
from gratis.papers.s3_divergence import divergence_against_epochs, divergence_against_shape
from gratis.papers.s3_initialization import table_one
from gratis.papers.s4_dimension import loss_against_dimension
from gratis.papers.s4_spectrum import gradient_spectrum

# On digits, which are learned within a few epochs, gradients fall again: the papers' statements about late epochs,
# width and small early losses are about CIFAR and are checked at full scale; the output says that they fail here.
EXPECTED_TO_FAIL = {
    "s3-fig1": "faster than linearly later|LeCun and Xavier at least 10 times|0.01: (ntk|he) grows linearly",
    "s3-fig2": "20 epochs: .* worsens with",
}
PROGRAMS: dict[str, Callable[[str, np.random.Generator], PaperResult]] = {
    "s3-tab1": table_one,
    "s3-fig1": divergence_against_epochs,
    "s3-fig2": divergence_against_shape,
    "s4-fig1": loss_against_dimension,
    "s4-fig2": gradient_spectrum,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_smoke_scale_computes_checks_and_draws(name: str, tmp_path: Path) -> None:
    result = PROGRAMS[name]("smoke", np.random.default_rng(0))
    failed = [claim.claim for claim in result.claims if not claim.holds]
    allowed = EXPECTED_TO_FAIL.get(name, "nothing")
    assert [claim for claim in failed if not re.search(allowed, claim)] == []
    assert len(result.claims) > len(failed)
    table, picture = result.save(tmp_path, name)
    stored = json.loads(table.read_text(encoding="utf-8"))
    assert stored["rows"]
    assert picture.stat().st_size > 5000
    if name.startswith("s3-fig"):
        for row in stored["rows"]:
            assert 0 <= row["low"] <= row["kl"] <= row["high"]
            assert 0 < row["total_variation"] <= 1
            assert row["bound"] == pytest.approx(row["published_bound"]), "softmax: the two slips cancel"
        assert any("not (ε, δ)-DP" in note for note in stored["notes"])
    if name == "s4-fig2":
        assert any("non-private" in note for note in stored["notes"])
        assert "certificate" not in json.dumps(stored["settings"])
