"""How every page looks: one sheet, no scripts, no network, light and dark, laptop and phone; Jinja escapes all values.

The parts are macros of `templates/parts.html`; here they are functions, for pages that are put together in Python.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["document", "numbers", "paragraphs", "pictures", "render", "section", "table", "text"]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("gratis.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters["base64"] = lambda content: base64.b64encode(content).decode("ascii")
    return made


def render(template: str, **values: Any) -> str:
    """Fill a template of this package."""
    return _environment().get_template(template).render(values)


def document(title: str, parts: Iterable[str], style: str = "") -> str:
    """Return a whole page of parts that are HTML already; `style` adds to the sheet."""
    from markupsafe import Markup

    return render("page.html", title=title, body=Markup("".join(parts)), style=Markup(style))


def text(value: object) -> str:
    """Return the value as text that is safe inside HTML."""
    return html.escape(str(value))


def section(title: str, body: str) -> str:
    """Return a card; `body` is HTML."""
    from markupsafe import Markup

    return _part("section", title, Markup(body))


def numbers(items: Sequence[tuple[str, str]]) -> str:
    """Return (name, value) pairs as large figures."""
    return _part("numbers", items)


def paragraphs(items: Sequence[str]) -> str:
    """Return one paragraph a sentence."""
    return _part("paragraphs", items)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows of equal keys as a table that scrolls on its own."""
    return _part("table", [dict(row) for row in rows])


def pictures(figures: Sequence[tuple[str, bytes]]) -> str:
    """Return (caption, PNG) pairs, embedded."""
    return _part("pictures", figures)


def _part(name: str, *values: Any) -> str:
    made = getattr(_environment().get_template("parts.html").module, name)(*values)
    return "".join([made])  # plain text: adding to it must not escape what it is added to
