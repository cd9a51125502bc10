"""What commands print: plain lines for people, one JSON object for programs; options that several take."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gratis.records.errors import GratisError
from gratis.records.record import plain

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "DECIMAL_OPTION",
    "ENCODING_OPTION",
    "JSON_OPTION",
    "SEPARATOR_OPTION",
    "echo",
    "emit",
    "messages",
    "numbers",
    "refuse_overwriting",
    "showing",
    "table",
]

JSON_OPTION = typer.Option(False, "--json", help="Print one JSON object instead of text.")


ENCODING_OPTION = typer.Option(None, help="Of a text file: utf-8, latin-1, windows-1252, …; default: from the header.")
SEPARATOR_OPTION = typer.Option(None, help="Of a text file: ',', ';', tab, …; default: from the header.")
DECIMAL_OPTION = typer.Option(None, help="Of numbers in text: '.' or ','; default: by each column's first cells.")


def emit(data: Mapping[str, object], *, as_json: bool, text: str) -> None:
    """Print data as strict JSON, or the text written for people."""
    echo(json.dumps(plain(data), indent=2, allow_nan=False) if as_json else text)


def echo(text: str, *, nl: bool = True) -> bool:
    """Print to the standard output; return False if its reader (`| head`) has gone, which is no failure of ours."""
    try:
        typer.echo(text, nl=nl)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def messages(*, quiet: bool = False) -> Console:
    """Return the console for people, on the standard error; that nobody reads it stops no run."""
    from rich.console import Console

    class Messages(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True

    return Messages(stderr=True, quiet=quiet)


@contextmanager
def showing(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show what is being done and how far it is, on the standard error: also without a terminal, if it takes long."""
    from gratis.records.progress import ProgressLine, following

    if quiet:
        yield
        return
    with ProgressLine(what) as line, following(line):
        yield


def numbers(name: str, text: str) -> list[float]:
    """Read numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise GratisError(f"{name} must be numbers separated by commas, got {text!r}") from None


def refuse_overwriting(output: Path | None, *inputs: Path) -> None:
    """Refuse an output that is one of the files that are read, under whatever name."""
    for path in inputs:
        if output is not None and output.exists() and path.exists() and output.samefile(path):
            raise GratisError(f"the output {str(output)!r} is the file that is read; choose another name")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a header, columns aligned, as plain text that also reads well in a pipe."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    return "\n".join(line.rstrip() for line in lines)
