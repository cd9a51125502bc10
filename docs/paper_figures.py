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
    from gratis_papers.claim_table import read_figures, without_measurements
    from gratis_papers.findings import CAUSES, find, summary_rows
    from gratis_papers.registry import FIGURES

    folder = Path(config["docs_dir"]) / "papers"
    seeds = folder / "claims.json"  # of `gratis papers claims`, over several seeds
    runs = json.loads(seeds.read_text(encoding="utf-8")) if seeds.is_file() else []
    held = {(run["figure"], run["claim"]): run["holds"] for run in runs}
    parts, everything = [], []
    for found in read_figures(folder):
        name = found["figure"]
        title = FIGURES[name].description if name in FIGURES else name
        lines = [
            f"## {name}: {title}",
            f"![{title}](../papers/{name}.png)",
            "| claim | holds | value | why not; what the bound was |",
            "|---|---|---|---|",
        ]
        for claim in found["claims"]:
            everything.append((name, claim))
            finding = find(name, claim["claim"])
            why = f"{finding.cause}: {finding.because}" if finding.cause and not claim["holds"] else ""
            if finding.first:
                why = "; ".join(filter(None, (why, f"changed after a first run, was: {finding.first}")))
            says = f"{claim['claim']} (the paper: “{claim['words']}”)" if claim.get("words") else claim["claim"]
            holds = "yes" if claim["holds"] else "**no**"
            if len(by_seed := held.get((name, without_measurements(claim["claim"])), {})) > 1:
                holds += f" ({sum(by_seed.values())} of {len(by_seed)} seeds)"
            cells = [says, holds, f"{claim['value']:.4g}", why]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        notes = [f"- {note}" for note in found["notes"]]
        source = (
            f"Scale: {found['scale']}, seed {found['seed']}, {found['seconds']:.0f} s. [Table](../papers/{name}.json)"
        )
        parts.append("\n\n".join([*lines[:2], "\n".join(lines[2:]), "\n".join(notes), source]))
    counted = "\n".join(["| claims | |", "|---|---|", *(f"| {what} | {n} |" for what, n in summary_rows(everything))])
    causes = "\n".join(f"- *{cause}*: {meaning}" for cause, meaning in CAUSES.items())
    return markdown.replace(_MARK, "\n\n".join([counted, causes, *parts]))
