"""Options of the commands that open a table."""

from __future__ import annotations

import typer

__all__ = ["DECIMAL_OPTION", "ENCODING_OPTION", "SEPARATOR_OPTION"]

ENCODING_OPTION = typer.Option(None, help="Of a text file: utf-8, latin-1, windows-1252, …; default: from the header.")
SEPARATOR_OPTION = typer.Option(None, help="Of a text file: ',', ';', tab, …; default: from the header.")
DECIMAL_OPTION = typer.Option(None, help="Of a text file: '.' or ','; default: what makes the first cells numbers.")
