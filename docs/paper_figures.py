"""Fills the page of the papers' figures from the tables and pictures that `gratis papers run` left in docs/papers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MARK = "<!-- figures -->"


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Called by MkDocs for every page."""
    if _MARK not in markdown:
        return markdown
    from gratis_papers.registry import FIGURES

    folder = Path(config["docs_dir"]) / "papers"
    parts = []
    for table in sorted(folder.glob("*.json")):
        if not table.with_suffix(".png").is_file():
            continue
        found = json.loads(table.read_text(encoding="utf-8"))
        name = found["figure"]
        title = FIGURES[name].description if name in FIGURES else name
        lines = [
            f"## {name}: {title}",
            f"![{title}](../papers/{name}.png)",
            "| claim | holds | value |",
            "|---|---|---|",
        ]
        for claim in found["claims"]:
            words = claim["claim"].replace("|", "\\|")
            lines.append(f"| {words} | {'yes' if claim['holds'] else '**no**'} | {claim['value']:.4g} |")
        notes = [f"- {note}" for note in found["notes"]]
        source = f"Scale: {found['scale']}. [Table](../papers/{name}.json)"
        parts.append("\n\n".join([*lines[:2], "\n".join(lines[2:]), "\n".join(notes), source]))
    return markdown.replace(_MARK, "\n\n".join(parts))
