"""One self-contained HTML page about one private model: no scripts, no network, light and dark, plain sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gratis.records.assumptions import ASSUMPTIONS, assumption_text
from gratis.records.certificates import Certificate, Selection
from gratis.records.record import plain
from gratis.report.style import render

__all__ = ["ReportContent", "assumption_rows", "privacy_sentences", "render_page"]

Row = Mapping[str, object]
Figures = Sequence[tuple[str, bytes]]


_SELECTION = {
    Selection.NONE: "Settings were fixed before the data was touched: choosing them cost nothing.",
    Selection.PUBLIC: "Settings were chosen on public data: choosing them cost nothing.",
    Selection.INCLUDED: "Settings were chosen from earlier releases of the same run; the guarantee includes that.",
    Selection.NOT_COVERED: "Settings were chosen on the private data, and that choice is NOT covered by the guarantee.",
}


def privacy_sentences(certificate: Certificate, *, accuracy: float, detection: float, false_alarms: float) -> list[str]:
    """Say what an attacker can tell at most; the three numbers are proved upper bounds."""
    replaced = str(certificate.neighbouring) == "replace-one"
    whether = "whether it was you or somebody else in your place" if replaced else "whether you were among them"
    guarantee = certificate.guarantee
    sentences = [
        f"Who sees the model and knows the rows of all other people can tell {whether} with at most {_share(accuracy)} "
        "right answers. A coin has 50 %.",
        f"At {_share(false_alarms)} false alarms, such an attacker recognises at most {_share(detection)} of those "
        "who are in the data.",
        f"This is proved, for every attack, now and later, and whatever else is known about you. The unit is "
        f"{certificate.unit}.",
    ]
    if "epsilon" in guarantee and "delta" in guarantee:
        sentences.append(
            f"In the field's words: ({float(guarantee['epsilon']):.4g}, {guarantee['delta']:g})-differential privacy "
            f"under {certificate.neighbouring}"
            + (f", or {float(guarantee['mu']):.4g}-Gaussian differential privacy." if "mu" in guarantee else ".")
        )
    if not replaced:
        sentences.append("To tell you from somebody else in your place is two such steps: the bounds for twice the μ.")
    sentences.append(_SELECTION[certificate.selection])
    sentences.append(
        "What is not protected: what is true of people like you whether or not you take part, and the rows that "
        "predictions are asked for."
    )
    return sentences


def _share(value: float) -> str:
    """A percentage that is never rounded down: whole ones, tenths below ten.

    >>> _share(0.5533), _share(0.0198), _share(0.01)
    ('56 %', '2 %', '1 %')
    """
    digits = 0 if value >= 0.1 else 1
    scaled = 100 * value * 10**digits
    up = -int(-(scaled - 1e-9) // 1)
    return f"{up / 10**digits:g} %"


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
