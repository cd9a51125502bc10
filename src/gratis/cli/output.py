"""What commands print: plain lines for people, one JSON object for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from gratis.specs.certificates import plain

__all__ = ["JSON_OPTION", "emit", "table"]

JSON_OPTION = typer.Option(False, "--json", help="Print one JSON object instead of text.")


def emit(data: Mapping[str, Any], *, as_json: bool, text: str) -> None:
    """Print data as strict JSON, or the text written for people."""
    typer.echo(json.dumps(plain(data), indent=2, allow_nan=False) if as_json else text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a header, columns aligned, as plain text that also reads well in a pipe."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    return "\n".join(line.rstrip() for line in lines)
