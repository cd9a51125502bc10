"""How every page looks: one sheet, no scripts, no network, light and dark, laptop and phone."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["document", "numbers", "paragraphs", "pictures", "section", "table", "text"]

_STYLE = """
:root { color-scheme: light dark; --ink: #232a35; --soft: #5a6475; --paper: #fbfbf9; --card: #ffffff;
  --line: #e2e4e8; --accent: #1f6f8b; --good: #2d7a4b; --bad: #b3402a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a3adbd; --paper: #14181f; --card: #1c222c;
  --line: #303846; --accent: #6cb8d3; --good: #74c596; --bad: #ee8a73; } img { background: #fff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; margin: .2rem 0; } h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem 1.2rem;
  margin: 1rem 0; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; }
.numbers div { border-left: 3px solid var(--accent); padding: .1rem .8rem; }
.numbers b { display: block; font-size: 1.2rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.numbers span { color: var(--soft); font-size: .85rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1rem; }
img { width: 100%; height: auto; border-radius: 8px; }
figure { margin: 0; } figcaption { color: var(--soft); font-size: .85rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
ul { padding-left: 1.2rem; margin: .3rem 0; } .good { color: var(--good); } .bad { color: var(--bad); }
pre { overflow-x: auto; font-size: .8rem; } code { font-size: .9em; }
"""


def document(title: str, parts: Iterable[str], style: str = "") -> str:
    """Return a whole page; `style` adds to the sheet."""
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{text(title)}</title><style>{_STYLE}{style}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>"
    )


def text(value: object) -> str:
    """Return the value as text that is safe inside HTML."""
    return html.escape(str(value))


def section(title: str, body: str) -> str:
    """Return a card."""
    return f"<section><h2>{text(title)}</h2>{body}</section>"


def numbers(items: Sequence[tuple[str, str]]) -> str:
    """Return (name, value) pairs as large figures."""
    cells = "".join(f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for name, value in items)
    return f"<div class=numbers>{cells}</div>"


def paragraphs(items: Sequence[str]) -> str:
    """Return one paragraph a sentence."""
    return "".join(f"<p>{text(item)}</p>" for item in items)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows of equal keys as a table that scrolls on its own."""
    if not rows:
        return ""
    names = list(rows[0])

    def cell(value: object) -> str:
        return f"<td>{value:.4g}</td>" if isinstance(value, float) else f"<td>{text(value)}</td>"

    head = "".join(f"<th>{text(name.replace('_', ' '))}</th>" for name in names)
    body = "".join("<tr>" + "".join(cell(row.get(name, "")) for name in names) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def pictures(figures: Sequence[tuple[str, bytes]]) -> str:
    """Return (caption, PNG) pairs, embedded."""
    found = []
    for caption, png in figures:
        data = base64.b64encode(png).decode("ascii")
        found.append(
            f"<figure><img alt='{text(caption)}' src='data:image/png;base64,{data}'>"
            f"<figcaption>{text(caption)}</figcaption></figure>"
        )
    return f"<div class=pictures>{''.join(found)}</div>"
