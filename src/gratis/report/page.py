"""One self-contained HTML page about one private model: no scripts, no network, light and dark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gratis.records.assumptions import ASSUMPTIONS, assumption_text
from gratis.records.certificates import Certificate
from gratis.records.record import plain
from gratis.report.style import document, numbers, paragraphs, pictures, section, table, text

__all__ = ["ReportContent", "render_page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """Everything that a page shows; all of it is public or was released."""

    title: str
    subtitle: str
    certificate: Certificate
    numbers: Sequence[tuple[str, str]] = ()
    reasons: Sequence[str] = ()
    alternatives: Sequence[Mapping[str, object]] = ()
    scores: Sequence[tuple[str, str, str]] = ()
    audit: Mapping[str, object] | None = None
    figures: Sequence[tuple[str, bytes]] = field(default=(), repr=False)


def render_page(content: ReportContent) -> str:
    """Return the page as HTML text."""
    certificate = content.certificate
    parts = [
        f"<h1>{text(content.title)}</h1><p class=soft>{text(content.subtitle)}</p>",
        section("In short", numbers(content.numbers)),
        section(
            "The plan, made before the data was touched", paragraphs(content.reasons) + table(content.alternatives)
        ),
        section("Pictures", pictures(content.figures)) if content.figures else "",
        section("Scores", _scores(content.scores)) if content.scores else "",
        section("Audit", _audit(content.audit)) if content.audit else "",
        section("What the guarantee means, and what it rests on", _guarantee(certificate)),
        section("Certificate", _json(certificate.to_json())),
        section(
            "How to cite",
            "<p>The Gratis maintainers, <i>Gratis: private learning in high dimension</i>, version "
            f"{text(certificate.versions.get('gratis', ''))}. The certificate above can be checked by anyone with "
            "<code>gratis certificate verify FILE</code>.</p>",
        ),
    ]
    return document(content.title, parts)


def _scores(scores: Sequence[tuple[str, str, str]]) -> str:
    rows = [{"score": name, "value": value, "where it comes from": origin} for name, value, origin in scores]
    return table(rows)


def _audit(audit: Mapping[str, object]) -> str:
    kind = "bad" if audit["alarm"] else "good"
    return f"<p class={kind}><b>{text(audit['verdict'])}</b></p><p class=soft>{text(audit.get('words', ''))}</p>"


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
    items = "".join(map(_assumption, certificate.assumptions))
    return paragraphs(sentences) + f"<p>It rests on:</p><ul>{items}</ul>"


def _assumption(name: str) -> str:
    known = ASSUMPTIONS.get(name)
    asked = "" if known is None else f" <span class=soft>({text(known.asks)})</span>"
    return f"<li>{text(assumption_text(name))}{asked}</li>"


def _json(data: Mapping[str, object]) -> str:
    shown = json.dumps(_shortened(plain(data)), indent=2, sort_keys=True)
    return f"<details><summary>Show the JSON (long sequences shortened)</summary><pre>{text(shown)}</pre></details>"


def _shortened(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > 12:
        return [*map(_shortened, value[:6]), f"… {len(value) - 8} more …", *map(_shortened, value[-2:])]
    return [_shortened(item) for item in value] if isinstance(value, list) else value
