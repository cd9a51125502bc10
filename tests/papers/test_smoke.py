"""Every figure at smoke scale: its table, its drawing, and those of its claims that a few runs can decide.

Exact claims hold no draw. Sampled ones are left to the full scale, but for those listed as clear: over seeds 0 to 6
the number that decides them, or its logarithm if it is a positive ratio, keeps its mean at least 15 standard deviations
away from the bound. Another machine is at most another draw, and a normal draw
then crosses the bound with a probability below 1e-5 (Student's law with six degrees of freedom).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

from gratis.records.errors import GratisError
from gratis_papers.house_style import SMALLEST, new_canvas
from gratis_papers.registry import FIGURES, redraw, run_figure
from gratis_papers.statements import PAPERS, STATEMENTS

NEEDS_TORCH = {
    "s0-fig1-left", "s0-fig1-right", "s0-fig2-5", "s3-fig1", "s3-size", "s3-fig2", "s3-bound", "s4-fig2", "s4-app",
    "s4-linear",
}  # fmt: skip
# A power-law covariance lies outside S2's Theorem 2, and harmonic loses there for small γ: exactly, and by 14 %.
REFUTED = {"s2-fig7": ["harmonic is at most every polynomial for γ ≤ .02 at ρ = 0.5 (power:0.3)"]}
CLEAR = {
    "s0-fig2-3": ["one ηTp/d for all widths costs at most .01 from p=2000 to 8000 (paper rule)"],
    "s0-fig2-4": ["top right: every loss above 1", "bottom left: every loss within .1 of 1",
                  "bottom right: with C > 10√p no time comes within .1 of the centre (exact rule)"],
    "s1-interp": ["loss within a factor of 1.3 of the linear regime's prediction at every step"],
    "s1-robust": ["NTK, even activation, n=60: S = O(log k·√(nd/p)) up to k = d"],
    "s2-fig4": ["c ≫ 1 is worse", "η₀c too large is worse"],
    "s2-fig5": ["ours: the point planned from public rows alone loses at most .05 against the best cell (α = 0.5)"],
    "s4-fig1": [*(f"ours: ε = 0.2, {kind}: A = {name} grows less than A = I" for kind in ("training", "population")
                  for name in ("k^-1/2", "k^-2")),
                "the explicit bound lies above the measured excess loss in its own settings"],
    "s4-app": ["slope of the top 4 eigenvalues after 10 iterations within .05 of that after 100"],
    "s4-fig2": ["singular values decay: exponent clearly negative"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_smoke_scale_computes_checks_and_draws(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS_TORCH:
        pytest.importorskip("torch")
    monkeypatch.delenv("GRATIS_DATA", raising=False)
    result = run_figure(name, "smoke")
    assert [claim.claim for claim in result.claims if claim.exact and not claim.holds] == REFUTED.get(name, [])
    for words in CLEAR.get(name, []):
        values = {claim.claim: claim.value for claim in result.claims if claim.claim.startswith(words)}
        assert values, words
        assert not [claim for claim in result.claims if claim.claim in values and not claim.holds], values
    table, picture = result.save(tmp_path, name)
    stored = json.loads(table.read_text(encoding="utf-8"))
    assert stored["figure"] == name
    assert stored["settings"]
    assert all(set(claim) == {"claim", "words", "holds", "value"} for claim in stored["claims"])
    assert stored["rows"]
    json.dumps(stored["rows"], allow_nan=False)
    assert picture.stat().st_size > 5000
    drawn = new_canvas(result.draw, settles_nothing=True)
    assert any("settles nothing" in words.get_text() for words in drawn.texts)
    small = {words.get_text() for words in drawn.findobj(Text) if words.get_text() and words.get_size() < SMALLEST}
    assert not small
    if FIGURES[name].drawing:
        # A stored table is enough for the picture and, where they are decided anew, for the same claims.
        before = picture.read_bytes()
        assert redraw(table)
        assert picture.read_bytes() == before
        assert json.loads(table.read_text(encoding="utf-8"))["claims"] == stored["claims"]
    CERTAIN.get(name, lambda stored: None)(stored)


def of_digits(stored: dict[str, Any]) -> None:
    assert stored["settings"]["data"] == "scikit-learn digits"
    assert {row["rule"] for row in stored["rows"]} >= {"exact", "paper"}


def of_shipped_tables(stored: dict[str, Any]) -> None:
    assert any("GRATIS_DATA is not set" in note for note in stored["notes"])


def of_divergence(stored: dict[str, Any]) -> None:
    for row in stored["rows"]:
        # The worst neighbour's mean lies among its runs, and both ends are positive: no bar leaves the axis.
        assert 0 < row["least"] <= row["kl"] * (1 + 1e-4) <= row["most"] * (1 + 2e-4)
    for line in {(row["scheme"], row["width"], row["depth"], row.get("step_size")) for row in stored["rows"]}:
        kl = [r["kl"] for r in stored["rows"] if (r["scheme"], r["width"], r["depth"], r.get("step_size")) == line]
        assert kl == sorted(kl), "a sum of squares grows with the steps"
    assert any("not (ε, δ)-DP" in note for note in stored["notes"])


def of_a_diagnostic(stored: dict[str, Any]) -> None:
    assert any("non-private" in note for note in stored["notes"])
    assert "certificate" not in json.dumps(stored["settings"])


CERTAIN = {
    "s0-fig1-left": of_digits,
    "s0-fig1-right": of_digits,
    "s0-fig2-5": of_digits,
    "s2-fig5": of_shipped_tables,
    "s2-fig6": of_shipped_tables,
    "s2-fig8": of_shipped_tables,
    "s3-fig1": of_divergence,
    "s3-size": of_divergence,
    "s3-fig2": of_divergence,
    "s3-bound": of_divergence,
    "s4-fig2": of_a_diagnostic,
    "s4-app": of_a_diagnostic,
    "s4-linear": of_a_diagnostic,
}


def test_every_figure_says_what_its_paper_claims() -> None:
    assert set(STATEMENTS) == set(FIGURES)
    assert {name.split("-")[0] for name in FIGURES} == set(PAPERS)


def test_unknown_scale_is_refused() -> None:
    with pytest.raises(GratisError, match="scale"):
        run_figure("s0-fig2-1", "huge")
