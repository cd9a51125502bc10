"""`gratis papers`: one figure, all of them, and the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gratis.cli.papers import app
from gratis.records.errors import GratisError
from gratis_papers import registry
from gratis_papers.registry import Claim, Figure, PaperResult
from gratis_papers.sweeps import sweep

RUNNER = CliRunner()


def doubled(x: int, rng: np.random.Generator) -> int:
    Path(f"computed-{x}").touch()
    return 2 * x


def good(scale: str, rng: np.random.Generator) -> PaperResult:
    values = sweep(doubled, [{"x": 1}, {"x": 2}])
    claims = [Claim("doubles", values == [2, 4], 4.0), Claim("vanishes", False, 1.0)]
    return PaperResult({"x": 1}, [{"x": 1}], claims, lambda figure: figure.subplots().plot([0, 1]), ("a note",))


def broken(scale: str, rng: np.random.Generator) -> PaperResult:
    raise GratisError("data is missing; fetch it")


@pytest.fixture
def two_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    programs = {"good": good, "broken": broken}
    monkeypatch.setattr(Figure, "load", lambda self: programs[self.function])
    figures = {"s2-fig1": Figure("a good one", "", "good"), "s9-fig1": Figure("a broken one", "", "broken")}
    monkeypatch.setattr(registry, "FIGURES", figures)


def test_one_figure(two_figures: None, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["run", "s2-fig1", "--output", "out"])
    assert result.exit_code == 0, "a claim that does not hold is a finding, not an error"
    assert "DOES NOT HOLD" in result.stdout
    assert "a note" in result.stdout
    assert (tmp_path / "out" / "s2-fig1.png").stat().st_size > 1000
    Path("computed-1").unlink()
    RUNNER.invoke(app, ["run", "s2-fig1", "--output", "out"])
    assert not Path("computed-1").exists(), "finished settings are found again"
    RUNNER.invoke(app, ["run", "s2-fig1", "--output", "out", "--no-resume"])
    assert Path("computed-1").exists()


def draw_again(figure: object, settings: dict, rows: list) -> None:
    figure.subplots().plot([0, rows[0]["x"]])


def judge_again(settings: dict, rows: list) -> list[Claim]:
    return [Claim("is one", rows[0]["x"] == 1, float(rows[0]["x"]))]


def test_pictures_and_claims_come_again_from_tables(two_figures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    result = RUNNER.invoke(app, ["run", "s2-fig1", "--output", "out"])
    assert "settles nothing" in result.stdout
    result = RUNNER.invoke(app, ["redraw", "out", "--json"])
    assert json.loads(result.stdout) == {"redrawn": [], "need_a_run": ["s2-fig1"]}
    known = Figure("a good one", __name__, "good", drawing="draw_again", judging="judge_again")
    monkeypatch.setattr(registry, "FIGURES", {"s2-fig1": known})
    Path("out/s2-fig1.png").write_bytes(b"old")
    result = RUNNER.invoke(app, ["redraw", "out"])
    assert "1 of 1" in result.stdout
    stored = json.loads(Path("out/s2-fig1.json").read_text(encoding="utf-8"))
    assert [claim["claim"] for claim in stored["claims"]] == ["is one"]
    assert stored["scale"] == "smoke"
    assert Path("out/s2-fig1.png").stat().st_size > 1000
    result = RUNNER.invoke(app, ["redraw", "nowhere"])
    assert isinstance(result.exception, GratisError)


def test_all_figures_one_line_each(two_figures: None) -> None:
    result = RUNNER.invoke(app, ["run", "all", "--output", "out"])
    assert isinstance(result.exception, GratisError), "the program turns it into exit code 2"
    lines = result.stdout.splitlines()
    assert lines[0].startswith("s2-fig1")
    assert " 1 of  2 claims hold" in lines[0]
    assert "does not hold: vanishes" in lines[1]
    assert lines[2].startswith("s9-fig1")
    assert "could not run: data is missing" in lines[2]
    assert "1 of 2 claims hold" in lines[3]
    found = json.loads(RUNNER.invoke(app, ["run", "all", "--output", "out", "--json"]).stdout)
    assert found["summary"] == {"figures": 2, "claims": 2, "hold": 1, "could_not_run": ["s9-fig1"]}


def test_gallery_of_a_folder(two_figures: None, tmp_path: Path) -> None:
    empty = RUNNER.invoke(app, ["gallery", "--folder", "nowhere"])
    assert isinstance(empty.exception, GratisError)
    assert not list(tmp_path.glob("*.html"))
    RUNNER.invoke(app, ["run", "s2-fig1", "--output", "out"])
    result = RUNNER.invoke(app, ["gallery", "--folder", "out", "--output", "pages/gallery.html", "--json"])
    assert json.loads(result.stdout) == {
        "figures": ["s2-fig1"], "claims": 2, "hold": 1, "page": "pages/gallery.html"
    }  # fmt: skip
    page = Path("pages/gallery.html").read_text(encoding="utf-8")
    assert "a good one" in page
    assert "vanishes" in page
    assert [path.name for path in Path("pages").iterdir()] == ["gallery.html"]
    Path("out/torn.json").write_text("{", encoding="utf-8")
    Path("out/torn.png").touch()
    torn = RUNNER.invoke(app, ["gallery", "--folder", "out", "--output", "pages/second.html"])
    assert isinstance(torn.exception, GratisError)
    assert "torn.json" in str(torn.exception)
    assert not Path("pages/second.html").exists()


def test_unknown_backend_is_refused_before_anything_runs(two_figures: None) -> None:
    result = RUNNER.invoke(app, ["run", "s2-fig1", "--backend", "spark"])
    assert isinstance(result.exception, GratisError)
    assert not Path("computed-1").exists()


def test_claims_over_seeds(two_figures: None) -> None:
    for seed in (0, 1):
        RUNNER.invoke(app, ["run", "s2-fig1", "--seed", str(seed), "--output", f"seed{seed}"])
    result = RUNNER.invoke(app, ["claims", "seed0", "seed1", "--output", "claims.json"])
    assert result.exit_code == 0
    assert "2 of 2" in result.stdout
    assert "0 of 2" in result.stdout
    assert "2 claims: 1 hold for every seed; not for all: not explained 1" in result.stdout
    stored = {row["claim"]: row["holds"] for row in json.loads(Path("claims.json").read_text(encoding="utf-8"))}
    assert stored == {"doubles": {"0": True, "1": True}, "vanishes": {"0": False, "1": False}}
    assert isinstance(RUNNER.invoke(app, ["claims", "nowhere"]).exception, GratisError)
