"""Records as notebooks show them: a title, facts, sentences. Every value is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["card"]

_CARD = "border-left:3px solid #1f6f8b;padding:.2rem .9rem;margin:.3rem 0;max-width:60rem"


def card(title: str, facts: Iterable[tuple[str, object]], sentences: Sequence[str] = ()) -> str:
    """HTML for `_repr_html_`; it inherits the notebook's colours.

    >>> shown = card("a < b", [("n", 3)], ["So."])
    >>> "<b>a &lt; b</b>" in shown and ">3</td>" in shown and "So.</p>" in shown
    True
    """
    cell = '<td style="text-align:left">{}</td>'
    rows = "".join(f"<tr>{cell.format(escape(name))}{cell.format(escape(_short(value)))}</tr>" for name, value in facts)
    said = "".join(f"<p style='margin:.3rem 0'>{escape(sentence)}</p>" for sentence in sentences)
    return f"<div style='{_CARD}'><b>{escape(title)}</b><table>{rows}</table>{said}</div>"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
