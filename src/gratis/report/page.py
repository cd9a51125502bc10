"""One self-contained HTML page about one private model: no scripts, no network, light and dark, for two readers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gratis.records.assumptions import ASSUMPTIONS, assumption_text
from gratis.records.certificates import Certificate
from gratis.records.record import plain
from gratis.report.style import render

__all__ = ["ReportContent", "assumption_rows", "render_page"]

Row = Mapping[str, object]
Figures = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContent:
    """Everything that a page shows; all of it is public or was released."""

    title: str
    subtitle: str
    certificate: Certificate
    numbers: Sequence[tuple[str, str]] = ()
    # For the data scientist.
    scores: Sequence[Row] = ()
    coefficients: Sequence[Row] = ()
    learnt: Figures = field(default=(), repr=False)
    learnt_words: Sequence[str] = ()
    columns: Sequence[Row] = ()
    reasons: Sequence[str] = ()
    alternatives: Sequence[Row] = ()
    cost_figures: Figures = field(default=(), repr=False)
    command: str = ""
    python: str = ""
    # For the privacy officer.
    privacy: Sequence[str] = ()
    record: Sequence[tuple[str, str]] = ()
    audit: Row | None = None
    figures: Figures = field(default=(), repr=False)

    @property
    def assumptions(self) -> list[Row]:
        """What the guarantee rests on."""
        return assumption_rows(self.certificate)

    @property
    def warnings(self) -> list[str]:
        """What takes the guarantee away."""
        if self.certificate.randomness.get("secure", False):
            return []
        return ["The noise came from a user's seed: whoever knows the seed can remove it. NO protection."]


def render_page(content: ReportContent) -> str:
    """Return the page as HTML text."""
    certificate = content.certificate
    shown = json.dumps(_shortened(plain(certificate.to_json())), indent=2, sort_keys=True, ensure_ascii=False)
    version = certificate.versions.get("gratis", "")
    return render(
        "report.html", page=content, title=content.title, style="", body="", certificate=shown, version=version
    )


def assumption_rows(certificate: Certificate) -> list[Row]:
    """Every assumption of a certificate: what is assumed, what that means, how to check it."""
    rows: list[Row] = []
    for name in certificate.assumptions:
        known = ASSUMPTIONS.get(name)
        rows.append(
            {
                "it is assumed that": assumption_text(name),
                "that means": known.asks if known else "stated by whoever made this certificate",
                "how to check": (known.check if known else "") or "ask whoever made the file",
            }
        )
    return rows


def _shortened(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > 12:
        return [*map(_shortened, value[:6]), f"… {len(value) - 8} more …", *map(_shortened, value[-2:])]
    return [_shortened(item) for item in value] if isinstance(value, list) else value
