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
document.title = `wide ${document.documentElement.scrollWidth} window ${innerWidth} broken ${broken}`; });</script>"""


def page() -> str:
    budget = Budget(epsilon=1.0, delta=1e-5)
    event = GaussianRelease(sensitivity=1.0, noise_std=4.0, neighbouring="replace-one")
    certificate = issue_certificate(
        event=event, budget=budget, selection=Selection.NONE, randomness={"secure": True, "source": "test"}
    )
    content = ReportContent(
        title="A <private> model & its proof",
        subtitle="test",
        certificate=certificate,
        numbers=[("epsilon, proved", "1"), ("neighbouring relation", "replace-one")],
        reasons=["One reason that is long enough to be broken into several lines on a narrow screen, surely."],
        alternatives=[{"model": "linear", "predicted R²": 0.5}],
        scores=[("R², measured", "0.638 (0.564 to 0.711)", "private release on 2063 held-out rows")],
        audit={"alarm": False, "verdict": "consistent with the proof"},
        figures=[
            ("bound", tradeoff_figure([(0.0, 0.0), (0.5, 0.8), (1.0, 1.0)])),
            ("cost", cost_figure([(0.5, 0.3, 0.2, 0.4), (1.0, 0.4, 0.3, 0.5)], (1.0, 0.4), quantity="R²")),
        ],
    )
    return render_page(content)


def test_the_page_is_self_contained() -> None:
    text = page()
    assert "<script" not in text
    assert not re.search(r"""(src|href)=['"](?!data:|#)""", text)
    assert "&lt;private&gt;" in text


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_renders(tmp_path: Path, width: int, dark: bool) -> None:
    path = tmp_path / "page.html"
    path.write_text(page().replace("</head>", PROBE + "</head>"), encoding="utf-8")
    picture = tmp_path / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    shown = subprocess.run(
        [str(BROWSER), *flags, "--dump-dom", f"file://{path}"], capture_output=True, text=True, timeout=HANG, check=True
    )
    found = re.search(r"<title>wide (\d+) window (\d+) broken (\d+)</title>", shown.stdout)
    assert found is not None
    wide, window, broken = map(int, found.groups())
    assert wide <= window
    assert broken == 0
    assert "CONSOLE" not in shown.stderr
    subprocess.run(
        [str(BROWSER), *flags, f"--screenshot={picture}", f"file://{path}"],
        capture_output=True,
        timeout=HANG,
        check=True,
    )
    assert picture.stat().st_size > 5000
