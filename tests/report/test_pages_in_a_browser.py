"""The report in a real browser: it renders without errors or network, and nothing sticks out on a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gratis.accounting import issue_certificate
from gratis.records.budget import Budget
from gratis.records.certificates import Selection
from gratis.records.events import GaussianRelease
from gratis.report.figures import cost_figure, tradeoff_figure
from gratis.report.page import ReportContent, render_page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HANG = 3600  # seconds: a browser that hangs, not one on a busy machine
# The page writes its own width into the title; only this test's copy of the page holds a script.
PROBE = """<script>addEventListener("load", () => {
const broken = [...document.images].filter(i => !i.naturalWidth).length;
const cut = [...document.querySelectorAll(".numbers b, dd, p, li, table.wrap td")].filter(
  e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).length;
document.title = `wide ${document.documentElement.scrollWidth} window ${innerWidth} broken ${broken} cut ${cut}`;
});</script>"""
EVIL = "<script>alert('x')</script><b onmouseover=\"x\">&amp;"
LONG = "a_column_name_without_any_place_to_break_that_is_longer_than_a_telephone_is_wide_surely"


def page(evil: str = "A <private> model & its proof") -> str:
    budget = Budget(epsilon=1.0, delta=1e-5)
    event = GaussianRelease(sensitivity=1.0, noise_std=4.0, neighbouring="replace-one")
    certificate = issue_certificate(
        event=event, budget=budget, selection=Selection.NONE, randomness={"secure": True, "source": "test"},
        assumptions=(evil, "the set of classes that occur is public"),
    )  # fmt: skip
    content = ReportContent(
        title=evil,
        subtitle=evil,
        certificate=certificate,
        numbers=[("predicted cost of privacy", "0.00 to 0.01 of R²"), (evil, evil), ("relation", "replace-one")],
        reasons=["One reason that is long enough to be broken into several lines on a narrow screen, surely.", evil],
        alternatives=[{"model": "linear", "predicted R²": 0.5}],
        scores=[{"score": "R², measured", "value": "0.638", "range": "0.564 to 0.711", "from": evil}],
        coefficients=[{"column": LONG, "coefficient": "1.2345", "95 % interval": "1.1 to 1.3"}, {"column": evil}],
        learnt_words=[evil],
        columns=[{"column": LONG, "read as": f"categorical, 2 levels: {evil}", "becomes": LONG}],
        command=f"gratis fit people.csv --target {LONG}",
        python=f"fit({evil!r})",
        privacy=[evil],
        record=[("released arrays", "SHA-256 " + "0123456789abcdef" * 4), (evil, evil)],
        audit={"alarm": False, "verdict": "consistent with the proof", "words": evil},
        figures=[(evil, tradeoff_figure([(0.0, 0.0), (0.5, 0.8), (1.0, 1.0)]))],
        cost_figures=[
            ("cost", cost_figure([(0.5, 0.3, 0.2, 0.4), (1.0, 0.4, 0.3, 0.5)], (1.0, 0.4), quantity="R²")),
        ],
    )
    return render_page(content)


def test_the_page_is_self_contained() -> None:
    text = page()
    assert "<script" not in text
    assert not re.search(r"""(src|href)=['"](?!data:|#)""", text)
    assert "&lt;private&gt;" in text


def test_whatever_a_name_holds_it_stays_text() -> None:
    text = page(EVIL)
    assert EVIL not in text
    assert "<script" not in text
    assert 'onmouseover="' not in text
    assert text.count("&lt;script&gt;") > 12


def test_assumptions_say_what_they_mean_and_how_to_check_them() -> None:
    text = page()
    assert "that a class occurs at all is no secret" in text
    assert "see whether the list of classes is published elsewhere" in text


@pytest.mark.slow(but=["False-1280"])
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_renders(tmp_path: Path, width: int, dark: bool) -> None:
    path = tmp_path / "page.html"
    # A frame is as narrow as it is told to be; a window is at least 500 wide in some browsers.
    framed = page().replace("</head>", PROBE + "</head>")
    path.write_text(framed, encoding="utf-8")
    outer = tmp_path / "outer.html"
    outer.write_text(
        f"<iframe src='page.html' width={width} height=900></iframe><script>addEventListener('load', () => setTimeout("
        "() => { document.title = frames[0].document.title }, 300))</script>"
    )
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
    flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += ["--allow-file-access-from-files", "--virtual-time-budget=5000"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    shown = subprocess.run(
        [str(BROWSER), *flags, "--dump-dom", f"file://{outer}"],
        capture_output=True, text=True, timeout=HANG, check=True,
    )  # fmt: skip
    found = re.search(r"<title>wide (\d+) window (\d+) broken (\d+) cut (\d+)</title>", shown.stdout)
    assert found is not None
    wide, window, broken, cut = map(int, found.groups())
    assert window == width
    assert wide <= window
    assert (broken, cut) == (0, 0)
    assert "CONSOLE" not in shown.stderr
