"""One self-contained HTML page about one private model: no scripts, no network, light and dark."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gratis.specs.certificates import Certificate, plain

__all__ = ["ReportContent", "render_page"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """Everything that a page shows; all of it is public or was released."""

    title: str
    subtitle: str
    certificate: Certificate
    numbers: Sequence[tuple[str, str]] = ()
    reasons: Sequence[str] = ()
    alternatives: Sequence[Mapping[str, Any]] = ()
    scores: Sequence[tuple[str, str, str]] = ()
    audit: Mapping[str, Any] | None = None
    figures: Sequence[tuple[str, bytes]] = field(default=(), repr=False)


def render_page(content: ReportContent) -> str:
    """Return the page as HTML text."""
    certificate = content.certificate
    parts = [
        f"<h1>{_text(content.title)}</h1><p class=soft>{_text(content.subtitle)}</p>",
        _section("In short", _numbers(content.numbers)),
        _section("The plan, made before the data was touched", _list(content.reasons) + _table(content.alternatives)),
        _section("Pictures", _pictures(content.figures)) if content.figures else "",
        _section("Scores", _scores(content.scores)) if content.scores else "",
        _section("Audit", _audit(content.audit)) if content.audit else "",
        _section("What the guarantee means, and what it rests on", _guarantee(certificate)),
        _section("Certificate", _json(certificate.to_json())),
        _section(
            "How to cite",
            "<p>The Gratis maintainers, <i>Gratis: private learning in high dimension</i>, version "
            f"{_text(certificate.versions.get('gratis', ''))}. The certificate above can be checked by anyone with "
            "<code>gratis certificate verify FILE</code>.</p>",
        ),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{_text(content.title)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{body}</section>"


def _numbers(numbers: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<div><b>{_text(value)}</b><span>{_text(name)}</span></div>" for name, value in numbers)
    return f"<div class=numbers>{cells}</div>"


def _list(items: Sequence[str]) -> str:
    return "".join(f"<p>{_text(item)}</p>" for item in items)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    names = list(rows[0])

    def cell(value: Any) -> str:
        return f"<td>{value:.4g}</td>" if isinstance(value, float) else f"<td>{_text(value)}</td>"

    head = "".join(f"<th>{_text(name.replace('_', ' '))}</th>" for name in names)
    body = "".join("<tr>" + "".join(cell(row.get(name, "")) for name in names) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _pictures(figures: Sequence[tuple[str, bytes]]) -> str:
    found = []
    for caption, png in figures:
        data = base64.b64encode(png).decode("ascii")
        found.append(
            f"<figure><img alt='{_text(caption)}' src='data:image/png;base64,{data}'>"
            f"<figcaption>{_text(caption)}</figcaption></figure>"
        )
    return f"<div class=pictures>{''.join(found)}</div>"


def _scores(scores: Sequence[tuple[str, str, str]]) -> str:
    rows = [{"score": name, "value": value, "where it comes from": origin} for name, value, origin in scores]
    return _table(rows)


def _audit(audit: Mapping[str, Any]) -> str:
    kind = "bad" if audit["alarm"] else "good"
    return f"<p class={kind}><b>{_text(audit['verdict'])}</b></p><p class=soft>{_text(audit.get('words', ''))}</p>"


def _guarantee(certificate: Certificate) -> str:
    stated = certificate.guarantee
    relation = {
        "replace-one": "Exchange any one row for any other row",
        "zero-out": "Take any one row's contribution away",
    }[str(certificate.neighbouring)]
    sentences = [
        f"{relation}: the distribution of the released parameters hardly changes. The unit is {certificate.unit}.",
        f"How the settings were selected: {certificate.selection}.",
    ]
    if "mu" in stated and not isinstance(stated["mu"], str):
        sentences.insert(
            1,
            f"Telling the two cases apart is at least as hard as telling N(0, 1) from N({stated['mu']:.4g}, 1) "
            "from a single draw.",
        )
    if not certificate.randomness.get("secure", False):
        sentences.append("The noise came from a user's seed: whoever knows the seed can remove it. NO protection.")
    items = "".join(f"<li>{_text(text)}</li>" for text in certificate.assumptions)
    return _list(sentences) + f"<p>It rests on:</p><ul>{items}</ul>"


def _json(data: Mapping[str, Any]) -> str:
    shown = json.dumps(_shortened(plain(data)), indent=2)
    return f"<details><summary>Show the JSON (long sequences shortened)</summary><pre>{_text(shown)}</pre></details>"


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > 12:
        return [*map(_shortened, value[:6]), f"… {len(value) - 8} more …", *map(_shortened, value[-2:])]
    return [_shortened(item) for item in value] if isinstance(value, list) else value
