"""Options that say how a table is read, the same in every command that reads one; and the fix of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from gratis.records.errors import GratisError

__all__ = [
    "HASH_OPTION",
    "IGNORE_OPTION",
    "LEVELS_OPTION",
    "NUMERIC_OPTION",
    "PRIVATE_LEVELS_OPTION",
    "SCHEMA_OPTION",
    "declared_levels",
    "listed",
    "whole_command",
]

SCHEMA_OPTION = typer.Option(None, help="JSON file that says how columns are read; see `gratis schema`.")
IGNORE_OPTION = typer.Option("", help="Columns to leave out, separated by commas.")
HASH_OPTION = typer.Option(None, "--hash", help="Hash every text column into so many buckets.")
LEVELS_OPTION = typer.Option([], help="Public levels of a text column: NAME=A,B,C; may be repeated.")
PRIVATE_LEVELS_OPTION = typer.Option("", help="Text columns whose common levels are found within the budget.")
NUMERIC_OPTION = typer.Option(
    "", help="Columns of numbers, separated by commas, also 1.234,56 € or 12%; other cells are missing."
)


@contextmanager
def whole_command(call: typer.Context) -> Iterator[None]:
    """Let a refusal of a table hold the whole command that decides everything, to be copied."""
    from gratis.cli.equivalents import fixed_command
    from gratis.rows.undecided import UndecidedError

    try:
        yield
    except UndecidedError as error:
        error.command = fixed_command(call, error.advice)
        raise


def listed(text: str | None) -> list[str] | None:
    """Names of a list that was typed; None where there is none."""
    from gratis.rows.undecided import names_in

    return None if text is None else names_in(text)


def declared_levels(given: list[str]) -> dict[str, list[str]]:
    """Levels by column, of NAME=A,B,C."""
    found = {}
    for text in given:
        name, sign, levels = text.partition("=")
        if not sign:
            raise GratisError(f"--levels takes NAME=A,B,C, got {text!r}")
        found[name] = listed(levels) or []
    return found
