"""The reports of benchmarks/door.py in Chromium: at 390 and 1280 pixels, light and dark; what sticks out is said.

    python benchmarks/door_pictures.py FOLDER [--sheet FILE.png] [NAME …]

Every report is photographed whole into FOLDER/pictures, and one sheet shows the top of all of them side by side. Needs
selenium, chromium with its driver, and Pillow.
"""

from __future__ import annotations

import argparse
import base64
import io
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

WIDTHS, SCHEMES = (390, 1280), ("light", "dark")
# Elements whose text is cut off, by their own measure; boxes that scroll on purpose (.scroll, pre) are left out.
CUT = """
const inside = e => e.closest(".scroll, pre") === null;
const cut = [...document.querySelectorAll("body *")].filter(e => inside(e) && e.clientWidth
  && e.scrollWidth > e.clientWidth + 1).map(e => e.tagName + " " + (e.textContent || "").trim().slice(0, 60));
const scrolled = [...document.querySelectorAll(".scroll, pre")].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.tagName + " " + e.scrollWidth + " in " + e.clientWidth);
const broken = [...document.images].filter(i => !i.naturalWidth).length;
return {wide: document.documentElement.scrollWidth, cut, scrolled, broken};
"""


def browser() -> Any:
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(word)
    return webdriver.Chrome(options=options, service=Service(executable_path=shutil.which("chromedriver")))


def photographed(driver: Any, report: Path, width: int, scheme: str) -> tuple[Image.Image, dict[str, Any]]:
    """The whole page as a picture, and what does not fit on it."""
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    driver.get(report.resolve().as_uri())
    found = driver.execute_script(CUT)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"} | {
        "clip": {"x": 0, "y": 0, "width": width, "scale": 1,
                 "height": driver.execute_script("return document.documentElement.scrollHeight")},
    })  # fmt: skip
    return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB"), found


def saved(picture: Image.Image, path: Path) -> None:
    """With 128 colours, which such pages do not exceed by much: a third of the bytes."""
    picture.quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)


def sheet(pictures: list[Image.Image], *, height: int, across: int, scale: float) -> Image.Image:
    """The tops of pages in rows, scaled down."""
    tops = [page.crop((0, 0, page.width, min(height, page.height))) for page in pictures]
    small = [top.resize((int(top.width * scale), int(top.height * scale)), Image.Resampling.LANCZOS) for top in tops]
    wide, high, gap = max(one.width for one in small), max(one.height for one in small), 12
    rows = -(-len(small) // across)
    made = Image.new("RGB", (across * (wide + gap) + gap, rows * (high + gap) + gap), "#8a93a6")
    for place, one in enumerate(small):
        made.paste(one, (gap + place % across * (wide + gap), gap + place // across * (high + gap)))
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sheet", type=Path, help="Where the tops of all reports go, four pictures of each.")
    arguments = parser.parse_args()
    reports = {path.parent.name.removeprefix("out-"): path for path in arguments.folder.glob("out-*/report.html")}
    chosen = arguments.names or sorted(reports, key=str.lower)
    output = arguments.folder / "pictures"
    output.mkdir(exist_ok=True)
    driver, tops = browser(), []
    try:
        for place, name in enumerate(chosen):
            for width in WIDTHS:
                for scheme in SCHEMES:
                    picture, found = photographed(driver, reports[name], width, scheme)
                    saved(picture, output / f"{name}-{width}-{scheme}.png")
                    fits = (
                        "fits"
                        if found["wide"] <= width and not found["cut"] and not found["broken"]
                        else "DOES NOT FIT"
                    )
                    print(name, width, scheme, fits, {k: v for k, v in found.items() if v}, flush=True)
                    # On the sheet each table once: widths and schemes in turn.
                    if (WIDTHS.index(width), SCHEMES.index(scheme)) == (1, place % 2):
                        tops.append(picture)
    finally:
        driver.quit()
    if arguments.sheet is not None:
        saved(sheet(tops, height=1500, across=5, scale=0.22), arguments.sheet)


if __name__ == "__main__":
    main()
