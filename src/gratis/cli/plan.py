"""`gratis plan`: what privacy will cost, before data is touched."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(help="Plan a private training run from public facts alone.", no_args_is_help=True)
