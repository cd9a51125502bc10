"""`gratis studio`: the page in the browser, on this machine alone."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gratis.cli.output import echo
from gratis.records.extras import missing_extra

if TYPE_CHECKING:
    from gratis.studio.server import Studio

__all__ = ["studio"]


def studio(
    folder: Path = typer.Argument(Path(), help="Tables, ledgers and models below this folder can be used."),
    port: int = typer.Option(0, help="Port on 127.0.0.1; 0 takes a free one."),
    browser: bool = typer.Option(True, help="Open the page in the browser."),
) -> None:
    """Plan, read a table, spend and look at models in the browser. Listens on 127.0.0.1 only; stop with Ctrl-C."""
    try:
        from gratis.studio.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "anyio"):
            raise
        raise missing_extra("the studio needs two more packages", "studio") from None
    door = []

    def announce(found: Studio) -> None:
        echo(f"Gratis studio for {found.folder.root}\n\n  {found.address}\n\nThis address is a key: do not share it.")
        if browser:
            door.append(_open(found.address))

    try:
        found = serve(folder, port=port, announce=announce)
        left = found.runs.running()
    finally:
        for path in door:
            with suppress(OSError):
                path.unlink()
    if left is not None:
        echo(f"The training {left!r} goes on without the studio; its model will be saved.")


def _open(address: str) -> Path:
    """Open the browser on a file of this user's alone that leads on: a command line is seen by all users."""
    import webbrowser

    number, name = tempfile.mkstemp(prefix="gratis-studio-", suffix=".html")  # mode 600
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta charset=utf-8><meta http-equiv=refresh content="0; url={address}">')
    webbrowser.open(Path(name).as_uri())
    return Path(name)
