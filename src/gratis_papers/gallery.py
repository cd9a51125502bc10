"""One self-contained HTML page of all figures: what a paper says beside what was measured here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gratis.report.style import document, numbers, paragraphs, pictures, section, table, text
from gratis_papers.findings import find, summary_rows

__all__ = ["GalleryFigure", "render_gallery"]

_STYLE = """
.index { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .3rem 1.2rem; }
.index a { color: inherit; text-decoration: none; border-bottom: 1px solid var(--line); padding: .2rem 0;
  display: flex; justify-content: space-between; gap: .8rem; }
.index a:hover { color: var(--accent); } .index span { white-space: nowrap; }
h2 a { color: var(--accent); text-decoration: none; }
.beside { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: .4rem 1.6rem; margin-top: .8rem; }
.beside h3 { font-size: .85rem; margin: 0 0 .2rem; color: var(--soft); font-weight: 600; letter-spacing: .03em; }
.claims { list-style: none; padding: 0; margin: 0; }
.claims li { display: grid; grid-template-columns: 1.3rem 1fr auto; gap: .3rem .5rem; padding: .2rem 0;
  border-bottom: 1px solid var(--line); font-size: .92rem; }
.claims b { font-variant-numeric: tabular-nums; font-weight: 600; white-space: nowrap; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; } details { margin-top: .6rem; }
details p { font-size: .9rem; color: var(--soft); }
@media (max-width: 44rem) { .beside { grid-template-columns: minmax(0, 1fr); } }
"""
_MOST = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryFigure:
    """One figure as saved by `gratis papers run`: its table (JSON), its picture, and what the paper says."""

    name: str
    title: str
    paper: str = ""
    statement: str = ""
    table: Mapping[str, Any] = field(repr=False)
    picture: bytes = field(repr=False)


def render_gallery(figures: Sequence[GalleryFigure], *, title: str = "The papers' figures, run here") -> str:
    """Return the page as HTML text: figures in the order given, each claim with its value, held or not.

    >>> page = render_gallery([GalleryFigure(name="s9-fig1", title="a < b", picture=b"", table={"claims": [
    ...     {"claim": "rises", "holds": False, "value": 0.25}]})])
    >>> "a &lt; b" in page and "does not hold" in page
    True
    """
    claims = [(figure.name, claim) for figure in figures for claim in figure.table.get("claims", ())]
    summary = [
        ("figures", str(len(figures))),
        ("claims", str(len(claims))),
        *((f"claims: {what}" if what != "hold" else "claims hold", str(n)) for what, n in summary_rows(claims)),
    ]
    parts = [
        f"<h1>{text(title)}</h1><p class=soft>What each paper says beside what was measured by this program. Claims "
        "are inequalities fixed in the program; one that does not hold is shown as such.</p>",
        section("In short", numbers(summary)),
        section("Figures", f"<nav class=index>{''.join(map(_entry, figures))}</nav>"),
        *map(_figure, figures),
    ]
    return document(title, parts, _STYLE)


def _counts(figure: GalleryFigure) -> tuple[int, int]:
    claims = figure.table.get("claims", ())
    return sum(bool(claim["holds"]) for claim in claims), len(claims)


def _entry(figure: GalleryFigure) -> str:
    held, count = _counts(figure)
    kind = "good" if held == count else "bad"
    return (
        f"<a href='#{text(figure.name)}'><span>{text(figure.name)}</span>"
        f"<span class={kind}>{held} of {count} hold</span></a>"
    )


def _figure(figure: GalleryFigure) -> str:
    data = figure.table
    run = ", ".join(
        f"{word} {data[key]}{unit}"
        for word, key, unit in (("scale", "scale", ""), ("seed", "seed", ""), ("took", "seconds", " s"))
        if key in data
    )
    says = paragraphs([figure.statement]) if figure.statement else "<p class=soft>not recorded</p>"
    citation = f"<p class=soft>{text(figure.paper)}</p>" if figure.paper else ""
    body = (
        pictures([("; ".join(filter(None, (figure.title, run))), figure.picture)])
        + f"<div class=beside><div><h3>The paper</h3>{says}{citation}</div>"
        + f"<div><h3>Measured here</h3>{_claims(figure.name, data.get('claims', ()))}</div></div>"
        + _settings(data)
    )
    heading = (
        f"<h2 id='{text(figure.name)}'><a href='#{text(figure.name)}'>{text(figure.name)}</a> {text(figure.title)}"
    )
    return f"<section>{heading}</h2>{body}</section>"


def _claims(figure: str, claims: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for claim in claims:
        kind, mark, word = ("good", "✓", "holds") if claim["holds"] else ("bad", "✗", "does not hold")
        value, finding = float(claim["value"]), find(figure, claim["claim"])
        more = [f"“{claim['words']}”"] if claim.get("words") else []
        if finding.cause and not claim["holds"]:
            more.append(f"{finding.cause}: {finding.because}")
        if finding.first:
            more.append(f"changed after a first run; was: {finding.first}")
        small = "".join(f"<br><small>{text(line)}</small>" for line in more)
        items.append(
            f"<li><span class={kind} title='{word}' role=img aria-label='{word}'>{mark}</span>"
            f"<span>{text(claim['claim'])}{small}</span><b class={kind}>{value:.4g}</b></li>"
        )
    return f"<ul class=claims>{''.join(items)}</ul>"


def _settings(data: Mapping[str, Any]) -> str:
    rows = [
        {"setting": name.replace("_", " "), "value": _short(value)} for name, value in data.get("settings", {}).items()
    ]
    notes = paragraphs(list(data.get("notes", ())))
    return f"<details><summary>Settings and notes</summary>{notes}{table(rows)}</details>"


def _short(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= _MOST else shown[: _MOST - 2] + " …"
